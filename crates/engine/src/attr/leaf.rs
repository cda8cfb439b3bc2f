//! Changes to one leaf of attributes.
//!
//! An addition takes the end of a free run. The list of free runs is short and only a hint, so a run is checked
//! against the attributes before it is used; when none will do, the leaf is written anew, packed, if that makes room.

use crate::dabtree::edit::Edit;
use xfskit_ondisk::Verdict;
use xfskit_ondisk::attr::flags;
use xfskit_ondisk::attr::leaf::{
    FreeRun, LEAF_ENTRY_BYTES, LEAF_HEADER_BYTES, LeafAttr, LeafEntry, LeafHeader, LeafValue, attr_at, attrs,
    first_used, leaf_entries, leaf_header, local_bytes, remote_bytes,
};
use xfskit_ondisk::da::{DaInfo, lower_bound_of_hash};
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromZeros, IntoBytes};

/// An attribute as a leaf holds it, on its way from one to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnedAttr {
    pub hash: u32,
    /// Flags as stored; `LOCAL` goes with the kind of value.
    pub flags: u8,
    pub name: Vec<u8>,
    pub value: OwnedValue,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OwnedValue {
    Local(Vec<u8>),
    Remote { block: u32, length: u32 },
}

impl OwnedAttr {
    pub fn new(attr: &LeafAttr<'_>) -> Self {
        let value = match attr.value {
            LeafValue::Local(value) => OwnedValue::Local(value.to_vec()),
            LeafValue::Remote { block, length } => OwnedValue::Remote { block, length },
        };
        Self { hash: attr.hash, flags: attr.flags, name: attr.name.to_vec(), value }
    }

    /// Bytes of name and value in a leaf.
    pub fn size(&self) -> usize {
        match &self.value {
            OwnedValue::Local(value) => local_bytes(self.name.len(), value.len()),
            OwnedValue::Remote { .. } => remote_bytes(self.name.len()),
        }
    }

    /// Bytes that the attribute takes of a leaf in all.
    pub fn footprint(&self) -> usize {
        self.size() + LEAF_ENTRY_BYTES
    }

    fn stored_flags(&self) -> u8 {
        match self.value {
            OwnedValue::Local(_) => self.flags | flags::LOCAL,
            OwnedValue::Remote { .. } => self.flags & !flags::LOCAL,
        }
    }

    /// Writes name and value; `out` has their size.
    fn encode(&self, out: &mut [u8]) {
        out.fill(0);
        let name_bytes = self.name.len();
        match &self.value {
            OwnedValue::Local(value) => {
                out[..2].copy_from_slice(&(value.len() as u16).to_be_bytes());
                out[2] = name_bytes as u8;
                out[3..3 + name_bytes].copy_from_slice(&self.name);
                out[3 + name_bytes..3 + name_bytes + value.len()].copy_from_slice(value);
            }
            OwnedValue::Remote { block, length } => {
                out[..4].copy_from_slice(&block.to_be_bytes());
                out[4..8].copy_from_slice(&length.to_be_bytes());
                out[8] = name_bytes as u8;
                out[9..9 + name_bytes].copy_from_slice(&self.name);
            }
        }
    }
}

/// All attributes of a leaf.
pub(super) fn owned(bytes: &[u8]) -> Verdict<Vec<OwnedAttr>> {
    attrs(bytes).map(|attr| attr.map(|attr| OwnedAttr::new(&attr))).collect()
}

/// Bytes that the header, the entries, names and values of a leaf take.
pub(super) fn used_bytes(bytes: &[u8]) -> Verdict<usize> {
    let mut used = LEAF_HEADER_BYTES;
    for attr in attrs(bytes) {
        used += attr?.size() + LEAF_ENTRY_BYTES;
    }
    Ok(used)
}

