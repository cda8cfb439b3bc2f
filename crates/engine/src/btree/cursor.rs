//! The cursor: finding records, walking, and changing one in place.

use super::block::{set_keys, set_record, view};
use super::{BtreeKind, CursorLevel, KeyOf, Node, Path, RecordOf, Root, Side};
use crate::error::Result;
use crate::error_tags::{BTREE_CHECK_LBLOCK, BTREE_CHECK_SBLOCK};
use crate::trans::{BufId, Transaction};
use xfskit_ondisk::Corruption;
use xfskit_ondisk::ag::MAX_BTREE_LEVELS;
use xfskit_ondisk::btree::TreeFormat;

/// A position in a tree.
///
/// A look-up positions the cursor at a record; [`Cursor::insert`] and [`Cursor::remove`] leave it without a position.
/// The blocks of its path are locked. [`Cursor::close`] releases those that were not changed. Where a cursor is dropped
/// without it, they stay locked until the transaction ends.
#[derive(Debug)]
pub struct Cursor<K: BtreeKind> {
    /// The tree.
    pub kind: K,
    /// From the root down to the leaf; empty when the cursor stands nowhere.
    pub(super) path: Path,
}

impl<K: BtreeKind> Cursor<K> {
    /// A cursor that stands nowhere yet.
    pub fn new(kind: K) -> Self {
        Self { kind, path: Path::new() }
    }

    /// Releases the blocks and returns the tree.
    pub fn close(mut self, tx: &mut Transaction) -> K {
        self.reset(tx);
        self.kind
    }

    /// Gives up the position and releases the blocks.
    pub(super) fn reset(&mut self, tx: &mut Transaction) {
        while let Some(step) = self.path.pop() {
            release(tx, step.node);
        }
    }

    /// The step at `level`, counted from the leaves.
    pub(super) fn at_level(&self, level: usize) -> CursorLevel {
        self.path[self.path.len() - 1 - level]
    }

    pub(super) fn at_level_mut(&mut self, level: usize) -> &mut CursorLevel {
        let at = self.path.len() - 1 - level;
        &mut self.path[at]
    }

    /// The leaf of the path.
    pub(super) fn leaf(&self) -> (BufId, usize) {
        match self.at_level(0) {
            CursorLevel { node: Node::Block { buffer, .. }, index } => (buffer, index),
            CursorLevel { node: Node::Inline, .. } => unreachable!("a root in an inode is never a leaf"),
        }
    }

