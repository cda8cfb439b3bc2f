//! The leaf form: data blocks, and one block with the hash index and the largest unused length of every data block.

use super::data::{self, UnusedSpace};
use super::index::{ENTRY_BYTES, IndexArray, index_start, same_hash, write_index};
use super::{DIR_LEAF1_KIND, Dir, FoundEntry, NewEntry};
use crate::dabtree::edit::{Edit, edit};
use crate::error::{Error, Result};
use crate::trans::{BufId, Transaction};
use smallvec::SmallVec;
use xfskit_ondisk::da::{DaInfo, hash_name};
use xfskit_ondisk::dir::data::{DATA_HEADER_BYTES, Slot, data_end, entry_at, is_slot, slot_at};
use xfskit_ondisk::dir::leaf::{
    DIR_LEAF1_MAGIC, IndexEntry, LEAF_HEADER_BYTES, LEAF_TAIL_BYTES, LeafHeader, leaf_bests, leaf_entries, leaf_header,
};
use xfskit_ondisk::dir::{NO_DATA_BLOCK, entry_bytes};
use zerocopy::IntoBytes;
use zerocopy::big_endian::{U16, U32};

/// Writes the index block of the leaf form.
pub(super) fn write(dir: &Dir, tx: &mut Transaction, id: BufId, index: &[IndexEntry], bests: &[u16]) {
    let info = DaInfo::new(tx.geometry(), DIR_LEAF1_MAGIC, dir.number(tx), tx.address(id));
    let header = LeafHeader { info, count: U16::new(index.len() as u16), stale: U16::ZERO, pad: U32::ZERO };
    edit(tx, id, |e| {
        e.put(0, header.as_bytes());
        e.put(LEAF_HEADER_BYTES, index.as_bytes());
        set_bests(e, bests);
    });
}

/// Writes the free index at the end of the block.
fn set_bests(e: &mut Edit<'_>, bests: &[u16]) {
    let tail = e.len() - LEAF_TAIL_BYTES;
    e.put(tail, &(bests.len() as u32).to_be_bytes());
    let values: SmallVec<[U16; 64]> = bests.iter().map(|&value| U16::new(value)).collect();
    e.put(tail - 2 * values.len(), values.as_bytes());
}

/// Changes the value of one data block.
fn set_best(e: &mut Edit<'_>, number: u32, value: u16) {
    let count = leaf_bests(e.bytes()).len();
    let at = e.len() - LEAF_TAIL_BYTES - 2 * (count - number as usize);
    if leaf_bests(e.bytes())[number as usize].get() != value {
        e.put(at, &value.to_be_bytes());
    }
}

pub(super) fn index_array(bytes: &[u8]) -> IndexArray {
    IndexArray { start: LEAF_HEADER_BYTES, count: leaf_header(bytes).count.get().into() }
}

pub(super) fn set_counts(e: &mut Edit<'_>, count: usize, stale: usize) {
    let header = e.touch_as::<LeafHeader>(0);
    header.count.set(count as u16);
    header.stale.set(stale as u16);
}

/// Inserts an index entry into a leaf of either kind, which has a stale entry or room behind the last.
pub(super) fn insert_index(e: &mut Edit<'_>, entry: IndexEntry) {
    let array = index_array(e.bytes());
    let stale = usize::from(leaf_header(e.bytes()).stale.get());
    if stale > 0 && array.insert_over_stale(e, entry) {
        set_counts(e, array.count, stale - 1);
    } else {
        array.insert_growing_up(e, entry);
        set_counts(e, array.count + 1, stale);
    }
}

/// Marks an index entry of a leaf of either kind as removed.
pub(super) fn make_stale(e: &mut Edit<'_>, position: usize) {
    let array = index_array(e.bytes());
    let stale = usize::from(leaf_header(e.bytes()).stale.get());
    array.make_stale(e, position);
    set_counts(e, array.count, stale + 1);
}

/// Writes an entry into a data block that has an unused space for it; says where, and the largest space left.
pub(super) fn add_to_data(tx: &mut Transaction, id: BufId, new: &NewEntry<'_>) -> Result<(usize, u16)> {
    let length = entry_bytes(new.name.len());
    let space = data::listed(tx.bytes(id), 0).filter(|space| space.length >= length);
    ensure_on_disk!(space.is_some(), "directory data block", "has the space that the free index says");
    let space = space.expect("checked");
    edit(tx, id, |e| {
        data::write_entry(e, space.offset, new.inode, new.file_type, new.name);
        data::use_space(e, space, UnusedSpace { offset: space.offset, length });
        Ok((space.offset, data::largest(e.bytes())))
    })
}

