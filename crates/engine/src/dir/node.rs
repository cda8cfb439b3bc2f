//! The node form: data blocks, a btree of hash index blocks, and free index blocks.
//!
//! A removal leaves stale index entries, frees data blocks that become empty, joins index blocks that become sparse,
//! and returns to the leaf form when one index block is left and the free index fits into it.

use super::data;
use super::index::ENTRY_BYTES;
use super::leaf::{add_to_data, index_array, insert_index, make_stale, remove_from_data, set_counts};
use super::{DIR_FREE_KIND, DIR_LEAF1_KIND, Dir, FoundEntry, NewEntry, leaf};
use crate::dabtree::edit::{Edit, edit};
use crate::dabtree::{CycleGuard, DIR_LEAFN_KIND, Path};
use crate::error::Result;
use crate::trans::{BufId, Transaction};
use xfskit_ondisk::da::{DaInfo, array, last_hash};
use xfskit_ondisk::dir::free::{DIR_FREE_MAGIC, FREE_HEADER_BYTES, FreeHeader, free_header, free_values};
use xfskit_ondisk::dir::leaf::{
    DIR_LEAFN_MAGIC, IndexEntry, LEAF_HEADER_BYTES, LEAF_TAIL_BYTES, LeafHeader, leaf_bests, leaf_entries, leaf_header,
};
use xfskit_ondisk::dir::{DirBlockHeader, NO_DATA_BLOCK, entry_bytes};
use zerocopy::IntoBytes;
use zerocopy::big_endian::{U16, U32};

/// Writes a free index block.
fn write_free(dir: &Dir, tx: &mut Transaction, id: BufId, number: u32, values: &[u16]) {
    let used = values.iter().filter(|&&value| value != NO_DATA_BLOCK).count();
    let header = FreeHeader {
        block: DirBlockHeader::new(tx.geometry(), DIR_FREE_MAGIC, dir.number(tx), tx.address(id)),
        first: U32::new(number * dir.layout.free_capacity() as u32),
        count: U32::new(values.len() as u32),
        used: U32::new(used as u32),
        pad: U32::ZERO,
    };
    edit(tx, id, |e| {
        e.put(0, header.as_bytes());
        for (index, &value) in values.iter().enumerate() {
            e.put(FREE_HEADER_BYTES + 2 * index, &value.to_be_bytes());
        }
    });
}

/// Changes one value of a free index block, and its counts with it.
fn set_value(e: &mut Edit<'_>, index: usize, value: u16) {
    let header = free_header(e.bytes());
    let (count, used) = (header.count.get() as usize, header.used.get());
    for missing in count..index {
        e.put(FREE_HEADER_BYTES + 2 * missing, &NO_DATA_BLOCK.to_be_bytes());
    }
    let old = free_values(e.bytes()).get(index).map_or(NO_DATA_BLOCK, |old| old.get());
    e.put(FREE_HEADER_BYTES + 2 * index, &value.to_be_bytes());
    let used = used + u32::from(value != NO_DATA_BLOCK) - u32::from(old != NO_DATA_BLOCK);
    let count = if value == NO_DATA_BLOCK && index + 1 >= count {
        let values = array::<U16>(e.bytes(), FREE_HEADER_BYTES, index);
        values.iter().rposition(|value| value.get() != NO_DATA_BLOCK).map_or(0, |last| last + 1)
    } else {
        count.max(index + 1)
    };
    let header = free_header(e.bytes());
    if (header.used.get(), header.count.get() as usize) != (used, count) {
        let header = e.touch_as::<FreeHeader>(0);
        header.used.set(used);
        header.count.set(count as u32);
    }
}

impl Dir {
    pub(super) fn find_in_node(&self, tx: &mut Transaction, name: &[u8], hash: u32) -> Result<Option<FoundEntry>> {
        let (path, found) = self.search_tree(tx, name, hash)?;
        path.release(tx);
        Ok(found.map(|(_, found)| found))
    }

