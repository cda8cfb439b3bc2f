//! Contents in memory that have no place on disk yet.
//!
//! ```text
//! chunk 0                     chunk 7                       a chunk: 64 KiB of the file, or a block if that is larger
//! ├■■■■□□□□...┤               ├□□■■...┤                     ■ dirty block  □ not present
//! ```
//! Invariants: a block is present as a whole or not at all, and takes no memory in the latter case; `paid` counts the
//! blocks for which space was taken from the filesystem's free blocks.
//!
//! Locking: the inode's lock.

use std::collections::BTreeMap;
use std::ops::Range;
use xfskit_ondisk::FileBlock;

const CHUNK_LOG: u8 = 16;

#[derive(Clone, Debug, Default)]
struct Chunk {
    /// Those of the blocks that are present, one behind the other. With places for the others, blocks written here and
    /// there would take many times the memory that they are counted for.
    bytes: Vec<u8>,
    /// Bit maps of the blocks that are present, and of those for which space was taken.
    present: u64,
    paid: u64,
}

impl Chunk {
    /// How many blocks are present before that of an index.
    fn rank(&self, index: usize) -> usize {
        let before = 1u64.checked_shl(index as u32).unwrap_or(0).wrapping_sub(1);
        (self.present & before).count_ones() as usize
    }

    /// Where the bytes of a block are, if it is present.
    fn range(&self, index: usize, block_log: u8) -> Option<Range<usize>> {
        let rank = self.rank(index);
        (self.present >> index & 1 == 1).then(|| rank << block_log..(rank + 1) << block_log)
    }
}

/// Where a dirty block goes when it is written out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockPlace {
    /// To a new block, for which space was taken.
    New,
    /// To the block that is mapped there.
    Mapped,
}

/// Dirty blocks of a file, and the size that the file has with them.
#[derive(Clone, Debug)]
pub struct DirtyBlocks {
    chunks: BTreeMap<u64, Chunk>,
    block_log: u8,
    count: u64,
    paid: u64,
    /// Size of the file in bytes if it is ahead of the inode's core.
    pub size_bytes: Option<u64>,
}

impl DirtyBlocks {
    /// No blocks, of `1 << block_log` bytes each.
    pub fn new(block_log: u8) -> Self {
        Self { chunks: BTreeMap::new(), block_log, count: 0, paid: 0, size_bytes: None }
    }

    fn blocks_per_chunk_log(&self) -> u8 {
        CHUNK_LOG.saturating_sub(self.block_log)
    }

    /// The chunk of a block, and the block's place in it.
    fn place(&self, block: FileBlock) -> (u64, usize) {
        let log = self.blocks_per_chunk_log();
        (block.0 >> log, (block.0 & ((1 << log) - 1)) as usize)
    }

    fn block_bytes(&self) -> usize {
        1 << self.block_log
    }

    /// Number of blocks.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Blocks for which space was taken.
    pub fn paid(&self) -> u64 {
        self.paid
    }

    /// Whether there are neither dirty blocks nor a size that is ahead.
    pub fn is_empty(&self) -> bool {
        self.count == 0 && self.size_bytes.is_none()
    }

    /// The block behind the last one that is present.
    pub fn end(&self) -> FileBlock {
        let log = self.blocks_per_chunk_log();
        let end = |(place, chunk): (&u64, &Chunk)| (place << log) + u64::from(64 - chunk.present.leading_zeros());
        FileBlock(self.chunks.last_key_value().map_or(0, end))
    }

    /// The bytes of a block, if it is present.
    pub fn get(&self, block: FileBlock) -> Option<&[u8]> {
        let (chunk, index) = self.place(block);
        let chunk = self.chunks.get(&chunk)?;
        Some(&chunk.bytes[chunk.range(index, self.block_log)?])
    }

    /// The bytes of a block for a change, if it is present.
    pub fn get_mut(&mut self, block: FileBlock) -> Option<&mut [u8]> {
        let (chunk, index) = self.place(block);
        let log = self.block_log;
        let chunk = self.chunks.get_mut(&chunk)?;
        let range = chunk.range(index, log)?;
        Some(&mut chunk.bytes[range])
    }

