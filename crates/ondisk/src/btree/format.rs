//! What distinguishes one btree from another: sizes, and how records and keys are read, written and compared.
//!
//! ```text
//! tree          record                                key                      order
//! bnobt         start count                           start count              start
//! cntbt         start count                           start count              count, start
//! inobt finobt  first holes count free_count free     first                    first
//! rmapbt        start count owner offset              start owner offset, * 2  start, owner, offset
//! refcountbt    start count references                start                    start
//! bmbt          packed extent                         fork block               fork block
//! ```
//! A node of the rmapbt holds two keys for each child, the lowest and the highest, because its records overlap where
//! blocks are shared.
//!
//! Facts: the kernel's `xfs_*_btree.c`.

use super::{
    BMBT_MAGIC, BNOBT_MAGIC, CNTBT_MAGIC, FINOBT_MAGIC, INOBT_MAGIC, LONG_CRC_OFFSET, LONG_HEADER_BYTES,
    LONG_LSN_OFFSET, REFCOUNTBT_MAGIC, RMAPBT_MAGIC, SHORT_CRC_OFFSET, SHORT_HEADER_BYTES, SHORT_LSN_OFFSET,
    rmap_offset, rmap_owner,
};
use crate::extent::EXTENT_RECORD_BYTES;
use crate::{AgBlock, AgInode, AgNumber, Extent, Geometry};
use core::fmt::Debug;

/// The form of one kind of btree.
///
/// The slices that `decode_…` and `encode_…` get have exactly the size that the constants say.
pub trait TreeFormat: 'static {
    /// A record, decoded.
    type Record: Copy + PartialEq + Debug;
    /// What records are found by.
    type Key: Copy + Ord + Debug;
    /// The tree's name in messages.
    const NAME: &'static str;
    /// The magic number of its blocks.
    const MAGIC: u32;
    /// Whether blocks belong to a file and have long headers and pointers.
    const LONG: bool = false;
    /// Whether nodes hold the highest key of each child too.
    const OVERLAPPING: bool = false;
    /// Size of a record in bytes.
    const RECORD_BYTES: usize;
    /// Size of one key in bytes.
    const KEY_BYTES: usize;

    /// Size of a block's header in bytes.
    const HEADER_BYTES: usize = if Self::LONG { LONG_HEADER_BYTES } else { SHORT_HEADER_BYTES };
    /// Where the checksum of a block stands.
    const CRC_OFFSET: usize = if Self::LONG { LONG_CRC_OFFSET } else { SHORT_CRC_OFFSET };
    /// Where the LSN of a block stands.
    const LSN_OFFSET: usize = if Self::LONG { LONG_LSN_OFFSET } else { SHORT_LSN_OFFSET };
    /// Size of a pointer in bytes.
    const POINTER_BYTES: usize = if Self::LONG { 8 } else { 4 };
    /// Size of all keys of one child in a node, in bytes.
    const NODE_KEY_BYTES: usize = if Self::OVERLAPPING { 2 * Self::KEY_BYTES } else { Self::KEY_BYTES };

    /// Reads a record.
    fn decode_record(bytes: &[u8]) -> Self::Record;
    /// Writes a record.
    fn encode_record(record: &Self::Record, out: &mut [u8]);
    /// Reads a key.
    fn decode_key(bytes: &[u8]) -> Self::Key;
    /// Writes a key.
    fn encode_key(key: &Self::Key, out: &mut [u8]);
    /// The key that a record is found by.
    fn key(record: &Self::Record) -> Self::Key;
    /// The highest key that still lies within a record; looked at only where records overlap.
    #[inline]
    fn high_key(record: &Self::Record) -> Self::Key {
        Self::key(record)
    }
    /// Whether a record describes something that can exist in `ag` (which is meaningless for a file's tree).
    fn is_sane(geometry: &Geometry, ag: AgNumber, record: &Self::Record) -> bool;

    /// Most records of a leaf, or most keys and pointers of a node.
    #[inline]
    fn max_records(level: u16, block_bytes: usize) -> usize {
        let room = block_bytes.saturating_sub(Self::HEADER_BYTES);
        if level == 0 { room / Self::RECORD_BYTES } else { room / (Self::NODE_KEY_BYTES + Self::POINTER_BYTES) }
    }

    /// The arrays that a block consists of after its header.
    #[inline]
    fn columns(level: u16, block_bytes: usize) -> Columns {
        if level == 0 {
            return Columns::Leaf(Column { start: Self::HEADER_BYTES, width: Self::RECORD_BYTES });
        }
        let keys = Column { start: Self::HEADER_BYTES, width: Self::NODE_KEY_BYTES };
        let start = keys.range(0, Self::max_records(level, block_bytes)).end;
        Columns::Node(keys, Column { start, width: Self::POINTER_BYTES })
    }
}