/// Writes a leaf with these attributes, in order of hash and fitting the block, packed. The block's links are `info`'s.
pub(super) fn write(e: &mut Edit<'_>, info: DaInfo, list: &[OwnedAttr]) {
    let block_bytes = e.len();
    let table_end = LEAF_HEADER_BYTES + list.len() * LEAF_ENTRY_BYTES;
    let names: usize = list.iter().map(OwnedAttr::size).sum();
    assert!(table_end + names <= block_bytes, "the attributes fit the leaf");
    let block = e.touch_ends(table_end, block_bytes - names);
    let mut at = block_bytes;
    for (index, attr) in list.iter().enumerate() {
        at -= attr.size();
        attr.encode(&mut block[at..at + attr.size()]);
        let entry =
            LeafEntry { hash: U32::new(attr.hash), offset: U16::new(at as u16), flags: attr.stored_flags(), pad: 0 };
        let place = LEAF_HEADER_BYTES + index * LEAF_ENTRY_BYTES;
        block[place..place + LEAF_ENTRY_BYTES].copy_from_slice(entry.as_bytes());
    }
    let mut header = LeafHeader::new_zeroed();
    header.info = info;
    header.count.set(list.len() as u16);
    header.used_bytes.set((block_bytes - at) as u16);
    header.first_used.set(at as u16);
    if at > table_end {
        header.free[0] = run(table_end, at - table_end);
    }
    block[..LEAF_HEADER_BYTES].copy_from_slice(header.as_bytes());
}

fn run(start: usize, length: usize) -> FreeRun {
    FreeRun { start: U16::new(start as u16), length: U16::new(length as u16) }
}

/// Adds an attribute; `false` when the leaf has no room for it.
pub(super) fn add(e: &mut Edit<'_>, new: &OwnedAttr) -> Verdict<bool> {
    let entries = leaf_entries(e.bytes());
    let count = entries.len();
    let position = lower_bound_of_hash(entries, new.hash, |entry| entry.hash.get());
    if let Some(offset) = find_run(e.bytes(), new.size())? {
        add_at(e, new, position, offset);
        return Ok(true);
    }
    if used_bytes(e.bytes())? + new.footprint() > e.len() {
        return Ok(false);
    }
    let mut list = owned(e.bytes())?;
    debug_assert_eq!(list.len(), count);
    list.insert(position, new.clone());
    let info = leaf_header(e.bytes()).info.clone();
    write(e, info, &list);
    Ok(true)
}

/// Where `size` bytes can go: the end of a free run, the table being one entry longer.
fn find_run(bytes: &[u8], size: usize) -> Verdict<Option<usize>> {
    let table_end = LEAF_HEADER_BYTES + (leaf_entries(bytes).len() + 1) * LEAF_ENTRY_BYTES;
    if table_end > first_used(bytes) {
        return Ok(None);
    }
    for free in leaf_header(bytes).free.iter().rev() {
        let end = usize::from(free.start.get()) + usize::from(free.length.get());
        let start = usize::from(free.start.get()).max(table_end);
        let Some(offset) = end.checked_sub(size).filter(|&offset| offset >= start) else { continue };
        let mut free_of_others = true;
        for attr in attrs(bytes) {
            let attr = attr?;
            free_of_others &= attr.offset + attr.size() <= offset || offset + size <= attr.offset;
        }
        if free_of_others {
            return Ok(Some(offset));
        }
    }
    Ok(None)
}

fn add_at(e: &mut Edit<'_>, new: &OwnedAttr, position: usize, offset: usize) {
    let size = new.size();
    new.encode(e.touch(offset..offset + size));
    let count = leaf_entries(e.bytes()).len();
    let place = LEAF_HEADER_BYTES + position * LEAF_ENTRY_BYTES;
    let old_end = LEAF_HEADER_BYTES + count * LEAF_ENTRY_BYTES;
    e.shift(place..old_end, place + LEAF_ENTRY_BYTES);
    let entry =
        LeafEntry { hash: U32::new(new.hash), offset: U16::new(offset as u16), flags: new.stored_flags(), pad: 0 };
    e.put(place, entry.as_bytes());
    let first = first_used(e.bytes()).min(offset);
    let header = e.touch_as::<LeafHeader>(0);
    header.count.set(count as u16 + 1);
    header.used_bytes.set(header.used_bytes.get().wrapping_add(size as u16));
    header.first_used.set(first as u16);
    let table_end = old_end + LEAF_ENTRY_BYTES;
    for free in &mut header.free {
        let (start, length) = (usize::from(free.start.get()), usize::from(free.length.get()));
        let end = if start <= offset && start + length == offset + size { offset } else { start + length };
        let start = start.max(table_end);
        *free = if end > start { run(start, end - start) } else { FreeRun::default() };
    }
}

