//! A device in memory whose history can be cut: sparse pages over a shared base, a record of every write and flush, and
//! faults. A range that was never written holds stale bytes.
//!
//! ```text
//! read ──▶ own pages (written here) ──▶ base (shared, never changed) ──▶ stale bytes
//! write ─▶ own pages, and the record
//! ```

use crate::bad_place::{BadPlace, Refused};
use crate::model::NodeId;
use std::io;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use xfskit::hash::NumberMap;
use xfskit_device::BlockDevice;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// The unit that a device writes as a whole.
pub const SECTOR_BYTES: usize = 512;

/// Contents of the device where nothing was written. They are not zeros, so that a read of a block that was never
/// written is noticed.
static STALE: [u8; PAGE_BYTES] = [0xdb; PAGE_BYTES];
/// The shared page of zeros.
static ZEROS: LazyLock<Arc<[u8; PAGE_BYTES]>> = LazyLock::new(|| Arc::new([0; PAGE_BYTES]));

/// Contents by page number; a page that is missing was never written. Pages are shared until one of their owners
/// changes them.
pub type Pages = NumberMap<u64, Arc<[u8; PAGE_BYTES]>>;

/// What happened on a device, and between its operations.
#[derive(Clone, Debug)]
pub enum Event {
    /// Whole sectors were written at an offset.
    Write(u64, Arc<[u8]>),
    /// Everything written before became durable.
    Flush,
    /// Operation number n began.
    Began(usize),
    /// The workload has prepared the image; cuts are made from here on.
    Prepared,
    /// Everything up to operation n, except the contents of files, was acknowledged to be durable.
    Acknowledged(usize),
    /// The contents of one file, or of all if none is named, were acknowledged to be durable as operation n left them.
    Kept(Option<NodeId>, usize, Kept),
}

/// What is durable of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Its contents.
    Contents,
    /// Its contents and its times.
    ContentsAndTimes,
}

/// Copies `bytes` into pages at `offset`.
pub fn write_pages(pages: &mut Pages, base: Option<&Pages>, offset: u64, bytes: &[u8]) {
    let mut at = 0;
    while at < bytes.len() {
        let position = offset + at as u64;
        let (page, within) = (position / PAGE_BYTES as u64, (position % PAGE_BYTES as u64) as usize);
        let count = (PAGE_BYTES - within).min(bytes.len() - at);
        let page = pages
            .entry(page)
            .or_insert_with(|| base.and_then(|base| base.get(&page)).cloned().unwrap_or_else(|| Arc::new(STALE)));
        Arc::make_mut(page)[within..within + count].copy_from_slice(&bytes[at..at + count]);
        at += count;
    }
}

/// Lets pages of zeros share their memory.
pub fn share_zeros(pages: &mut Pages) {
    pages.values_mut().filter(|page| ***page == **ZEROS).for_each(|page| *page = Arc::clone(&ZEROS));
}

/// Whether a page is the shared page of zeros.
pub fn is_shared_zero(page: &Arc<[u8; PAGE_BYTES]>) -> bool {
    Arc::ptr_eq(page, &ZEROS)
}

/// The contents of a page: from `own`, else from `base`, else stale bytes.
pub fn page_of<'a>(own: &'a Pages, base: &'a Pages, page: u64) -> &'a [u8; PAGE_BYTES] {
    own.get(&page).or_else(|| base.get(&page)).map_or(&STALE, AsRef::as_ref)
}

/// What goes wrong on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This write or flush (counted from 0) and all after it fail.
    FailFrom(u64),
    /// Reads see this bit of the device flipped.
    FlipBit(u64),
    /// Reads of the first sector get the contents of the second.
    Misdirect(u64, u64),
    /// One place fails, and all others work.
    BadPlace(BadPlace),
}

struct State {
    own: Pages,
    record: Option<Vec<Event>>,
    operations: u64,
    fault: Option<Fault>,
    refused: Refused,
}

/// The device.
pub struct SimDevice {
    size_bytes: u64,
    base: Arc<Pages>,
    state: Mutex<State>,
}

