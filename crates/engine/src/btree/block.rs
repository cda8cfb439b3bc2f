//! Changes within a block: gaps, copies and headers. Every function logs what it changed and nothing else.

use super::{BtreeKind, Cursor, KeyOf, Node, NodeEntries};
use crate::error::Result;
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

/// Access to a node, in the inode or in a block.
impl<K: BtreeKind> Cursor<K> {
    pub(super) fn count(&self, tx: &Transaction, node: Node) -> usize {
        match node {
            Node::Inline => self.kind.inline_root(tx).keys.len(),
            Node::Block { buffer, .. } => view::<K::Format>(tx, buffer).count(),
        }
    }

    pub(super) fn max_count(&self, tx: &Transaction, node: Node) -> usize {
        match node {
            Node::Inline => self.kind.inline_max(tx),
            Node::Block { buffer, .. } => view::<K::Format>(tx, buffer).max_count(),
        }
    }

    pub(super) fn key(&self, tx: &Transaction, node: Node, index: usize) -> KeyOf<K> {
        match node {
            Node::Inline => self.kind.inline_root(tx).keys[index],
            Node::Block { buffer, .. } => view::<K::Format>(tx, buffer).key(index),
        }
    }

    pub(super) fn high_key(&self, tx: &Transaction, node: Node, index: usize) -> KeyOf<K> {
        match node {
            Node::Inline => self.kind.inline_root(tx).keys[index],
            Node::Block { buffer, .. } => view::<K::Format>(tx, buffer).high_key(index),
        }
    }

    pub(super) fn pointer(&self, tx: &Transaction, node: Node, index: usize) -> u64 {
        match node {
            Node::Inline => self.kind.inline_root(tx).children[index],
            Node::Block { buffer, .. } => view::<K::Format>(tx, buffer).pointer(index),
        }
    }

    /// How many keys of a node satisfy `before`, which holds for a prefix of them.
    pub(super) fn partition_point(&self, tx: &Transaction, node: Node, before: impl Fn(&KeyOf<K>) -> bool) -> usize {
        match node {
            Node::Inline => self.kind.inline_root(tx).keys.partition_point(before),
            Node::Block { buffer, .. } => view::<K::Format>(tx, buffer).partition_point(before),
        }
    }

    /// Sets the keys of a child from the entries of the child. Returns whether they changed.
    pub(super) fn refresh_keys(&mut self, tx: &mut Transaction, node: Node, index: usize, child: BufId) -> bool {
        let Some((low, high)) = view::<K::Format>(tx, child).bounds() else { return false };
        let same_high = !K::Format::OVERLAPPING || self.high_key(tx, node, index) == high;
        if self.key(tx, node, index) == low && same_high {
            return false;
        }
        match node {
            Node::Inline => self.change_inline(tx, |entries| entries.keys[index] = low),
            Node::Block { buffer, .. } => set_keys::<K::Format>(tx, buffer, index, &low, &high),
        }
        true
    }

    /// Inserts a child into a node that has room for it.
    pub(super) fn insert_child(&mut self, tx: &mut Transaction, node: Node, index: usize, pointer: u64, child: BufId) {
        let (low, high) = view::<K::Format>(tx, child).bounds().expect("a new child was given its entries");
        match node {
            Node::Inline => self.change_inline(tx, |entries| {
                entries.keys.insert(index, low);
                entries.children.insert(index, pointer);
            }),
            Node::Block { buffer, .. } => {
                let entry = child_entry::<K::Format>(&low, &high, pointer);
                insert_entries::<K::Format>(tx, buffer, index, &entry);
            }
        }
    }

    /// Removes a child from a node.
    pub(super) fn remove_child(&mut self, tx: &mut Transaction, node: Node, index: usize) {
        match node {
            Node::Inline => self.change_inline(tx, |entries| {
                entries.keys.remove(index);
                entries.children.remove(index);
            }),
            Node::Block { buffer, .. } => remove_entries::<K::Format>(tx, buffer, index..index + 1),
        }
    }

    /// A copy of the root in the inode.
    pub(super) fn inline_entries(&self, tx: &Transaction) -> (u16, NodeEntries<KeyOf<K>>) {
        let root = self.kind.inline_root(tx);
        (root.level, NodeEntries { keys: root.keys.to_vec(), children: root.children.to_vec() })
    }

    fn change_inline(&mut self, tx: &mut Transaction, change: impl FnOnce(&mut NodeEntries<KeyOf<K>>)) {
        let (level, mut entries) = self.inline_entries(tx);
        change(&mut entries);
        self.kind.set_inline_root(tx, level, entries);
    }

    /// Reads a block that is beside one of the path.
    pub(super) fn read_sibling(&self, tx: &mut Transaction, pointer: u64, level: u16) -> Result<BufId> {
        self.read_block(tx, pointer, level)
    }
}
