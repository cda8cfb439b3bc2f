//! The block form: entries and their hash index in one directory block.

use super::data::{self, UnusedSpace};
use super::index::{ENTRY_BYTES, IndexArray, same_hash, set_tail};
use super::{DIR_BLOCK_KIND, DIR_LEAF1_KIND, Dir, FileType, FoundEntry, NewEntry, leaf, set_local, shortform};
use crate::dabtree::edit::{Edit, edit};
use crate::error::{Error, Result};
use crate::incore::DataFork;
use crate::trans::{BufId, InodeFields, Transaction};
use xfskit_ondisk::da::hash_name;
use xfskit_ondisk::dir::data::{
    DATA_HEADER_BYTES, DIR_BLOCK_MAGIC, block_index, block_index_start, block_tail, entries, entry_at,
};
use xfskit_ondisk::dir::leaf::IndexEntry;
use xfskit_ondisk::dir::shortform::{ShortformEntry, header_bytes, shortform_entry_bytes};
use xfskit_ondisk::dir::{DirBlockHeader, entry_bytes};
use xfskit_ondisk::{FileBlock, ForkFormat};
use zerocopy::IntoBytes;

/// How an entry fits into a block.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Where the entry goes.
    space: UnusedSpace,
    /// The stale index entries must be dropped to make room.
    compact: bool,
}

fn index_array(bytes: &[u8]) -> IndexArray {
    let start = block_index_start(bytes).expect("the block was verified");
    IndexArray { start, count: block_tail(bytes).count.get() as usize }
}

impl Dir {
    fn read_block(&self, tx: &mut Transaction) -> Result<BufId> {
        self.read(tx, FileBlock(0), &DIR_BLOCK_KIND)
    }

    pub(super) fn block_is_empty(&self, tx: &mut Transaction) -> Result<bool> {
        let id = self.read_block(tx)?;
        let tail = block_tail(tx.bytes(id));
        let empty = tail.count.get() - tail.stale.get() <= 2;
        tx.release(id);
        Ok(empty)
    }

    pub(super) fn find_in_block(&self, tx: &mut Transaction, name: &[u8]) -> Result<Option<FoundEntry>> {
        let id = self.read_block(tx)?;
        let found = self.find_in_block_index(tx, id, name)?.map(|(_, found)| found);
        if found.is_none() {
            tx.release(id);
        }
        Ok(found)
    }

    /// The entry of a name and its position in the index.
    fn find_in_block_index(&self, tx: &Transaction, id: BufId, name: &[u8]) -> Result<Option<(usize, FoundEntry)>> {
        let bytes = tx.bytes(id);
        for (position, place) in same_hash(block_index(bytes), hash_name(name)) {
            if place.is_stale() {
                continue;
            }
            let entry = entry_at(bytes, self.layout.split_pointer(place.pointer.get()).1);
            ensure_on_disk!(entry.is_some(), "directory block", "index points at entries", "{place:?}");
            if let Some(entry) = entry.filter(|entry| entry.name == name) {
                return Ok(Some((position, FoundEntry::new(id, 0, &entry))));
            }
        }
        Ok(None)
    }

    pub(super) fn add_to_block(&self, tx: &mut Transaction, new: &NewEntry<'_>) -> Result<u32> {
        let id = self.read_block(tx)?;
        let Some(plan) = plan(tx.bytes(id), entry_bytes(new.name.len())) else {
            self.block_to_leaf(tx, id)?;
            return self.add_to_leaf(tx, new);
        };
        let wanted = UnusedSpace { offset: plan.space.offset, length: entry_bytes(new.name.len()) };
        let pointer = self.layout.pointer(0, wanted.offset);
        edit(tx, id, |e| {
            if plan.compact {
                compact_index(e);
            }
            insert_index(e, IndexEntry::new(new.hash, pointer));
            // Room for the index may have been taken from this space, or added to it.
            let space = data::unused_at(e.bytes(), wanted.offset).expect("the plan found this space");
            data::write_entry(e, wanted.offset, new.inode, new.file_type, new.name);
            data::use_space(e, space, wanted);
        });
        Ok(pointer)
    }

    pub(super) fn remove_from_block(&self, tx: &mut Transaction, name: &[u8]) -> Result<()> {
        let id = self.read_block(tx)?;
        let (position, found) = self.find_in_block_index(tx, id, name)?.ok_or(Error::NotFound)?;
        edit(tx, id, |e| {
            let array = index_array(e.bytes());
            let stale = block_tail(e.bytes()).stale.get() as usize;
            array.make_stale(e, position);
            set_tail(e, array.count, stale + 1);
            data::free_space(e, UnusedSpace { offset: found.offset, length: entry_bytes(name.len()) });
        });
        self.block_to_shortform(tx, id)
    }

