//! Shortform attributes: names and values in the inode.

use super::fork::{offset_for, remove_if_useless, set_offset};
use super::{Attr, EmptyFork, Fit, Form, absent, form};
use crate::error::Result;
use crate::incore::{AttrFork, InodeState, LocalAttrs};
use crate::trans::{InoId, InodeFields, Transaction};
use xfskit_ondisk::ForkFormat;
use xfskit_ondisk::attr::shortform::{
    SHORTFORM_HEADER_BYTES, SHORTFORM_LENGTH_LIMIT, ShortformAttr, append, attrs, encode_empty, entry_bytes,
    remove as take,
};

/// The bytes of a shortform fork; none for an inode whose attr fork is missing or empty.
pub fn bytes(state: &InodeState) -> &[u8] {
    match &state.attr {
        Some(AttrFork::Local(bytes)) => bytes,
        _ => &[],
    }
}

/// The attribute that `key` identifies.
///
/// # Errors
/// `Corrupt`.
pub fn find<'a>(tx: &'a Transaction, ino: InoId, key: &Attr<'_>) -> Result<Option<ShortformAttr<'a>>> {
    find_in(tx.inode(ino), key)
}

/// As [`find`], in an inode under its lock.
///
/// # Errors
/// `Corrupt`.
#[inline]
pub fn find_in<'a>(state: &'a InodeState, key: &Attr<'_>) -> Result<Option<ShortformAttr<'a>>> {
    for attr in attrs(bytes(state)) {
        let attr = attr?;
        if key.matches(attr.namespace, attr.name, Some(attr.value)) {
            return Ok(Some(attr));
        }
    }
    Ok(None)
}

/// Bytes of a fork with `new` alone. Of a length that the shortform cannot have, the kernel takes the lowest byte, and
/// so do we: both make the same fork.
pub(super) fn fork_bytes(new: &Attr<'_>) -> usize {
    SHORTFORM_HEADER_BYTES + entry_bytes(new.name.len(), new.value.len() % SHORTFORM_LENGTH_LIMIT)
}

/// Where the fork must start when `gone` bytes of entries leave and `new` is added, and the bytes of its value; `None`
/// when that does not fit.
fn room_for<'v>(tx: &Transaction, ino: InoId, gone: usize, new: &'v Attr<'_>) -> Option<(u8, &'v [u8])> {
    let state = tx.inode(ino);
    let value = new.value.bytes()?;
    let small = new.name.len() < SHORTFORM_LENGTH_LIMIT && value.len() < SHORTFORM_LENGTH_LIMIT;
    let old = bytes(state);
    let room_to_count = gone > 0 || old.get(2).is_none_or(|&count| count < u8::MAX);
    if !small || !room_to_count || form(tx, ino) == Form::Tree {
        return None;
    }
    let total = old.len().max(SHORTFORM_HEADER_BYTES) - gone + entry_bytes(new.name.len(), value.len());
    // A first attr fork may need the data fork to leave the inode, which is more than this step does.
    let offset = offset_for(tx.geometry(), state, total).filter(|&offset| super::fork::data_fits(state, offset))?;
    Some((offset, value))
}

/// Adds an attribute that is not there yet; makes the attr fork, or moves its start, if need be.
///
/// # Errors
/// None but those of the transaction.
pub fn add(tx: &mut Transaction, ino: InoId, new: &Attr<'_>) -> Result<Fit> {
    let Some((offset, value)) = room_for(tx, ino, 0, new) else { return Ok(Fit::NoRoom) };
    append(local_mut(tx, ino, offset), new.namespace, &new.name, value);
    absent::forget(tx, ino, new);
    Ok(Fit::Done)
}

/// The fork's bytes for a change; makes them if the inode has none.
fn local_mut<'t>(tx: &'t mut Transaction<'_>, ino: InoId, offset: u8) -> &'t mut LocalAttrs {
    let state = set_offset(tx, ino, offset, InodeFields::ATTR_LOCAL);
    if !matches!(state.attr, Some(AttrFork::Local(_))) {
        state.core.attr_format = ForkFormat::Local;
        state.core.attr_extents = 0;
        state.attr = Some(AttrFork::Local(LocalAttrs::of(encode_empty())));
    }
    match &mut state.attr {
        Some(AttrFork::Local(bytes)) => bytes,
        _ => unreachable!("the fork was made local"),
    }
}