/// Frees the space of the entry that was found; says the largest space of its block then.
pub(super) fn remove_from_data(tx: &mut Transaction, found: &FoundEntry) -> Result<u16> {
    let bytes = tx.bytes(found.data);
    let slot = slot_at(bytes, found.offset, data_end(bytes));
    let Some(Slot::Entry(entry)) = slot else { unreachable!("the entry was found there") };
    // An offset from another block may lie within an entry: what is before it must end where it starts.
    ensure_on_disk!(
        is_slot(bytes, found.offset),
        "directory data block",
        "index points at entries",
        "offset {}",
        found.offset
    );
    let space = UnusedSpace { offset: found.offset, length: entry.bytes() };
    Ok(edit(tx, found.data, |e| {
        data::free_space(e, space);
        data::largest(e.bytes())
    }))
}

impl Dir {
    /// What the free index says of a data block without entries.
    pub(super) fn empty_best(&self) -> u16 {
        (self.layout.block_bytes() - DATA_HEADER_BYTES) as u16
    }

    pub(super) fn read_leaf1(&self, tx: &mut Transaction) -> Result<BufId> {
        self.read(tx, self.layout.index_root(), &DIR_LEAF1_KIND)
    }

    pub(super) fn find_in_leaf(&self, tx: &mut Transaction, name: &[u8]) -> Result<Option<FoundEntry>> {
        let leaf = self.read_leaf1(tx)?;
        let found = self.search_index_block(tx, leaf, name, hash_name(name))?.map(|(_, found)| found);
        tx.release(leaf);
        Ok(found)
    }

    /// Looks a name up in a leaf of either kind: its position there, and its data block.
    pub(super) fn search_index_block(
        &self,
        tx: &mut Transaction,
        leaf: BufId,
        name: &[u8],
        hash: u32,
    ) -> Result<Option<(usize, FoundEntry)>> {
        let places: SmallVec<[(usize, IndexEntry); 4]> = same_hash(leaf_entries(tx.bytes(leaf)), hash)
            .filter(|(_, place)| !place.is_stale())
            .map(|(position, place)| (position, *place))
            .collect();
        for (position, place) in places {
            let (number, offset) = self.layout.split_pointer(place.pointer.get());
            let data = self.read_data(tx, number)?;
            let entry = entry_at(tx.bytes(data), offset);
            ensure_on_disk!(entry.is_some(), "directory leaf block", "points at entries", "{place:?}");
            if let Some(entry) = entry.filter(|entry| entry.name == name) {
                return Ok(Some((position, FoundEntry::new(data, number, &entry))));
            }
            tx.release(data);
        }
        Ok(None)
    }

    pub(super) fn add_to_leaf(&self, tx: &mut Transaction, new: &NewEntry<'_>) -> Result<u32> {
        let leaf = self.read_leaf1(tx)?;
        let length = entry_bytes(new.name.len());
        let bytes = tx.bytes(leaf);
        let bests = leaf_bests(bytes);
        let chosen = self.choose_data_block(bytes, new.hash, length);
        let (array, stale) = (index_array(bytes), usize::from(leaf_header(bytes).stale.get()));
        let grows = chosen.is_none() && !bests.iter().any(|best| best.get() == NO_DATA_BLOCK);
        let needed = if stale == 0 { ENTRY_BYTES } else { 0 } + if grows { 2 } else { 0 };
        let room = bytes.len() - LEAF_TAIL_BYTES - 2 * bests.len() - array.end();
        let compact = room < needed && stale > 1;
        if room < needed && !compact {
            self.leaf_to_node(tx, leaf)?;
            return self.add_to_node(tx, new, None);
        }
        let (number, data) = match chosen {
            Some(number) => (number, self.read_data(tx, number)?),
            None => {
                let number = self.first_missing_data(tx)?;
                let count = leaf_bests(tx.bytes(leaf)).len() as u32;
                let known = if grows { number == count } else { number < count };
                ensure_on_disk!(known, "directory leaf block", "free index reaches over all data blocks", "{number}");
                (number, self.create_data(tx, number)?)
            }
        };
        let (offset, best) = add_to_data(tx, data, new)?;
        let pointer = self.layout.pointer(number, offset);
        edit(tx, leaf, |e| {
            if compact {
                let kept = array.compact(e);
                set_counts(e, kept, 0);
            }
            if number as usize == leaf_bests(e.bytes()).len() {
                let mut bests: Vec<u16> = leaf_bests(e.bytes()).iter().map(|best| best.get()).collect();
                bests.push(best);
                set_bests(e, &bests);
            } else {
                set_best(e, number, best);
            }
            insert_index(e, IndexEntry::new(new.hash, pointer));
        });
        Ok(pointer)
    }