    /// Looks a name up: the path to its leaf and its position there, or the path to the last leaf that was searched.
    pub(super) fn search_tree(
        &self,
        tx: &mut Transaction,
        name: &[u8],
        hash: u32,
    ) -> Result<(Path, Option<(usize, FoundEntry)>)> {
        let tree = self.tree();
        let mut path = Path::descend(tx, &tree, hash)?;
        let mut guard = CycleGuard::default();
        loop {
            guard.visit(path.leaf().block)?;
            if let Some(found) = self.search_index_block(tx, path.leaf().id, name, hash)? {
                return Ok((path, Some(found)));
            }
            // Names of the same hash may go on in the next leaf.
            let goes_on = last_hash(tx.bytes(path.leaf().id)) == hash;
            if !goes_on || !path.advance(tx, &tree)? {
                return Ok((path, None));
            }
        }
    }

    /// Stores the largest unused space of data block `number` in the free index block `free`.
    fn set_room(&self, tx: &mut Transaction, free: BufId, number: u32, best: u16) {
        edit(tx, free, |e| set_value(e, self.layout.free_place(number).1, best));
        if let Some(memory) = tx.dir_memory_mut(self.ino) {
            memory.note_room(number, best.into());
        }
    }

    fn read_free(&self, tx: &mut Transaction, number: u32) -> Result<Option<BufId>> {
        let Some(id) = self.try_read(tx, self.layout.free_block(number), &DIR_FREE_KIND)? else { return Ok(None) };
        let first = free_header(tx.bytes(id)).first.get();
        let expected = number * self.layout.free_capacity() as u32;
        ensure_on_disk!(first == expected, "directory free index block", "first data block", "{first} not {expected}");
        Ok(Some(id))
    }

    /// Turns the leaf form into the node form: the free index moves to a block of its own.
    pub(super) fn leaf_to_node(&self, tx: &mut Transaction, leaf: BufId) -> Result<()> {
        let bests: Vec<u16> = leaf_bests(tx.bytes(leaf)).iter().map(|best| best.get()).collect();
        let fits = bests.len() <= self.layout.free_capacity();
        ensure_on_disk!(fits, "directory leaf block", "free index fits a block", "{} data blocks", bests.len());
        let free = self.create(tx, self.layout.free_block(0), &DIR_FREE_KIND)?;
        write_free(self, tx, free, 0, &bests);
        if let Some(memory) = tx.dir_memory_mut(self.ino) {
            // What was known is of an earlier time in this form.
            memory.forget_room();
        }
        tx.set_kind(leaf, &DIR_LEAFN_KIND);
        tx.edit_as::<DaInfo>(leaf, 0).magic.set(DIR_LEAFN_MAGIC);
        Ok(())
    }

    /// Adds an entry; `path` leads to the leaf that its name belongs to, if it is known.
    pub(super) fn add_to_node(&self, tx: &mut Transaction, new: &NewEntry<'_>, path: Option<Path>) -> Result<u32> {
        let (number, data, free) = match self.find_free_space(tx, entry_bytes(new.name.len()))? {
            Some((number, free)) => (number, self.read_data(tx, number)?, free),
            None => self.add_data_block(tx)?,
        };
        let (offset, best) = add_to_data(tx, data, new)?;
        self.set_room(tx, free, number, best);
        let pointer = self.layout.pointer(number, offset);
        let path = match path {
            Some(path) => path,
            None => Path::descend(tx, &self.tree(), new.hash)?,
        };
        self.add_to_tree(tx, path, IndexEntry::new(new.hash, pointer))?;
        Ok(pointer)
    }

    /// Number of free index blocks, holes among them included.
    fn free_blocks(&self, tx: &mut Transaction) -> Result<u32> {
        let blocks = self.end(tx)?.0.saturating_sub(self.layout.free_start().0) / u64::from(self.layout.fs_blocks());
        let most = self.layout.max_data_blocks().div_ceil(self.layout.free_capacity() as u32);
        ensure_on_disk!(blocks <= most.into(), "directory", "size of the free index", "{blocks} blocks");
        Ok(blocks as u32)
    }

