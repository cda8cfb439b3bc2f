//! Shortform attributes: names and values in the inode.

use super::fork::{offset_for, remove_if_useless, set_offset};
use super::{Attr, Form, Outcome, form};
use crate::cache::{Fork, InodeState};
use crate::error::Result;
use crate::trans::{InoId, InodeFields, Transaction};
use xfskit_ondisk::ForkFormat;
use xfskit_ondisk::attr::shortform::{
    SHORTFORM_HEADER_BYTES, SHORTFORM_LENGTH_LIMIT, ShortformAttr, append, attrs, encode_empty, entry_bytes,
    remove as take,
};

/// The bytes of a shortform fork; none for an inode whose attr fork is missing or empty.
pub(super) fn bytes(state: &InodeState) -> &[u8] {
    match &state.attr {
        Some(Fork::Local(bytes)) => bytes,
        _ => &[],
    }
}

/// The attribute that `key` identifies.
///
/// # Errors
/// `Corrupt`.
pub fn find<'a>(tx: &'a Transaction, ino: InoId, key: &Attr<'_>) -> Result<Option<ShortformAttr<'a>>> {
    for attr in attrs(bytes(tx.inode(ino))) {
        let attr = attr?;
        if key.matches(attr.namespace, attr.name, Some(attr.value)) {
            return Ok(Some(attr));
        }
    }
    Ok(None)
}

/// Where the fork must start when `gone` bytes of entries leave and `new` come; `None` when that does not fit.
fn room_for(tx: &Transaction, ino: InoId, gone: usize, new: &Attr<'_>) -> Option<u8> {
    let state = tx.inode(ino);
    let small = new.name.len() < SHORTFORM_LENGTH_LIMIT && new.value.len() < SHORTFORM_LENGTH_LIMIT;
    let old = bytes(state);
    let room_to_count = gone > 0 || old.get(2).is_none_or(|&count| count < u8::MAX);
    if !small || !room_to_count || form(tx, ino) == Form::Tree {
        return None;
    }
    let total = old.len().max(SHORTFORM_HEADER_BYTES) - gone + entry_bytes(new.name.len(), new.value.len());
    // A first attr fork may need the data fork to leave the inode, which is more than this step does.
    offset_for(tx.geometry(), state, total).filter(|&offset| super::fork::data_fits(state, offset))
}

/// Adds an attribute that is not there yet; makes the attr fork, or moves its start, if need be.
///
/// # Errors
/// None but those of the transaction.
pub fn add(tx: &mut Transaction, ino: InoId, new: &Attr<'_>) -> Result<Outcome> {
    let Some(offset) = room_for(tx, ino, 0, new) else { return Ok(Outcome::NoRoom) };
    append(local_mut(tx, ino, offset), new.namespace, new.name, new.value);
    Ok(Outcome::Done)
}

/// The fork's bytes for a change; makes them if the inode has none.
fn local_mut<'t>(tx: &'t mut Transaction<'_>, ino: InoId, offset: u8) -> &'t mut Vec<u8> {
    let state = set_offset(tx, ino, offset, InodeFields::ATTR_LOCAL);
    if !matches!(state.attr, Some(Fork::Local(_))) {
        state.core.attr_format = ForkFormat::Local;
        state.core.attr_extents = 0;
        state.attr = Some(Fork::Local(encode_empty()));
    }
    match &mut state.attr {
        Some(Fork::Local(bytes)) => bytes,
        _ => unreachable!("the fork was made local"),
    }
}

/// Makes an empty shortform fork that starts at `offset` in an inode whose attr fork is there and empty.
pub(super) fn make_empty(tx: &mut Transaction, ino: InoId, offset: u8) {
    local_mut(tx, ino, offset);
}

/// Removes an attribute; `false` if it is not there. With the last one the fork goes, unless `keep_fork` says that
/// more will be added at once, or the image keeps attr forks (see [`remove_if_useless`]).
///
/// # Errors
/// `Corrupt`.
pub fn remove(tx: &mut Transaction, ino: InoId, key: &Attr<'_>, keep_fork: bool) -> Result<bool> {
    let Some(found) = find(tx, ino, key)? else { return Ok(false) };
    let (start, length) = (found.start, found.length());
    let offset = tx.inode(ino).core.fork_offset;
    let local = local_mut(tx, ino, offset);
    take(local, start, length);
    if local.len() == SHORTFORM_HEADER_BYTES && !keep_fork {
        remove_if_useless(tx, ino)?;
    }
    Ok(true)
}

/// Replaces an attribute by another: a new value, or for parent pointers a new name and value. In place where the
/// lengths are the same, else the new one goes to the end. `None` when `old` is not there.
///
/// # Errors
/// `Corrupt`.
pub fn replace(tx: &mut Transaction, ino: InoId, old: &Attr<'_>, new: &Attr<'_>) -> Result<Option<Outcome>> {
    let Some(found) = find(tx, ino, old)? else { return Ok(None) };
    let (start, name_start, length) = (found.start, found.name_start(), found.length());
    let same = found.name.len() == new.name.len() && found.value.len() == new.value.len();
    if same && found.namespace == new.namespace {
        let offset = tx.inode(ino).core.fork_offset;
        let (name, value) = local_mut(tx, ino, offset)[name_start..start + length].split_at_mut(new.name.len());
        name.copy_from_slice(new.name);
        value.copy_from_slice(new.value);
        return Ok(Some(Outcome::Done));
    }
    let Some(offset) = room_for(tx, ino, length, new) else { return Ok(Some(Outcome::NoRoom)) };
    let local = local_mut(tx, ino, offset);
    take(local, start, length);
    append(local, new.namespace, new.name, new.value);
    Ok(Some(Outcome::Done))
}
