//! Paths from the root to a leaf, and the way from a leaf to the next.

use super::{DaTree, is_node};
use crate::error::Result;
use crate::trans::{BufId, Transaction};
use smallvec::SmallVec;
use xfskit_ondisk::da::{
    DA_MAX_DEPTH, DA_NODE_HEADER_BYTES, DaInfo, DaNodeEntry, DaNodeHeader, last_hash, node_entries, place_of_hash,
};

/// A block on the way down.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Its fork block.
    pub block: u32,
    /// Its buffer.
    pub id: BufId,
    /// The entry that leads to the next step; 0 in the last.
    pub index: usize,
}

/// The blocks from the root down to a leaf (or, within this module's siblings, down to a node).
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub steps: SmallVec<[Step; 4]>,
}

/// Notices that a walk along a list of blocks goes in circles.
#[derive(Default)]
pub(crate) struct CycleGuard(crate::cycle::CycleGuard);

impl CycleGuard {
    /// Counts a visit.
    ///
    /// # Errors
    /// `Corrupt` when `block` was visited before.
    pub fn visit(&mut self, block: u32) -> Result<()> {
        ensure_on_disk!(self.0.visit(block.into()), "da block", "list without a circle", "block {block}");
        Ok(())
    }
}

impl Path {
    /// Goes down to the first leaf that may hold `hash`, or the last leaf when all hashes are smaller.
    pub fn descend(tx: &mut Transaction, tree: &DaTree, hash: u32) -> Result<Self> {
        let choose =
            |entries: &[DaNodeEntry]| place_of_hash(entries, hash, |entry| entry.hash.get()).min(entries.len() - 1);
        let mut path = Self { steps: SmallVec::new() };
        let mut block = tree.root;
        loop {
            let id = tree.read(tx, block)?;
            path.check_place(tx, tree, id)?;
            let node = is_node(tx, id);
            let index = if node { choose(node_entries(tx.bytes(id))) } else { 0 };
            path.steps.push(Step { block, id, index });
            if !node {
                return Ok(path);
            }
            block = path.child(tx, tree, path.steps.len() - 1)?;
        }
    }

    /// Checks that a block may stand below the last step.
    fn check_place(&self, tx: &Transaction, tree: &DaTree, id: BufId) -> Result<()> {
        let kind = tx.kind(id);
        let fits = is_node(tx, id) || std::ptr::eq(kind, tree.leaf_kind);
        ensure_on_disk!(fits, "da block", "kind of leaf", "a {}", kind.name);
        let level = level(tx, id);
        let expected = match self.steps.last() {
            Some(parent) => self::level(tx, parent.id).checked_sub(1),
            None => Some(level),
        };
        ensure_on_disk!(Some(level) == expected, "da block", "level", "{level} instead of {expected:?}");
        ensure_on_disk!(level < DA_MAX_DEPTH, "da block", "height of the tree", "level {level}");
        Ok(())
    }

    fn child(&self, tx: &Transaction, tree: &DaTree, step: usize) -> Result<u32> {
        let Step { id, index, .. } = self.steps[step];
        let child = node_entries(tx.bytes(id))[index].child.get();
        ensure_on_disk!(child != tree.root, "da node", "children are not the root");
        Ok(child)
    }

    /// The leaf.
    pub fn leaf(&self) -> Step {
        *self.steps.last().expect("a path has a root")
    }

    /// Whether the tree is one leaf.
    pub fn is_single_leaf(&self) -> bool {
        self.steps.len() == 1
    }

    /// The path to the neighbour of the last step, to the right or to the left, if there is one.
    pub fn neighbour(&self, tx: &mut Transaction, tree: &DaTree, right: bool) -> Result<Option<Self>> {
        let last = self.steps.len() - 1;
        let can_move = |step: &Step| {
            if right { step.index + 1 < node_entries(tx.bytes(step.id)).len() } else { step.index > 0 }
        };
        let Some(turn) = self.steps[..last].iter().rposition(can_move) else { return Ok(None) };
        let mut path = Self { steps: self.steps[..=turn].into() };
        if right {
            path.steps[turn].index += 1;
        } else {
            path.steps[turn].index -= 1;
        }
        for step in turn..last {
            let block = path.child(tx, tree, step)?;
            let id = tree.read(tx, block)?;
            path.check_place(tx, tree, id)?;
            let count = if is_node(tx, id) && step + 1 < last { node_entries(tx.bytes(id)).len() } else { 1 };
            path.steps.push(Step { block, id, index: if right { 0 } else { count - 1 } });
        }
        let (from, to) = (self.steps[last], path.steps[last]);
        let (left, after) = if right { (from, to) } else { (to, from) };
        let linked = DaInfo::of(tx.bytes(left.id)).next.get() == after.block
            && DaInfo::of(tx.bytes(after.id)).previous.get() == left.block;
        ensure_on_disk!(linked, "da block", "neighbours know each other", "{} and {}", left.block, after.block);
        Ok(Some(path))
    }

    /// Moves on to the next leaf and gives the blocks left behind back; `false` after the last leaf.
    pub fn advance(&mut self, tx: &mut Transaction, tree: &DaTree) -> Result<bool> {
        let Some(next) = self.neighbour(tx, tree, true)? else { return Ok(false) };
        for (old, new) in self.steps.iter().zip(&next.steps) {
            if old.id != new.id {
                tx.release(old.id);
            }
        }
        *self = next;
        Ok(true)
    }

    /// Gives all blocks back.
    pub fn release(self, tx: &mut Transaction) {
        for step in self.steps {
            tx.release(step.id);
        }
    }

    /// The greatest hash of the last step's block changed to `hash`: corrects the nodes above.
    pub fn set_last_hash(&self, tx: &mut Transaction, hash: u32) {
        self.fix_hashes(tx, self.steps.len() - 1, hash);
    }

    /// Corrects the hashes above step `below`, whose block's greatest hash is `hash`.
    pub(super) fn fix_hashes(&self, tx: &mut Transaction, below: usize, mut hash: u32) {
        for step in self.steps[..below].iter().rev() {
            let entry = &node_entries(tx.bytes(step.id))[step.index];
            if entry.hash.get() == hash {
                return;
            }
            let offset = DA_NODE_HEADER_BYTES + step.index * size_of::<DaNodeEntry>();
            tx.edit_as::<DaNodeEntry>(step.id, offset).hash.set(hash);
            hash = last_hash(tx.bytes(step.id));
        }
    }
}

/// Levels above the leaves.
fn level(tx: &Transaction, id: BufId) -> usize {
    if is_node(tx, id) { tx.get_as::<DaNodeHeader>(id, 0).level.get().into() } else { 0 }
}
