//! What the journal keeps about a cached object: the item.
//!
//! An item is a metadata buffer, an inode or an intent as the journal sees it. Its life:
//!
//! ```text
//!  clean ──commit──▶ in the CIL (pinned) ──checkpoint durable──▶ in the AIL ──written back──▶ clean
//!                       ▲      │ commit again: the newer copy replaces the older      │
//!                       └──────┴──────────────────────── commit again ◀───────────────┘
//! ```
//! Invariants: an item is pinned while any checkpoint that holds it is not durable, and a pinned object is never
//! written to its own place; `dirty` describes everything changed since the last write-back, so the newest copy in
//! the log alone is enough to move the item to the head of the log.

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, Ordering};
use smallvec::SmallVec;
use std::sync::Arc;
use xfskit_ondisk::Lsn;

/// Number of a checkpoint, counted from 1 at each mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct CheckpointSeq(pub u64);

/// The formatted copy of an item: regions of bytes, each of which becomes one operation in the log.
#[derive(Debug, Default, Clone)]
pub struct LogVector {
    /// The bytes of all regions, each region padded to a multiple of 4.
    bytes: Vec<u8>,
    /// Where each region ends in `bytes`.
    ends: SmallVec<[u32; 4]>,
}

impl LogVector {
    /// Forgets the regions, keeping the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// An empty vector with room for `bytes` bytes of regions.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ends: SmallVec::new() }
    }

    /// Adds a region. Its length in the log is rounded up to 4 with zeros.
    pub fn push(&mut self, region: &[u8]) {
        self.bytes.extend_from_slice(region);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self.ends.push(self.bytes.len() as u32);
    }

    /// Adds a region of `length` zeros and hands it out to be filled.
    pub fn push_with(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) {
        let start = self.bytes.len();
        self.bytes.resize(start + length.next_multiple_of(4), 0);
        fill(&mut self.bytes[start..start + length]);
        self.ends.push(self.bytes.len() as u32);
    }

    /// The regions in order.
    pub fn regions(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let region = &self.bytes[start..end as usize];
            start = end as usize;
            region
        })
    }

    /// Number of regions.
    pub fn region_count(&self) -> usize {
        self.ends.len()
    }

    /// Bytes in the log, with an operation header of 12 bytes for each region.
    pub fn log_bytes(&self) -> usize {
        self.bytes.len() + 12 * self.ends.len()
    }
}

/// An object as the journal sees it: it can be found again, pinned and pushed.
pub trait LogItem: Send + Sync {
    /// The journal's bookkeeping.
    fn state(&self) -> &ItemState;

    /// Which device block write-back of this item touches, so that neighbours are written together. What is nothing but an
    /// item (an intent, a done item, a record) has none.
    fn home(&self) -> u64 {
        0
    }

    /// For downcasting by write-back, which treats buffers and inodes each in its own way.
    fn as_any(self: Arc<Self>) -> Arc<dyn std::any::Any + Send + Sync>;

    /// Whether this is an intent, for the counters.
    fn is_intent(&self) -> bool {
        false
    }

    /// Whether the item must go home (or wait for its done item) once it is durable. A done item or a record of a new
    /// inode chunk need nothing more.
    fn wants_write_back(&self) -> bool {
        true
    }

    /// Whether recovery must see the item before the others of its checkpoint: it makes blocks over that others change.
    fn goes_first(&self) -> bool {
        false
    }
}

/// The journal's bookkeeping of an item.
#[derive(Debug, Default)]
pub struct ItemState {
    pins: AtomicU32,
    inner: Mutex<ItemInner>,
}