    /// Adds a block that is not present: zeros, then `data` from byte `within` on, then zeros.
    pub fn insert(&mut self, block: FileBlock, within: usize, data: &[u8], place: BlockPlace) {
        let (chunk, index) = self.place(block);
        let block_bytes = self.block_bytes();
        let chunk = self.chunks.entry(chunk).or_default();
        assert!(chunk.present >> index & 1 == 0, "a block is inserted once");
        let (start, length) = (chunk.rank(index) << self.block_log, chunk.bytes.len());
        if start == length && within == 0 {
            // Appending, as most writes do, touches the bytes once.
            chunk.bytes.extend_from_slice(data);
            chunk.bytes.resize(start + block_bytes, 0);
        } else {
            chunk.bytes.resize(length + block_bytes, 0);
            chunk.bytes.copy_within(start..length, start + block_bytes);
            let bytes = &mut chunk.bytes[start..start + block_bytes];
            bytes[..within].fill(0);
            bytes[within..within + data.len()].copy_from_slice(data);
            bytes[within + data.len()..].fill(0);
        }
        chunk.present |= 1 << index;
        self.count += 1;
        if place == BlockPlace::New {
            chunk.paid |= 1 << index;
            self.paid += 1;
        }
    }

    /// The first run of blocks at or behind `from`, `most` blocks at most.
    pub fn first_run(&self, from: FileBlock, most: u64) -> Option<Range<u64>> {
        let log = self.blocks_per_chunk_log();
        let per_chunk = 1u64 << log;
        let mut run: Option<Range<u64>> = None;
        for (&place, chunk) in self.chunks.range(from.0 >> log..) {
            let base = place << log;
            let mut index = from.0.saturating_sub(base);
            while index < per_chunk {
                let here = chunk.present >> index & 1 == 1;
                match &mut run {
                    None if here => run = Some(base + index..base + index + 1),
                    Some(run) if here && run.end == base + index && run.end - run.start < most => run.end += 1,
                    Some(_) => return run,
                    None => {}
                }
                index += 1;
            }
        }
        run
    }

    /// The bytes of blocks that are all present, in pieces.
    pub fn pieces(&self, run: Range<u64>) -> impl Iterator<Item = (FileBlock, &[u8])> {
        let log = self.blocks_per_chunk_log();
        let mut at = run.start;
        std::iter::from_fn(move || {
            if at >= run.end {
                return None;
            }
            let (place, index) = self.place(FileBlock(at));
            let end = run.end.min((place + 1) << log);
            let (first, count) = (at, (end - at) as usize);
            at = end;
            let chunk = self.chunks.get(&place)?;
            let rank = chunk.rank(index);
            Some((FileBlock(first), &chunk.bytes[rank << self.block_log..(rank + count) << self.block_log]))
        })
    }

    /// For how many blocks of a run space was taken.
    pub fn paid_in(&self, run: Range<u64>) -> u64 {
        run.filter(|&block| {
            let (place, index) = self.place(FileBlock(block));
            self.chunks.get(&place).is_some_and(|chunk| chunk.paid >> index & 1 == 1)
        })
        .count() as u64
    }

