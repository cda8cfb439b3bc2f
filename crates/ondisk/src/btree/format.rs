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
//! A node of the rmapbt has two keys for each child, the lowest and the highest, because its records overlap where
//! blocks are shared.
//!
//! Facts: the kernel's `xfs_*_btree.c`.

use super::{
    LONG_CRC_OFFSET, LONG_HEADER_BYTES, LONG_LSN_OFFSET, SHORT_CRC_OFFSET, SHORT_HEADER_BYTES, SHORT_LSN_OFFSET,
};
use crate::{AgNumber, Geometry};
use core::fmt::Debug;

/// The form of one kind of btree.
///
/// The slices that `decode_…` and `encode_…` get have exactly the size that the constants say.
pub trait TreeFormat: 'static {
    /// A record, decoded.
    type Record: Copy + PartialEq + Debug;
    /// The key by which records are found.
    type Key: Copy + Ord + Debug;
    /// The tree's name in messages.
    const NAME: &'static str;
    /// The magic number of its blocks.
    const MAGIC: u32;
    /// Whether blocks belong to a file and have long headers and pointers.
    const LONG: bool = false;
    /// Whether nodes have the highest key of each child too.
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
    /// The key of an encoded record.
    #[inline]
    fn record_key(bytes: &[u8]) -> Self::Key {
        Self::key(&Self::decode_record(bytes))
    }
    /// The highest key that still lies within a record; looked at only where records overlap.
    #[inline]
    fn high_key(record: &Self::Record) -> Self::Key {
        Self::key(record)
    }
    /// Whether what a record describes can exist in `ag`; the tree of a file ignores `ag`.
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
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}

/// Whether `count` blocks from `start` exist in `ag`.
pub(super) fn lies_in_ag(geometry: &Geometry, ag: AgNumber, start: u32, count: u32) -> bool {
    count > 0 && start.checked_add(count).is_some_and(|end| end <= geometry.blocks_in_ag(ag))
}