impl SimDevice {
    /// A device with `own` over `base`.
    pub fn new(size_bytes: u64, base: Arc<Pages>, own: Pages) -> Self {
        Self {
            size_bytes,
            base,
            state: Mutex::new(State { own, record: None, operations: 0, fault: None, refused: Refused::default() }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A run that panicked while it held the lock is over; its contents are still what was written.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Records from here on.
    pub fn start_record(&self) {
        self.state().record = Some(Vec::new());
    }

    /// Ends the record and returns it.
    pub fn take_record(&self) -> Vec<Event> {
        self.state().record.take().unwrap_or_default()
    }

    /// Puts a mark into the record.
    pub fn mark(&self, event: Event) {
        if let Some(record) = &mut self.state().record {
            record.push(event);
        }
    }

    /// Sets what is wrong with the device from here on; `None` if nothing is.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.state().fault = fault;
    }

    /// What is wrong with the device.
    pub fn fault(&self) -> Option<Fault> {
        self.state().fault
    }

    /// What a bad place has refused since the last call.
    pub fn take_refused(&self) -> Refused {
        std::mem::take(&mut self.state().refused)
    }

    /// Writes and flushes so far.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// All contents of the device, which is consumed.
    pub fn into_pages(self) -> Pages {
        let own = self.state.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).own;
        let mut pages = Arc::unwrap_or_clone(self.base);
        pages.extend(own);
        pages
    }

    /// The pages written here, and those below.
    pub fn parts(&self) -> (Pages, Arc<Pages>) {
        (self.state().own.clone(), Arc::clone(&self.base))
    }

    fn check(&self, offset: u64, length: usize) -> io::Result<()> {
        match offset.checked_add(length as u64) {
            Some(end) if end <= self.size_bytes => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("offset {offset} is past the device's end"))),
        }
    }

    fn read_pages(&self, state: &State, offset: u64, buffer: &mut [u8]) {
        let mut at = 0;
        while at < buffer.len() {
            let position = offset + at as u64;
            let (page, within) = (position / PAGE_BYTES as u64, (position % PAGE_BYTES as u64) as usize);
            let count = (PAGE_BYTES - within).min(buffer.len() - at);
            let page = page_of(&state.own, &self.base, page);
            buffer[at..at + count].copy_from_slice(&page[within..within + count]);
            at += count;
        }
    }

    /// Stores and records data that arrives.
    fn store(&self, state: &mut State, offset: u64, data: &[u8]) {
        write_pages(&mut state.own, Some(&self.base), offset, data);
        // A device writes whole sectors.
        let sector = SECTOR_BYTES as u64;
        let (start, end) = (offset / sector * sector, (offset + data.len() as u64).next_multiple_of(sector));
        let written = if end - start == data.len() as u64 {
            data.into()
        } else {
            let mut whole = vec![0; (end - start) as usize];
            self.read_pages(state, start, &mut whole);
            whole.into()
        };
        if let Some(record) = &mut state.record {
            record.push(Event::Write(start, written));
        }
    }

    /// Counts a write or flush; an error when it is one that fails.
    fn count(state: &mut State) -> io::Result<()> {
        let number = state.operations;
        state.operations += 1;
        match state.fault {
            Some(Fault::FailFrom(first)) if number >= first => Err(io::Error::other("the simulated device failed")),
            _ => Ok(()),
        }
    }
}

impl BlockDevice for SimDevice {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.check(offset, buffer.len())?;
        let mut state = self.state();
        let end = offset + buffer.len() as u64;
        if let Some(Fault::BadPlace(place)) = state.fault
            && place.refuses_read(offset..end, state.operations)
        {
            state.refused.reads += 1;
            return Err(place.error());
        }
        self.read_pages(&state, offset, buffer);
        match state.fault {
            Some(Fault::FlipBit(bit)) if (offset..end).contains(&(bit / 8)) => {
                buffer[(bit / 8 - offset) as usize] ^= 1 << (bit % 8);
            }
            Some(Fault::Misdirect(wanted, got)) => {
                let (from, to) = (wanted * SECTOR_BYTES as u64, (wanted + 1) * SECTOR_BYTES as u64);
                let mut sector = [0; SECTOR_BYTES];
                self.read_pages(&state, got * SECTOR_BYTES as u64, &mut sector);
                for position in from.max(offset)..to.min(end) {
                    buffer[(position - offset) as usize] = sector[(position - from) as usize];
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset, data.len())?;
        let mut state = self.state();
        let number = state.operations;
        Self::count(&mut state)?;
        let end = offset + data.len() as u64;
        if let Some(Fault::BadPlace(place)) = state.fault
            && place.refuses_write(offset..end, number)
        {
            state.refused.note_write(data);
            for kept in place.parts_written(offset..end) {
                let part = &data[(kept.start - offset) as usize..(kept.end - offset) as usize];
                self.store(&mut state, kept.start, part);
            }
            return Err(place.error());
        }
        self.store(&mut state, offset, data);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let mut state = self.state();
        Self::count(&mut state)?;
        if let Some(record) = &mut state.record {
            record.push(Event::Flush);
        }
        Ok(())
    }
}
