//! Removing a record: blocks that become too empty borrow from or merge with a neighbour under the same parent.

use super::block::{copy_entries, insert_entries, remove_entries, set_left, set_right, view, write_header};
use super::{BtreeKind, Cursor, CursorLevel, Node, NodeEntries, Root, Side};
use crate::error::Result;
use crate::trans::{BufId, Transaction};

impl<K: BtreeKind> Cursor<K> {
    /// Removes the record at the cursor, which stands nowhere afterwards.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    ///
    /// # Panics
    /// If the cursor stands at no record.
    pub fn remove(&mut self, tx: &mut Transaction) -> Result<()> {
        assert!(self.record(tx).is_some(), "a removal needs a record at the cursor");
        let (leaf, index) = self.leaf();
        remove_entries::<K::Format>(tx, leaf, index..index + 1);
        self.update_keys(tx, 0);
        let mut level = 0;
        while level + 1 < self.path.len() && self.rebalance(tx, level)? {
            level += 1;
        }
        self.lower_root(tx)?;
        self.reset(tx);
        Ok(())
    }

    /// Fills the block at `level` up if it is less than half full. Returns whether its parent lost a child.
    fn rebalance(&mut self, tx: &mut Transaction, level: usize) -> Result<bool> {
        let Node::Block { pointer, buffer } = self.at_level(level).node else { return Ok(false) };
        let block = view::<K::Format>(tx, buffer);
        let (count, max) = (block.count(), block.max_count());
        if count >= max / 2 {
            return Ok(false);
        }
        let mut lender = None;
        for side in [Side::Left, Side::Right] {
            let Some((other, sibling)) = self.sibling(tx, level, side)? else { continue };
            let others = view::<K::Format>(tx, sibling).count();
            if count + others <= max {
                match side {
                    Side::Left => self.merge(tx, level, (other, sibling), (pointer, buffer))?,
                    Side::Right => self.merge(tx, level, (pointer, buffer), (other, sibling))?,
                }
                return Ok(true);
            }
            lender = Some((side, sibling, others));
        }
        if let Some((side, sibling, others)) = lender {
            self.borrow(tx, level, side, sibling, (others - count) / 2);
            return Ok(false);
        }
        let alone_under_inline = self.at_level(level + 1).node == Node::Inline;
        if count > 0 || alone_under_inline {
            return Ok(false);
        }
        self.drop_empty(tx, level)?;
        Ok(true)
    }

    /// Moves `amount` entries of a neighbour to the block at `level`.
    fn borrow(&mut self, tx: &mut Transaction, level: usize, side: Side, sibling: BufId, amount: usize) {
        let Node::Block { buffer, .. } = self.at_level(level).node else { return };
        let (count, others) = (view::<K::Format>(tx, buffer).count(), view::<K::Format>(tx, sibling).count());
        let (from, to) = match side {
            Side::Left => (others - amount..others, 0),
            Side::Right => (0..amount, count),
        };
        let entries = copy_entries::<K::Format>(tx, sibling, from.clone());
        insert_entries::<K::Format>(tx, buffer, to, &entries);
        remove_entries::<K::Format>(tx, sibling, from);
        self.refresh_pair(tx, level, side, sibling);
    }

    /// Moves everything of `right` to `left`, its neighbour under the same parent, and frees it. One of them is the
    /// block at `level`.
    fn merge(&mut self, tx: &mut Transaction, level: usize, left: (u64, BufId), right: (u64, BufId)) -> Result<()> {
        let CursorLevel { node: parent, index } = self.at_level(level + 1);
        let left_is_own = self.at_level(level).node == Node::Block { pointer: left.0, buffer: left.1 };
        let left_index = if left_is_own { index } else { index - 1 };
        let (count, others) = (view::<K::Format>(tx, left.1).count(), view::<K::Format>(tx, right.1).count());
        let beyond = view::<K::Format>(tx, right.1).right();
        let entries = copy_entries::<K::Format>(tx, right.1, 0..others);
        insert_entries::<K::Format>(tx, left.1, count, &entries);
        set_right::<K::Format>(tx, left.1, beyond);
        if let Some(beyond) = beyond {
            let buffer = self.read_sibling(tx, beyond, level as u16)?;
            set_left::<K::Format>(tx, buffer, Some(left.0));
            tx.release(buffer);
        }
        self.remove_child(tx, parent, left_index + 1);
        self.refresh_keys(tx, parent, left_index, left.1);
        self.update_keys(tx, level + 1);
        self.kind.free_block(tx, right.0, right.1)
    }

    /// Frees the empty block at `level`, the only child of its parent.
    fn drop_empty(&mut self, tx: &mut Transaction, level: usize) -> Result<()> {
        let Node::Block { pointer, buffer } = self.at_level(level).node else { return Ok(()) };
        let (left, right) = (view::<K::Format>(tx, buffer).left(), view::<K::Format>(tx, buffer).right());
        if let Some(left) = left {
            let neighbour = self.read_sibling(tx, left, level as u16)?;
            set_right::<K::Format>(tx, neighbour, right);
            tx.release(neighbour);
        }
        if let Some(right) = right {
            let neighbour = self.read_sibling(tx, right, level as u16)?;
            set_left::<K::Format>(tx, neighbour, left);
            tx.release(neighbour);
        }
        let CursorLevel { node: parent, index } = self.at_level(level + 1);
        self.remove_child(tx, parent, index);
        self.update_keys(tx, level + 1);
        self.kind.free_block(tx, pointer, buffer)
    }

    /// Drops levels from the top while the root is a node with one child.
    fn lower_root(&mut self, tx: &mut Transaction) -> Result<()> {
        loop {
            match self.kind.root(tx) {
                Root::Block { pointer, levels } if levels > 1 => {
                    let buffer = self.read_block(tx, pointer, (levels - 1) as u16)?;
                    match view::<K::Format>(tx, buffer).count() {
                        0 => {
                            write_header(tx, &self.kind, buffer, 0, None, None);
                            self.kind.set_root(tx, pointer, 1);
                        }
                        1 => {
                            let child = view::<K::Format>(tx, buffer).pointer(0);
                            self.kind.set_root(tx, child, levels - 1);
                            self.kind.free_block(tx, pointer, buffer)?;
                            continue;
                        }
                        _ => {}
                    }
                    tx.release(buffer);
                    return Ok(());
                }
                Root::Inline { level } if level > 1 => {
                    if !self.pull_up(tx, level)? {
                        return Ok(());
                    }
                }
                _ => return Ok(()),
            }
        }
    }

    /// Moves the only child of a root in an inode into it, if it fits.
    fn pull_up(&mut self, tx: &mut Transaction, level: u16) -> Result<bool> {
        let root = self.kind.inline_root(tx);
        let &[child] = root.children else { return Ok(false) };
        let buffer = self.read_block(tx, child, level - 1)?;
        let block = view::<K::Format>(tx, buffer);
        let count = block.count();
        if count > self.kind.inline_max(tx) {
            tx.release(buffer);
            return Ok(false);
        }
        let entries = NodeEntries {
            keys: (0..count).map(|index| block.key(index)).collect(),
            children: (0..count).map(|index| block.pointer(index)).collect(),
        };
        self.kind.set_inline_root(tx, level - 1, entries);
        self.kind.free_block(tx, child, buffer)?;
        Ok(true)
    }
}
