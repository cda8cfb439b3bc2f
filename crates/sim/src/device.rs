//! A device in memory whose history can be cut: sparse pages over a shared base, a record of every write and flush, and
//! faults. A range that was never written holds stale bytes, and one that was discarded others.
//!
//! ```text
//! read ──▶ own pages (written here) ──▶ base (shared, never changed) ──▶ stale bytes
//! write ─▶ own pages, and the record; before that the storage below, if there is one
//! ```

use crate::bad_place::{BadPlace, Refused};
use crate::events::Event;
use crate::lower::Lower;
use crate::pages::{PAGE_BYTES, Pages, SECTOR_BYTES, page_of, write_pages};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use xfskit_device::{BlockDevice, Hints};

/// What a discarded range contains.
const DISCARDED: u8 = 0xd5;

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
    lower: Option<Arc<dyn Lower>>,
    supports_fua: bool,
    queue_depth: usize,
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
            state: Mutex::new(State {
                own,
                record: None,
                operations: 0,
                fault: None,
                refused: Refused::default(),
                lower: None,
                supports_fua: false,
                queue_depth: 1,
            }),
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
        let mut state = self.state();
        if let Some(lower) = &state.lower {
            lower.mark(&event);
        }
        if let Some(record) = &mut state.record {
            record.push(event);
        }
    }

    /// From here on the device makes writes durable that ask for it, as one with forced unit access does.
    pub fn write_fua_from_here(&self) {
        self.state().supports_fua = true;
    }

    /// From here on the device says how many requests it wants at a time: more than one where each takes long.
    pub fn want_requests(&self, at_once: usize) {
        self.state().queue_depth = at_once;
    }

    /// From here on, all that is written is also written to `lower`, which lies below this device.
    pub fn lie_on(&self, lower: Arc<dyn Lower>) {
        self.state().lower = Some(lower);
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

    fn write_in(&self, state: &mut State, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset, data.len())?;
        let number = state.operations;
        Self::count(state)?;
        let end = offset + data.len() as u64;
        if let Some(Fault::BadPlace(place)) = state.fault
            && place.refuses_write(offset..end, number)
        {
            state.refused.note_write(data);
            for kept in place.parts_written(offset..end) {
                let part = &data[(kept.start - offset) as usize..(kept.end - offset) as usize];
                self.store(state, kept.start, part);
            }
            return Err(place.error());
        }
        if let Some(lower) = &state.lower {
            lower.write(offset, data)?;
        }
        self.store(state, offset, data);
        Ok(())
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

    fn hints(&self) -> Hints {
        let state = self.state();
        let (supports_fua, queue_depth) = (state.supports_fua, state.queue_depth);
        Hints { supports_fua, queue_depth, ..Hints::of(self) }
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
        self.write_in(&mut self.state(), offset, data)
    }

    /// Writes bytes that no caller wanted, in whole sectors: a device that is told that it need not keep a range may
    /// return anything.
    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.write(offset, &vec![DISCARDED; length as usize])
    }

    fn write_fua(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        self.write_in(&mut state, offset, data)?;
        if let Some(lower) = &state.lower {
            lower.flush()?;
        }
        if let Some(record) = &mut state.record {
            record.push(Event::WriteDurable);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let mut state = self.state();
        Self::count(&mut state)?;
        if let Some(lower) = &state.lower {
            lower.flush()?;
        }
        if let Some(record) = &mut state.record {
            record.push(Event::Flush);
        }
        Ok(())
    }
}
