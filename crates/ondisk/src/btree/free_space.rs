//! The free space trees: the same extents, by block and by size.

use super::format::{TreeFormat, lies_in_ag, u32_at};
use super::{BNOBT_MAGIC, CNTBT_MAGIC};
use crate::{AgBlock, AgNumber, Geometry};

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