/// Takes out the attribute at `position`.
pub(super) fn remove(e: &mut Edit<'_>, position: usize) -> Verdict {
    let attr = attr_at(e.bytes(), position)?;
    let (offset, size) = (attr.offset, attr.size());
    e.touch(offset..offset + size).fill(0);
    let count = leaf_entries(e.bytes()).len();
    let place = LEAF_HEADER_BYTES + position * LEAF_ENTRY_BYTES;
    let table_end = LEAF_HEADER_BYTES + count * LEAF_ENTRY_BYTES;
    e.shift(place + LEAF_ENTRY_BYTES..table_end, place);
    e.touch(table_end - LEAF_ENTRY_BYTES..table_end).fill(0);
    let block_bytes = e.len();
    let header = e.touch_as::<LeafHeader>(0);
    header.count.set(count as u16 - 1);
    header.used_bytes.set(header.used_bytes.get().wrapping_sub(size as u16));
    let listed = add_free_run(&mut header.free, offset, size, table_end);
    let first = leaf_entries(e.bytes()).iter().map(|entry| usize::from(entry.offset.get())).min();
    let first = first.unwrap_or(block_bytes);
    let was_first = first > offset;
    let header = e.touch_as::<LeafHeader>(0);
    header.first_used.set(first as u16);
    if !was_first || !listed {
        header.holes = 1;
    }
    Ok(())
}

/// Notes that name and value at `offset` became free, and the last entry before `table_end`. They join the runs beside
/// them, or take the place of the shortest run if that is shorter. Says whether the list has name and value then.
fn add_free_run(list: &mut [FreeRun; 3], offset: usize, size: usize, table_end: usize) -> bool {
    let (mut before, mut after) = (None, None);
    for (slot, free) in list.iter_mut().enumerate() {
        let (mut from, length) = (usize::from(free.start.get()), usize::from(free.length.get()));
        let to = from + length;
        if length == 0 {
            continue;
        }
        if from == table_end {
            from -= LEAF_ENTRY_BYTES;
            *free = run(from, to - from);
        }
        if to == offset {
            before = Some((slot, from));
        } else if from == offset + size {
            after = Some((slot, to));
        }
    }
    let start = before.map_or(offset, |(_, from)| from);
    let end = after.map_or(offset + size, |(_, to)| to);
    let slot = match (before, after) {
        (Some((slot, _)), Some((other, _))) => {
            list[other] = FreeRun::default();
            slot
        }
        (Some((slot, _)), None) | (None, Some((slot, _))) => slot,
        (None, None) => {
            let shortest = list.iter().enumerate().min_by_key(|(_, free)| free.length.get());
            let (slot, free) = shortest.expect("there are three");
            if usize::from(free.length.get()) >= size {
                return false;
            }
            slot
        }
    };
    list[slot] = run(start, end - start);
    true
}

/// Sets the flags of the entry at `position`.
pub(super) fn set_flags(e: &mut Edit<'_>, position: usize, flags: u8) {
    e.touch_as::<LeafEntry>(LEAF_HEADER_BYTES + position * LEAF_ENTRY_BYTES).flags = flags;
}