/// An array within a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Where it starts, in bytes.
    pub start: usize,
    /// Size of an element in bytes.
    pub width: usize,
}

impl Column {
    /// The bytes of `count` elements from `first`.
    pub fn range(self, first: usize, count: usize) -> core::ops::Range<usize> {
        let start = self.start + first * self.width;
        start..start + count * self.width
    }
}

/// The arrays of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Columns {
    /// Records.
    Leaf(Column),
    /// Keys and pointers.
    Node(Column, Column),
}

impl Columns {
    /// Each of the arrays.
    pub fn iter(self) -> impl Iterator<Item = Column> {
        let (first, second) = match self {
            Self::Leaf(records) => (records, None),
            Self::Node(keys, pointers) => (keys, Some(pointers)),
        };
        core::iter::once(first).chain(second)
    }
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}

/// Whether `count` blocks from `start` exist in `ag`.
fn lies_in_ag(geometry: &Geometry, ag: AgNumber, start: u32, count: u32) -> bool {
    count > 0 && start.checked_add(count).is_some_and(|end| end <= geometry.blocks_in_ag(ag))
}

/// A run of free blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FreeExtent {
    /// First block.
    pub start: AgBlock,
    /// Number of blocks.
    pub count: u32,
}

impl FreeExtent {
    /// The first block after the run.
    pub fn end(&self) -> u32 {
        self.start.0 + self.count
    }

    fn decode(bytes: &[u8]) -> Self {
        Self { start: AgBlock(u32_at(bytes, 0)), count: u32_at(bytes, 4) }
    }

    fn encode(&self, out: &mut [u8]) {
        out[..4].copy_from_slice(&self.start.0.to_be_bytes());
        out[4..8].copy_from_slice(&self.count.to_be_bytes());
    }
}

/// Key of the free space tree by size: the shortest run first, and the lowest of those.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SizeKey {
    /// Number of blocks.
    pub count: u32,
    /// First block.
    pub start: AgBlock,
}

/// Key of the free space tree by block. The count is carried along and not compared.
#[derive(Clone, Copy, Debug)]
pub struct BlockKey {
    /// First block.
    pub start: AgBlock,
    /// Number of blocks of the record the key was made from.
    pub count: u32,
}

impl PartialEq for BlockKey {
    fn eq(&self, other: &Self) -> bool {
        self.start == other.start
    }
}

impl Eq for BlockKey {}

impl PartialOrd for BlockKey {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for BlockKey {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.start.cmp(&other.start)
    }
}

/// Free space by block.
#[derive(Debug)]
pub struct Bnobt;

impl TreeFormat for Bnobt {
    type Record = FreeExtent;
    type Key = BlockKey;
    const NAME: &'static str = "bnobt block";
    const MAGIC: u32 = BNOBT_MAGIC;
    const RECORD_BYTES: usize = 8;
    const KEY_BYTES: usize = 8;

    #[inline]
    fn decode_record(bytes: &[u8]) -> FreeExtent {
        FreeExtent::decode(bytes)
    }
    #[inline]
    fn encode_record(record: &FreeExtent, out: &mut [u8]) {
        record.encode(out);
    }
    #[inline]
    fn decode_key(bytes: &[u8]) -> BlockKey {
        Self::key(&FreeExtent::decode(bytes))
    }
    #[inline]
    fn encode_key(key: &BlockKey, out: &mut [u8]) {
        FreeExtent { start: key.start, count: key.count }.encode(out);
    }
    #[inline]
    fn key(record: &FreeExtent) -> BlockKey {
        BlockKey { start: record.start, count: record.count }
    }
    fn is_sane(geometry: &Geometry, ag: AgNumber, record: &FreeExtent) -> bool {
        lies_in_ag(geometry, ag, record.start.0, record.count)
    }
}

