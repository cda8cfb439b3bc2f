//! Access to the fields of a btree block, and the verifier of all btree blocks.

use super::format::{Columns, TreeFormat};
use super::{LongBlockHeader, ShortBlockHeader};
use crate::ag::MAX_BTREE_LEVELS;
use crate::{AgBlock, AgNumber, DiskAddress, FsBlock, Geometry, NULL_AG_BLOCK, NULL_FS_BLOCK, Verdict, ensure};
use core::marker::PhantomData;
use zerocopy::FromBytes;

/// A block of a tree of form `F`.
///
/// The indexes that its methods take must lie below [`BlockView::count`], and the block must have been verified: then
/// no access leaves the block.
#[derive(Debug)]
pub struct BlockView<'a, F> {
    bytes: &'a [u8],
    format: PhantomData<F>,
}

impl<F> Clone for BlockView<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F> Copy for BlockView<'_, F> {}

impl<'a, F: TreeFormat> BlockView<'a, F> {
    /// A view of `bytes`, which are a whole block.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, format: PhantomData }
    }

    fn u16_at(self, at: usize) -> u16 {
        u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn pointer_at(self, at: usize) -> u64 {
        let bytes = &self.bytes[at..at + F::POINTER_BYTES];
        bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
    }

    /// The level: 0 for a leaf.
    pub fn level(self) -> u16 {
        self.u16_at(4)
    }

    /// Number of records, or of keys and pointers.
    pub fn count(self) -> usize {
        self.u16_at(6).into()
    }

    /// Most records that fit.
    pub fn max_count(self) -> usize {
        F::max_records(self.level(), self.bytes.len())
    }

    /// The arrays of the block.
    pub fn columns(self) -> Columns {
        F::columns(self.level(), self.bytes.len())
    }

    /// The pointer that means "none".
    pub fn null_pointer() -> u64 {
        if F::LONG { NULL_FS_BLOCK.0 } else { NULL_AG_BLOCK.0.into() }
    }

    /// The block to the left.
    pub fn left(self) -> Option<u64> {
        Some(self.pointer_at(8)).filter(|&pointer| pointer != Self::null_pointer())
    }

    /// The block to the right.
    pub fn right(self) -> Option<u64> {
        Some(self.pointer_at(8 + F::POINTER_BYTES)).filter(|&pointer| pointer != Self::null_pointer())
    }

    /// The inode or AG that owns the block.
    pub fn owner(self) -> u64 {
        if F::LONG {
            LongBlockHeader::ref_from_prefix(self.bytes).map_or(0, |(header, _)| header.owner.get())
        } else {
            ShortBlockHeader::ref_from_prefix(self.bytes).map_or(0, |(header, _)| header.owner.get().into())
        }
    }

    /// A record of a leaf.
    pub fn record(self, index: usize) -> F::Record {
        let start = F::HEADER_BYTES + index * F::RECORD_BYTES;
        F::decode_record(&self.bytes[start..start + F::RECORD_BYTES])
    }

    /// The lowest key of a record or child.
    pub fn key(self, index: usize) -> F::Key {
        if self.level() == 0 {
            let start = F::HEADER_BYTES + index * F::RECORD_BYTES;
            return F::record_key(&self.bytes[start..start + F::RECORD_BYTES]);
        }
        let start = F::HEADER_BYTES + index * F::NODE_KEY_BYTES;
        F::decode_key(&self.bytes[start..start + F::KEY_BYTES])
    }

    /// The highest key of a record or child; that of a child is known only where records overlap.
    pub fn high_key(self, index: usize) -> F::Key {
        if self.level() == 0 {
            return F::high_key(&self.record(index));
        }
        if !F::OVERLAPPING {
            return self.key(index);
        }
        let start = F::HEADER_BYTES + index * F::NODE_KEY_BYTES + F::KEY_BYTES;
        F::decode_key(&self.bytes[start..start + F::KEY_BYTES])
    }

    /// A child of a node.
    pub fn pointer(self, index: usize) -> u64 {
        match self.columns() {
            Columns::Leaf(_) => Self::null_pointer(),
            Columns::Node(_, pointers) => self.pointer_at(pointers.range(index, 1).start),
        }
    }

    /// How many of the keys satisfy `before`, which must be true for a prefix of them.
    pub fn partition_point(self, before: impl Fn(&F::Key) -> bool) -> usize {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = usize::midpoint(low, high);
            if before(&self.key(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// The lowest and the highest key in the block, unless it is empty.
    pub fn bounds(self) -> Option<(F::Key, F::Key)> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let high = if F::OVERLAPPING { (0..count).map(|i| self.high_key(i)).max()? } else { self.high_key(count - 1) };
        Some((self.key(0), high))
    }
}

/// Verifies a block of a tree of form `F`: identity, counts, pointers, and the plausibility and order of its records.
///
/// # Errors
/// A corruption of the block. The checksum is not looked at: the caller has verified it.
pub fn verify_block<F: TreeFormat>(geometry: &Geometry, address: DiskAddress, bytes: &[u8]) -> Verdict {
    ensure!(bytes.len() == geometry.block_bytes() && bytes.len() > F::HEADER_BYTES, F::NAME, "whole block");
    let magic = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    ensure!(magic == F::MAGIC, F::NAME, "magic number", "{magic:#010x}");
    let (ag, _) = geometry.block_of_address(address);
    let (uuid, own_address) = identity::<F>(bytes);
    ensure!(uuid == geometry.meta_uuid, F::NAME, "uuid");
    ensure!(own_address == address.0, F::NAME, "own address", "{own_address}");
    let view = BlockView::<F>::new(bytes);
    ensure!(F::LONG || view.owner() == u64::from(ag.0), F::NAME, "own AG number", "{}", view.owner());
    ensure!(u32::from(view.level()) < MAX_BTREE_LEVELS, F::NAME, "level", "{}", view.level());
    ensure!(view.count() <= view.max_count(), F::NAME, "records fit the block", "{}", view.count());
    ensure!(view.level() == 0 || view.count() > 0, F::NAME, "nodes have children");
    for sibling in [view.left(), view.right()].into_iter().flatten() {
        ensure!(pointer_is_sane::<F>(geometry, ag, sibling), F::NAME, "siblings within the device", "{sibling}");
    }
    verify_contents(geometry, ag, view)
}

fn verify_contents<F: TreeFormat>(geometry: &Geometry, ag: AgNumber, view: BlockView<'_, F>) -> Verdict {
    let mut previous: Option<F::Key> = None;
    for index in 0..view.count() {
        if view.level() == 0 {
            let record = view.record(index);
            ensure!(F::is_sane(geometry, ag, &record), F::NAME, "records make sense", "{record:?}");
        } else {
            let child = view.pointer(index);
            ensure!(pointer_is_sane::<F>(geometry, ag, child), F::NAME, "children within the device", "{child}");
        }
        let key = view.key(index);
        ensure!(previous.is_none_or(|previous| previous < key), F::NAME, "records in order", "{previous:?}, {key:?}");
        previous = Some(key);
    }
    Ok(())
}

fn identity<F: TreeFormat>(bytes: &[u8]) -> ([u8; 16], u64) {
    let start = 8 + 2 * F::POINTER_BYTES;
    let mut address = [0; 8];
    address.copy_from_slice(&bytes[start..start + 8]);
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&bytes[start + 16..start + 32]);
    (uuid, u64::from_be_bytes(address))
}

fn pointer_is_sane<F: TreeFormat>(geometry: &Geometry, ag: AgNumber, pointer: u64) -> bool {
    if F::LONG {
        return geometry.split_fs_block(FsBlock(pointer)).is_some();
    }
    u32::try_from(pointer).is_ok_and(|block| block != 0 && geometry.contains(ag, AgBlock(block)))
}
