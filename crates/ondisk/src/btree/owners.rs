//! The trees of owners and references of blocks: reverse mappings and reference counts.

use super::format::{TreeFormat, lies_in_ag, u32_at, u64_at};
use super::{REFCOUNTBT_MAGIC, RMAPBT_MAGIC, rmap_offset, rmap_owner};
use crate::{AgBlock, AgNumber, Geometry};

/// A run of blocks and its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rmap {
    /// First block.
    pub start: AgBlock,
    /// Number of blocks.
    pub count: u32,
    /// Inode, or one of [`rmap_owner`].
    pub owner: u64,
    /// Fork block, with the flags of [`rmap_offset`].
    pub offset: u64,
}

/// Key of the reverse mapping tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RmapOrder {
    /// Block.
    pub start: AgBlock,
    /// Owner.
    pub owner: u64,
    /// Fork block with its flags, but not whether it is unwritten.
    pub offset: u64,
}

impl Rmap {
    /// The first block after the run.
    pub fn end(&self) -> u32 {
        self.start.0 + self.count
    }

    /// Whether the offset advances with the blocks: the owner is an inode and the blocks are mapped by its fork.
    pub fn has_offset(&self) -> bool {
        has_offset(self.owner, self.offset)
    }
}

/// Whether mappings of `owner` with these flags have a fork block that advances with the blocks.
#[inline]
fn has_offset(owner: u64, offset: u64) -> bool {
    // The owners that are not inodes are negative numbers.
    owner >> 63 == 0 && offset & rmap_offset::BMBT_BLOCK == 0
}

/// Reverse mappings.
#[derive(Debug)]
pub struct Rmapbt;

impl TreeFormat for Rmapbt {
    type Record = Rmap;
    type Key = RmapOrder;
    const NAME: &'static str = "rmapbt block";
    const MAGIC: u32 = RMAPBT_MAGIC;
    const OVERLAPPING: bool = true;
    const RECORD_BYTES: usize = 24;
    const KEY_BYTES: usize = 20;

    #[inline]
    fn decode_record(bytes: &[u8]) -> Rmap {
        Rmap {
            start: AgBlock(u32_at(bytes, 0)),
            count: u32_at(bytes, 4),
            owner: u64_at(bytes, 8),
            offset: u64_at(bytes, 16),
        }
    }
    #[inline]
    fn encode_record(record: &Rmap, out: &mut [u8]) {
        out[..4].copy_from_slice(&record.start.0.to_be_bytes());
        out[4..8].copy_from_slice(&record.count.to_be_bytes());
        out[8..16].copy_from_slice(&record.owner.to_be_bytes());
        out[16..24].copy_from_slice(&record.offset.to_be_bytes());
    }
    #[inline]
    fn decode_key(bytes: &[u8]) -> RmapOrder {
        RmapOrder {
            start: AgBlock(u32_at(bytes, 0)),
            owner: u64_at(bytes, 4),
            offset: u64_at(bytes, 12) & !rmap_offset::UNWRITTEN,
        }
    }
    #[inline]
    fn encode_key(key: &RmapOrder, out: &mut [u8]) {
        out[..4].copy_from_slice(&key.start.0.to_be_bytes());
        out[4..12].copy_from_slice(&key.owner.to_be_bytes());
        out[12..20].copy_from_slice(&key.offset.to_be_bytes());
    }
    #[inline]
    fn key(record: &Rmap) -> RmapOrder {
        RmapOrder { start: record.start, owner: record.owner, offset: record.offset & !rmap_offset::UNWRITTEN }
    }
    #[inline]
    fn high_key(record: &Rmap) -> RmapOrder {
        let mut key = Self::key(record);
        key.start.0 += record.count - 1;
        if record.has_offset() {
            key.offset += u64::from(record.count - 1);
        }
        key
    }
    fn is_sane(geometry: &Geometry, ag: AgNumber, record: &Rmap) -> bool {
        let block = record.offset & rmap_offset::MASK;
        let owned = if record.owner >> 63 == 0 { record.owner != 0 } else { record.owner >= rmap_owner::COW };
        lies_in_ag(geometry, ag, record.start.0, record.count)
            && owned
            && record.owner != rmap_owner::NULL
            && block + u64::from(record.count - 1) <= rmap_offset::MASK
    }
}

/// A run of blocks and the number of references to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refcount {
    /// First block; [`REFCOUNT_COW`] marks blocks staged for copy on write.
    pub start: u32,
    /// Number of blocks.
    pub count: u32,
    /// References.
    pub references: u32,
}

/// The bit of a [`Refcount`]'s start that marks blocks staged for copy on write.
pub const REFCOUNT_COW: u32 = 1 << 31;

/// Reference counts.
#[derive(Debug)]
pub struct Refcountbt;

impl TreeFormat for Refcountbt {
    type Record = Refcount;
    type Key = u32;
    const NAME: &'static str = "refcountbt block";
    const MAGIC: u32 = REFCOUNTBT_MAGIC;
    const RECORD_BYTES: usize = 12;
    const KEY_BYTES: usize = 4;

    #[inline]
    fn decode_record(bytes: &[u8]) -> Refcount {
        Refcount { start: u32_at(bytes, 0), count: u32_at(bytes, 4), references: u32_at(bytes, 8) }
    }
    #[inline]
    fn encode_record(record: &Refcount, out: &mut [u8]) {
        out[..4].copy_from_slice(&record.start.to_be_bytes());
        out[4..8].copy_from_slice(&record.count.to_be_bytes());
        out[8..12].copy_from_slice(&record.references.to_be_bytes());
    }
    #[inline]
    fn decode_key(bytes: &[u8]) -> u32 {
        u32_at(bytes, 0)
    }
    #[inline]
    fn encode_key(key: &u32, out: &mut [u8]) {
        out[..4].copy_from_slice(&key.to_be_bytes());
    }
    #[inline]
    fn key(record: &Refcount) -> u32 {
        record.start
    }
    fn is_sane(geometry: &Geometry, ag: AgNumber, record: &Refcount) -> bool {
        lies_in_ag(geometry, ag, record.start & !REFCOUNT_COW, record.count) && record.references > 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::Columns;
    use super::*;

    #[test]
    fn the_high_key_of_a_mapping_counts_the_offset_of_forks_only() {
        let data = Rmap { start: AgBlock(10), count: 4, owner: 131, offset: 7 | rmap_offset::UNWRITTEN };
        assert_eq!(Rmapbt::high_key(&data), RmapOrder { start: AgBlock(13), owner: 131, offset: 10 });
        let chunk = Rmap { start: AgBlock(10), count: 4, owner: rmap_owner::INODES, offset: 0 };
        assert_eq!(Rmapbt::high_key(&chunk), RmapOrder { start: AgBlock(13), owner: rmap_owner::INODES, offset: 0 });
    }

    #[test]
    fn the_pointers_of_a_node_follow_the_room_for_its_keys() {
        let Columns::Node(keys, pointers) = Rmapbt::columns(1, 1024) else { panic!("a node") };
        assert_eq!((keys.start, keys.width, pointers.start, pointers.width), (56, 40, 56 + 22 * 40, 4));
    }
}