/// Overwrites the local value at `position` with one of the same length.
pub(super) fn set_value(e: &mut Edit<'_>, position: usize, new: &[u8]) -> Verdict {
    let attr = attr_at(e.bytes(), position)?;
    let LeafValue::Local(old) = attr.value else { panic!("a value in blocks of its own is written there") };
    assert_eq!(old.len(), new.len(), "a value is overwritten by one of its length");
    e.put(attr.offset + 3 + attr.name.len(), new);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;
    use xfskit_ondisk::logged::buffer::CHUNK_BYTES;

    fn sum_of_runs_is_free(bytes: &[u8]) {
        let table_end = LEAF_HEADER_BYTES + leaf_entries(bytes).len() * LEAF_ENTRY_BYTES;
        for free in &leaf_header(bytes).free {
            let (start, length) = (usize::from(free.start.get()), usize::from(free.length.get()));
            if length == 0 {
                continue;
            }
            assert!(start >= table_end, "a free run lies in the table");
            for attr in attrs(bytes) {
                let attr = attr.unwrap();
                assert!(attr.offset + attr.size() <= start || start + length <= attr.offset);
            }
        }
    }

    /// Does to a block that began as anything what recovery would do: whole chunks of what was logged.
    fn recover(twin: &mut [u8], block: &[u8], changed: &[Range<usize>]) {
        for range in changed.iter().filter(|range| !range.is_empty()) {
            let chunks = range.start / CHUNK_BYTES * CHUNK_BYTES..range.end.next_multiple_of(CHUNK_BYTES);
            twin[chunks.clone()].copy_from_slice(&block[chunks]);
        }
    }

    #[test]
    fn a_leaf_keeps_its_attributes_and_its_free_runs_through_changes() {
        for block_bytes in [1024usize, 4096, 65536] {
            let mut block = vec![0; block_bytes];
            let mut twin = vec![0xaa; block_bytes];
            let mut e = Edit::new(&mut block);
            write(&mut e, DaInfo::new_zeroed(), &[]);
            let changed = e.into_changed();
            recover(&mut twin, &block, &changed);
            let mut model: Vec<OwnedAttr> = Vec::new();
            let mut seed = block_bytes as u64;
            for step in 0..3000u32 {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let mut e = Edit::new(&mut block);
                if seed >> 61 < 5 || model.is_empty() {
                    let length = (seed >> 40) as usize % (block_bytes / 12);
                    let value = if seed >> 20 & 7 == 0 {
                        OwnedValue::Remote { block: step + 1, length: 5000 }
                    } else {
                        OwnedValue::Local(vec![step as u8; length])
                    };
                    let name = format!("{step}").into_bytes();
                    let new = OwnedAttr { hash: (seed >> 50) as u32, flags: 0, name, value };
                    let used: usize = model.iter().map(OwnedAttr::footprint).sum();
                    let added = add(&mut e, &new).unwrap();
                    assert_eq!(added, LEAF_HEADER_BYTES + used + new.footprint() <= block_bytes, "step {step}");
                    if added {
                        let at = model.partition_point(|attr| attr.hash < new.hash);
                        model.insert(at, new);
                    }
                } else {
                    let at = (seed >> 30) as usize % model.len();
                    remove(&mut e, at).unwrap();
                    model.remove(at);
                }
                let changed = e.into_changed();
                recover(&mut twin, &block, &changed);
                let found = owned(&twin).unwrap();
                assert_eq!(found.len(), model.len());
                assert!(
                    found.iter().zip(&model).all(|(a, b)| (a.hash, &a.name, &a.value) == (b.hash, &b.name, &b.value))
                );
                sum_of_runs_is_free(&twin);
                let used: usize = model.iter().map(OwnedAttr::size).sum();
                assert_eq!(usize::from(leaf_header(&block).used_bytes.get()), used);
            }
        }
    }

    /// A list of free runs that lies, as a crafted or damaged leaf may have it, costs no attribute.
    #[test]
    fn a_free_run_over_an_attribute_is_not_used() {
        let mut block = vec![0; 1024];
        let mut e = Edit::new(&mut block);
        write(&mut e, DaInfo::new_zeroed(), &[]);
        let attr = |hash: u32, byte: u8| OwnedAttr {
            hash,
            flags: 0,
            name: vec![byte; 5],
            value: OwnedValue::Local(vec![byte; 20 + usize::from(byte)]),
        };
        let mut expected = Vec::new();
        for byte in 1..8 {
            let first = first_used(e.bytes());
            // A run that leaves the block is refused when the leaf is read.
            let runs = [(first, 40), (first - 8, 40), (first - 60, 61), (1024 - 40, 40)];
            for (start, length) in runs.into_iter().filter(|(start, length)| start + length <= 1024) {
                e.touch_as::<LeafHeader>(0).free[2] = run(start, length);
                let new = attr(u32::from(byte), byte);
                assert!(add(&mut e, &new).unwrap());
                assert_eq!(owned(e.bytes()).unwrap().last().unwrap().value, new.value);
                let last = leaf_entries(e.bytes()).len() - 1;
                remove(&mut e, last).unwrap();
            }
            let new = attr(u32::from(byte), byte);
            assert!(add(&mut e, &new).unwrap());
            expected.push(new.value);
            let found: Vec<_> = owned(e.bytes()).unwrap().into_iter().map(|attr| attr.value).collect();
            assert_eq!(found, expected);
        }
    }
}