    /// The last data block with an unused space of `length` bytes, and its free index block.
    fn find_free_space(&self, tx: &mut Transaction, length: usize) -> Result<Option<(u32, BufId)>> {
        let from = tx.inode(self.ino).dir_memory.as_ref().map_or(0, |memory| memory.room_from(length));
        let blocks = self.free_blocks(tx)?;
        for block in (self.layout.free_place(from).0..blocks).rev() {
            let Some(id) = self.read_free(tx, block)? else { continue };
            let first = free_header(tx.bytes(id)).first.get();
            let values = free_values(tx.bytes(id));
            let known_full = (from.saturating_sub(first) as usize).min(values.len());
            let has_room = |value: &U16| value.get() != NO_DATA_BLOCK && usize::from(value.get()) >= length;
            if let Some(index) = values[known_full..].iter().rposition(has_room) {
                return Ok(Some((first + (known_full + index) as u32, id)));
            }
            tx.release(id);
        }
        let end = blocks * self.layout.free_capacity() as u32;
        if let Some(memory) = tx.dir_memory_mut(self.ino) {
            memory.note_no_room(length, end);
        }
        Ok(None)
    }

    /// Makes a data block, and the free index block that it needs.
    fn add_data_block(&self, tx: &mut Transaction) -> Result<(u32, BufId, BufId)> {
        let number = self.first_missing_data(tx)?;
        let data = self.create_data(tx, number)?;
        let (block, _) = self.layout.free_place(number);
        let free = match self.read_free(tx, block)? {
            Some(free) => free,
            None => {
                let free = self.create(tx, self.layout.free_block(block), &DIR_FREE_KIND)?;
                write_free(self, tx, free, block, &[]);
                free
            }
        };
        Ok((number, data, free))
    }

    fn add_to_tree(&self, tx: &mut Transaction, mut path: Path, entry: IndexEntry) -> Result<()> {
        let tree = self.tree();
        let leaf = path.leaf().id;
        let header = leaf_header(tx.bytes(leaf));
        let capacity = (self.layout.block_bytes() - LEAF_HEADER_BYTES) / ENTRY_BYTES;
        if header.stale.get() > 0 || usize::from(header.count.get()) < capacity {
            edit(tx, leaf, |e| insert_index(e, entry));
            let hash = last_hash(tx.bytes(leaf));
            path.set_last_hash(tx, hash);
            return Ok(());
        }
        if path.is_single_leaf() {
            tree.push_down_root(tx, &mut path)?;
        }
        let left = path.leaf();
        let (block, right) = tree.allocate(tx, &DIR_LEAFN_KIND)?;
        let entries = leaf_entries(tx.bytes(left.id));
        let keep = entries.len() / 2;
        let moved = entries[keep..].to_vec();
        let goes_right = moved[0].hash.get() < entry.hash.get();
        self.write_leafn(tx, right, &moved);
        edit(tx, left.id, |e| set_counts(e, keep, 0));
        tree.link_after(tx, left, (block, right))?;
        edit(tx, if goes_right { right } else { left.id }, |e| insert_index(e, entry));
        let (left_hash, hash) = (last_hash(tx.bytes(left.id)), last_hash(tx.bytes(right)));
        tree.add_block(tx, path, left_hash, block, hash)
    }

    fn write_leafn(&self, tx: &mut Transaction, id: BufId, index: &[IndexEntry]) {
        let info = DaInfo::new(tx.geometry(), DIR_LEAFN_MAGIC, self.number(tx), tx.address(id));
        let header = LeafHeader { info, count: U16::new(index.len() as u16), stale: U16::ZERO, pad: U32::ZERO };
        edit(tx, id, |e| {
            e.put(0, header.as_bytes());
            e.put(LEAF_HEADER_BYTES, index.as_bytes());
        });
    }

