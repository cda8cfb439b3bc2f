//! Setting, removing and replacing attributes: the fast path, and when it does not apply, the deferred one.
//!
//! ```text
//! attr fork there, shortform, value local ──▶ try in this transaction ──done──▶ one transaction, no intent
//!                        │                              │ no room
//!                        └──────────────▶ deferred ◀────┘   (see [`super::work`])
//! ```
//! Only "no room" falls through; every other outcome of the fast path is final. A replacement of the same lengths is
//! copied in place and logs nothing but the fork.

pub use super::reserve::{intent_bytes, reservation};
use super::search::{count as count_search, missing, search_inode};
use super::shortform::EntryRange;
use super::{Attr, AttrSlot, Change, EmptyFork, Fit, Form, ValueMapping, form, search, shortform, work};
use crate::error::{Error, Result};
use crate::mount::AttrPath;
pub use crate::trans::deferred::Logging;
use crate::trans::deferred::Turn;
use crate::trans::{InoId, Transaction};
use xfskit_ondisk::attr::shortform::SHORTFORM_LENGTH_LIMIT;

/// What must be so before an attribute is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Required {
    /// It may be there or not.
    Nothing,
    /// It is not there.
    Absent,
    /// It is there.
    Present,
}

/// Whether the fast path may be tried; counts why not.
fn may_try_shortform(tx: &Transaction, ino: InoId, value_bytes: usize) -> bool {
    let counters = &tx.mount().counters;
    if tx.mount().options.attr_path != AttrPath::Fast {
        counters.attr_fell_disabled.increment();
    } else if form(tx, ino) == Form::Tree {
        counters.attr_fell_not_shortform.increment();
    } else if value_bytes >= SHORTFORM_LENGTH_LIMIT {
        counters.attr_fell_remote_value.increment();
    } else {
        return true;
    }
    false
}

/// Adds or replaces an attribute, if that is a matter of the inode alone. `false`, and nothing changed: [`put`] has to
/// do it, with what [`reservation()`] asks for.
///
/// # Errors
/// `Exists` or `NoAttribute` where it is not as `required`; `Corrupt`.
pub fn put_in_inode(tx: &mut Transaction, ino: InoId, new: &Attr<'_>, required: Required) -> Result<bool> {
    if !stays_in_inode(tx, ino, new.value.len()) {
        return Ok(false);
    }
    let found = search_inode(tx.mount(), tx.inode(ino), new)?;
    let (old, is_known_absent) = (found.entry(), found.is_known_absent());
    match (old, required) {
        (Some(_), Required::Absent) => return Err(Error::Exists),
        (None, Required::Present) => return Err(Error::NoAttribute),
        _ => {}
    }
    if put_shortform(tx, ino, new, old)? == Fit::NoRoom {
        return Ok(false);
    }
    count_search(tx.mount(), is_known_absent);
    Ok(true)
}

/// As [`put_in_inode`], removes an attribute that must be there.
///
/// # Errors
/// `NoAttribute`, `Corrupt`.
pub fn remove_in_inode(tx: &mut Transaction, ino: InoId, old: &Attr<'_>) -> Result<bool> {
    if !stays_in_inode(tx, ino, 0) {
        return Ok(false);
    }
    let Some(entry) = search_inode(tx.mount(), tx.inode(ino), old)?.entry() else {
        return Err(missing(tx, ino, old));
    };
    remove_shortform(tx, ino, entry).map(|()| true)
}

fn stays_in_inode(tx: &Transaction, ino: InoId, value_bytes: usize) -> bool {
    tx.mount().options.attr_path == AttrPath::Fast
        && value_bytes < SHORTFORM_LENGTH_LIMIT
        && form(tx, ino) != Form::Tree
}

/// Adds an attribute that is not there.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Io`.
pub fn set(tx: &mut Transaction, ino: InoId, new: Attr<'_>, logging: Logging) -> Result<()> {
    finish_queued(tx, ino, &new)?;
    make(tx, ino, Change::Set(new), AttrSlot::Absent, logging, None)
}

/// Adds an attribute, or replaces the one of that name.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Io`.
pub fn put(tx: &mut Transaction, ino: InoId, new: Attr<'_>, logging: Logging) -> Result<()> {
    put_at(tx, ino, new, logging, None)
}

