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
use crate::value::ValueBlocks;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::num::NonZeroU64;
use std::sync::Arc;
use xfskit_ondisk::Lsn;

/// Number of a checkpoint, counted from 1 at each mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct CheckpointSeq(pub u64);

/// The formatted copy of an item: regions of bytes, each of which becomes one operation in the log.
#[derive(Debug, Default, Clone)]
pub struct LogVector {
    /// The bytes of all regions but a long value, each region padded to a multiple of 4.
    bytes: Vec<u8>,
    /// Where each region ends in `bytes`.
    ends: SmallVec<[u32; 4]>,
    /// A value that is not in `bytes`, and its place among the regions.
    value: Option<(u32, Arc<ValueBlocks>)>,
}

/// A copy as an item keeps it: one word when there is none, and it changes hands without being moved.
pub type BoxedVector = Box<LogVector>;

impl LogVector {
    /// Forgets the regions, keeping the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.value = None;
    }

    /// Adds a long value as a region, without copying it. There may be one of them.
    pub fn push_value(&mut self, value: &Arc<ValueBlocks>) {
        assert!(self.value.is_none(), "a copy has one long value at most");
        self.value = Some((self.ends.len() as u32, Arc::clone(value)));
        self.ends.push(self.bytes.len() as u32);
    }

    /// Length of that region.
    pub fn value_bytes(&self) -> usize {
        self.value.as_ref().map_or(0, |(_, value)| value.region_bytes())
    }

    /// Adds a region. Its length in the log is rounded up to 4 with zeros.
    pub fn push(&mut self, region: &[u8]) {
        self.bytes.extend_from_slice(region);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self.ends.push(self.bytes.len() as u32);
    }

    /// Makes room for regions of together `bytes` bytes.
    pub fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// All bytes, for a change in place.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Sets regions of these ends up, each a multiple of 4, and hands out their bytes to be filled.
    pub fn set_up(&mut self, ends: &[u32]) -> &mut [u8] {
        self.clear();
        self.ends.extend_from_slice(ends);
        self.bytes.resize(ends.last().copied().unwrap_or(0) as usize, 0);
        &mut self.bytes
    }

    /// Adds a region of `length` zeros and hands it out to be filled.
    pub fn push_with(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) {
        let start = self.bytes.len();
        self.bytes.resize(start + length.next_multiple_of(4), 0);
        fill(&mut self.bytes[start..start + length]);
        self.ends.push(self.bytes.len() as u32);
    }

    /// The regions in order. A long value is put together for it.
    pub fn regions(&self) -> impl Iterator<Item = Cow<'_, [u8]>> {
        let mut start = 0;
        self.ends.iter().enumerate().map(move |(index, &end)| {
            if let Some((place, value)) = &self.value
                && *place as usize == index
            {
                return Cow::Owned(value.to_region());
            }
            let region = &self.bytes[start..end as usize];
            start = end as usize;
            Cow::Borrowed(region)
        })
    }

    /// How many regions there are.
    pub fn region_count(&self) -> usize {
        self.ends.len()
    }

    /// The memory that it occupies.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.capacity()
    }

    /// Whether there are no regions.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes in the log, with an operation header of 12 bytes for each region.
    pub fn log_bytes(&self) -> usize {
        self.bytes.len() + self.value_bytes() + 12 * self.ends.len()
    }
}

/// An object as the journal sees it: it can be found again, pinned and pushed.
pub trait LogItem: Send + Sync {
    /// The journal's bookkeeping.
    fn state(&self) -> &ItemState;

    /// Which device block write-back of this item touches, so that neighbours are written together. What is nothing but
    /// an item (an intent, a done item, a record) has none.
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
    inner: Mutex<ItemInner>,
}

/// Where the copy of an item is that the gathering checkpoint holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyPlace {
    /// In the item itself.
    #[default]
    Item,
    /// In a shard of the CIL, with the entry of that index.
    Shard {
        /// The shard.
        shard: u16,
        /// The entry.
        entry: u32,
    },
}

/// Where in the AIL an item is, if it is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AilPlace(Option<NonZeroU64>);

impl AilPlace {
    /// The position.
    pub fn get(self) -> Option<Lsn> {
        self.0.map(|lsn| Lsn(lsn.get()))
    }

    /// Moves the item to `lsn`.
    pub fn set(&mut self, lsn: Lsn) {
        // Cycles are counted from 1.
        assert!(lsn.0 != 0, "an item of no checkpoint cannot be in the AIL");
        self.0 = NonZeroU64::new(lsn.0);
    }

    /// Takes the item out; says where it was.
    pub fn take(&mut self) -> Option<Lsn> {
        Self(self.0.take()).get()
    }
}

