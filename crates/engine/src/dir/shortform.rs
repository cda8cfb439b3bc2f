//! The shortform: entries in the inode.
//!
//! A new entry goes to the end, at the offset behind the last entry's, as long as the directory would still fit a
//! block with those offsets; else into the first gap that is large enough, so that offsets ascend. A directory whose
//! entries leave no such gap becomes a block although it would fit the inode.

use super::index::ENTRY_BYTES;
use super::{Dir, DirEntry, FileType, NewEntry, set_local};
use crate::error::{Error, Result};
use crate::incore::DataFork;
use crate::trans::{InodeFields, Transaction};
use xfskit_ondisk::dir::data::{BLOCK_TAIL_BYTES, DATA_HEADER_BYTES};
use xfskit_ondisk::dir::shortform::{
    Shortform, ShortformEntry, encode_entry, encode_header, header_bytes, shortform_entry_bytes,
};
use xfskit_ondisk::dir::{DirLayout, entry_bytes};
use xfskit_ondisk::{ForkBytes, InodeNumber};

/// The largest inode number that takes four bytes.
const MAX_NARROW: u64 = u32::MAX as u64;

/// Where a new entry goes.
struct Insertion {
    /// Its offset in the imagined block.
    offset: usize,
    /// The entry that it goes before; `None` for the end.
    before: Option<usize>,
}

/// Offsets of the entries that shortform directories do not store.
pub(super) fn dot_offsets() -> (usize, usize) {
    (DATA_HEADER_BYTES, DATA_HEADER_BYTES + entry_bytes(1))
}

impl Dir {
    pub(super) fn local<'a>(&self, tx: &'a Transaction) -> Result<Shortform<'a>> {
        let DataFork::Local(bytes) = &tx.inode(self.ino).data else {
            unreachable!("the form was found to be shortform");
        };
        Ok(Shortform::new(bytes)?)
    }

    pub(super) fn lookup_shortform(&self, tx: &Transaction, name: &[u8]) -> Result<Option<DirEntry>> {
        let (dot, dot_dot) = dot_offsets();
        let entry = |inode, file_type, offset| {
            Some(DirEntry { inode: InodeNumber(inode), file_type, cookie: self.layout.pointer(0, offset) })
        };
        let local = self.local(tx)?;
        Ok(match name {
            b"." => entry(self.number(tx), FileType::Directory, dot),
            b".." => entry(local.parent(), FileType::Directory, dot_dot),
            _ => local.find(name)?.and_then(|found| entry(found.inode, found.file_type, found.offset.into())),
        })
    }

    pub(super) fn shortform_is_empty(&self, tx: &Transaction) -> Result<bool> {
        Ok(self.local(tx)?.count() == 0)
    }

    pub(super) fn add_to_shortform(&self, tx: &mut Transaction, new: &NewEntry<'_>) -> Result<u32> {
        let local = self.local(tx)?;
        let widen = new.inode > MAX_NARROW && !local.is_wide();
        let wide = local.is_wide() || widen;
        let old_bytes = tx.inode(self.ino).core.size as usize;
        let widening = if widen { (local.count() + 1) * 4 } else { 0 };
        let new_bytes = old_bytes + widening + shortform_entry_bytes(new.name.len(), wide);
        let place = if new_bytes <= self.fork_bytes(tx) && local.count() < 255 {
            self.insertion_in_shortform(local, new.name.len())?
        } else {
            None
        };
        let Some(place) = place else {
            self.shortform_to_block(tx)?;
            return self.add_to_block(tx, new);
        };
        let cookie = self.layout.pointer(0, place.offset);
        if place.before.is_none() && !widen {
            self.append_entry(tx, new, place.offset, wide);
            return Ok(cookie);
        }
        let added = ShortformEntry {
            start: 0,
            length: 0,
            offset: place.offset as u16,
            name: new.name,
            file_type: new.file_type,
            inode: new.inode,
        };
        let mut entries = local.entries().collect::<Result<Vec<_>, _>>()?;
        entries.insert(place.before.unwrap_or(entries.len()), added);
        let bytes = encode(local.parent(), &entries);
        set_local(tx, self.ino, &bytes);
        Ok(cookie)
    }

    fn append_entry(&self, tx: &mut Transaction, new: &NewEntry<'_>, offset: usize, wide: bool) {
        let state = tx.inode_mut(self.ino, InodeFields::DATA_LOCAL);
        let DataFork::Local(bytes) = &mut state.data else { unreachable!("the form was found to be shortform") };
        bytes[0] += 1;
        bytes[1] += u8::from(new.inode > MAX_NARROW);
        encode_entry(bytes, wide, offset as u16, new.name, new.file_type, new.inode);
        state.core.size = bytes.len() as u64;
    }

    fn insertion_in_shortform(&self, local: Shortform<'_>, name_bytes: usize) -> Result<Option<Insertion>> {
        let length = entry_bytes(name_bytes);
        let mut end = self.layout.first_offset();
        let mut gap = None;
        for (position, entry) in local.entries().enumerate() {
            let entry = entry?;
            if gap.is_none() && end + length <= entry.offset.into() {
                gap = Some(Insertion { offset: end, before: Some(position) });
            }
            end = usize::from(entry.offset) + entry_bytes(entry.name.len());
        }
        // In a block, `.`, `..` and the new entry need a place in the index, too.
        let index = (local.count() + 3) * 8 + BLOCK_TAIL_BYTES;
        let fits = |end: usize| end + index <= self.layout.block_bytes();
        if fits(end + length) {
            return Ok(Some(Insertion { offset: end, before: None }));
        }
        Ok(gap.filter(|_| fits(end)))
    }

    pub(super) fn remove_from_shortform(&self, tx: &mut Transaction, name: &[u8]) -> Result<()> {
        let local = self.local(tx)?;
        let found = local.find(name)?.ok_or(Error::NotFound)?;
        if found.inode > MAX_NARROW && local.wide_count() == 1 {
            let mut entries = local.entries().collect::<Result<Vec<_>, _>>()?;
            entries.retain(|entry| entry.start != found.start);
            let bytes = encode(local.parent(), &entries);
            set_local(tx, self.ino, &bytes);
            return Ok(());
        }
        let (range, was_wide) = (found.start..found.start + found.length, found.inode > MAX_NARROW);
        let state = tx.inode_mut(self.ino, InodeFields::DATA_LOCAL);
        let DataFork::Local(bytes) = &mut state.data else { unreachable!("the form was found to be shortform") };
        bytes.take_out(range);
        bytes[0] -= 1;
        bytes[1] -= u8::from(was_wide);
        state.core.size = bytes.len() as u64;
        Ok(())
    }

    /// Replaces an entry's inode, or the parent for `..`; `false`, and nothing is changed, when inode numbers would
    /// have to be wider and do not fit.
    pub(super) fn replace_in_shortform(
        &self,
        tx: &mut Transaction,
        name: &[u8],
        inode: u64,
        file_type: FileType,
    ) -> Result<bool> {
        let local = self.local(tx)?;
        let mut entries = local.entries().collect::<Result<Vec<_>, _>>()?;
        let mut parent = local.parent();
        if name == b".." {
            parent = inode;
        } else {
            let entry = entries.iter_mut().find(|entry| entry.name == name).ok_or(Error::NotFound)?;
            (entry.inode, entry.file_type) = (inode, file_type);
        }
        let bytes = encode(parent, &entries);
        if bytes.len() > self.fork_bytes(tx) {
            return Ok(false);
        }
        set_local(tx, self.ino, &bytes);
        Ok(true)
    }

    /// Turns the directory into a block.
    pub(super) fn shortform_to_block(&self, tx: &mut Transaction) -> Result<()> {
        let DataFork::Local(bytes) = &tx.inode(self.ino).data else {
            unreachable!("the form was found to be shortform");
        };
        let bytes = bytes.clone();
        let local = Shortform::new(&bytes)?;
        let entries = local.entries().collect::<Result<Vec<_>, _>>()?;
        check_fits(self.layout, &entries)?;
        self.make_block(tx, local.parent(), &entries)
    }
}

