//! Access to a node, in the inode or in a block.

use super::block::{child_entry, insert_entries, remove_entries, set_keys, view};
use super::{BtreeKind, Cursor, KeyOf, Node, NodeEntries};
use crate::error::Result;
use crate::trans::{BufId, Transaction};
use xfskit_ondisk::btree::TreeFormat;

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