/// The part of the bookkeeping that changes at commit, checkpoint and write-back.
#[derive(Debug, Default)]
pub struct ItemInner {
    /// The newest checkpoint that gathered the item; 0 for none. It is the gathering one or was written long ago.
    pub in_cil: CheckpointSeq,
    /// Where that checkpoint has its copy, as long as it gathers.
    pub place: CopyPlace,
    /// Bytes of that copy in the log.
    pub copy_bytes: u32,
    /// Checkpoints that hold the item and are not durable.
    pub pins: u32,
    /// The copy itself, unless it has another place. Nothing for ordered items. Apart, since an inode's is nearly
    /// always in a shard, and there are many inodes.
    vector: Option<BoxedVector>,
    /// Position in the AIL.
    pub in_ail: AilPlace,
    /// What was changed since the last write-back: a bit for each 128-byte chunk of a buffer, field bits of an inode.
    pub dirty: DirtyBits,
    /// Counts commits, round and round, so that write-back can tell whether something changed since it copied the
    /// contents.
    pub commits: u32,
    /// The object was made by another item (a new inode chunk's record), which the log must keep until the object is
    /// at home: committing it again does not move it to the head of the log.
    pub keeps_position: bool,
    /// The object was freed: it must not be written back any more.
    pub stale: bool,
    /// A whited-out intent: its done item came in the same checkpoint, so neither is logged.
    pub whiteout: bool,
}

impl ItemInner {
    /// The copy, if the item has it and it is not empty.
    pub fn copy(&self) -> Option<&LogVector> {
        self.vector.as_deref().filter(|copy| !copy.is_empty())
    }

    /// The copy for a change; empty if there was none.
    pub fn copy_mut(&mut self) -> &mut LogVector {
        self.vector.get_or_insert_default()
    }

    /// The dirty bits, and the copy for a change.
    pub fn dirty_and_copy_mut(&mut self) -> (&DirtyBits, &mut LogVector) {
        (&self.dirty, self.vector.get_or_insert_default())
    }

    /// Makes `copy` the copy.
    pub fn set_copy(&mut self, copy: LogVector) {
        *self.copy_mut() = copy;
    }

    /// Takes the copy out, if the item has one.
    pub fn take_copy(&mut self) -> Option<BoxedVector> {
        self.vector.take()
    }

    /// Gives the item an empty vector for its copy, if it has none and there is one.
    pub fn lend(&mut self, spare: impl FnOnce() -> Option<BoxedVector>) {
        if self.vector.is_none() {
            self.vector = spare();
        }
    }

    /// Forgets the copy.
    pub fn clear_copy(&mut self) {
        self.vector = None;
    }

    /// A checkpoint that held the item is durable.
    pub fn unpin(&mut self) {
        assert!(self.pins > 0, "an item was unpinned more often than it was pinned");
        self.pins -= 1;
    }
}

impl ItemState {
    /// Locks the bookkeeping.
    pub fn lock(&self) -> crate::sync::MutexGuard<'_, ItemInner> {
        self.inner.lock()
    }

    /// Whether a checkpoint that is not durable yet holds the item.
    pub fn is_pinned(&self) -> bool {
        self.lock().pins > 0
    }

    /// Whether the object may be dropped from memory: nothing of it waits in the journal or for write-back.
    pub fn is_clean(&self) -> bool {
        let inner = self.lock();
        inner.pins == 0 && inner.in_ail.get().is_none()
    }
}

/// A growable set of bits. The first 64 are enough for most.
#[derive(Debug, Default, Clone)]
pub struct DirtyBits {
    first: u64,
    more: Option<Box<FarBits>>,
}

/// The words behind the first: of a block of more than 8 KiB, which is rare.
#[derive(Debug, Default, Clone)]
struct FarBits {
    words: Vec<u64>,
}

const WORD: usize = 64;

impl DirtyBits {
    /// The bits of a number.
    pub fn of(first: u64) -> Self {
        Self { first, more: None }
    }

    /// Sets the bits of `range`.
    #[inline]
    pub fn set(&mut self, range: std::ops::RangeInclusive<usize>) {
        let (start, end) = range.into_inner();
        if end < WORD {
            self.first |= u64::MAX >> (WORD - 1 - end) & u64::MAX << start;
        } else {
            self.set_far(start, end);
        }
    }

    fn set_far(&mut self, start: usize, end: usize) {
        let more = &mut self.more.get_or_insert_default().words;
        if more.len() < end / WORD {
            more.resize(end / WORD, 0);
        }
        for bit in start..=end {
            let word = if bit < WORD { &mut self.first } else { &mut more[bit / WORD - 1] };
            *word |= 1 << (bit % WORD);
        }
    }

    /// The words behind the first.
    fn more(&self) -> &[u64] {
        self.more.as_deref().map_or(&[], |more| &more.words)
    }

    fn word(&self, index: usize) -> u64 {
        if index == 0 { self.first } else { self.more().get(index - 1).copied().unwrap_or(0) }
    }

