//! Changes over a device that is not changed itself.
//!
//! Writes are stored in memory, page by page; everything else is read from the device below. So a read-only user can
//! replay a dirty journal.

use crate::{BlockDevice, Hints};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

const PAGE_BYTES: usize = 4096;

/// A device whose writes stay in memory.
pub struct OverlayDevice {
    below: Arc<dyn BlockDevice>,
    pages: RwLock<HashMap<u64, Box<[u8; PAGE_BYTES]>>>,
    most_pages: usize,
}

impl OverlayDevice {
    /// An overlay without writes. Writes fail once they take more than `most_bytes` of memory.
    pub fn new(below: Arc<dyn BlockDevice>, most_bytes: usize) -> Self {
        Self { below, pages: RwLock::default(), most_pages: most_bytes / PAGE_BYTES }
    }

    /// Bytes of memory that the written pages take.
    pub fn used_bytes(&self) -> usize {
        self.pages.read().len() * PAGE_BYTES
    }

    fn check(&self, offset: u64, length: usize) -> io::Result<()> {
        if offset.checked_add(length as u64).is_none_or(|end| end > self.size_bytes()) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "past the end of the device"));
        }
        Ok(())
    }

    /// The page at `index` of the device below; beyond the end of the device it is zero.
    fn page_below(&self, index: u64) -> io::Result<Box<[u8; PAGE_BYTES]>> {
        let mut page = Box::new([0; PAGE_BYTES]);
        let start = index * PAGE_BYTES as u64;
        let length = (self.size_bytes() - start).min(PAGE_BYTES as u64) as usize;
        self.below.read(start, &mut page[..length])?;
        Ok(page)
    }
}

/// The parts of a range that lie in one page each: the page, where the part starts in it, and the part's position in
/// the range.
fn parts(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let at = offset + done as u64;
        let within = (at % PAGE_BYTES as u64) as usize;
        let count = (PAGE_BYTES - within).min(length - done);
        done += count;
        Some((at / PAGE_BYTES as u64, within, done - count..done))
    })
}

impl BlockDevice for OverlayDevice {
    fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }

    fn hints(&self) -> Hints {
        Hints { identity: Hints::of(self).identity, read_only: false, supports_fua: false, ..self.below.hints() }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.check(offset, buffer.len())?;
        self.below.read(offset, buffer)?;
        let pages = self.pages.read();
        if pages.is_empty() {
            return Ok(());
        }
        for (index, within, range) in parts(offset, buffer.len()) {
            if let Some(page) = pages.get(&index) {
                let length = range.len();
                buffer[range].copy_from_slice(&page[within..within + length]);
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset, data.len())?;
        let mut pages = self.pages.write();
        for (index, within, range) in parts(offset, data.len()) {
            if !pages.contains_key(&index) {
                if pages.len() >= self.most_pages {
                    return Err(io::Error::new(
                        io::ErrorKind::OutOfMemory,
                        "too much was changed to keep it in memory",
                    ));
                }
                pages.insert(index, self.page_below(index)?);
            }
            if let Some(page) = pages.get_mut(&index) {
                page[within..within + range.len()].copy_from_slice(&data[range]);
            }
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    /// What is below stays as it is.
    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.check(offset, length.try_into().unwrap_or(usize::MAX))
    }

    /// There is nothing to set aside: memory is taken page by page, as far as it may.
    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.check(offset, length.try_into().unwrap_or(usize::MAX))
    }

    fn may_hold_data(&self, offset: u64, length: u64) -> bool {
        let first = offset / PAGE_BYTES as u64;
        let end = offset.saturating_add(length).div_ceil(PAGE_BYTES as u64);
        let pages = self.pages.read();
        let changed = match end - first > pages.len() as u64 {
            true => pages.keys().any(|index| (first..end).contains(index)),
            false => (first..end).any(|index| pages.contains_key(&index)),
        };
        changed || self.below.may_hold_data(offset, length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn writes_are_read_back_and_the_device_below_stays_as_it_is() {
        let below = Arc::new(MemoryDevice::from_bytes((0..10_000u32).map(|n| n as u8).collect()));
        let before = below.to_bytes();
        let overlay = OverlayDevice::new(Arc::clone(&below) as _, 3 * PAGE_BYTES);
        overlay.write(4000, &[7; 5000]).unwrap();
        let mut bytes = vec![0; 10_000];
        overlay.read(0, &mut bytes).unwrap();
        assert!(bytes[..4000] == before[..4000] && bytes[9000..] == before[9000..]);
        assert!(bytes[4000..9000].iter().all(|&byte| byte == 7));
        assert_eq!(below.to_bytes(), before);
        assert_eq!(overlay.used_bytes(), 3 * PAGE_BYTES);
        assert!(overlay.write(9999, &[1; 2]).is_err() && overlay.read(9999, &mut [0; 2]).is_err());
    }

    #[test]
    fn what_was_written_is_no_hole_any_more() {
        let holes = sparse(1 << 20);
        let overlay = OverlayDevice::new(holes, 1 << 20);
        assert!(!overlay.may_hold_data(0, 1 << 20));
        overlay.write(9000, &[1]).unwrap();
        for (offset, length, expected) in
            [(0, 1 << 20, true), (9000, 1, true), (8192, 1, true), (0, 8192, false), (12_288, 1 << 19, false)]
        {
            assert_eq!(overlay.may_hold_data(offset, length), expected, "{offset} {length}");
        }
    }

    /// A file that is one hole.
    fn sparse(size_bytes: u64) -> Arc<dyn BlockDevice> {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(size_bytes).unwrap();
        Arc::new(crate::FileDevice::open(file.path(), crate::Access::Read).unwrap())
    }

    #[test]
    fn memory_is_bounded() {
        let overlay = OverlayDevice::new(Arc::new(MemoryDevice::new(1 << 20)), 2 * PAGE_BYTES);
        overlay.write(0, &[1; 2 * PAGE_BYTES]).unwrap();
        assert_eq!(overlay.write(2 * PAGE_BYTES as u64, &[1]).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
    }
}