    /// Removes the entry `found`, whose place in the index is `position` in the leaf of `path`.
    pub(super) fn remove_from_node(
        &self,
        tx: &mut Transaction,
        path: Path,
        position: usize,
        found: &FoundEntry,
    ) -> Result<()> {
        let old_best = data::largest(tx.bytes(found.data));
        let (block, index) = self.layout.free_place(found.number);
        let free = self.read_free(tx, block)?;
        let known = free.is_some_and(|free| index < free_values(tx.bytes(free)).len());
        ensure_on_disk!(known, "directory free index block", "knows the data block", "{}", found.number);
        let free = free.expect("checked");
        edit(tx, path.leaf().id, |e| make_stale(e, position));
        let best = remove_from_data(tx, found)?;
        if best == self.empty_best() && found.number > 0 {
            self.free_data(tx, found.number, found.data)?;
            edit(tx, free, |e| set_value(e, index, NO_DATA_BLOCK));
            if free_header(tx.bytes(free)).used.get() == 0 {
                self.free(tx, self.layout.free_block(block), free)?;
            }
        } else if best != old_best {
            self.set_room(tx, free, found.number, best);
        }
        let may_be_one_leaf = path.is_single_leaf();
        if self.join_leaf(tx, path)? || may_be_one_leaf { self.node_to_leaf(tx) } else { Ok(()) }
    }

    /// Joins a leaf that became sparse with a neighbour, or frees it when it became empty; says whether the tree has
    /// lost a leaf.
    fn join_leaf(&self, tx: &mut Transaction, path: Path) -> Result<bool> {
        let tree = self.tree();
        let live = |tx: &Transaction, id: BufId| {
            let header = leaf_header(tx.bytes(id));
            usize::from(header.count.get()) - usize::from(header.stale.get())
        };
        let block_bytes = self.layout.block_bytes();
        let count = live(tx, path.leaf().id);
        if path.is_single_leaf() || LEAF_HEADER_BYTES + count * ENTRY_BYTES >= block_bytes * 37 / 100 {
            return Ok(false);
        }
        if count == 0 {
            edit(tx, path.leaf().id, |e| set_counts(e, 0, 0));
            tree.remove_leaf(tx, path)?;
            return Ok(true);
        }
        // A quarter of the block stays free, so that the next entries do not split it again.
        let fits = |tx: &Transaction, other: BufId| {
            Ok((count + live(tx, other)) * ENTRY_BYTES <= block_bytes - block_bytes / 4)
        };
        let Some((left, right)) = path.with_neighbour(tx, &tree, fits)? else { return Ok(false) };
        let (into, from) = (left.leaf().id, right.leaf().id);
        let moved: Vec<_> = leaf_entries(tx.bytes(from)).iter().filter(|e| !e.is_stale()).copied().collect();
        edit(tx, into, |e| {
            let live_count = index_array(e.bytes()).compact(e);
            e.put(LEAF_HEADER_BYTES + live_count * ENTRY_BYTES, moved.as_bytes());
            set_counts(e, live_count + moved.len(), 0);
        });
        let hash = last_hash(tx.bytes(into));
        left.set_last_hash(tx, hash);
        tree.remove_leaf(tx, right)?;
        Ok(true)
    }

    /// Returns to the leaf form, if one index block is left and has room for the free index.
    fn node_to_leaf(&self, tx: &mut Transaction) -> Result<()> {
        let root = self.tree().read(tx, self.tree().root)?;
        if !std::ptr::eq(tx.kind(root), &DIR_LEAFN_KIND) {
            return Ok(());
        }
        let mut blocks = self.free_blocks(tx)?;
        while blocks > 1 {
            // Removals without a reservation may have left blocks at the end that index nothing.
            if let Some(free) = self.read_free(tx, blocks - 1)? {
                if free_header(tx.bytes(free)).used.get() > 0 {
                    return Ok(());
                }
                self.free(tx, self.layout.free_block(blocks - 1), free)?;
            }
            blocks -= 1;
        }
        let Some(free) = self.read_free(tx, 0)? else { return Ok(()) };
        let bests: Vec<u16> = free_values(tx.bytes(free)).iter().map(|value| value.get()).collect();
        let index: Vec<_> = leaf_entries(tx.bytes(root)).iter().filter(|entry| !entry.is_stale()).copied().collect();
        let needed = LEAF_HEADER_BYTES + index.len() * ENTRY_BYTES + bests.len() * 2 + LEAF_TAIL_BYTES;
        if needed > self.layout.block_bytes() {
            return Ok(());
        }
        tx.set_kind(root, &DIR_LEAF1_KIND);
        leaf::write(self, tx, root, &index, &bests);
        self.free(tx, self.layout.free_block(0), free)?;
        self.leaf_to_block(tx, root)
    }
}