/// Checks that the offsets of shortform entries leave room for each other and for the index.
fn check_fits(layout: DirLayout, entries: &[ShortformEntry<'_>]) -> Result<()> {
    let mut end = layout.first_offset();
    for entry in entries {
        let offset = usize::from(entry.offset);
        let fits = offset >= end && offset % 8 == 0;
        ensure_on_disk!(fits, "shortform directory", "offsets ascend", "{offset} after {end}");
        end = offset + entry_bytes(entry.name.len());
    }
    let room = layout.block_bytes() - BLOCK_TAIL_BYTES - (entries.len() + 2) * ENTRY_BYTES;
    ensure_on_disk!(end <= room, "shortform directory", "fits a directory block", "{end} bytes");
    Ok(())
}

/// The fork's bytes with these entries, inode numbers as wide as they must be.
pub(super) fn encode(parent: u64, entries: &[ShortformEntry<'_>]) -> Vec<u8> {
    let wide_count = entries.iter().filter(|entry| entry.inode > MAX_NARROW).count() + usize::from(parent > MAX_NARROW);
    let wide = wide_count != 0;
    let mut bytes = Vec::with_capacity(encoded_bytes(entries, wide));
    encode_header(&mut bytes, entries.len() as u8, wide_count as u8, parent);
    for entry in entries {
        encode_entry(&mut bytes, wide, entry.offset, entry.name, entry.file_type, entry.inode);
    }
    bytes
}

fn encoded_bytes(entries: &[ShortformEntry<'_>], wide: bool) -> usize {
    header_bytes(wide) + entries.iter().map(|e| shortform_entry_bytes(e.name.len(), wide)).sum::<usize>()
}