    /// The data block for a new entry: one that has an entry of the same hash, else the first with room.
    fn choose_data_block(&self, leaf: &[u8], hash: u32, length: usize) -> Option<u32> {
        let bests = leaf_bests(leaf);
        let has_room = |best: &U16| best.get() != NO_DATA_BLOCK && usize::from(best.get()) >= length;
        let with_same_hash = same_hash(leaf_entries(leaf), hash)
            .filter(|(_, place)| !place.is_stale())
            .map(|(_, place)| self.layout.split_pointer(place.pointer.get()).0)
            .find(|&number| bests.get(number as usize).is_some_and(has_room));
        with_same_hash.or_else(|| bests.iter().position(has_room).map(|number| number as u32))
    }

    pub(super) fn remove_from_leaf(&self, tx: &mut Transaction, name: &[u8]) -> Result<()> {
        let leaf = self.read_leaf1(tx)?;
        let (position, found) = self.search_index_block(tx, leaf, name, hash_name(name))?.ok_or(Error::NotFound)?;
        let best = remove_from_data(tx, &found)?;
        let emptied = best == self.empty_best() && found.number > 0;
        edit(tx, leaf, |e| {
            make_stale(e, position);
            set_best(e, found.number, if emptied { NO_DATA_BLOCK } else { best });
            trim_bests(e);
        });
        if emptied {
            self.free_data(tx, found.number, found.data)?;
        }
        self.leaf_to_block(tx, leaf)
    }

    /// Joins data and index in one block, if there is one data block and its end has room for the index.
    pub(super) fn leaf_to_block(&self, tx: &mut Transaction, leaf: BufId) -> Result<()> {
        // Removals without a reservation may have left empty data blocks at the end.
        while let [_, .., last] = leaf_bests(tx.bytes(leaf)) {
            if last.get() != self.empty_best() {
                return Ok(());
            }
            let number = leaf_bests(tx.bytes(leaf)).len() as u32 - 1;
            let data = self.read_data(tx, number)?;
            edit(tx, leaf, |e| {
                set_best(e, number, NO_DATA_BLOCK);
                trim_bests(e);
            });
            self.free_data(tx, number, data)?;
        }
        let index: Vec<_> = leaf_entries(tx.bytes(leaf)).iter().filter(|entry| !entry.is_stale()).copied().collect();
        let data = self.read_data(tx, 0)?;
        let start = index_start(self.layout, index.len());
        let end = self.layout.block_bytes();
        let room = data::unused_before(tx.bytes(data), end).filter(|space| start.is_some_and(|s| space.offset <= s));
        let (Some(space), Some(start)) = (room, start) else { return Ok(()) };
        edit(tx, data, |e| write_index(e, &index));
        self.make_block_form(tx, data);
        edit(tx, data, |e| data::use_space(e, space, UnusedSpace { offset: start, length: end - start }));
        self.free(tx, self.layout.index_root(), leaf)?;
        self.block_to_shortform(tx, data)
    }
}

/// Drops values of missing data blocks at the end of the free index; the first data block always exists.
fn trim_bests(e: &mut Edit<'_>) {
    let bests = leaf_bests(e.bytes());
    let kept = bests.iter().rposition(|best| best.get() != NO_DATA_BLOCK).map_or(1, |last| last + 1);
    if kept < bests.len() {
        let bests: Vec<u16> = bests[..kept].iter().map(|best| best.get()).collect();
        set_bests(e, &bests);
    }
}
