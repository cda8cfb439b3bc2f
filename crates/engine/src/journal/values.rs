//! Values on their way to their blocks: writes to the data device that must be done before the checkpoint that names
//! them.
//!
//! ```text
//! commit ──▶ waits in memory ──┬── the thread that committed it, once it has released its locks ──▶ on the device
//!                              └── the thread that writes the checkpoint, if that is earlier   ──▶
//! ```
//! Mostly the committing thread is first. Then the bytes are still in its processor's cache, the next value takes the
//! memory of this one, and no more values wait than the callers pass at once. It does not write before its commit
//! because it holds an AG's headers until then, for which other threads wait.
//!
//! Locks: a write's own > the value's; the list's is never held together with them, for commits, which hold AGs, take
//! it. A write's own lock is held while it is written, so the second thread finds it done.
//!
//! Crash behaviour: until the checkpoint is durable the blocks are free as far as the device knows, and they were free
//! in the last durable checkpoint too; so a value may be on the device in part. The thread that writes the checkpoint
//! first makes sure that all its values are written, and flushes them.

use super::data_device::DataDevice;
use crate::counters::Counters;
use crate::error::Result;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::value::ValueBlocks;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A write to the data device that must be done before the checkpoint: blocks of a remote attribute's value.
#[derive(Clone)]
pub struct OrderedWrite {
    /// Byte offset on the data device.
    offset: u64,
    /// Which bytes of the value's blocks go there.
    range: Range<usize>,
    /// `None` once it is written.
    value: Arc<Mutex<Option<Arc<ValueBlocks>>>>,
}

impl OrderedWrite {
    /// A write of some bytes of a value's blocks at `offset` of the data device.
    pub fn new(offset: u64, value: &Arc<ValueBlocks>, range: Range<usize>) -> Self {
        Self { offset, range, value: Arc::new(Mutex::new(Some(Arc::clone(value)))) }
    }

    /// Copies the part of it that overlaps the bytes of the device from `offset` on. Returns where in `out` that is,
    /// `None` if there is no overlap or it is written already.
    pub fn copy_to(&self, offset: u64, out: &mut [u8]) -> Option<Range<usize>> {
        let start = self.offset.max(offset);
        let end = (self.offset + self.range.len() as u64).min(offset + out.len() as u64);
        if start >= end {
            return None;
        }
        let value = self.value.lock();
        let blocks = value.as_ref()?.blocks();
        let part = &blocks[self.range.clone()][(start - self.offset) as usize..(end - self.offset) as usize];
        let range = (start - offset) as usize..(end - offset) as usize;
        out[range.clone()].copy_from_slice(part);
        Some(range)
    }
}

/// The writes that wait.
pub(super) struct Values {
    device: Arc<DataDevice>,
    counters: Arc<Counters>,
    /// By offset, for threads that read the values back before they are written.
    list: Mutex<BTreeMap<u64, OrderedWrite>>,
    /// Bytes that wait, including those of values that were replaced meanwhile.
    bytes: AtomicU64,
    /// The largest value of `bytes` so far.
    peak_bytes: AtomicU64,
}

impl Values {
    pub(super) fn new(device: Arc<DataDevice>, counters: Arc<Counters>) -> Self {
        let (list, bytes, peak_bytes) = Default::default();
        Self { device, counters, list, bytes, peak_bytes }
    }

    /// Adds a write to those that wait.
    pub(super) fn add(&self, write: &OrderedWrite) {
        let length = write.range.len() as u64;
        let waiting = self.bytes.fetch_add(length, Ordering::Relaxed) + length;
        let peak = self.peak_bytes.fetch_max(waiting, Ordering::Relaxed);
        self.counters.value_bytes_waiting_peak.add(waiting.saturating_sub(peak));
        self.list.lock().insert(write.offset, write.clone());
    }

    /// Writes what was added before, unless that is done.
    ///
    /// # Errors
    /// `Io`; the write keeps waiting.
    pub(super) fn write(&self, write: &OrderedWrite) -> Result<()> {
        let mut waiting = write.value.lock();
        let Some(value) = &*waiting else { return Ok(()) };
        // The device is marked as one to flush before another thread finds the value written: the thread that writes
        // the checkpoint then flushes it.
        self.device.write(write.offset, &value.blocks()[write.range.clone()])?;
        let done = waiting.take();
        drop(waiting);
        self.bytes.fetch_sub(write.range.len() as u64, Ordering::Relaxed);
        let mut list = self.list.lock();
        if list.get(&write.offset).is_some_and(|newest| Arc::ptr_eq(&newest.value, &write.value)) {
            list.remove(&write.offset);
        }
        drop((list, done));
        Ok(())
    }

