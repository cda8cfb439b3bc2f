//! Paths from the root to a leaf, and the way from a leaf to the next.

use super::{DaTree, is_node};
use crate::error::Result;
use crate::trans::{BufId, Transaction};
use smallvec::SmallVec;
use xfskit_ondisk::da::{
    DA_MAX_DEPTH, DA_NODE_HEADER_BYTES, DaInfo, DaNodeEntry, DaNodeHeader, last_hash, lower_bound_of_hash, node_entries,
};

/// A block on the way down from the root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathLevel {
    /// Its fork block.
    pub block: u32,
    /// Its buffer.
    pub id: BufId,
    /// The entry that leads to the next level; 0 in the last.
    pub index: usize,
}

/// One of the two neighbours of a block in the list of its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The one with the smaller hashes.
    Left,
    /// The one with the greater hashes.
    Right,
}

/// The blocks from the root down to a leaf (or, within this module's siblings, down to a node).
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub levels: SmallVec<[PathLevel; 4]>,
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
        let choose = |entries: &[DaNodeEntry]| {
            lower_bound_of_hash(entries, hash, |entry| entry.hash.get()).min(entries.len() - 1)
        };
        let mut path = Self { levels: SmallVec::new() };
        let mut block = tree.root;
        loop {
            let id = tree.read(tx, block)?;
            path.check_place(tx, tree, id)?;
            let node = is_node(tx, id);
            let index = if node { choose(node_entries(tx.bytes(id))) } else { 0 };
            path.levels.push(PathLevel { block, id, index });
            if !node {
                return Ok(path);
            }
            block = path.child(tx, tree, path.levels.len() - 1)?;
        }
    }

    /// Checks that a block may stand below the last block.
    fn check_place(&self, tx: &Transaction, tree: &DaTree, id: BufId) -> Result<()> {
        let kind = tx.kind(id);
        let fits = is_node(tx, id) || std::ptr::eq(kind, tree.leaf_kind);
        ensure_on_disk!(fits, "da block", "kind of leaf", "a {}", kind.name);
        let level = level(tx, id);
        let expected = match self.levels.last() {
            Some(parent) => self::level(tx, parent.id).checked_sub(1),
            None => Some(level),
        };
        ensure_on_disk!(Some(level) == expected, "da block", "level", "{level} instead of {expected:?}");
        ensure_on_disk!(level < DA_MAX_DEPTH, "da block", "height of the tree", "level {level}");
        Ok(())
    }

    fn child(&self, tx: &Transaction, tree: &DaTree, level: usize) -> Result<u32> {
        let PathLevel { id, index, .. } = self.levels[level];
        let child = node_entries(tx.bytes(id))[index].child.get();
        ensure_on_disk!(child != tree.root, "da node", "children are not the root");
        Ok(child)
    }

    /// The leaf.
    pub fn leaf(&self) -> PathLevel {
        *self.levels.last().expect("a path has a root")
    }

    /// Whether the tree is one leaf.
    pub fn is_single_leaf(&self) -> bool {
        self.levels.len() == 1
    }

    /// The path to the neighbour of the last block on one side, if there is one.
    pub fn neighbour(&self, tx: &mut Transaction, tree: &DaTree, side: Side) -> Result<Option<Self>> {
        let last = self.levels.len() - 1;
        let can_move = |level: &PathLevel| match side {
            Side::Right => level.index + 1 < node_entries(tx.bytes(level.id)).len(),
            Side::Left => level.index > 0,
        };
        let Some(turn) = self.levels[..last].iter().rposition(can_move) else { return Ok(None) };
        let mut path = Self { levels: self.levels[..=turn].into() };
        match side {
            Side::Right => path.levels[turn].index += 1,
            Side::Left => path.levels[turn].index -= 1,
        }
        for level in turn..last {
            let block = path.child(tx, tree, level)?;
            let id = tree.read(tx, block)?;
            path.check_place(tx, tree, id)?;
            let count = if is_node(tx, id) && level + 1 < last { node_entries(tx.bytes(id)).len() } else { 1 };
            let index = if side == Side::Right { 0 } else { count - 1 };
            path.levels.push(PathLevel { block, id, index });
        }
        let (from, to) = (self.levels[last], path.levels[last]);
        let (left, after) = if side == Side::Right { (from, to) } else { (to, from) };
        let linked = DaInfo::of(tx.bytes(left.id)).next.get() == after.block
            && DaInfo::of(tx.bytes(after.id)).previous.get() == left.block;
        ensure_on_disk!(linked, "da block", "neighbours know each other", "{} and {}", left.block, after.block);
        Ok(Some(path))
    }

    /// The last block and the first of its neighbours, the right one before the left, that `fits`: the paths to both,
    /// from left to right.
    pub fn with_neighbour(
        self,
        tx: &mut Transaction,
        tree: &DaTree,
        fits: impl Fn(&Transaction, BufId) -> Result<bool>,
    ) -> Result<Option<(Self, Self)>> {
        for side in [Side::Right, Side::Left] {
            let Some(other) = self.neighbour(tx, tree, side)? else { continue };
            if fits(tx, other.leaf().id)? {
                return Ok(Some(if side == Side::Right { (self, other) } else { (other, self) }));
            }
        }
        Ok(None)
    }

    /// Moves on to the next leaf and gives the blocks left behind back; `false` after the last leaf.
    pub fn advance(&mut self, tx: &mut Transaction, tree: &DaTree) -> Result<bool> {
        let Some(next) = self.neighbour(tx, tree, Side::Right)? else { return Ok(false) };
        for (old, new) in self.levels.iter().zip(&next.levels) {
            if old.id != new.id {
                tx.release(old.id);
            }
        }
        *self = next;
        Ok(true)
    }

    /// Gives all blocks back.
    pub fn release(self, tx: &mut Transaction) {
        for level in self.levels {
            tx.release(level.id);
        }
    }

    /// The greatest hash of the last block changed to `hash`: corrects the nodes above.
    pub fn set_last_hash(&self, tx: &mut Transaction, hash: u32) {
        self.fix_hashes(tx, self.levels.len() - 1, hash);
    }

    /// Corrects the hashes above level `below` of the path, whose block's greatest hash is `hash`.
    pub(super) fn fix_hashes(&self, tx: &mut Transaction, below: usize, mut hash: u32) {
        for level in self.levels[..below].iter().rev() {
            let entry = &node_entries(tx.bytes(level.id))[level.index];
            if entry.hash.get() == hash {
                return;
            }
            let offset = DA_NODE_HEADER_BYTES + level.index * size_of::<DaNodeEntry>();
            tx.edit_as::<DaNodeEntry>(level.id, offset).hash.set(hash);
            hash = last_hash(tx.bytes(level.id));
        }
    }
}

/// Levels above the leaves.
fn level(tx: &Transaction, id: BufId) -> usize {
    if is_node(tx, id) { tx.get_as::<DaNodeHeader>(id, 0).level.get().into() } else { 0 }
}
