//! What is remembered of a large directory while its inode is in memory.
//!
//! ```text
//! slots   [ ] [block 8388612 → buffer] [ ] [block 17 → buffer] …    found by a hash of the fork block, newest wins
//! filled  [0, 812) of the data space and [2^23, 2^23 + 40) of the index have no hole
//! room    none of the first 812 data blocks has 56 bytes or more to spare
//! ```
//! An operation on a large directory needs four or five of its blocks. A slot saves the search of the extent map and of
//! the cache's index for each, which grow with the directory; the hints save walks over all of its extents and over its
//! free index.
//!
//! Invariants
//! - A slot names the buffer that a search of the extent map and the cache would find, or one that was evicted since.
//!   Code that unmaps blocks forgets them here ([`DirMemory::forget`]); an evicted buffer is marked.
//! - A hint may claim less than is true, never more.
//! - The memory counts as the buffer cache's. All directories together get a bounded share of it; a directory that
//!   finds the share used up gets no memory.
//!
//! Locking: the inode's lock; the memory is written under the exclusive lock only. A slot does not keep its buffer in
//! the cache.

use crate::buffer::{Buffer, Charge};
use std::ops::Range;
use std::sync::{Arc, Weak};
use xfskit_ondisk::FileBlock;

/// Blocks of the smallest directory of which anything is remembered.
const MIN_BLOCKS: u64 = 8;
/// The largest number of slots, a power of two.
const MAX_SLOTS: u64 = 1024;

#[derive(Clone, Debug, Default)]
struct Slot {
    at: FileBlock,
    buffer: Weak<Buffer>,
}

/// The blocks from `start` to before `end` are mapped without a hole.
#[derive(Clone, Copy, Debug)]
struct MappedRun {
    start: FileBlock,
    end: FileBlock,
}

/// The data blocks below `below` have no unused space of `bytes` bytes.
#[derive(Clone, Copy, Debug)]
struct NoRoom {
    bytes: usize,
    below: u32,
}

/// What is remembered of one directory.
#[derive(Debug)]
pub struct DirMemory {
    slots: Box<[Slot]>,
    filled: [Option<MappedRun>; 2],
    no_room: Option<NoRoom>,
    _charge: Charge,
}

impl DirMemory {
    /// The number of slots for a directory of `blocks` directory blocks; 0 for a small one.
    pub fn slots_for(blocks: u64) -> usize {
        if blocks < MIN_BLOCKS { 0 } else { blocks.min(MAX_SLOTS).next_power_of_two() as usize }
    }

    /// A memory without blocks, with the hints of a smaller one. `charge` covers [`Self::bytes`].
    pub fn new(slots: usize, charge: Charge, smaller: Option<&Self>) -> Self {
        assert!(slots.is_power_of_two(), "slots are found by bits of a hash");
        Self {
            slots: vec![Slot::default(); slots].into_boxed_slice(),
            filled: smaller.map_or([None; 2], |smaller| smaller.filled),
            no_room: smaller.and_then(|smaller| smaller.no_room),
            _charge: charge,
        }
    }

    /// Bytes that a memory of `slots` slots takes, including the remains of evicted buffers that slots still name.
    pub fn bytes(slots: usize) -> usize {
        size_of::<Self>() + slots * (size_of::<Slot>() + size_of::<Buffer>())
    }