/// Makes an empty shortform fork that starts at `offset` in an inode whose attr fork is there and empty.
pub(super) fn make_empty(tx: &mut Transaction, ino: InoId, offset: u8) {
    local_mut(tx, ino, offset);
}

/// Removes an attribute; `false` if it is not there.
///
/// # Errors
/// `Corrupt`.
pub fn remove(tx: &mut Transaction, ino: InoId, key: &Attr<'_>, empty: EmptyFork) -> Result<bool> {
    let Some(entry) = find(tx, ino, key)?.map(|found| EntryRange::of(&found)) else { return Ok(false) };
    remove_at(tx, ino, entry, empty)?;
    Ok(true)
}

/// Where an attribute stands in a shortform fork. Good until the fork changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryRange {
    start: usize,
    name_start: usize,
    length: usize,
    name_bytes: usize,
    namespace: u8,
}

impl EntryRange {
    /// Where an attribute is that was found.
    #[inline]
    pub fn of(found: &ShortformAttr<'_>) -> Self {
        let (name_start, length) = (found.name_start(), found.length());
        Self { start: found.start, name_start, length, name_bytes: found.name.len(), namespace: found.namespace }
    }

    /// The value of the attribute.
    pub(super) fn value(self, state: &InodeState) -> &[u8] {
        &bytes(state)[self.name_start + self.name_bytes..self.start + self.length]
    }

    /// Whether another attribute has the same lengths and takes this one's place without a move.
    #[inline]
    pub fn is_for(&self, new: &Attr<'_>) -> bool {
        self.name_bytes == new.name.len()
            && self.length == entry_bytes(new.name.len(), new.value.len())
            && self.namespace == new.namespace
    }
}

/// As [`remove`], of an attribute that was found.
///
/// # Errors
/// `Corrupt`.
pub fn remove_at(tx: &mut Transaction, ino: InoId, entry: EntryRange, empty: EmptyFork) -> Result<()> {
    let offset = tx.inode(ino).core.fork_offset;
    let local = local_mut(tx, ino, offset);
    take(local, entry.start, entry.length);
    if local.len() == SHORTFORM_HEADER_BYTES && empty == EmptyFork::Remove {
        remove_if_useless(tx, ino)?;
    }
    Ok(())
}

/// Replaces an attribute by another: a new value, or for parent pointers a new name and value. In place where the
/// lengths are the same, else the new one goes to the end. `None` when `old` is not there.
///
/// # Errors
/// `Corrupt`.
pub fn replace(tx: &mut Transaction, ino: InoId, old: &Attr<'_>, new: &Attr<'_>) -> Result<Option<Fit>> {
    let Some(entry) = find(tx, ino, old)?.map(|found| EntryRange::of(&found)) else { return Ok(None) };
    Ok(Some(replace_at(tx, ino, entry, new)))
}

/// As [`replace`], of an attribute that was found.
pub fn replace_at(tx: &mut Transaction, ino: InoId, entry: EntryRange, new: &Attr<'_>) -> Fit {
    let EntryRange { start, name_start, length, .. } = entry;
    if entry.is_for(new)
        && let Some(bytes) = new.value.bytes()
    {
        let offset = tx.inode(ino).core.fork_offset;
        let (name, value) = local_mut(tx, ino, offset)[name_start..start + length].split_at_mut(new.name.len());
        name.copy_from_slice(&new.name);
        value.copy_from_slice(bytes);
        return Fit::Done;
    }
    let Some((offset, value)) = room_for(tx, ino, length, new) else { return Fit::NoRoom };
    let local = local_mut(tx, ino, offset);
    take(local, start, length);
    append(local, new.namespace, &new.name, value);
    Fit::Done
}