/// The part of the bookkeeping that changes at commit, checkpoint and write-back.
#[derive(Debug, Default)]
pub struct ItemInner {
    /// The checkpoint being gathered that holds the item, with its formatted copy.
    pub in_cil: Option<CheckpointSeq>,
    /// The newest formatted copy, owned by that checkpoint. Empty for ordered items.
    pub vector: LogVector,
    /// Position in the AIL.
    pub in_ail: Option<Lsn>,
    /// What was changed since the last write-back: a bit for each 128-byte chunk of a buffer, field bits of an inode.
    pub dirty: DirtyBits,
    /// Counts commits, so that write-back can tell whether something changed since it copied the contents.
    pub commits: u64,
    /// The object was made by another item (a new inode chunk's record), which the log must keep until the object is
    /// at home: committing it again does not move it to the head of the log.
    pub keeps_position: bool,
    /// The object was freed: it must not be written back any more.
    pub stale: bool,
    /// A whited-out intent: its done item came in the same checkpoint, so neither is logged.
    pub whiteout: bool,
}

impl ItemState {
    /// Locks the bookkeeping.
    pub fn lock(&self) -> crate::sync::MutexGuard<'_, ItemInner> {
        self.inner.lock()
    }

    /// Whether a checkpoint that is not durable yet holds the item.
    pub fn is_pinned(&self) -> bool {
        self.pins.load(Ordering::Acquire) > 0
    }

    /// One more checkpoint holds the item.
    pub fn pin(&self) {
        self.pins.fetch_add(1, Ordering::AcqRel);
    }

    /// A checkpoint that held the item is durable.
    pub fn unpin(&self) {
        let before = self.pins.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "an item was unpinned more often than it was pinned");
    }

    /// Whether the object may be dropped from memory: nothing of it waits in the journal or for write-back.
    pub fn is_clean(&self) -> bool {
        if self.is_pinned() {
            return false;
        }
        let inner = self.lock();
        inner.in_cil.is_none() && inner.in_ail.is_none()
    }
}

/// A growable set of bits.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct DirtyBits {
    words: SmallVec<[u32; 4]>,
}

impl DirtyBits {
    /// Sets the bits of `range`.
    pub fn set(&mut self, range: std::ops::RangeInclusive<usize>) {
        let last = range.end() / 32;
        if self.words.len() <= last {
            self.words.resize(last + 1, 0);
        }
        for bit in range {
            self.words[bit / 32] |= 1 << (bit % 32);
        }
    }

    /// Sets every bit that `other` has.
    pub fn merge(&mut self, other: &Self) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            *word |= more;
        }
    }

    /// Clears all bits.
    pub fn clear(&mut self) {
        self.words.clear();
    }

    /// Whether no bit is set.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// Whether `bit` is set.
    pub fn contains(&self, bit: usize) -> bool {
        self.words.get(bit / 32).is_some_and(|word| word >> (bit % 32) & 1 == 1)
    }

    /// Number of set bits.
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The lowest 32 bits.
    pub fn low_word(&self) -> u32 {
        self.words.first().copied().unwrap_or(0)
    }

    /// The runs of set bits among those below `limit`.
    pub fn runs(&self, limit: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            while at < limit && !self.contains(at) {
                at += 1;
            }
            let start = at;
            while at < limit && self.contains(at) {
                at += 1;
            }
            (start < at).then_some(start..at)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_dirty_bits_are_found_across_words() {
        let mut bits = DirtyBits::default();
        bits.set(3..=3);
        bits.set(30..=40);
        assert_eq!(bits.runs(64).collect::<Vec<_>>(), [3..4, 30..41]);
        assert_eq!(bits.runs(35).collect::<Vec<_>>(), [3..4, 30..35]);
    }

    #[test]
    fn a_region_is_padded_to_four_bytes_in_the_log_only() {
        let mut vector = LogVector::default();
        vector.push(b"abcde");
        vector.push(b"xy");
        let regions: Vec<_> = vector.regions().collect();
        assert_eq!(regions, [b"abcde\0\0\0".as_slice(), b"xy\0\0"]);
        assert_eq!(vector.log_bytes(), 12 + 24);
    }
}