    /// Copies values that wait for the bytes of the device from `offset` on. Returns the parts of `out` that the caller
    /// must read from the device.
    pub(super) fn copy_waiting(&self, offset: u64, out: &mut [u8]) -> SmallVec<[Range<usize>; 1]> {
        let mut gaps = SmallVec::new();
        let mut at = 0;
        for write in self.waiting_within(offset..offset + out.len() as u64) {
            // A value that was written meanwhile is read from the device.
            let Some(copied) = write.copy_to(offset, out) else { continue };
            if copied.start > at {
                gaps.push(at..copied.start);
            }
            at = copied.end;
        }
        if at < out.len() {
            gaps.push(at..out.len());
        }
        gaps
    }

    /// The writes that may reach into a range of the device.
    fn waiting_within(&self, range: Range<u64>) -> SmallVec<[OrderedWrite; 1]> {
        let list = self.list.lock();
        // They do not overlap, so of the writes that begin before the range only the last may reach into it.
        let before = list.range(..=range.start).next_back();
        let behind = list.range(range.start + 1..range.end.max(range.start + 1));
        before.into_iter().chain(behind).map(|(_, write)| write.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_image::TestImage;
    use xfskit_device::BlockDevice;
    use xfskit_ondisk::part_header::PART_HEADER_BYTES;

    /// A value of `count` bytes, the first of which are `first`, `first` + 1 and so on, in one block.
    fn value(first: u8, count: u8) -> Arc<ValueBlocks> {
        let geometry = TestImage::new(64, &[]).mount().geometry.clone();
        let bytes: Vec<u8> = (0..count).map(|i| first + i).collect();
        Arc::new(ValueBlocks::new(&geometry, &bytes))
    }

    /// Where the value lies in its block.
    const VALUE: Range<usize> = PART_HEADER_BYTES..PART_HEADER_BYTES + 50;

    #[test]
    fn of_a_write_the_part_within_a_range_is_found() {
        let write = OrderedWrite::new(100, &value(0, 50), VALUE);
        let part = |offset, length| {
            let mut out = vec![0xff; length];
            write.copy_to(offset, &mut out).map(|range| (range.clone(), out[range.start]))
        };
        assert_eq!(
            [part(100, 50), part(90, 100), part(120, 10)],
            [Some((0..50, 0)), Some((10..60, 0)), Some((0..10, 20))]
        );
        assert_eq!([part(90, 20), part(140, 20)], [Some((10..20, 0)), Some((0..10, 40))]);
        assert_eq!([part(50, 50), part(150, 10), part(0, 10)], [None, None, None]);
    }

    #[test]
    fn what_is_written_once_waits_no_longer_and_is_not_written_again() {
        let device = Arc::new(xfskit_device::MemoryDevice::new(1000));
        let data = Arc::new(DataDevice::new(Arc::clone(&device) as _, Arc::default()));
        let ordered = data.ordered_flag();
        let values = Values::new(data, Arc::default());
        let first = OrderedWrite::new(100, &value(1, 50), VALUE);
        let second = OrderedWrite::new(200, &value(101, 50), VALUE);
        values.add(&first);
        values.add(&second);
        let mut out = [0; 200];
        assert_eq!(values.copy_waiting(80, &mut out)[..], [0..20, 70..120, 170..200]);
        assert_eq!((out[20], out[69], out[120], out[169]), (1, 50, 101, 150));
        values.write(&first).unwrap();
        assert!(ordered.swap(false, Ordering::AcqRel));
        assert_eq!(values.copy_waiting(80, &mut out)[..], [0..120, 170..200]);
        // The block may have another owner by now.
        device.write(100, &[9; 50]).unwrap();
        values.write(&first).unwrap();
        let mut there = [0; 50];
        device.read(100, &mut there).unwrap();
        assert_eq!((there, ordered.load(Ordering::Acquire)), ([9; 50], false));
        values.write(&second).unwrap();
        assert_eq!(values.bytes.load(Ordering::Relaxed), 0);
        assert_eq!(values.counters.value_bytes_waiting_peak.get(), 100);
    }
}
