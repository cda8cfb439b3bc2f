//! Changes to data blocks: entries and unused space, and the header's table of the largest unused spaces.
//!
//! The table is kept by small steps where that is exact, and made anew from the whole block where an unused space
//! outside the table could now belong into it.

use crate::dabtree::edit::Edit;
use smallvec::SmallVec;
use xfskit_ondisk::dir::data::{
    BEST_FREE_OFFSET, BestFree, DATA_HEADER_BYTES, DataHeader, Slot, UNUSED_MARK, data_end, data_header, slot_at, slots,
};
use xfskit_ondisk::dir::{DirBlockHeader, FileType, entry_bytes};
use zerocopy::IntoBytes;
use zerocopy::big_endian::{U16, U32};

/// A run of bytes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnusedSpace {
    pub offset: usize,
    pub length: usize,
}

impl UnusedSpace {
    pub fn end(self) -> usize {
        self.offset + self.length
    }
}

/// Writes an empty data block: a header and one unused space.
pub(super) fn init(e: &mut Edit<'_>, header: DirBlockHeader) {
    let header = DataHeader { block: header, best_free: [BestFree::default(); 3], pad: U32::ZERO };
    e.put(0, header.as_bytes());
    let body = UnusedSpace { offset: DATA_HEADER_BYTES, length: e.len() - DATA_HEADER_BYTES };
    mark_unused(e, body);
    update_table(e, &[], &[body]);
}

/// The largest unused space; 0 in a full block.
pub(super) fn largest(bytes: &[u8]) -> u16 {
    data_header(bytes).best_free[0].length.get()
}

/// The unused space that the table's place `index` names, if it is in order.
pub(super) fn listed(bytes: &[u8], index: usize) -> Option<UnusedSpace> {
    let free = data_header(bytes).best_free[index];
    let listed = UnusedSpace { offset: free.offset.get().into(), length: free.length.get().into() };
    (unused_at(bytes, listed.offset)? == listed).then_some(listed)
}

/// The unused space that starts at `offset`, if there is one.
pub(super) fn unused_at(bytes: &[u8], offset: usize) -> Option<UnusedSpace> {
    match slot_at(bytes, offset, data_end(bytes))? {
        Slot::Unused { offset, length } => Some(UnusedSpace { offset, length }),
        Slot::Entry(_) => None,
    }
}

/// The unused space that ends at `end`, if there is one.
pub(super) fn unused_before(bytes: &[u8], end: usize) -> Option<UnusedSpace> {
    if end <= DATA_HEADER_BYTES {
        return None;
    }
    let tag = bytes.get(end - 2..end)?;
    let space = unused_at(bytes, u16::from_be_bytes([tag[0], tag[1]]).into())?;
    (space.end() == end).then_some(space)
}

/// Writes an entry into space that is in use.
pub(super) fn write_entry(e: &mut Edit<'_>, offset: usize, inode: u64, file_type: FileType, name: &[u8]) {
    let length = entry_bytes(name.len());
    let entry = e.touch(offset..offset + length);
    entry[..8].copy_from_slice(&inode.to_be_bytes());
    entry[8] = name.len() as u8;
    entry[9..9 + name.len()].copy_from_slice(name);
    entry[9 + name.len()] = file_type as u8;
    entry[10 + name.len()..length - 2].fill(0);
    entry[length - 2..].copy_from_slice(&(offset as u16).to_be_bytes());
}

/// Makes an entry name another inode.
pub(super) fn replace_inode(e: &mut Edit<'_>, offset: usize, name_bytes: usize, inode: u64, file_type: FileType) {
    e.put(offset, &inode.to_be_bytes());
    e.put(offset + 9 + name_bytes, &[file_type as u8]);
}

/// Takes `wanted` out of the unused space `space`, which contains it. What it is taken for stands there already (or
/// lies behind the end of the entries), so that the block can be walked over.
pub(super) fn use_space(e: &mut Edit<'_>, space: UnusedSpace, wanted: UnusedSpace) {
    assert!(space.offset <= wanted.offset && wanted.end() <= space.end(), "the space contains what is taken of it");
    let mut rest: SmallVec<[UnusedSpace; 2]> = SmallVec::new();
    for left in [
        UnusedSpace { offset: space.offset, length: wanted.offset - space.offset },
        UnusedSpace { offset: wanted.end(), length: space.end() - wanted.end() },
    ] {
        if left.length > 0 {
            mark_unused(e, left);
            rest.push(left);
        }
    }
    update_table(e, &[space], &rest);
}

