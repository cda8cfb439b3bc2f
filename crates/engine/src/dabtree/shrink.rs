//! Removing blocks from the tree: a leaf, nodes that become too small, and levels that are not needed any more.

use super::edit::edit;
use super::{DaTree, Path, PathLevel, is_node};
use crate::error::Result;
use crate::trans::{BufId, Transaction};
use xfskit_ondisk::da::{
    DA_NODE_HEADER_BYTES, DaInfo, DaNodeEntry, DaNodeHeader, last_hash, node_capacity, node_entries,
};
use zerocopy::IntoBytes;

const ENTRY_BYTES: usize = size_of::<DaNodeEntry>();

impl DaTree {
    /// Frees the path's leaf, whose contents are of no more use, and takes it out of the nodes above. A root with one
    /// child left is replaced by that child; where the leaf was the only one, it moves to the root's place instead,
    /// so the caller leaves it as it would leave an empty tree.
    pub fn remove_leaf(&self, tx: &mut Transaction, path: Path) -> Result<()> {
        assert!(!path.is_single_leaf(), "the last leaf of a tree goes with the tree");
        let mut path = path;
        if node_entries(tx.bytes(path.levels[0].id)).len() == 1 {
            return self.lower_root(tx, path.levels[0].id);
        }
        loop {
            let last = path.levels.len() - 1;
            self.unlink(tx, path.levels[last])?;
            let PathLevel { block, id, .. } = path.levels[last];
            self.free(tx, block, id)?;
            path.levels.truncate(last);
            let parent = path.levels[last - 1];
            remove_entry(tx, parent.id, parent.index);
            let count = node_entries(tx.bytes(parent.id)).len();
            if last == 1 {
                return self.lower_root(tx, parent.id);
            }
            if count == 0 {
                continue;
            }
            let hash = last_hash(tx.bytes(parent.id));
            path.set_last_hash(tx, hash);
            match self.merge_node(tx, path)? {
                Some(emptied) => path = emptied,
                None => return Ok(()),
            }
        }
    }

    /// Takes a block out of the list of its level.
    fn unlink(&self, tx: &mut Transaction, step: PathLevel) -> Result<()> {
        let info = DaInfo::of(tx.bytes(step.id));
        let (previous, next) = (info.previous.get(), info.next.get());
        for (neighbour, is_next) in [(previous, false), (next, true)] {
            if neighbour == 0 {
                continue;
            }
            let id = self.read(tx, neighbour)?;
            let info = DaInfo::of(tx.bytes(id));
            let link = if is_next { info.previous.get() } else { info.next.get() };
            ensure_on_disk!(link == step.block, "da block", "neighbours know each other", "{link} and {}", step.block);
            let info = tx.edit_as::<DaInfo>(id, 0);
            if is_next {
                info.previous.set(previous);
            } else {
                info.next.set(next);
            }
        }
        Ok(())
    }

    /// If the path's last node is at most half full and fits beside a neighbour with a quarter to spare, moves the
    /// entries of the right one of the two to the left one; gives the path to the emptied node.
    fn merge_node(&self, tx: &mut Transaction, path: Path) -> Result<Option<Path>> {
        let node = path.leaf();
        let capacity = node_capacity(tx.bytes(node.id).len());
        let count = node_entries(tx.bytes(node.id)).len();
        if count > capacity / 2 {
            return Ok(None);
        }
        let fits =
            |tx: &Transaction, other: BufId| Ok(count + node_entries(tx.bytes(other)).len() <= capacity - capacity / 4);
        let Some((left, right)) = path.with_neighbour(tx, self, fits)? else { return Ok(None) };
        append_entries(tx, left.leaf().id, right.leaf().id);
        let hash = last_hash(tx.bytes(left.leaf().id));
        left.set_last_hash(tx, hash);
        Ok(Some(right))
    }

    /// While the root is a node with one child, puts the child in its place.
    fn lower_root(&self, tx: &mut Transaction, root: BufId) -> Result<()> {
        while is_node(tx, root) {
            let [only] = node_entries(tx.bytes(root)) else { return Ok(()) };
            let block = only.child.get();
            ensure_on_disk!(block != self.root, "da node", "children are not the root");
            let child = self.read(tx, block)?;
            let kind = tx.kind(child);
            let contents = tx.bytes(child).to_vec();
            let address = tx.address(root);
            tx.set_kind(root, kind);
            let copy = tx.edit_all(root);
            copy.copy_from_slice(&contents);
            let info = DaInfo::of_mut(copy);
            info.address.set(address.0);
            let alone = info.next.get() == 0 && info.previous.get() == 0;
            ensure_on_disk!(alone, "da block", "an only child has no neighbours");
            self.free(tx, block, child)?;
        }
        Ok(())
    }
}

fn remove_entry(tx: &mut Transaction, id: BufId, at: usize) {
    edit(tx, id, |e| {
        let count = usize::from(e.get_as::<DaNodeHeader>(0).count.get());
        let from = DA_NODE_HEADER_BYTES + at * ENTRY_BYTES;
        e.shift(from + ENTRY_BYTES..DA_NODE_HEADER_BYTES + count * ENTRY_BYTES, from);
        e.touch_as::<DaNodeHeader>(0).count.set(count as u16 - 1);
    });
}

/// Appends the entries of node `from` to node `to`.
fn append_entries(tx: &mut Transaction, to: BufId, from: BufId) {
    let moved = node_entries(tx.bytes(from)).to_vec();
    edit(tx, to, |e| {
        let count = usize::from(e.get_as::<DaNodeHeader>(0).count.get());
        e.put(DA_NODE_HEADER_BYTES + count * ENTRY_BYTES, moved.as_bytes());
        e.touch_as::<DaNodeHeader>(0).count.set((count + moved.len()) as u16);
    });
}
