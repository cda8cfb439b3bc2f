//! Setting, removing and replacing attributes: the fast path, and when it does not apply, the deferred one.
//!
//! ```text
//! attr fork there, shortform, value local ──▶ try in this transaction ──done──▶ one transaction, no intent
//!                        │                              │ no room
//!                        └──────────────▶ deferred ◀────┘   (see [`super::deferred`])
//! ```
//! Only "no room" falls through; every other outcome of the fast path is final. A replacement of the same lengths is
//! copied in place and logs nothing but the fork.
//!
//! What an inode is known not to have is forgotten here when an attribute is added.

use super::deferred::ValuePlace;
use super::shortform::Place;
use super::{Attr, Change, Form, Outcome, flags, form, shortform};
use crate::error::{Error, Result};
use crate::incore::KnownAbsent;
use crate::mount::Mount;
pub use crate::trans::deferred::Logging;
use crate::trans::deferred::Turn;
use crate::trans::{InoId, Reservation, Transaction};
use xfskit_ondisk::attr::MAX_VALUE_BYTES;
use xfskit_ondisk::attr::shortform::SHORTFORM_LENGTH_LIMIT;
use xfskit_ondisk::{Corruption, reservation};

/// Most that the intent of an update takes in the log, in bytes, besides the value: two names with their parent
/// pointers, and headers.
const INTENT_BYTES: usize = 1024;

/// What the intent of an update takes in the log, in bytes: it carries the whole value.
pub fn intent_bytes(value_bytes: usize) -> u32 {
    debug_assert!(value_bytes <= MAX_VALUE_BYTES, "a value of {value_bytes} bytes");
    (value_bytes + INTENT_BYTES) as u32
}

/// Log space and blocks for one update with a value of `value_bytes` bytes: what each of its links may need.
pub fn reservation(mount: &Mount, value_bytes: usize, logging: Logging) -> Reservation {
    let kernel = &mount.reservations;
    let value_blocks = value_bytes.div_ceil(mount.geometry.block_bytes()) as u64;
    let blocks = u64::from(reservation::attribute_space(&mount.limits)) + 2 * value_blocks;
    let intent_bytes = if logging == Logging::Logged { intent_bytes(value_bytes) } else { 0 };
    Reservation {
        log_bytes: 2 * (kernel.attrsetm.bytes + kernel.attrsetrt.bytes).max(kernel.attrrm.bytes) + intent_bytes,
        log_count: 1,
        blocks,
        may_dip: value_bytes == 0,
    }
}

/// What an attribute's presence contradicts.
fn kind_of(attr: &Attr<'_>) -> KnownAbsent {
    match attr.namespace & flags::NAMESPACE {
        flags::ROOT => KnownAbsent::ROOT.union(match &*attr.name {
            b"SGI_ACL_FILE" => KnownAbsent::ACCESS_ACL,
            b"SGI_ACL_DEFAULT" => KnownAbsent::DEFAULT_ACL,
            _ => KnownAbsent::default(),
        }),
        flags::SECURE => KnownAbsent::SECURE,
        flags::PARENT => KnownAbsent::default(),
        _ => KnownAbsent::USER,
    }
}

