//! Inserting a record: room for it is made from the top of the path down.

use super::block::{
    child_entry, copy_entries, insert_entries, record_entry, remove_entries, set_left, set_right, view, write_header,
};
use super::{BtreeKind, Cursor, CursorLevel, KeyOf, Node, NodeEntries, RecordOf, Root, Side};
use crate::error::Result;
use crate::error_tags::BTREE_SPLIT;
use crate::trans::{BufId, Transaction};
use xfskit_ondisk::btree::TreeFormat;

impl<K: BtreeKind> Cursor<K> {
    /// Inserts a record whose key is not in the tree. The cursor stands nowhere afterwards.
    ///
    /// # Errors
    /// `NoSpace` before anything was changed when a split needs blocks that are not there; `Corrupt` when the key is
    /// in the tree; `Io`.
    pub fn insert(&mut self, tx: &mut Transaction, record: &RecordOf<K>) -> Result<()> {
        let key = K::Format::key(record);
        self.seek(tx, &key)?;
        if let Some(found) = self.record(tx) {
            let found = K::Format::key(&found);
            ensure_on_disk!(found != key, K::Format::NAME, "records are unique", "{found:?}");
        }
        if self.is_full(tx, 0) {
            let blocks = self.blocks_to_make_room(tx);
            self.kind.expect_blocks(tx, blocks)?;
            while self.is_full(tx, 0) {
                let mut level = 0;
                while !self.make_room(tx, level)? {
                    level += 1;
                }
                self.seek(tx, &key)?;
            }
        }
        let (leaf, index) = self.leaf();
        insert_entries::<K::Format>(tx, leaf, index, &record_entry::<K::Format>(record));
        self.widen_keys(tx, K::Format::high_key(record));
        self.reset(tx);
        Ok(())
    }

    /// Inserts the first of some records, and with it those that belong right behind it and for which its leaf has
    /// room. The records are in order, and their keys are not in the tree. Returns how many were inserted. The cursor
    /// stands nowhere afterwards.
    ///
    /// # Errors
    /// As [`Self::insert`].
    pub fn insert_some(&mut self, tx: &mut Transaction, records: &[RecordOf<K>]) -> Result<usize> {
        let Some(first) = records.first() else { return Ok(0) };
        self.seek(tx, &K::Format::key(first))?;
        let (leaf, index) = self.leaf();
        let block = view::<K::Format>(tx, leaf);
        let room = block.max_count() - block.count();
        let bound = if index < block.count() { Some(block.key(index)) } else { self.next_leaf_key(tx) };
        let fits = |record: &&RecordOf<K>| bound.is_none_or(|bound| K::Format::key(record) < bound);
        let count = records.iter().take(room).take_while(fits).count();
        if count == 0 {
            return self.insert(tx, first).map(|()| 1);
        }
        let added = &records[..count];
        let mut bytes = vec![0; count * K::Format::RECORD_BYTES];
        for (record, out) in added.iter().zip(bytes.chunks_exact_mut(K::Format::RECORD_BYTES)) {
            K::Format::encode_record(record, out);
        }
        insert_entries::<K::Format>(tx, leaf, index, &std::iter::once(bytes).collect());
        let highest = added.iter().map(K::Format::high_key).max().expect("there is one at least");
        self.widen_keys(tx, highest);
        self.reset(tx);
        Ok(count)
    }

    /// The first key of the leaf to the right.
    fn next_leaf_key(&self, tx: &Transaction) -> Option<KeyOf<K>> {
        (1..self.path.len()).map(|level| self.at_level(level)).find_map(|CursorLevel { node, index }| {
            (index + 1 < self.count(tx, node)).then(|| self.key(tx, node, index + 1))
        })
    }

    /// Most blocks that an insertion at the cursor can allocate.
    fn blocks_to_make_room(&self, tx: &Transaction) -> u32 {
        let full = (0..self.path.len()).take_while(|&level| self.is_full(tx, level)).count();
        let grows = full == self.path.len();
        // A root in an inode that grows moves into a block, which is not full.
        let splits = if grows && self.path[0].node == Node::Inline { full - 1 } else { full };
        (splits + usize::from(grows)) as u32
    }