/// Makes `space` unused, together with unused space on either side.
pub(super) fn free_space(e: &mut Edit<'_>, space: UnusedSpace) {
    let mut merged = space;
    let mut gone: SmallVec<[UnusedSpace; 2]> = SmallVec::new();
    if let Some(before) = unused_before(e.bytes(), space.offset) {
        merged = UnusedSpace { offset: before.offset, length: before.length + merged.length };
        gone.push(before);
    }
    if let Some(after) = unused_at(e.bytes(), space.end()) {
        merged.length += after.length;
        gone.push(after);
    }
    mark_unused(e, merged);
    update_table(e, &gone, &[merged]);
}

/// Writes the marks at both ends of an unused space.
pub(super) fn mark_unused(e: &mut Edit<'_>, space: UnusedSpace) {
    let length = (space.length as u16).to_be_bytes();
    let mark = UNUSED_MARK.to_be_bytes();
    e.put(space.offset, &[mark[0], mark[1], length[0], length[1]]);
    e.put(space.end() - 2, &(space.offset as u16).to_be_bytes());
}

fn free(space: &UnusedSpace) -> BestFree {
    BestFree { offset: U16::new(space.offset as u16), length: U16::new(space.length as u16) }
}

/// Brings the table up to date after the unused spaces `gone` went and `new` ones were made.
fn update_table(e: &mut Edit<'_>, gone: &[UnusedSpace], new: &[UnusedSpace]) {
    let old = data_header(e.bytes()).best_free;
    let was_full = old[2].length.get() != 0;
    let mut table: SmallVec<[BestFree; 6]> =
        old.iter().filter(|kept| kept.length.get() != 0 && !gone.iter().any(|g| free(g) == **kept)).copied().collect();
    table.extend(new.iter().map(free));
    table.sort_by_key(|free| std::cmp::Reverse(free.length.get()));
    // Unused spaces outside a full table are no longer than its third; those outside one with room do not exist.
    let exact = !was_full || table.get(2).is_some_and(|third| third.length.get() >= old[2].length.get());
    if !exact {
        return rebuild_table(e);
    }
    table.resize(3, BestFree::default());
    if table[..] != old {
        e.put(BEST_FREE_OFFSET, table.as_bytes());
    }
}

/// Makes the table from what stands in the block.
pub(super) fn rebuild_table(e: &mut Edit<'_>) {
    let mut table = [BestFree::default(); 3];
    for slot in slots(e.bytes()) {
        let Slot::Unused { offset, length } = slot else { continue };
        let found = free(&UnusedSpace { offset, length });
        if let Some(place) = table.iter().position(|listed| found.length.get() > listed.length.get()) {
            table[place..].rotate_right(1);
            table[place] = found;
        }
    }
    e.put(BEST_FREE_OFFSET, table.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn table_is_right(bytes: &[u8]) -> bool {
        let mut lengths: Vec<_> = slots(bytes)
            .filter_map(|slot| match slot {
                Slot::Unused { length, .. } => Some(length as u16),
                Slot::Entry(_) => None,
            })
            .collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        lengths.resize(3.max(lengths.len()), 0);
        (0..3).all(|i| data_header(bytes).best_free[i].length.get() == lengths[i])
            && (0..3).all(|i| lengths[i] == 0 || listed(bytes, i).is_some())
    }

    #[test]
    fn the_table_of_unused_spaces_stays_right_through_a_thousand_changes() {
        for size in [1024usize, 65536] {
            let mut block = vec![0u8; size];
            let header = DirBlockHeader {
                magic: U32::new(xfskit_ondisk::dir::data::DIR_DATA_MAGIC),
                crc: [0; 4],
                address: 0.into(),
                lsn: 0.into(),
                uuid: [0; 16],
                owner: 0.into(),
            };
            init(&mut Edit::new(&mut block), header);
            let mut model = BTreeMap::new();
            let mut seed = 1u64;
            for step in 0..1500u64 {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let name = vec![b'a'; 1 + (seed >> 33) as usize % 40];
                let mut e = Edit::new(&mut block);
                let room = usize::from(largest(e.bytes())) >= entry_bytes(name.len());
                if (seed >> 60 < 9 || model.is_empty()) && room {
                    let space = listed(e.bytes(), 0).unwrap();
                    let wanted = UnusedSpace { offset: space.offset, length: entry_bytes(name.len()) };
                    write_entry(&mut e, wanted.offset, step + 1, FileType::Regular, &name);
                    use_space(&mut e, space, wanted);
                    model.insert(wanted.offset, name);
                } else if let Some(&offset) = model.keys().nth((seed >> 20) as usize % model.len().max(1)) {
                    let name = model.remove(&offset).unwrap();
                    free_space(&mut e, UnusedSpace { offset, length: entry_bytes(name.len()) });
                }
                assert!(table_is_right(&block), "step {step}");
            }
            let found: Vec<_> =
                xfskit_ondisk::dir::data::entries(&block).map(|e| (e.offset, e.name.to_vec())).collect();
            assert_eq!(found, model.into_iter().collect::<Vec<_>>());
        }
    }
}