/// Whether the fast path may be tried; counts why not.
fn may_try_shortform(tx: &Transaction, ino: InoId, value_bytes: usize) -> bool {
    let counters = &tx.mount().counters;
    if !tx.mount().options.attr_fast_path {
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
/// do it, with what [`reservation()`] asks for. `required` says whether the attribute must be there, or must not.
///
/// # Errors
/// `Exists`, `NoAttribute`, `Corrupt`.
pub fn put_in_inode(tx: &mut Transaction, ino: InoId, new: &Attr<'_>, required: Option<bool>) -> Result<bool> {
    if !stays_in_inode(tx, ino, new.value.len()) {
        return Ok(false);
    }
    let mount = tx.mount();
    let kind = kind_of(new);
    let skip = mount.options.known_absent && tx.inode(ino).known_absent.contains(kind);
    let place = if skip { None } else { shortform::find(tx, ino, new)?.map(|found| Place::of(&found)) };
    match (place.is_some(), required) {
        (true, Some(false)) => return Err(Error::Exists),
        (false, Some(true)) => return Err(Error::NoAttribute),
        _ => {}
    }
    let outcome = match place {
        Some(place) => shortform::replace_at(tx, ino, place, new),
        None => shortform::add(tx, ino, new)?,
    };
    if outcome == Outcome::NoRoom {
        return Ok(false);
    }
    tx.inode_memory_mut(ino).known_absent.remove(kind);
    let counters = &mount.counters;
    if skip { &counters.attr_searches_skipped } else { &counters.attr_searches }.increment();
    counters.attr_fast_path.increment();
    if place.is_some_and(|place| place.is_for(new)) {
        counters.attr_in_place.increment();
    }
    Ok(true)
}

/// As [`put_in_inode`], removes an attribute that must be there.
///
/// # Errors
/// `NoAttribute`, `Corrupt`.
pub fn remove_in_inode(tx: &mut Transaction, ino: InoId, key: &Attr<'_>) -> Result<bool> {
    if !stays_in_inode(tx, ino, 0) {
        return Ok(false);
    }
    let place = shortform::find(tx, ino, key)?.map(|found| Place::of(&found)).ok_or(Error::NoAttribute)?;
    shortform::remove_at(tx, ino, place, false)?;
    tx.mount().counters.attr_fast_path.increment();
    Ok(true)
}

fn stays_in_inode(tx: &Transaction, ino: InoId, value_bytes: usize) -> bool {
    tx.mount().options.attr_fast_path && value_bytes < SHORTFORM_LENGTH_LIMIT && form(tx, ino) != Form::Tree
}

/// Adds an attribute that is not there.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Io`.
pub fn set(tx: &mut Transaction, ino: InoId, new: Attr<'_>, logging: Logging) -> Result<()> {
    make(tx, ino, Change::Set(new), logging, None)
}

/// Adds an attribute, or replaces the one of that name.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Io`.
pub fn put(tx: &mut Transaction, ino: InoId, new: Attr<'_>, logging: Logging) -> Result<()> {
    put_at(tx, ino, new, logging, None)
}

/// As [`put`], with a value for which [`super::deferred::map_value`] has mapped blocks.
///
/// # Errors
/// As [`put`].
pub fn put_at(
    tx: &mut Transaction,
    ino: InoId,
    new: Attr<'_>,
    logging: Logging,
    place: Option<ValuePlace>,
) -> Result<()> {
    finish_queued(tx, ino, &new)?;
    let known_absent = tx.mount().options.known_absent && tx.inode(ino).known_absent.contains(kind_of(&new));
    let counters = &tx.mount().counters;
    if known_absent { &counters.attr_searches_skipped } else { &counters.attr_searches }.increment();
    let is_there = !known_absent && super::is_there(tx, ino, &new)?;
    let change = if is_there { Change::Replace(new) } else { Change::Set(new) };
    make(tx, ino, change, logging, place)
}

/// Removes an attribute.
///
/// # Errors
/// `NoAttribute`, for a parent pointer `Corrupt`, when it is not there; `Corrupt`, `Io`.
pub fn remove(tx: &mut Transaction, ino: InoId, old: Attr<'_>, logging: Logging) -> Result<()> {
    make(tx, ino, Change::Remove(old), logging, None)
}

/// Replaces a parent pointer by another.
///
/// # Errors
/// `Corrupt` when `old` is not there; `NoSpace`, `Io`.
pub fn replace_parent(tx: &mut Transaction, ino: InoId, old: Attr<'_>, new: Attr<'_>) -> Result<()> {
    make(tx, ino, Change::ReplaceParent { old, new }, Logging::Logged, None)
}

/// Checks that there is an attribute.
///
/// # Errors
/// As [`remove`] when it is not there; `Io`.
pub fn verify(tx: &mut Transaction, ino: InoId, key: &Attr<'_>) -> Result<()> {
    if super::is_there(tx, ino, key)? { Ok(()) } else { Err(missing(tx, ino, key)) }
}

/// An update of the same attribute that waits for its links is done before another.
fn finish_queued(tx: &mut Transaction, ino: InoId, attr: &Attr<'_>) -> Result<()> {
    let key = || super::deferred::queue_key(tx, ino, attr);
    if tx.has_deferred(key) { tx.finish_deferred(Turn::First) } else { Ok(()) }
}

/// Makes a change, in shortform or by the deferred path.
fn make(
    tx: &mut Transaction,
    ino: InoId,
    change: Change<'_>,
    logging: Logging,
    place: Option<ValuePlace>,
) -> Result<()> {
    for key in change.keys() {
        finish_queued(tx, ino, key)?;
    }
    if let Some(new) = change.new_attr() {
        tx.inode_memory_mut(ino).known_absent.remove(kind_of(new));
    }
    if !may_try_shortform(tx, ino, change.value_bytes()) {
        return super::deferred::run(tx, ino, change, logging, place);
    }
    if in_shortform(tx, ino, &change)? == Outcome::Done {
        return Ok(());
    }
    tx.mount().counters.attr_fell_no_room.increment();
    let rest = match change {
        Change::Replace(new) => {
            shortform::remove(tx, ino, &new, true)?;
            Change::Set(new)
        }
        // The old half goes now; what remains to be done, and to be logged, is a plain set of the new one.
        Change::ReplaceParent { old, new } => {
            shortform::remove(tx, ino, &old, true)?;
            Change::Set(new)
        }
        other => other,
    };
    super::deferred::run(tx, ino, rest, logging, place)
}

/// Makes a change of shortform attributes, if there is room.
fn in_shortform(tx: &mut Transaction, ino: InoId, change: &Change<'_>) -> Result<Outcome> {
    let outcome = match change {
        Change::Set(new) => shortform::add(tx, ino, new)?,
        Change::Replace(new) => replace_in_shortform(tx, ino, new, new)?,
        Change::ReplaceParent { old, new } => replace_in_shortform(tx, ino, old, new)?,
        Change::Remove(old) if shortform::remove(tx, ino, old, false)? => Outcome::Done,
        Change::Remove(old) => return Err(missing(tx, ino, old)),
    };
    if outcome == Outcome::Done {
        tx.mount().counters.attr_fast_path.increment();
    }
    Ok(outcome)
}

fn replace_in_shortform(tx: &mut Transaction, ino: InoId, old: &Attr<'_>, new: &Attr<'_>) -> Result<Outcome> {
    let Some(place) = shortform::find(tx, ino, old)?.map(|found| Place::of(&found)) else {
        return Err(missing(tx, ino, old));
    };
    let outcome = shortform::replace_at(tx, ino, place, new);
    if outcome == Outcome::Done && place.is_for(new) {
        tx.mount().counters.attr_in_place.increment();
    }
    Ok(outcome)
}

/// The error for an attribute that must be there. A missing parent pointer is damage: every name has one.
pub(super) fn missing(tx: &Transaction, ino: InoId, key: &Attr<'_>) -> Error {
    if !key.is_parent() {
        return Error::NoAttribute;
    }
    let name = String::from_utf8_lossy(&key.name).into_owned();
    Corruption::new("parent pointer", "every name has one").of(tx.inode(ino).core.inode.0).found(name).into()
}