/// As [`put`], with a value for which [`super::map_value`] has mapped blocks.
///
/// # Errors
/// As [`put`].
pub fn put_at(
    tx: &mut Transaction,
    ino: InoId,
    new: Attr<'_>,
    logging: Logging,
    mapping: Option<ValueMapping>,
) -> Result<()> {
    finish_queued(tx, ino, &new)?;
    let slot = search(tx, ino, &new)?;
    slot.count(tx.mount());
    make(tx, ino, to_put(new, &slot), slot, logging, mapping)
}

/// Removes an attribute.
///
/// # Errors
/// `NoAttribute`, for a parent pointer `Corrupt`, when it is not there; `Corrupt`, `Io`.
pub fn remove(tx: &mut Transaction, ino: InoId, old: Attr<'_>, logging: Logging) -> Result<()> {
    finish_queued(tx, ino, &old)?;
    let slot = search_present(tx, ino, &old)?;
    make(tx, ino, Change::Remove(old), slot, logging, None)
}

/// Replaces a parent pointer by another.
///
/// # Errors
/// `Corrupt` when `old` is not there; `NoSpace`, `Io`.
pub fn replace_parent(tx: &mut Transaction, ino: InoId, old: Attr<'_>, new: Attr<'_>) -> Result<()> {
    finish_queued(tx, ino, &old)?;
    finish_queued(tx, ino, &new)?;
    let slot = search_present(tx, ino, &old)?;
    make(tx, ino, Change::ReplaceParent { old, new }, slot, Logging::Logged, None)
}

/// Checks that there is an attribute.
///
/// # Errors
/// As [`remove`] when it is not there; `Io`.
pub fn verify(tx: &mut Transaction, ino: InoId, key: &Attr<'_>) -> Result<()> {
    search_present(tx, ino, key).map(|slot| slot.release(tx))
}

/// Searches for an attribute that must be there.
fn search_present(tx: &mut Transaction, ino: InoId, key: &Attr<'_>) -> Result<AttrSlot> {
    let slot = search(tx, ino, key)?;
    if slot.is_found() { Ok(slot) } else { Err(missing(tx, ino, key)) }
}

/// The change that stores an attribute for which `slot` was found.
fn to_put<'a>(new: Attr<'a>, slot: &AttrSlot) -> Change<'a> {
    if slot.is_found() { Change::Replace(new) } else { Change::Set(new) }
}

/// An update of the same attribute that waits for its links is done before another.
fn finish_queued(tx: &mut Transaction, ino: InoId, attr: &Attr<'_>) -> Result<()> {
    let key = || work::queue_key(tx, ino, attr);
    if tx.has_deferred(key) { tx.finish_deferred(Turn::First) } else { Ok(()) }
}

/// Makes a change of the attribute at `slot`, in shortform or by the deferred path.
fn make(
    tx: &mut Transaction,
    ino: InoId,
    change: Change<'_>,
    slot: AttrSlot,
    logging: Logging,
    mapping: Option<ValueMapping>,
) -> Result<()> {
    if !may_try_shortform(tx, ino, change.value_bytes()) {
        slot.release(tx);
        return work::run(tx, ino, change, logging, mapping);
    }
    let old = slot.entry();
    let Some(new) = change.new_attr() else {
        return remove_shortform(tx, ino, old.expect("what is removed was found"));
    };
    if put_shortform(tx, ino, new, old)? == Fit::Done {
        return Ok(());
    }
    tx.mount().counters.attr_fell_no_room.increment();
    // The old half goes now; what remains to be done, and to be logged, is a plain set of the new one.
    if let Some(old) = old {
        shortform::remove_at(tx, ino, old, EmptyFork::Keep)?;
    }
    work::run(tx, ino, change.into_set(), logging, mapping)
}

/// Stores `new` in shortform, if there is room, in the place of `old`.
fn put_shortform(tx: &mut Transaction, ino: InoId, new: &Attr<'_>, old: Option<EntryRange>) -> Result<Fit> {
    let fit = match old {
        Some(old) => shortform::replace_at(tx, ino, old, new),
        None => shortform::add(tx, ino, new)?,
    };
    if fit == Fit::Done {
        let counters = &tx.mount().counters;
        counters.attr_fast_path.increment();
        if old.is_some_and(|old| old.is_for(new)) {
            counters.attr_in_place.increment();
        }
    }
    Ok(fit)
}

/// Removes an attribute from the shortform, and an attr fork that nothing needs any more.
fn remove_shortform(tx: &mut Transaction, ino: InoId, old: EntryRange) -> Result<()> {
    shortform::remove_at(tx, ino, old, EmptyFork::Remove)?;
    tx.mount().counters.attr_fast_path.increment();
    Ok(())
}
