//! A device that stores writes apart from the image below, so that thousands of trials share one image.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use xfskit_device::{BlockDevice, Hints};

const PAGE: usize = 512;
/// Nothing in an image needs a longer read. A longer one uses a length on disk that was not checked.
const MAX_READ: usize = 4 << 20;

/// Changes over an image that is never changed.
#[derive(Debug)]
pub struct Overlay {
    base: Arc<Vec<u8>>,
    pages: Mutex<HashMap<usize, [u8; PAGE]>>,
    sealed: AtomicBool,
    writes: AtomicU64,
}

impl Overlay {
    /// An overlay without changes.
    pub fn new(base: &Arc<Vec<u8>>) -> Self {
        Self {
            base: Arc::clone(base),
            pages: Mutex::default(),
            sealed: AtomicBool::new(false),
            writes: AtomicU64::new(0),
        }
    }

    /// Changes bytes as damage. This is not counted as a write.
    pub fn patch(&self, offset: usize, bytes: &[u8]) {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let end = self.base.len().min(offset + bytes.len());
        for number in offset / PAGE..end.div_ceil(PAGE) {
            let start = number * PAGE;
            let page = pages.entry(number).or_insert_with(|| {
                let mut page = [0; PAGE];
                page.copy_from_slice(&self.base[start..start + PAGE]);
                page
            });
            let (from, to) = (offset.max(start), end.min(start + PAGE));
            page[from - start..to - start].copy_from_slice(&bytes[from - offset..to - offset]);
        }
    }

    /// The image with all changes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.base.to_vec();
        for (page, contents) in self.pages.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            bytes[page * PAGE..(page + 1) * PAGE].copy_from_slice(contents);
        }
        bytes
    }

    /// Makes every later write panic.
    pub fn seal(&self) {
        self.sealed.store(true, Ordering::Relaxed);
    }

    /// Number of writes so far, without damage.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    fn check(&self, offset: u64, length: usize) -> io::Result<usize> {
        let start = usize::try_from(offset).ok();
        match start.and_then(|start| Some((start, start.checked_add(length)?))) {
            Some((start, end)) if end <= self.base.len() => Ok(start),
            _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "past the end of the image")),
        }
    }
}

impl BlockDevice for Overlay {
    fn size_bytes(&self) -> u64 {
        self.base.len() as u64
    }

    fn hints(&self) -> Hints {
        Hints::of(self)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        assert!(buffer.len() <= MAX_READ, "a read of {} bytes", buffer.len());
        let start = self.check(offset, buffer.len())?;
        let end = start + buffer.len();
        buffer.copy_from_slice(&self.base[start..end]);
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        for number in start / PAGE..end.div_ceil(PAGE) {
            let Some(page) = pages.get(&number) else { continue };
            // A read of a file's contents may begin and end anywhere in a page.
            let (from, to) = (start.max(number * PAGE), end.min((number + 1) * PAGE));
            buffer[from - start..to - start].copy_from_slice(&page[from - number * PAGE..to - number * PAGE]);
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        assert!(!self.sealed.load(Ordering::Relaxed), "a write to an image that must not change");
        let start = self.check(offset, data.len())?;
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.patch(start, data);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
