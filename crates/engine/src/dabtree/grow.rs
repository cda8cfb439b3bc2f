//! Adding blocks to the tree: a new leaf beside another, splits of nodes, and a new root.

use super::edit::edit;
use super::{DA_NODE_KIND, DaTree, Path, PathLevel, is_node};
use crate::error::Result;
use crate::error_tags::{ATTR_LEAF_TO_NODE, DA_LEAF_SPLIT};
use crate::trans::{BufId, Transaction};
use xfskit_ondisk::da::{
    DA_NODE_HEADER_BYTES, DA_NODE_MAGIC, DaInfo, DaNodeEntry, DaNodeHeader, last_hash, node_capacity, node_entries,
};
use zerocopy::IntoBytes;
use zerocopy::big_endian::{U16, U32};

const ENTRY_BYTES: usize = size_of::<DaNodeEntry>();

impl DaTree {
    /// Moves the root's contents to a new block below it, so that there is a node above every block that may split.
    /// The path gains a step.
    pub fn push_down_root(&self, tx: &mut Transaction, path: &mut Path) -> Result<()> {
        tx.mount().error_tags.fail(ATTR_LEAF_TO_NODE)?;
        let root = path.levels[0];
        let kind = tx.kind(root.id);
        let level = if is_node(tx, root.id) { tx.get_as::<DaNodeHeader>(root.id, 0).level.get() } else { 0 };
        let (block, id) = self.allocate(tx, kind)?;
        let contents = tx.bytes(root.id).to_vec();
        let hash = last_hash(&contents);
        let address = tx.address(id);
        let copy = tx.edit_all(id);
        copy.copy_from_slice(&contents);
        DaInfo::of_mut(copy).address.set(address.0);
        tx.set_kind(root.id, &DA_NODE_KIND);
        self.write_node(tx, root.id, level + 1, &[DaNodeEntry { hash: U32::new(hash), child: U32::new(block) }]);
        path.levels[0] = PathLevel { block, id, index: root.index };
        path.levels.insert(0, PathLevel { index: 0, ..root });
        Ok(())
    }

    /// Writes a node without neighbours.
    fn write_node(&self, tx: &mut Transaction, id: BufId, level: u16, entries: &[DaNodeEntry]) {
        let address = tx.address(id);
        let info = DaInfo::new(tx.geometry(), DA_NODE_MAGIC, self.owner(tx), address);
        let header =
            DaNodeHeader { info, count: U16::new(entries.len() as u16), level: U16::new(level), pad: U32::ZERO };
        edit(tx, id, |e| {
            e.put(0, header.as_bytes());
            e.put(DA_NODE_HEADER_BYTES, entries.as_bytes());
        });
    }

    /// Puts the block of `right` behind that of `left` in the list of their level.
    pub fn link_after(&self, tx: &mut Transaction, left: PathLevel, right: (u32, BufId)) -> Result<()> {
        tx.mount().error_tags.fail(DA_LEAF_SPLIT)?;
        let next = DaInfo::of(tx.bytes(left.id)).next.get();
        if next != 0 {
            let id = self.read(tx, next)?;
            let back = DaInfo::of(tx.bytes(id)).previous.get();
            ensure_on_disk!(back == left.block, "da block", "neighbours know each other", "{back} and {}", left.block);
            tx.edit_as::<DaInfo>(id, 0).previous.set(right.0);
        }
        tx.edit_as::<DaInfo>(left.id, 0).next.set(right.0);
        let info = tx.edit_as::<DaInfo>(right.1, 0);
        info.next.set(next);
        info.previous.set(left.block);
        Ok(())
    }

    /// Names the block `block`, with the greatest hash `hash`, in the nodes above: it stands to the right of the path's
    /// leaf, whose greatest hash is `left_hash` now. Both are linked already, and a node stands above (see
    /// [`Self::push_down_root`]). The path is of no more use afterwards.
    pub fn add_block(&self, tx: &mut Transaction, mut path: Path, left_hash: u32, block: u32, hash: u32) -> Result<()> {
        assert!(!path.is_single_leaf(), "a leaf splits only below a node");
        let mut below = path.levels.len() - 1;
        let mut left_hash = left_hash;
        let mut new = DaNodeEntry { hash: U32::new(hash), child: U32::new(block) };
        loop {
            let step = path.levels[below - 1];
            let count = node_entries(tx.bytes(step.id)).len();
            let own = DA_NODE_HEADER_BYTES + step.index * ENTRY_BYTES;
            tx.edit_as::<DaNodeEntry>(step.id, own).hash.set(left_hash);
            if count < node_capacity(tx.bytes(step.id).len()) {
                insert_entry(tx, step.id, step.index + 1, new);
                let hash = last_hash(tx.bytes(step.id));
                path.fix_hashes(tx, below - 1, hash);
                return Ok(());
            }
            if below == 1 {
                self.push_down_root(tx, &mut path)?;
                below += 1;
            }
            let node = path.levels[below - 1];
            let (right_block, right) = self.split_node(tx, node)?;
            let left_count = node_entries(tx.bytes(node.id)).len();
            if node.index < left_count {
                insert_entry(tx, node.id, node.index + 1, new);
            } else {
                insert_entry(tx, right, node.index + 1 - left_count, new);
            }
            left_hash = last_hash(tx.bytes(node.id));
            new = DaNodeEntry { hash: U32::new(last_hash(tx.bytes(right))), child: U32::new(right_block) };
            below -= 1;
        }
    }

    /// Moves the upper half of a node's entries to a new node behind it.
    fn split_node(&self, tx: &mut Transaction, node: PathLevel) -> Result<(u32, BufId)> {
        let (block, right) = self.allocate(tx, &DA_NODE_KIND)?;
        let entries = node_entries(tx.bytes(node.id));
        let keep = entries.len().div_ceil(2);
        let moved = entries[keep..].to_vec();
        let level = tx.get_as::<DaNodeHeader>(node.id, 0).level.get();
        self.write_node(tx, right, level, &moved);
        tx.edit_as::<DaNodeHeader>(node.id, 0).count.set(keep as u16);
        self.link_after(tx, node, (block, right))?;
        Ok((block, right))
    }
}

/// Inserts an entry into a node that has room.
fn insert_entry(tx: &mut Transaction, id: BufId, at: usize, entry: DaNodeEntry) {
    edit(tx, id, |e| {
        let count = usize::from(e.get_as::<DaNodeHeader>(0).count.get());
        let from = DA_NODE_HEADER_BYTES + at * ENTRY_BYTES;
        e.shift(from..DA_NODE_HEADER_BYTES + count * ENTRY_BYTES, from + ENTRY_BYTES);
        e.put(from, entry.as_bytes());
        e.touch_as::<DaNodeHeader>(0).count.set(count as u16 + 1);
    });
}