    /// Takes the blocks of a range out. Returns for how many of them space was taken.
    pub fn remove(&mut self, range: Range<u64>) -> u64 {
        let log = self.blocks_per_chunk_log();
        if range.is_empty() {
            return 0;
        }
        let places: Vec<u64> =
            self.chunks.range(range.start >> log..=(range.end - 1) >> log).map(|(at, _)| *at).collect();
        let (mut gone, mut freed) = (0, 0);
        for place in places {
            let base = place << log;
            let Some(chunk) = self.chunks.get_mut(&place) else { continue };
            let first = range.start.saturating_sub(base).min(63) as u32;
            let last = (range.end - base).min(1 << log) as u32;
            let mask = (u64::MAX >> (64 - last)) & (u64::MAX << first);
            gone += u64::from((chunk.present & mask).count_ones());
            freed += u64::from((chunk.paid & mask).count_ones());
            let ranks = [first, last].map(|index| chunk.rank(index as usize) << self.block_log);
            chunk.bytes.drain(ranks[0]..ranks[1]);
            chunk.present &= !mask;
            chunk.paid &= !mask;
            if chunk.present == 0 {
                self.chunks.remove(&place);
            }
        }
        self.count -= gone;
        self.paid -= freed;
        freed
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn blocks_are_found_in_runs_and_leave_in_ranges() {
        let mut dirty = DirtyBlocks::new(12);
        for block in [3, 4, 15, 16, 17, 40] {
            dirty.insert(
                FileBlock(block),
                0,
                &[block as u8; 4096],
                if block == 4 { BlockPlace::Mapped } else { BlockPlace::New },
            );
        }
        dirty.insert(FileBlock(14), 10, b"x", BlockPlace::New);
        assert_eq!((dirty.count(), dirty.paid()), (7, 6));
        assert_eq!(dirty.end(), FileBlock(41));
        assert_eq!(dirty.first_run(FileBlock(0), 100), Some(3..5));
        assert_eq!(dirty.first_run(FileBlock(5), 100), Some(14..18));
        assert_eq!(dirty.first_run(FileBlock(5), 2), Some(14..16));
        assert_eq!(dirty.first_run(FileBlock(41), 2), None);
        let pieces: Vec<_> = dirty.pieces(14..18).map(|(at, bytes)| (at.0, bytes.len())).collect();
        assert_eq!(pieces, [(14, 8192), (16, 8192)]);
        assert_eq!(dirty.get(FileBlock(14)).map(|bytes| (bytes[9], bytes[10], bytes[11])), Some((0, b'x', 0)));
        assert_eq!(dirty.paid_in(3..18), 5);
        assert_eq!(dirty.remove(4..16), 2);
        assert_eq!((dirty.count(), dirty.paid()), (4, 4));
        assert!(dirty.get(FileBlock(15)).is_none());
        let first_byte = |block| dirty.get(FileBlock(block)).map(|bytes| bytes[0]);
        assert_eq!([3, 16, 17, 40].map(first_byte), [3, 16, 17, 40].map(Some));
        assert_eq!(dirty.remove(0..u64::MAX), 4);
        assert!(dirty.is_empty());
    }

    #[test]
    fn blocks_keep_their_bytes_in_whatever_order_they_come_and_go_and_take_no_more_memory() {
        let mut dirty = DirtyBlocks::new(10);
        for block in (0..64).map(|number| number * 29 % 64) {
            dirty.insert(FileBlock(block), 1, &[block as u8 + 1; 1023], BlockPlace::New);
        }
        for block in (0..64).map(|number| number * 37 % 64) {
            let held: usize = dirty.chunks.values().map(|chunk| chunk.bytes.len()).sum();
            assert_eq!(held as u64, dirty.count() << 10);
            let bytes = dirty.get_mut(FileBlock(block)).unwrap();
            assert!(bytes[0] == 0 && bytes[1..].iter().all(|&byte| byte == block as u8 + 1));
            assert_eq!(dirty.remove(block..block + 1), 1);
        }
        assert!(dirty.is_empty());
    }

    #[test]
    fn a_large_block_is_a_chunk_of_its_own() {
        let mut dirty = DirtyBlocks::new(16);
        dirty.insert(FileBlock(1), 0, &[7; 65536], BlockPlace::New);
        dirty.insert(FileBlock(2), 65535, &[8], BlockPlace::New);
        assert_eq!(dirty.first_run(FileBlock(0), 100), Some(1..3));
        assert_eq!(dirty.end(), FileBlock(3));
        assert_eq!(dirty.remove(1..3), 2);
        assert_eq!(dirty.end(), FileBlock(0));
    }
}
