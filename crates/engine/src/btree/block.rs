//! Changes within a block: gaps, copies and headers. Every function logs what it changed and nothing else.

use super::BtreeKind;
use crate::trans::{BufId, Transaction};
use smallvec::SmallVec;
use std::ops::Range;
use xfskit_ondisk::btree::{BlockView, Columns, LongBlockHeader, ShortBlockHeader, TreeFormat};
use zerocopy::IntoBytes;

/// Offset of the record count in a header.
const COUNT_OFFSET: usize = 6;
/// Offset of the left sibling in a header.
const LEFT_OFFSET: usize = 8;

/// The raw bytes of some entries: for each array of a block, the bytes of the same elements.
pub(super) type Entries = SmallVec<[Vec<u8>; 2]>;

/// A view of the block in `buffer`.
pub(super) fn view<'t, F: TreeFormat>(tx: &'t Transaction<'_>, buffer: BufId) -> BlockView<'t, F> {
    BlockView::new(tx.bytes(buffer))
}

fn set_count<F: TreeFormat>(tx: &mut Transaction, buffer: BufId, count: usize) {
    assert!(count <= view::<F>(tx, buffer).max_count(), "a block holds no more than fits");
    tx.edit(buffer, COUNT_OFFSET..COUNT_OFFSET + 2).copy_from_slice(&(count as u16).to_be_bytes());
}

/// Inserts entries at `at`; those from there on move up.
pub(super) fn insert_entries<F: TreeFormat>(tx: &mut Transaction, buffer: BufId, at: usize, entries: &Entries) {
    let (columns, count) = (view::<F>(tx, buffer).columns(), view::<F>(tx, buffer).count());
    let mut added = 0;
    for (column, bytes) in columns.iter().zip(entries) {
        added = bytes.len() / column.width;
        let moved = column.range(at, count - at);
        let block = tx.unlogged_mut(buffer);
        block.copy_within(moved, column.range(at + added, 0).start);
        block[column.range(at, added)].copy_from_slice(bytes);
        tx.log(buffer, column.range(at, count + added - at));
    }
    set_count::<F>(tx, buffer, count + added);
}

/// Removes the entries of `range`; those behind it move down.
pub(super) fn remove_entries<F: TreeFormat>(tx: &mut Transaction, buffer: BufId, range: Range<usize>) {
    let (columns, count) = (view::<F>(tx, buffer).columns(), view::<F>(tx, buffer).count());
    for column in columns.iter() {
        let moved = column.range(range.end, count - range.end);
        tx.unlogged_mut(buffer).copy_within(moved, column.range(range.start, 0).start);
        tx.log(buffer, column.range(range.start, count - range.end));
    }
    set_count::<F>(tx, buffer, count - range.len());
}

/// Copies the entries of `range` out.
pub(super) fn copy_entries<F: TreeFormat>(tx: &Transaction, buffer: BufId, range: Range<usize>) -> Entries {
    let bytes = tx.bytes(buffer);
    view::<F>(tx, buffer).columns().iter().map(|c| bytes[c.range(range.start, range.len())].to_vec()).collect()
}

/// The bytes of one record.
pub(super) fn record_entry<F: TreeFormat>(record: &F::Record) -> Entries {
    let mut bytes = vec![0; F::RECORD_BYTES];
    F::encode_record(record, &mut bytes);
    std::iter::once(bytes).collect()
}

/// The bytes of one child.
pub(super) fn child_entry<F: TreeFormat>(low: &F::Key, high: &F::Key, pointer: u64) -> Entries {
    let mut keys = vec![0; F::NODE_KEY_BYTES];
    F::encode_key(low, &mut keys[..F::KEY_BYTES]);
    if F::OVERLAPPING {
        F::encode_key(high, &mut keys[F::KEY_BYTES..]);
    }
    [keys, pointer.to_be_bytes()[8 - F::POINTER_BYTES..].to_vec()].into_iter().collect()
}

/// Overwrites a record.
pub(super) fn set_record<F: TreeFormat>(tx: &mut Transaction, buffer: BufId, index: usize, record: &F::Record) {
    if let Columns::Leaf(records) = view::<F>(tx, buffer).columns() {
        F::encode_record(record, tx.edit(buffer, records.range(index, 1)));
    }
}

/// Overwrites the keys of a child.
pub(super) fn set_keys<F: TreeFormat>(tx: &mut Transaction, buffer: BufId, index: usize, low: &F::Key, high: &F::Key) {
    if let Columns::Node(keys, _) = view::<F>(tx, buffer).columns() {
        let bytes = tx.edit(buffer, keys.range(index, 1));
        F::encode_key(low, &mut bytes[..F::KEY_BYTES]);
        if F::OVERLAPPING {
            F::encode_key(high, &mut bytes[F::KEY_BYTES..]);
        }
    }
}

/// Writes the header of a new, empty block.
pub(super) fn write_header<K: BtreeKind>(
    tx: &mut Transaction,
    kind: &K,
    buffer: BufId,
    level: u16,
    left: Option<u64>,
    right: Option<u64>,
) {
    type View<'a, K> = BlockView<'a, <K as BtreeKind>::Format>;
    let null = View::<K>::null_pointer();
    let (left, right) = (left.unwrap_or(null), right.unwrap_or(null));
    let (magic, address, uuid) = (K::Format::MAGIC, tx.address(buffer).0, tx.geometry().meta_uuid);
    let bytes = tx.edit(buffer, 0..K::Format::HEADER_BYTES);
    if K::Format::LONG {
        let header = LongBlockHeader {
            magic: magic.into(),
            level: level.into(),
            records: 0.into(),
            left: left.into(),
            right: right.into(),
            address: address.into(),
            lsn: 0.into(),
            uuid,
            owner: kind.owner().into(),
            crc: [0; 4],
            pad: [0; 4],
        };
        bytes.copy_from_slice(header.as_bytes());
    } else {
        let header = ShortBlockHeader {
            magic: magic.into(),
            level: level.into(),
            records: 0.into(),
            left: (left as u32).into(),
            right: (right as u32).into(),
            address: address.into(),
            lsn: 0.into(),
            uuid,
            owner: (kind.owner() as u32).into(),
            crc: [0; 4],
        };
        bytes.copy_from_slice(header.as_bytes());
    }
}

fn set_pointer_at<F: TreeFormat>(tx: &mut Transaction, buffer: BufId, at: usize, pointer: Option<u64>) {
    let pointer = pointer.unwrap_or(BlockView::<F>::null_pointer());
    let bytes = tx.edit(buffer, at..at + F::POINTER_BYTES);
    bytes.copy_from_slice(&pointer.to_be_bytes()[8 - F::POINTER_BYTES..]);
}

/// Sets the block to the left.
pub(super) fn set_left<F: TreeFormat>(tx: &mut Transaction, buffer: BufId, pointer: Option<u64>) {
    set_pointer_at::<F>(tx, buffer, LEFT_OFFSET, pointer);
}

/// Sets the block to the right.
pub(super) fn set_right<F: TreeFormat>(tx: &mut Transaction, buffer: BufId, pointer: Option<u64>) {
    set_pointer_at::<F>(tx, buffer, LEFT_OFFSET + F::POINTER_BYTES, pointer);
}
