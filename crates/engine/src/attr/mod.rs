//! Extended attributes: finding, adding, removing and replacing them in each form, one transaction for each step.
//!
//! ```text
//! none ──▶ shortform ──▶ leaf ──▶ node      when an attribute does not fit
//! none ◀── shortform ◀── leaf ◀── node      when a removal makes the smaller form possible
//! ```
//! A leaf is a btree of one leaf (see [`crate::dabtree`]), so leaf and node share their code. This module has the
//! steps; which of them an operation takes, in how many transactions and with which intents, is decided above.
//!
//! Every step either does its work or, when there is no room, says so before it changed anything.
//!
//! Callers have the inode locked in their transaction.

pub mod absent;
mod attribute;
mod change;
mod drop;
pub mod fork;
mod leaf;
mod leftovers;
mod list;
mod mapping;
mod redo;
pub mod remote;
mod reserve;
pub mod search;
pub mod shortform;
pub mod tree;
pub mod update;
mod work;

pub use attribute::{Attr, Value};
pub use change::Change;
pub use drop::remove_all;
pub use fork::EmptyFork;
pub use list::{AttrRef, ListCursor, list, list_from};
pub use mapping::{ValueMapping, map_value, unmap_values};
pub use redo::Redo;
pub use search::{AttrSlot, search};
pub use xfskit_ondisk::attr::{ParentRecord, flags};

use crate::error::Result;
use crate::incore::{AttrFork, ForkKind, InodeState};
use crate::inode::bmap;
use crate::trans::{InoId, Transaction};
use xfskit_ondisk::Geometry;
use xfskit_ondisk::da::DA_MAX_DEPTH;

/// Checks that the fork's map can count what attributes with values of these lengths may add to it, each block an
/// extent of its own: two leaves for each attribute, and a split of every level. For the start of an operation: later
/// it would be half done.
///
/// # Errors
/// `TooLarge`; `Corrupt`, `Io`.
pub fn expect_room(tx: &mut Transaction, ino: InoId, values_bytes: impl Iterator<Item = usize>) -> Result<()> {
    let added = values_bytes.map(|bytes| 2 + remote::blocks_of(tx, bytes) as usize).sum::<usize>() + DA_MAX_DEPTH;
    bmap::expect_count(tx, ino, ForkKind::Attr, added)
}

/// How the attributes of an inode are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// There is no attr fork.
    None,
    /// There is an attr fork, and nothing in it.
    Empty,
    /// In the inode.
    Shortform,
    /// In a btree of one or more leaves.
    Tree,
}

/// Whether what is to be stored fits the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Fit {
    /// It is done.
    Done,
    /// There is no room in this form; nothing was changed.
    NoRoom,
}

/// The form of an inode's attributes.
pub fn form(tx: &Transaction, ino: InoId) -> Form {
    form_of(tx.inode(ino))
}

/// As [`form`], of an inode under its lock.
pub fn form_of(state: &InodeState) -> Form {
    match &state.attr {
        None => Form::None,
        Some(AttrFork::Local(_)) => Form::Shortform,
        Some(AttrFork::Mapped(map)) if map.is_empty() => Form::Empty,
        Some(_) => Form::Tree,
    }
}

/// The value of an attribute.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn get(tx: &mut Transaction, ino: InoId, key: &Attr<'_>) -> Result<Option<Vec<u8>>> {
    let slot = search(tx, ino, key)?;
    slot.count(tx.mount());
    slot.into_value(tx, ino)
}

/// Whether an attribute exists.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn exists(tx: &mut Transaction, ino: InoId, key: &Attr<'_>) -> Result<bool> {
    let slot = search(tx, ino, key)?;
    let is_found = slot.is_found();
    slot.release(tx);
    Ok(is_found)
}

/// Whether a value is stored outside of the leaf, in blocks of its own.
pub fn is_remote(geometry: &Geometry, name_bytes: usize, value_bytes: usize) -> bool {
    !tree::is_local_value(geometry, name_bytes, value_bytes)
}