    fn is_full(&self, tx: &Transaction, level: usize) -> bool {
        let node = self.at_level(level).node;
        self.count(tx, node) >= self.max_count(tx, node)
    }

    /// Makes room in the full block at `level`: the root grows, another block lends to a neighbour or splits. Returns
    /// false, with nothing changed, when a split needs room in the parent first. After true the path is stale.
    fn make_room(&mut self, tx: &mut Transaction, level: usize) -> Result<bool> {
        if level + 1 == self.path.len() {
            self.grow(tx)?;
            return Ok(true);
        }
        if self.lend(tx, level, Side::Left)? || self.lend(tx, level, Side::Right)? {
            return Ok(true);
        }
        if self.is_full(tx, level + 1) {
            return Ok(false);
        }
        self.split(tx, level)?;
        Ok(true)
    }

    /// The neighbour of the block at `level` under the same parent.
    pub(super) fn sibling(&self, tx: &mut Transaction, level: usize, side: Side) -> Result<Option<(u64, BufId)>> {
        let CursorLevel { node: parent, index } = self.at_level(level + 1);
        let Node::Block { pointer: own, buffer } = self.at_level(level).node else { return Ok(None) };
        let index = match side {
            Side::Left => index.checked_sub(1),
            Side::Right => Some(index + 1).filter(|&index| index < self.count(tx, parent)),
        };
        let Some(index) = index else { return Ok(None) };
        let pointer = self.pointer(tx, parent, index);
        let sibling = self.read_sibling(tx, pointer, level as u16)?;
        let (mine, others) = (view::<K::Format>(tx, buffer), view::<K::Format>(tx, sibling));
        let linked = match side {
            Side::Left => mine.left() == Some(pointer) && others.right() == Some(own),
            Side::Right => mine.right() == Some(pointer) && others.left() == Some(own),
        };
        ensure_on_disk!(linked && others.count() > 0, K::Format::NAME, "siblings know each other", "{own}, {pointer}");
        Ok(Some((pointer, sibling)))
    }

    /// Moves entries of the full block at `level` to a neighbour, as many as fill half of the room there, so that both
    /// have room.
    fn lend(&mut self, tx: &mut Transaction, level: usize, side: Side) -> Result<bool> {
        let Some((_, sibling)) = self.sibling(tx, level, side)? else { return Ok(false) };
        let Node::Block { buffer, .. } = self.at_level(level).node else { return Ok(false) };
        let (count, others) = (view::<K::Format>(tx, buffer).count(), view::<K::Format>(tx, sibling).count());
        let room = view::<K::Format>(tx, sibling).max_count().saturating_sub(others);
        if room < 2 {
            tx.release(sibling);
            return Ok(false);
        }
        self.move_entries(tx, level, side, sibling, (room / 2).min(count - 1));
        tx.release(sibling);
        Ok(true)
    }

    /// Moves `amount` entries of the block at `level` to the neighbour on `side` and brings all keys up to date.
    fn move_entries(&mut self, tx: &mut Transaction, level: usize, side: Side, sibling: BufId, amount: usize) {
        let Node::Block { buffer, .. } = self.at_level(level).node else { return };
        let (count, others) = (view::<K::Format>(tx, buffer).count(), view::<K::Format>(tx, sibling).count());
        let (from, to) = match side {
            Side::Left => (0..amount, others),
            Side::Right => (count - amount..count, 0),
        };
        let entries = copy_entries::<K::Format>(tx, buffer, from.clone());
        insert_entries::<K::Format>(tx, sibling, to, &entries);
        remove_entries::<K::Format>(tx, buffer, from);
        self.refresh_pair(tx, level, side, sibling);
    }

    /// Brings the keys of the block at `level` and of its neighbour on `side` up to date, and those above.
    pub(super) fn refresh_pair(&mut self, tx: &mut Transaction, level: usize, side: Side, sibling: BufId) {
        let Node::Block { buffer, .. } = self.at_level(level).node else { return };
        let CursorLevel { node: parent, index } = self.at_level(level + 1);
        let other = if side == Side::Left { index - 1 } else { index + 1 };
        self.refresh_keys(tx, parent, index, buffer);
        self.refresh_keys(tx, parent, other, sibling);
        self.update_keys(tx, level + 1);
    }

