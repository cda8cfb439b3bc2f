//! The free space trees: the same extents, by block and by size.

use super::format::{TreeFormat, lies_in_ag, u32_at};
use super::{BNOBT_MAGIC, CNTBT_MAGIC};
use crate::{AgBlock, AgNumber, Geometry};
use std::fmt::Debug;
use std::marker::PhantomData;

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

/// The order of a free space tree.
pub trait FreeKey: Copy + Ord + Debug {
    /// Name of a block of the tree.
    const BLOCK_NAME: &'static str;
    /// Magic number of a block of the tree.
    const BLOCK_MAGIC: u32;

    /// The key of a record.
    fn of(extent: &FreeExtent) -> Self;

    /// The record that the key was made from: keys and records are the same bytes on disk.
    fn extent(&self) -> FreeExtent;
}

impl FreeKey for BlockKey {
    const BLOCK_NAME: &'static str = "bnobt block";
    const BLOCK_MAGIC: u32 = BNOBT_MAGIC;

    #[inline]
    fn of(extent: &FreeExtent) -> Self {
        Self { start: extent.start, count: extent.count }
    }

    #[inline]
    fn extent(&self) -> FreeExtent {
        FreeExtent { start: self.start, count: self.count }
    }
}

impl FreeKey for SizeKey {
    const BLOCK_NAME: &'static str = "cntbt block";
    const BLOCK_MAGIC: u32 = CNTBT_MAGIC;

    #[inline]
    fn of(extent: &FreeExtent) -> Self {
        Self { count: extent.count, start: extent.start }
    }

    #[inline]
    fn extent(&self) -> FreeExtent {
        FreeExtent { start: self.start, count: self.count }
    }
}

/// A free space tree, in the order of `K`.
#[derive(Debug)]
pub struct FreeSpaceTree<K>(PhantomData<K>);

/// Free space by block.
pub type Bnobt = FreeSpaceTree<BlockKey>;
/// Free space by size.
pub type Cntbt = FreeSpaceTree<SizeKey>;

impl<K: FreeKey + 'static> TreeFormat for FreeSpaceTree<K> {
    type Record = FreeExtent;
    type Key = K;
    const NAME: &'static str = K::BLOCK_NAME;
    const MAGIC: u32 = K::BLOCK_MAGIC;
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
    fn decode_key(bytes: &[u8]) -> K {
        K::of(&FreeExtent::decode(bytes))
    }
    #[inline]
    fn encode_key(key: &K, out: &mut [u8]) {
        key.extent().encode(out);
    }
    #[inline]
    fn key(record: &FreeExtent) -> K {
        K::of(record)
    }
    fn is_sane(geometry: &Geometry, ag: AgNumber, record: &FreeExtent) -> bool {
        lies_in_ag(geometry, ag, record.start.0, record.count)
    }
}