/// Free space by size.
#[derive(Debug)]
pub struct Cntbt;

impl TreeFormat for Cntbt {
    type Record = FreeExtent;
    type Key = SizeKey;
    const NAME: &'static str = "cntbt block";
    const MAGIC: u32 = CNTBT_MAGIC;
    const RECORD_BYTES: usize = 8;
    const KEY_BYTES: usize = 8;

    #[inline]
    fn decode_record(bytes: &[u8]) -> FreeExtent {
        FreeExtent::decode(bytes)
    }
    #[inline]
    fn encode_record(record: &FreeExtent, out: &mut [u8]) {
        record.encode(out);
    }
    #[inline]
    fn decode_key(bytes: &[u8]) -> SizeKey {
        Self::key(&FreeExtent::decode(bytes))
    }
    #[inline]
    fn encode_key(key: &SizeKey, out: &mut [u8]) {
        FreeExtent { start: key.start, count: key.count }.encode(out);
    }
    #[inline]
    fn key(record: &FreeExtent) -> SizeKey {
        SizeKey { count: record.count, start: record.start }
    }
    fn is_sane(geometry: &Geometry, ag: AgNumber, record: &FreeExtent) -> bool {
        lies_in_ag(geometry, ag, record.start.0, record.count)
    }
}

/// A chunk of 64 inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeChunk {
    /// Its first inode.
    pub first: AgInode,
    /// A bit for every four inodes that do not exist.
    pub hole_mask: u16,
    /// Inodes that exist; 0 on an image without sparse inodes, where all 64 do.
    pub recorded_count: u8,
    /// Free inodes.
    pub free_count: u8,
    /// A bit for every inode that is free or does not exist.
    pub free: u64,
}

impl InodeChunk {
    /// Inodes that exist.
    pub fn inodes(&self) -> u32 {
        if self.recorded_count == 0 { crate::INODES_PER_CHUNK } else { self.recorded_count.into() }
    }

    /// A bit for every inode that does not exist.
    pub fn holes(&self) -> u64 {
        let spread = |bit: u32| if self.hole_mask >> bit & 1 == 1 { 0xfu64 << (4 * bit) } else { 0 };
        (0..16).map(spread).fold(0, |all, four| all | four)
    }

    /// A bit for every inode that exists and is free.
    pub fn allocatable(&self) -> u64 {
        self.free & !self.holes()
    }

    /// The index of `inode` within the chunk, if it may lie in it.
    pub fn index_of(&self, inode: AgInode) -> Option<u32> {
        inode.0.checked_sub(self.first.0).filter(|&index| index < crate::INODES_PER_CHUNK)
    }

    fn decode(bytes: &[u8]) -> Self {
        Self {
            first: AgInode(u32_at(bytes, 0)),
            hole_mask: u16::from_be_bytes([bytes[4], bytes[5]]),
            recorded_count: bytes[6],
            free_count: bytes[7],
            free: u64_at(bytes, 8),
        }
    }

    fn encode(&self, out: &mut [u8]) {
        out[..4].copy_from_slice(&self.first.0.to_be_bytes());
        out[4..6].copy_from_slice(&self.hole_mask.to_be_bytes());
        out[6] = self.recorded_count;
        out[7] = self.free_count;
        out[8..16].copy_from_slice(&self.free.to_be_bytes());
    }

    fn is_sane(&self, geometry: &Geometry, ag: AgNumber) -> bool {
        let last = self.first.0.checked_add(crate::INODES_PER_CHUNK - 1);
        let in_ag = last.is_some_and(|last| geometry.contains(ag, geometry.inode_block(AgInode(last))));
        let exist = crate::INODES_PER_CHUNK - self.holes().count_ones();
        let counted = if geometry.has_sparse_inodes() { self.recorded_count != 0 } else { self.recorded_count == 0 };
        (in_ag || self.hole_mask != 0)
            && last.is_some()
            && counted
            && self.inodes() == exist
            && u32::from(self.free_count) == self.allocatable().count_ones()
            && geometry.contains(ag, geometry.inode_block(self.first))
    }
}