    /// Sets every bit that `other` has; says whether there was a new one.
    pub fn merge(&mut self, other: &Self) -> bool {
        let mut grew = other.first & !self.first != 0;
        self.first |= other.first;
        if !other.more().is_empty() {
            let own = &mut self.more.get_or_insert_default().words;
            if own.len() < other.more().len() {
                own.resize(other.more().len(), 0);
            }
            for (word, more) in own.iter_mut().zip(other.more()) {
                grew |= more & !*word != 0;
                *word |= more;
            }
        }
        grew
    }

    /// Clears all bits.
    pub fn clear(&mut self) {
        self.first = 0;
        if let Some(more) = &mut self.more {
            more.words.clear();
        }
    }

    /// Whether no bit is set.
    pub fn is_empty(&self) -> bool {
        self.first == 0 && self.more().iter().all(|&word| word == 0)
    }

    /// Number of set bits.
    pub fn count(&self) -> usize {
        let more: u32 = self.more().iter().map(|word| word.count_ones()).sum();
        (self.first.count_ones() + more) as usize
    }

    /// Number of set bits below `bit`.
    pub fn count_below(&self, bit: usize) -> usize {
        let whole: u32 = (0..bit / WORD).map(|index| self.word(index).count_ones()).sum();
        let part = self.word(bit / WORD) & ((1 << (bit % WORD)) - 1);
        (whole + part.count_ones()) as usize
    }

    /// The lowest 32 bits.
    pub fn low_word(&self) -> u32 {
        self.first as u32
    }

    /// The first bit at or behind `at` that is set, or is not, as `wanted` says.
    fn next(&self, at: usize, wanted: bool) -> usize {
        let words = 1 + self.more().len();
        let mut index = at / WORD;
        let mut mask = u64::MAX << (at % WORD);
        while index < words {
            let word = if wanted { self.word(index) } else { !self.word(index) };
            if word & mask != 0 {
                return index * WORD + (word & mask).trailing_zeros() as usize;
            }
            mask = u64::MAX;
            index += 1;
        }
        if wanted { usize::MAX } else { at.max(words * WORD) }
    }

    /// The runs of set bits among those in `range`.
    #[inline]
    pub fn runs(&self, range: std::ops::Range<usize>) -> impl Iterator<Item = std::ops::Range<usize>> {
        let mut at = range.start;
        // Nearly all sets have no second word.
        let mut only = if self.more().is_empty() { self.first & low_bits(range.end) & !low_bits(at) } else { 0 };
        std::iter::from_fn(move || {
            if self.more().is_empty() {
                let start = only.trailing_zeros() as usize;
                let end = start + (!(only.checked_shr(start as u32)?)).trailing_zeros() as usize;
                only &= !low_bits(end);
                return Some(start..end);
            }
            let start = self.next(at, true);
            if start >= range.end {
                return None;
            }
            at = self.next(start, false).min(range.end);
            Some(start..at)
        })
    }
}

/// A word whose lowest `count` bits are set; all of them for more than it has.
fn low_bits(count: usize) -> u64 {
    if count < WORD { (1 << count) - 1 } else { u64::MAX }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_image::TestImage;

    #[test]
    fn runs_of_dirty_bits_are_found_across_words() {
        let mut bits = DirtyBits::default();
        bits.set(3..=3);
        bits.set(60..=70);
        assert_eq!(bits.runs(0..128).collect::<Vec<_>>(), [3..4, 60..71]);
        assert_eq!(bits.runs(0..65).collect::<Vec<_>>(), [3..4, 60..65]);
        assert_eq!(bits.runs(62..128).next(), Some(62..71));
        assert_eq!((bits.count(), bits.count_below(3), bits.count_below(64), bits.count_below(500)), (12, 0, 5, 12));
        bits.set(500..=511);
        assert_eq!(bits.runs(0..512).collect::<Vec<_>>(), [3..4, 60..71, 500..512]);
        let mut all = DirtyBits::default();
        all.set(0..=63);
        assert_eq!(all.runs(0..64).next(), Some(0..64));
        assert!(all.merge(&bits) && !all.merge(&bits));
    }

    #[test]
    fn a_region_is_padded_to_four_bytes_in_the_log_only() {
        let geometry = TestImage::new(64, &[]).mount().geometry.clone();
        let mut vector = LogVector::default();
        vector.push(b"abcde");
        vector.push(b"xy");
        let regions: Vec<_> = vector.regions().collect();
        assert_eq!(regions, [b"abcde\0\0\0".as_slice(), b"xy\0\0"]);
        assert_eq!(vector.log_bytes(), 12 + 24);
        vector.push_value(&Arc::new(ValueBlocks::new(&geometry, b"12345")));
        vector.push(b"z");
        let regions: Vec<_> = vector.regions().skip(2).collect();
        assert_eq!(regions, [b"12345\0\0\0".as_slice(), b"z\0\0\0"]);
        assert_eq!(vector.log_bytes(), 12 + 24 + 8 + 4 + 24);
    }
}
