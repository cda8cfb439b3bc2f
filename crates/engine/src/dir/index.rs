//! Changes to a sorted array of hash index entries, with stale ones in it; and the index at the end of a block.

use crate::dabtree::edit::Edit;
use xfskit_ondisk::da::{array, array_mut, lower_bound_of_hash};
use xfskit_ondisk::dir::DirLayout;
use xfskit_ondisk::dir::data::{BLOCK_TAIL_BYTES, BlockTail, DATA_HEADER_BYTES};
use xfskit_ondisk::dir::leaf::IndexEntry;
use zerocopy::IntoBytes;
use zerocopy::big_endian::U32;

pub(super) const ENTRY_BYTES: usize = size_of::<IndexEntry>();

/// An array of index entries within a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexArray {
    /// Where it starts.
    pub start: usize,
    /// Entries, stale ones included.
    pub count: usize,
}

/// The entries with `hash`, with their positions.
pub(super) fn same_hash(entries: &[IndexEntry], hash: u32) -> impl Iterator<Item = (usize, &IndexEntry)> {
    let first = lower_bound_of_hash(entries, hash, |entry| entry.hash.get());
    let same = entries[first..].iter().take_while(move |entry| entry.hash.get() == hash);
    same.enumerate().map(move |(i, entry)| (first + i, entry))
}

impl IndexArray {
    pub fn end(self) -> usize {
        self.start + self.count * ENTRY_BYTES
    }

    fn place(self, e: &Edit<'_>, hash: u32) -> usize {
        lower_bound_of_hash(array::<IndexEntry>(e.bytes(), self.start, self.count), hash, |entry| entry.hash.get())
    }

    fn at(self, index: usize) -> usize {
        self.start + index * ENTRY_BYTES
    }

    /// Inserts an entry and takes the eight bytes behind the array for it.
    pub fn insert_growing_up(self, e: &mut Edit<'_>, entry: IndexEntry) {
        let place = self.at(self.place(e, entry.hash.get()));
        e.shift(place..self.end(), place + ENTRY_BYTES);
        e.put(place, entry.as_bytes());
    }

    /// Inserts an entry and takes the eight bytes before the array for it.
    pub fn insert_growing_down(self, e: &mut Edit<'_>, entry: IndexEntry) {
        let place = self.at(self.place(e, entry.hash.get()));
        e.shift(self.start..place, self.start - ENTRY_BYTES);
        e.put(place - ENTRY_BYTES, entry.as_bytes());
    }

    /// Inserts an entry in place of the nearest stale one; `false` when there is none.
    pub fn insert_over_stale(self, e: &mut Edit<'_>, entry: IndexEntry) -> bool {
        let place = self.place(e, entry.hash.get());
        let entries = array::<IndexEntry>(e.bytes(), self.start, self.count);
        let below = entries[..place].iter().rposition(IndexEntry::is_stale);
        // Only one that is nearer than that counts above.
        let end = below.map_or(self.count, |below| (2 * place - below - 1).min(self.count));
        let above = entries[place..end].iter().position(IndexEntry::is_stale).map(|distance| place + distance);
        let found = above.or(below);
        match found {
            Some(index) if index < place => {
                e.shift(self.at(index + 1)..self.at(place), self.at(index));
                e.put(self.at(place - 1), entry.as_bytes());
            }
            Some(index) => {
                e.shift(self.at(place)..self.at(index), self.at(place + 1));
                e.put(self.at(place), entry.as_bytes());
            }
            None => return false,
        }
        true
    }

    /// Makes an entry stale.
    pub fn make_stale(self, e: &mut Edit<'_>, index: usize) {
        e.touch_as::<IndexEntry>(self.at(index)).pointer.set(xfskit_ondisk::dir::STALE_POINTER);
    }

    /// Drops the stale entries; the rest starts where the array started. Says how many are left.
    pub fn compact(self, e: &mut Edit<'_>) -> usize {
        let (start, end) = (self.start, self.end());
        let entries = array_mut::<IndexEntry>(e.touch(start..end), 0, self.count);
        let mut kept = 0;
        for index in 0..entries.len() {
            if !entries[index].is_stale() {
                entries[kept] = entries[index];
                kept += 1;
            }
        }
        kept
    }
}

/// Where an index of `count` entries starts; `None` when a block has no room for it.
pub(super) fn index_start(layout: DirLayout, count: usize) -> Option<usize> {
    let start = layout.block_bytes().checked_sub(BLOCK_TAIL_BYTES + count * ENTRY_BYTES)?;
    (start >= DATA_HEADER_BYTES).then_some(start)
}

/// Writes an index without stale entries to the end of a block.
pub(super) fn write_index(e: &mut Edit<'_>, index: &[IndexEntry]) {
    set_tail(e, index.len(), 0);
    e.put(e.len() - BLOCK_TAIL_BYTES - index.len() * ENTRY_BYTES, index.as_bytes());
}

/// Counts the entries of the index in the block's tail.
pub(super) fn set_tail(e: &mut Edit<'_>, count: usize, stale: usize) {
    let tail = BlockTail { count: U32::new(count as u32), stale: U32::new(stale as u32) };
    e.put(e.len() - BLOCK_TAIL_BYTES, tail.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(bytes: &[u8], count: usize) -> Vec<(u32, u32)> {
        array::<IndexEntry>(bytes, 8, count).iter().map(|e| (e.hash.get(), e.pointer.get())).collect()
    }

    #[test]
    fn entries_go_to_their_place_over_the_nearest_stale_one() {
        for stale in 0..5 {
            for hash in 0..12 {
                let mut bytes = vec![0; 64];
                let mut e = Edit::new(&mut bytes);
                for i in 0..5u32 {
                    let pointer = if i == stale { 0 } else { i + 1 };
                    e.put(8 + i as usize * 8, IndexEntry::new(i * 2 + 1, pointer).as_bytes());
                }
                let array = IndexArray { start: 8, count: 5 };
                assert!(array.insert_over_stale(&mut e, IndexEntry::new(hash, 99)));
                assert!(!array.insert_over_stale(&mut e, IndexEntry::new(hash, 99)));
                let found = entries(&bytes, 5);
                assert!(found.is_sorted_by_key(|e| e.0), "{found:?}");
                let mut expected: Vec<_> = (0..5).filter(|&i| i != stale).map(|i| (i * 2 + 1, i + 1)).collect();
                expected.push((hash, 99));
                expected.sort_unstable_by_key(|e| e.1);
                let mut found = found;
                found.sort_unstable_by_key(|e| e.1);
                assert_eq!(found, expected);
            }
        }
    }
}