    /// Reads a block that must stand at `level`.
    pub(super) fn read_block(&self, tx: &mut Transaction, pointer: u64, level: u16) -> Result<BufId> {
        let bytes = tx.geometry().block_bytes();
        let Some(address) = self.kind.address(tx.geometry(), pointer) else {
            ensure_on_disk!(false, K::Format::NAME, "pointer within the AG", "{pointer}");
            unreachable!("the check above returned");
        };
        tx.mount().error_tags.fail(if K::Format::LONG { BTREE_CHECK_LBLOCK } else { BTREE_CHECK_SBLOCK })?;
        let buffer = tx.read(address, bytes, K::buffer_kind())?;
        let block = view::<K::Format>(tx, buffer);
        let wrong = |check, found: std::fmt::Arguments<'_>| {
            Err(Corruption::new(K::Format::NAME, check).at(address).of(self.kind.owner()).found(found).into())
        };
        if block.level() != level {
            return wrong("level below its parent's", format_args!("level {} instead of {level}", block.level()));
        }
        if block.owner() != self.kind.owner() {
            return wrong("owner", format_args!("{}", block.owner()));
        }
        Ok(buffer)
    }

    fn push_root(&mut self, tx: &mut Transaction) -> Result<u16> {
        let (node, level) = match self.kind.root(tx) {
            Root::Inline { level } => (Node::Inline, level),
            Root::Block { pointer, levels } => {
                ensure_on_disk!((1..=MAX_BTREE_LEVELS).contains(&levels), K::Format::NAME, "height", "{levels}");
                let level = (levels - 1) as u16;
                (Node::Block { pointer, buffer: self.read_block(tx, pointer, level)? }, level)
            }
        };
        ensure_on_disk!(u32::from(level) < MAX_BTREE_LEVELS, K::Format::NAME, "height", "{level}");
        self.path.push(CursorLevel { node, index: 0 });
        Ok(level)
    }

    /// Goes down to the child at which the last step stands; the child is at `level`.
    fn push_child(&mut self, tx: &mut Transaction, level: u16) -> Result<()> {
        let Some(&CursorLevel { node, index }) = self.path.last() else { return Ok(()) };
        let count = self.count(tx, node);
        ensure_on_disk!(index < count, K::Format::NAME, "nodes have children");
        let (pointer, expected) = (self.pointer(tx, node, index), self.key(tx, node, index));
        let buffer = self.read_block(tx, pointer, level)?;
        self.path.push(CursorLevel { node: Node::Block { pointer, buffer }, index: 0 });
        let block = view::<K::Format>(tx, buffer);
        // Only the sole leaf under a root in an inode may be empty, for a moment.
        let lone = count == 1 && node == Node::Inline;
        ensure_on_disk!(block.count() > 0 || lone, K::Format::NAME, "blocks below the root have records");
        if block.count() > 0 {
            let key = block.key(0);
            ensure_on_disk!(key == expected, K::Format::NAME, "parent's key", "{expected:?} instead of {key:?}");
        }
        Ok(())
    }

    /// Goes down to the leaf that contains `key` or would contain it, and stands at the first record of this leaf that
    /// is not below `key`, or behind the last one.
    pub(super) fn seek(&mut self, tx: &mut Transaction, key: &KeyOf<K>) -> Result<()> {
        self.reset(tx);
        let mut level = self.push_root(tx)?;
        while level > 0 {
            let node = self.at_level(0).node;
            let index = self.partition_point(tx, node, |k| k <= key).saturating_sub(1);
            self.at_level_mut(0).index = index;
            level -= 1;
            self.push_child(tx, level)?;
        }
        let node = self.at_level(0).node;
        self.at_level_mut(0).index = self.partition_point(tx, node, |k| k < key);
        Ok(())
    }

    /// Stands at the last record of the leaf `pointer` that is not above `key`, without the path from the root: a
    /// change must leave the keys as they are. The caller must know that the block is a leaf of the tree.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn seek_in_leaf(&mut self, tx: &mut Transaction, pointer: u64, key: &KeyOf<K>) -> Result<Option<RecordOf<K>>> {
        self.reset(tx);
        let buffer = self.read_block(tx, pointer, 0)?;
        let node = Node::Block { pointer, buffer };
        let index = self.partition_point(tx, node, |k| k <= key);
        self.path.push(CursorLevel { node, index: index.saturating_sub(1) });
        Ok(if index == 0 { None } else { self.record(tx) })
    }

    /// The block of the leaf at which the cursor stands.
    pub fn leaf_pointer(&self) -> Option<u64> {
        match self.path.last() {
            Some(CursorLevel { node: Node::Block { pointer, .. }, .. }) => Some(*pointer),
            _ => None,
        }
    }

    /// The record at the cursor, if it stands at one.
    pub fn record(&self, tx: &Transaction) -> Option<RecordOf<K>> {
        if self.path.is_empty() {
            return None;
        }
        let (buffer, index) = self.leaf();
        let block = view::<K::Format>(tx, buffer);
        (index < block.count()).then(|| block.record(index))
    }

    /// Finds the last record that is not above `key`.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn lookup_le(&mut self, tx: &mut Transaction, key: &KeyOf<K>) -> Result<Option<RecordOf<K>>> {
        self.seek(tx, key)?;
        if let Some(record) = self.record(tx)
            && K::Format::key(&record) == *key
        {
            return Ok(Some(record));
        }
        // The first key of a leaf is the parent's, so nothing lower can lie in the leaf to the left.
        let step = self.at_level_mut(0);
        if step.index == 0 {
            return Ok(None);
        }
        step.index -= 1;
        Ok(self.record(tx))
    }

    /// Finds the first record that is not below `key`.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn lookup_ge(&mut self, tx: &mut Transaction, key: &KeyOf<K>) -> Result<Option<RecordOf<K>>> {
        self.seek(tx, key)?;
        match self.record(tx) {
            Some(record) => Ok(Some(record)),
            None => self.next(tx),
        }
    }

    /// Finds the record of exactly `key`.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn lookup(&mut self, tx: &mut Transaction, key: &KeyOf<K>) -> Result<Option<RecordOf<K>>> {
        self.seek(tx, key)?;
        Ok(self.record(tx).filter(|record| K::Format::key(record) == *key))
    }

    /// Goes to the first record.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn first(&mut self, tx: &mut Transaction) -> Result<Option<RecordOf<K>>> {
        self.reset(tx);
        let level = self.push_root(tx)?;
        self.go_down(tx, level, Side::Left)?;
        Ok(self.record(tx))
    }

    /// Goes to the last record.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn last(&mut self, tx: &mut Transaction) -> Result<Option<RecordOf<K>>> {
        self.reset(tx);
        let level = self.push_root(tx)?;
        let node = self.at_level(0).node;
        self.at_level_mut(0).index = self.count(tx, node).saturating_sub(1);
        self.go_down(tx, level, Side::Right)?;
        Ok(self.record(tx))
    }

    /// Goes from the last step, which stands at `level`, down to a leaf along one edge.
    fn go_down(&mut self, tx: &mut Transaction, level: u16, edge: Side) -> Result<()> {
        for level in (0..level).rev() {
            self.push_child(tx, level)?;
            if edge == Side::Right {
                let node = self.at_level(0).node;
                self.at_level_mut(0).index = self.count(tx, node).saturating_sub(1);
            }
        }
        Ok(())
    }

    /// Goes to the next record. Where there is none, the cursor stands behind the last one, and the result is `None`.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    #[allow(clippy::should_implement_trait)] // An iterator could not take the transaction.
    pub fn next(&mut self, tx: &mut Transaction) -> Result<Option<RecordOf<K>>> {
        for level in 0..self.path.len() {
            let CursorLevel { node, index } = self.at_level(level);
            if index + 1 < self.count(tx, node) {
                self.climb(tx, level);
                self.at_level_mut(0).index += 1;
                self.go_down(tx, level as u16, Side::Left)?;
                return Ok(self.record(tx));
            }
        }
        if !self.path.is_empty() {
            let node = self.at_level(0).node;
            self.at_level_mut(0).index = self.count(tx, node);
        }
        Ok(None)
    }

    /// Goes to the record before. At the first one the cursor stays there and the result is `None`.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn previous(&mut self, tx: &mut Transaction) -> Result<Option<RecordOf<K>>> {
        for level in 0..self.path.len() {
            if self.at_level(level).index > 0 {
                self.climb(tx, level);
                self.at_level_mut(0).index -= 1;
                self.go_down(tx, level as u16, Side::Right)?;
                return Ok(self.record(tx));
            }
        }
        Ok(None)
    }

    /// Drops the steps below `level`.
    pub(super) fn climb(&mut self, tx: &mut Transaction, level: usize) {
        for _ in 0..level {
            if let Some(step) = self.path.pop() {
                release(tx, step.node);
            }
        }
    }

    pub(super) fn push_child_at(&mut self, tx: &mut Transaction, level: u16) -> Result<()> {
        self.push_child(tx, level)
    }

    pub(super) fn start(&mut self, tx: &mut Transaction) -> Result<u16> {
        self.reset(tx);
        self.push_root(tx)
    }

    /// Replaces the record at the cursor by one that belongs at the same place in the order. The keys above the leaf
    /// are updated.
    ///
    /// # Errors
    /// `Corrupt`, before anything was changed, when the record is out of order with its neighbours in the block.
    ///
    /// # Panics
    /// If the cursor stands at no record.
    pub fn update(&mut self, tx: &mut Transaction, record: &RecordOf<K>) -> Result<()> {
        assert!(self.record(tx).is_some(), "an update needs a record at the cursor");
        let (buffer, index) = self.leaf();
        let (block, key) = (view::<K::Format>(tx, buffer), K::Format::key(record));
        let fits =
            (index == 0 || block.key(index - 1) < key) && (index + 1 >= block.count() || key < block.key(index + 1));
        ensure_on_disk!(fits, K::Format::NAME, "a changed record stays between its neighbours", "{record:?}");
        set_record::<K::Format>(tx, buffer, index, record);
        self.update_keys(tx, 0);
        Ok(())
    }

    /// Brings the keys above a leaf up to date after the insertion of a record whose highest key is `added`. Where
    /// records overlap, this does not read the other records.
    pub(super) fn widen_keys(&mut self, tx: &mut Transaction, added: KeyOf<K>) {
        if !K::Format::OVERLAPPING {
            return self.update_keys(tx, 0);
        }
        for level in 0..self.path.len() - 1 {
            let Node::Block { buffer, .. } = self.at_level(level).node else { return };
            let CursorLevel { node, index } = self.at_level(level + 1);
            let Node::Block { buffer: parent, .. } = node else { return self.update_keys(tx, level) };
            let old = (self.key(tx, node, index), self.high_key(tx, node, index));
            let new = (view::<K::Format>(tx, buffer).key(0), old.1.max(added));
            if old == new {
                return;
            }
            set_keys::<K::Format>(tx, parent, index, &new.0, &new.1);
        }
    }

    /// Brings the keys above the block at `level` of the path up to date.
    pub(super) fn update_keys(&mut self, tx: &mut Transaction, level: usize) {
        for level in level..self.path.len() - 1 {
            let Node::Block { buffer, .. } = self.at_level(level).node else { return };
            let CursorLevel { node, index } = self.at_level(level + 1);
            let changed = self.refresh_keys(tx, node, index, buffer);
            if !changed || (!K::Format::OVERLAPPING && index != 0) {
                return;
            }
        }
    }
}

pub(super) fn release(tx: &mut Transaction, node: Node) {
    if let Node::Block { buffer, .. } = node {
        tx.release(buffer);
    }
}