    /// Makes the block of a directory that was shortform.
    pub(super) fn make_block(&self, tx: &mut Transaction, parent: u64, list: &[ShortformEntry<'_>]) -> Result<()> {
        let number = self.number(tx);
        let state = tx.inode_mut(self.ino, InodeFields::DATA_EXTENTS);
        state.core.data_format = ForkFormat::Extents;
        state.core.size = 0;
        state.data = DataFork::EMPTY;
        let id = self.create(tx, FileBlock(0), &DIR_BLOCK_KIND)?;
        tx.inode_mut(self.ino, InodeFields::CORE).core.size = self.layout.block_bytes() as u64;
        let header = DirBlockHeader::new(tx.geometry(), DIR_BLOCK_MAGIC, number, tx.address(id));
        let (dot, dot_dot) = shortform::dot_offsets();
        let mut all = Vec::with_capacity(list.len() + 2);
        all.push((dot, number, FileType::Directory, b".".as_slice()));
        all.push((dot_dot, parent, FileType::Directory, b".."));
        all.extend(list.iter().map(|e| (usize::from(e.offset), e.inode, e.file_type, e.name)));
        let mut index: Vec<_> =
            all.iter().map(|(offset, _, _, name)| (hash_name(name), self.layout.pointer(0, *offset))).collect();
        index.sort_unstable();
        edit(tx, id, |e| {
            e.put(0, header.as_bytes());
            set_tail(e, index.len(), 0);
            let start = index_array(e.bytes()).start;
            let index: Vec<_> = index.iter().map(|&(hash, pointer)| IndexEntry::new(hash, pointer)).collect();
            e.put(start, index.as_bytes());
            let mut at = DATA_HEADER_BYTES;
            for (offset, inode, file_type, name) in all {
                if at < offset {
                    data::mark_unused(e, UnusedSpace { offset: at, length: offset - at });
                }
                data::write_entry(e, offset, inode, file_type, name);
                at = offset + entry_bytes(name.len());
            }
            if at < start {
                data::mark_unused(e, UnusedSpace { offset: at, length: start - at });
            }
            data::rebuild_table(e);
        });
        Ok(())
    }

    /// Turns the block into a data block and an index block.
    fn block_to_leaf(&self, tx: &mut Transaction, id: BufId) -> Result<()> {
        let leaf_id = self.create(tx, self.layout.index_root(), &DIR_LEAF1_KIND)?;
        let index: Vec<_> = block_index(tx.bytes(id)).iter().filter(|entry| !entry.is_stale()).copied().collect();
        let array = index_array(tx.bytes(id));
        self.make_data_form(tx, id);
        edit(tx, id, |e| {
            let length = e.len() - array.start;
            // An unused space before the index is not a neighbour in its own right until the index is gone.
            data::free_space(e, UnusedSpace { offset: array.start, length });
        });
        let best = data::largest(tx.bytes(id));
        leaf::write(self, tx, leaf_id, &index, &[best]);
        Ok(())
    }

    /// Puts the entries into the inode if they fit.
    pub(super) fn block_to_shortform(&self, tx: &mut Transaction, id: BufId) -> Result<()> {
        let tail = block_tail(tx.bytes(id));
        let live = (tail.count.get() - tail.stale.get()) as usize;
        let room = self.fork_bytes(tx);
        // The shortest entry takes nine bytes, so most blocks need no closer look.
        if live.saturating_sub(2) * shortform_entry_bytes(1, false) + header_bytes(false) > room {
            return Ok(());
        }
        let mut parent = None;
        let mut list = Vec::new();
        for entry in entries(tx.bytes(id)) {
            match entry.name {
                b"." => {}
                b".." => parent = Some(entry.inode),
                name => list.push(ShortformEntry {
                    start: 0,
                    length: 0,
                    offset: entry.offset as u16,
                    name,
                    file_type: entry.file_type,
                    inode: entry.inode,
                }),
            }
        }
        ensure_on_disk!(parent.is_some(), "directory block", "has a parent");
        let bytes = shortform::encode(parent.expect("checked"), &list);
        if bytes.len() > room || list.len() > 255 {
            return Ok(());
        }
        self.free(tx, FileBlock(0), id)?;
        set_local(tx, self.ino, &bytes);
        Ok(())
    }
}

/// Finds room for an entry and its place in the index.
fn plan(bytes: &[u8], length: usize) -> Option<Plan> {
    let stale = block_tail(bytes).stale.get() as usize;
    let at_end = data::unused_before(bytes, index_array(bytes).start);
    let fits = |space: &UnusedSpace| {
        let taken = if stale == 0 && Some(*space) == at_end { ENTRY_BYTES } else { 0 };
        space.length >= length + taken
    };
    if stale > 0 || at_end.is_some() {
        let found = (0..3).filter_map(|place| data::listed(bytes, place)).find(fits);
        if let Some(space) = found {
            return Some(Plan { space, compact: false });
        }
    }
    // Without the stale index entries but one, whose place the new one takes, there may be room before the index.
    let gained = stale.checked_sub(1)? * ENTRY_BYTES;
    let start = at_end.map_or(index_array(bytes).start, |space| space.offset);
    let space = UnusedSpace { offset: start, length: at_end.map_or(0, |space| space.length) + gained };
    (gained > 0 && space.length >= length).then_some(Plan { space, compact: true })
}

/// Drops all stale index entries but one, and frees their bytes before the index.
fn compact_index(e: &mut Edit<'_>) {
    let old = index_array(e.bytes());
    let mut kept: Vec<_> = block_index(e.bytes()).to_vec();
    let mut spared = false;
    kept.retain(|entry| !entry.is_stale() || !std::mem::replace(&mut spared, true));
    let start = old.end() - kept.len() * ENTRY_BYTES;
    set_tail(e, kept.len(), usize::from(spared));
    e.put(start, kept.as_bytes());
    data::free_space(e, UnusedSpace { offset: old.start, length: start - old.start });
}

/// Inserts an index entry over a stale one, or else in eight bytes taken from the unused space before the index.
fn insert_index(e: &mut Edit<'_>, entry: IndexEntry) {
    let array = index_array(e.bytes());
    let stale = block_tail(e.bytes()).stale.get() as usize;
    if stale > 0 && array.insert_over_stale(e, entry) {
        set_tail(e, array.count, stale - 1);
        return;
    }
    let space = data::unused_before(e.bytes(), array.start).expect("the plan found room for the index");
    array.insert_growing_down(e, entry);
    set_tail(e, array.count + 1, stale);
    data::use_space(e, space, UnusedSpace { offset: array.start - ENTRY_BYTES, length: ENTRY_BYTES });
}