    /// The number of slots.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    fn slot_of(&self, at: FileBlock) -> usize {
        // Neighbours get slots of their own (Fibonacci hashing).
        let bits = self.slots.len().trailing_zeros();
        (at.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1 >> (63 - bits)) as usize
    }

    /// The buffer of the directory block at `at`, if it is known and may still be cached.
    pub fn buffer(&self, at: FileBlock) -> Option<Arc<Buffer>> {
        let slot = &self.slots[self.slot_of(at)];
        if slot.at == at { slot.buffer.upgrade() } else { None }
    }

    /// Remembers where the directory block at `at` is.
    pub fn remember(&mut self, at: FileBlock, buffer: &Arc<Buffer>) {
        let slot = self.slot_of(at);
        self.slots[slot] = Slot { at, buffer: Arc::downgrade(buffer) };
    }

    /// Forgets the blocks of `range`, which are not mapped any more, or to another place.
    pub fn forget(&mut self, range: Range<FileBlock>) {
        if range.is_empty() {
            return;
        }
        if range.end.0 - range.start.0 > self.slots.len() as u64 {
            self.slots.fill(Slot::default());
        } else {
            for at in (range.start.0..range.end.0).map(FileBlock) {
                let slot = self.slot_of(at);
                if self.slots[slot].at == at {
                    self.slots[slot] = Slot::default();
                }
            }
        }
        for filled in self.filled.iter_mut().flatten() {
            if range.start < filled.end && range.end > filled.start {
                filled.end = range.start.max(filled.start);
            }
        }
    }

    /// Where a search for a hole behind `start` begins.
    pub fn filled_to(&self, start: FileBlock) -> FileBlock {
        self.filled.iter().flatten().find(|filled| filled.start == start).map_or(start, |filled| filled.end)
    }

    /// Remembers that the blocks from `start` to before `end` have no hole.
    pub fn note_filled(&mut self, start: FileBlock, end: FileBlock) {
        let known = |filled: &Option<MappedRun>| filled.is_none_or(|filled| filled.start == start);
        if let Some(slot) = self.filled.iter_mut().find(|filled| known(filled)) {
            *slot = Some(MappedRun { start, end });
        }
    }

    /// The data block where a search for an unused space of `bytes` bytes begins.
    pub fn room_from(&self, bytes: usize) -> u32 {
        self.no_room.filter(|no_room| bytes >= no_room.bytes).map_or(0, |no_room| no_room.below)
    }

    /// Remembers that no data block below `below` has an unused space of `bytes` bytes.
    pub fn note_no_room(&mut self, bytes: usize, below: u32) {
        self.no_room = Some(NoRoom { bytes, below });
    }

    /// Forgets what is known about unused space.
    pub fn forget_room(&mut self) {
        self.no_room = None;
    }

    /// Notes that the largest unused space of data block `number` is now `bytes`.
    pub fn note_room(&mut self, number: u32, bytes: usize) {
        if let Some(no_room) = &mut self.no_room
            && bytes >= no_room.bytes
        {
            no_room.below = no_room.below.min(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{BufferKey, MemoryUse};
    use xfskit_ondisk::DiskAddress;

    fn memory_use() -> Arc<MemoryUse> {
        Arc::new(MemoryUse::new(1 << 10))
    }

    fn charge(used: &Arc<MemoryUse>, bytes: usize) -> Charge {
        MemoryUse::charge(used, bytes).expect("less than the share of what lies elsewhere")
    }

    fn block(at: u64) -> Arc<Buffer> {
        Arc::new(Buffer::new(BufferKey::new(DiskAddress(at * 8), 4096)))
    }

    #[test]
    fn what_is_unmapped_is_forgotten_and_nothing_else() {
        let used = memory_use();
        let mut memory = DirMemory::new(64, charge(&used, 7), None);
        let blocks: Vec<_> = (0..40).map(block).collect();
        for (at, buffer) in blocks.iter().enumerate() {
            memory.remember(FileBlock(at as u64), buffer);
        }
        let known = |memory: &DirMemory, at: u64| memory.buffer(FileBlock(at)).is_some();
        let before: Vec<_> = (0..40).filter(|&at| known(&memory, at)).collect();
        assert!(before.len() > 30, "neighbours have slots of their own: {before:?}");
        memory.forget(FileBlock(10)..FileBlock(20));
        let after: Vec<_> = (0..40).filter(|&at| known(&memory, at)).collect();
        assert_eq!(after, before.into_iter().filter(|at| !(10..20).contains(at)).collect::<Vec<_>>());
        memory.forget(FileBlock(30)..FileBlock(1 << 40));
        assert!(!known(&memory, 39));
        memory.remember(FileBlock(5), &blocks[6]);
        assert!(Arc::ptr_eq(&memory.buffer(FileBlock(5)).expect("known"), &blocks[6]));
        drop(blocks);
        assert!(!known(&memory, 5), "a slot does not keep its buffer");
        memory.note_filled(FileBlock(0), FileBlock(3));
        memory = DirMemory::new(128, charge(&used, 9), Some(&memory));
        assert_eq!((memory.slots(), memory.filled_to(FileBlock(0)).0), (128, 3));
        assert_eq!(used.bytes(), 9);
        drop(memory);
        assert_eq!(used.bytes(), 0);
    }

    #[test]
    fn hints_claim_less_after_each_change() {
        let mut memory = DirMemory::new(8, charge(&memory_use(), 0), None);
        let (data, index) = (FileBlock(0), FileBlock(1 << 23));
        memory.note_filled(data, FileBlock(100));
        memory.note_filled(index, FileBlock((1 << 23) + 7));
        memory.forget(FileBlock(100)..FileBlock(101));
        memory.forget(FileBlock(50)..FileBlock(50));
        assert_eq!((memory.filled_to(data).0, memory.filled_to(index).0), (100, (1 << 23) + 7));
        memory.forget(FileBlock(60)..FileBlock(62));
        assert_eq!((memory.filled_to(data).0, memory.filled_to(FileBlock(3)).0), (60, 3));

        memory.note_no_room(56, 500);
        assert_eq!((memory.room_from(56), memory.room_from(100), memory.room_from(55)), (500, 500, 0));
        memory.note_room(300, 48);
        memory.note_room(700, 64);
        assert_eq!(memory.room_from(56), 500);
        memory.note_room(300, 56);
        assert_eq!(memory.room_from(56), 300);
        memory.forget_room();
        assert_eq!(memory.room_from(56), 0);
    }
}