macro_rules! inode_tree {
    ($(#[$doc:meta])* $name:ident, $text:literal, $magic:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;

        impl TreeFormat for $name {
            type Record = InodeChunk;
            type Key = AgInode;
            const NAME: &'static str = $text;
            const MAGIC: u32 = $magic;
            const RECORD_BYTES: usize = 16;
            const KEY_BYTES: usize = 4;

            #[inline]
            fn decode_record(bytes: &[u8]) -> InodeChunk {
                InodeChunk::decode(bytes)
            }
            #[inline]
            fn encode_record(record: &InodeChunk, out: &mut [u8]) {
                record.encode(out);
            }
            #[inline]
            fn decode_key(bytes: &[u8]) -> AgInode {
                AgInode(u32_at(bytes, 0))
            }
            #[inline]
            fn encode_key(key: &AgInode, out: &mut [u8]) {
                out[..4].copy_from_slice(&key.0.to_be_bytes());
            }
            #[inline]
            fn key(record: &InodeChunk) -> AgInode {
                record.first
            }
            fn is_sane(geometry: &Geometry, ag: AgNumber, record: &InodeChunk) -> bool {
                record.is_sane(geometry, ag)
            }
        }
    };
}

inode_tree! {
    /// All inode chunks.
    Inobt, "inobt block", INOBT_MAGIC
}
inode_tree! {
    /// Inode chunks with free inodes.
    Finobt, "finobt block", FINOBT_MAGIC
}

/// Whose a run of blocks is.
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

/// Where a run of blocks stands among the reverse mappings.
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

    /// Whether the offset counts with the blocks: the owner is an inode and the blocks are mapped by its fork.
    pub fn has_offset(&self) -> bool {
        has_offset(self.owner, self.offset)
    }
}

/// Whether mappings of `owner` with these flags have a fork block that counts with the blocks.
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

/// How often a run of blocks is in use.
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

/// A file's extent map.
#[derive(Debug)]
pub struct Bmbt;

impl TreeFormat for Bmbt {
    type Record = Extent;
    type Key = u64;
    const NAME: &'static str = "bmbt block";
    const MAGIC: u32 = BMBT_MAGIC;
    const LONG: bool = true;
    const RECORD_BYTES: usize = EXTENT_RECORD_BYTES;
    const KEY_BYTES: usize = 8;

    #[inline]
    fn decode_record(bytes: &[u8]) -> Extent {
        let mut record = [0; EXTENT_RECORD_BYTES];
        record.copy_from_slice(bytes);
        Extent::decode(&record)
    }
    #[inline]
    fn encode_record(record: &Extent, out: &mut [u8]) {
        out.copy_from_slice(&record.encode());
    }
    #[inline]
    fn decode_key(bytes: &[u8]) -> u64 {
        u64_at(bytes, 0)
    }
    #[inline]
    fn encode_key(key: &u64, out: &mut [u8]) {
        out[..8].copy_from_slice(&key.to_be_bytes());
    }
    #[inline]
    fn key(record: &Extent) -> u64 {
        record.file_block.0
    }
    fn is_sane(geometry: &Geometry, _: AgNumber, record: &Extent) -> bool {
        record.verify(geometry).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparse_chunk_knows_which_inodes_exist() {
        let chunk = InodeChunk { first: AgInode(128), hole_mask: 0xff00, recorded_count: 32, free_count: 31, free: !1 };
        assert_eq!(chunk.holes(), 0xffff_ffff_0000_0000);
        assert_eq!(chunk.allocatable(), 0xffff_fffe);
        let mut bytes = [0; 16];
        Inobt::encode_record(&chunk, &mut bytes);
        assert_eq!(Inobt::decode_record(&bytes), chunk);
    }

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
