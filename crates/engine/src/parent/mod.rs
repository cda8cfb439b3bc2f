//! Parent pointers: an attribute for every name that a file has.
//!
//! ```text
//! attribute  name space PARENT, name = the file's name, value = inode and generation of the directory (12 bytes)
//! hash       of the name as in the directory, mixed with the directory's inode number
//! ```
//! Every operation that changes a name changes the pointer in the same transaction: directly in shortform, by an intent
//! where the attributes have outgrown it. Two hard links of one name in different directories differ in the value, so
//! for these attributes the value is part of the key.
//!
//! Errors name the file, whose attributes are read, where the caller's transaction is about the directory.

use crate::attr::update::{self, Logging};
use crate::attr::{self, Attr};
use crate::error::Result;
use crate::inode::located;
use crate::trans::{InoId, Transaction};
use xfskit_ondisk::attr::{ParentRecord, flags};
use xfskit_ondisk::limits::Limits;
use xfskit_ondisk::{Corruption, Geometry, InodeNumber, reservation};

/// Blocks that one more pointer may need.
pub fn blocks_to_add(geometry: &Geometry, limits: &Limits) -> u64 {
    if geometry.has_parent() { u64::from(reservation::attribute_space(limits)) } else { 0 }
}

/// The value that points at a directory.
fn record(tx: &Transaction, dir: InoId) -> [u8; 12] {
    let core = &tx.inode(dir).core;
    ParentRecord { inode: core.inode.0, generation: core.generation }.encode()
}

/// Checks that `child` can have one more pointer as far as the map of its attributes goes, before anything is changed.
///
/// # Errors
/// `TooLarge`; `Corrupt`, `Io`.
pub fn expect_room(tx: &mut Transaction, child: InoId) -> Result<()> {
    if !tx.geometry().has_parent() {
        return Ok(());
    }
    let counted = attr::expect_room(tx, child, std::iter::once(0));
    located(tx, child, counted)
}

/// Checks that `child` has the pointer for its `name` in `dir`, which is about to go, before anything is changed.
///
/// # Errors
/// `Corrupt` when there is none; `Io`.
pub fn verify(tx: &mut Transaction, dir: InoId, name: &[u8], child: InoId) -> Result<()> {
    if !tx.geometry().has_parent() {
        return Ok(());
    }
    let value = record(tx, dir);
    let found = update::verify(tx, child, &Attr::parent(name, &value));
    located(tx, child, found)
}

/// `child` was named `name` in `dir`.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Io`.
pub fn add(tx: &mut Transaction, dir: InoId, name: &[u8], child: InoId) -> Result<()> {
    if !tx.geometry().has_parent() {
        return Ok(());
    }
    let value = record(tx, dir);
    let added = update::set(tx, child, Attr::parent(name, &value), Logging::Logged);
    located(tx, child, added)
}

/// The name of `child` in `dir` was removed.
///
/// # Errors
/// `Corrupt` when there is no such pointer; `Io`.
pub fn remove(tx: &mut Transaction, dir: InoId, name: &[u8], child: InoId) -> Result<()> {
    if !tx.geometry().has_parent() {
        return Ok(());
    }
    let value = record(tx, dir);
    let removed = update::remove(tx, child, Attr::parent(name, &value), Logging::Logged);
    located(tx, child, removed)
}

/// The name of `child` moved.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Io`.
pub fn replace(tx: &mut Transaction, from: (InoId, &[u8]), to: (InoId, &[u8]), child: InoId) -> Result<()> {
    if !tx.geometry().has_parent() {
        return Ok(());
    }
    let (old, new) = (record(tx, from.0), record(tx, to.0));
    let replaced = update::replace_parent(tx, child, Attr::parent(from.1, &old), Attr::parent(to.1, &new));
    located(tx, child, replaced)
}

/// All names of a file: the directory and the name there.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn list(tx: &mut Transaction, ino: InoId) -> Result<Vec<(InodeNumber, Vec<u8>)>> {
    let number = tx.inode(ino).core.inode;
    let mut found = Vec::new();
    let mut bad = false;
    attr::list(tx, ino, &mut |attr| {
        if attr.namespace & flags::PARENT != 0 {
            match attr.value.and_then(ParentRecord::decode) {
                Some(record) => found.push((InodeNumber(record.inode), attr.name.to_vec())),
                None => bad = true,
            }
        }
        std::ops::ControlFlow::Continue(())
    })?;
    if bad {
        return Err(Corruption::new("parent pointer", "value of 12 bytes").of(number.0).into());
    }
    Ok(found)
}