    /// Splits the block at `level`, whose parent has room.
    fn split(&mut self, tx: &mut Transaction, level: usize) -> Result<()> {
        let Node::Block { pointer, buffer } = self.at_level(level).node else { return Ok(()) };
        tx.mount().error_tags.fail(BTREE_SPLIT)?;
        let right = view::<K::Format>(tx, buffer).right();
        // All that can fail, but for the allocation, is done before the first change.
        let right_buffer = right.map(|right| self.read_sibling(tx, right, level as u16)).transpose()?;
        let (new, new_buffer) = self.new_block(tx, pointer, level as u16, Some(pointer), right)?;
        let count = view::<K::Format>(tx, buffer).count();
        let upper = count.div_ceil(2)..count;
        let entries = copy_entries::<K::Format>(tx, buffer, upper.clone());
        insert_entries::<K::Format>(tx, new_buffer, 0, &entries);
        remove_entries::<K::Format>(tx, buffer, upper);
        set_right::<K::Format>(tx, buffer, Some(new));
        if let Some(right_buffer) = right_buffer {
            set_left::<K::Format>(tx, right_buffer, Some(new));
            tx.release(right_buffer);
        }
        let CursorLevel { node: parent, index } = self.at_level(level + 1);
        self.refresh_keys(tx, parent, index, buffer);
        self.insert_child(tx, parent, index + 1, new, new_buffer);
        self.update_keys(tx, level + 1);
        tx.release(new_buffer);
        Ok(())
    }

    fn new_block(
        &mut self,
        tx: &mut Transaction,
        near: u64,
        level: u16,
        left: Option<u64>,
        right: Option<u64>,
    ) -> Result<(u64, BufId)> {
        let pointer = self.kind.allocate_block(tx, near)?;
        let Some(address) = self.kind.address(tx.geometry(), pointer) else {
            ensure_on_disk!(false, K::Format::NAME, "new block within the AG", "{pointer}");
            unreachable!("the check above returned");
        };
        let bytes = tx.geometry().block_bytes();
        let buffer = tx.create(address, bytes, K::buffer_kind())?;
        write_header(tx, &self.kind, buffer, level, left, right);
        Ok((pointer, buffer))
    }

    /// Moves the entries of a root within an inode into a block of their own, so that the root takes the least room
    /// there. The cursor stands nowhere afterwards.
    ///
    /// # Errors
    /// `NoSpace` before anything was changed; `Corrupt`, `Io`.
    pub fn push_root_down(&mut self, tx: &mut Transaction) -> Result<()> {
        self.kind.expect_blocks(tx, 1)?;
        self.grow(tx)?;
        self.reset(tx);
        Ok(())
    }

    /// Makes the tree one level higher.
    fn grow(&mut self, tx: &mut Transaction) -> Result<()> {
        match self.kind.root(tx) {
            Root::Block { pointer, levels } => {
                let Node::Block { buffer, .. } = self.path[0].node else { return Ok(()) };
                let (new, new_buffer) = self.new_block(tx, pointer, levels as u16, None, None)?;
                let (low, high) = view::<K::Format>(tx, buffer).bounds().expect("a full root is not empty");
                insert_entries::<K::Format>(tx, new_buffer, 0, &child_entry::<K::Format>(&low, &high, pointer));
                self.kind.set_root(tx, new, levels + 1);
                tx.release(new_buffer);
            }
            Root::Inline { .. } => {
                let (level, entries) = self.inline_entries(tx);
                let near = entries.children.first().copied().unwrap_or(0);
                let (new, new_buffer) = self.new_block(tx, near, level, None, None)?;
                for (index, (key, &child)) in entries.keys.iter().zip(&entries.children).enumerate() {
                    insert_entries::<K::Format>(tx, new_buffer, index, &child_entry::<K::Format>(key, key, child));
                }
                let root = NodeEntries { keys: vec![entries.keys[0]], children: vec![new] };
                self.kind.set_inline_root(tx, level + 1, root);
                tx.release(new_buffer);
            }
        }
        Ok(())
    }
}
