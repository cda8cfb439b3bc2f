//! Kinds of attributes that an inode is known not to have.
//!
//! The inode in memory has a bit for each kind ([`KnownAbsent`]): set when a search or a list has not found any, or
//! with a new inode, and taken back by the step that adds an attribute of the kind. Invariant: where a bit is set,
//! there is no attribute of the kind; where none is set, there may be none all the same.

use super::{Attr, flags};
use crate::incore::{InodeState, KnownAbsent};
use crate::mount::Mount;
use crate::trans::{InoId, Transaction};

/// Whether an attribute is of a kind that the inode is known not to have. Parent pointers are of no kind.
#[inline]
pub fn is_known(mount: &Mount, state: &InodeState, key: &Attr<'_>) -> bool {
    let known = |kind| state.known_absent.contains(kind);
    mount.options.known_absent
        && (space_kind(key.namespace).is_some_and(known) || acl_kind(key.namespace, &key.name).is_some_and(known))
}

/// Whether the inode is known to have no attribute that users see.
pub(super) fn is_all_known(mount: &Mount, state: &InodeState) -> bool {
    mount.options.known_absent && state.known_absent.contains(KnownAbsent::ALL)
}

/// The kinds that are not absent where there is an attribute.
#[inline]
pub fn kinds_of(namespace: u8, name: &[u8]) -> KnownAbsent {
    let space = space_kind(namespace).unwrap_or_default();
    acl_kind(namespace, name).map_or(space, |acl| space.union(acl))
}

/// The kind of all attributes of a name space.
#[inline]
fn space_kind(namespace: u8) -> Option<KnownAbsent> {
    match namespace & flags::NAMESPACE {
        flags::ROOT => Some(KnownAbsent::ROOT),
        flags::SECURE => Some(KnownAbsent::SECURE),
        flags::PARENT => None,
        _ => Some(KnownAbsent::USER),
    }
}

/// The kind of an ACL.
#[inline]
fn acl_kind(namespace: u8, name: &[u8]) -> Option<KnownAbsent> {
    if namespace & flags::NAMESPACE != flags::ROOT {
        return None;
    }
    match name {
        b"SGI_ACL_FILE" => Some(KnownAbsent::ACCESS_ACL),
        b"SGI_ACL_DEFAULT" => Some(KnownAbsent::DEFAULT_ACL),
        _ => None,
    }
}

/// Remembers that an ACL was not found.
pub fn remember_no_acl(tx: &mut Transaction, ino: InoId, key: &Attr<'_>) {
    if let Some(kind) = acl_kind(key.namespace, &key.name) {
        tx.inode_memory_mut(ino).known_absent.insert(kind);
    }
}

/// Forgets what an attribute that was added contradicts. Part of each step that adds one.
#[inline]
pub(super) fn forget(tx: &mut Transaction, ino: InoId, new: &Attr<'_>) {
    if !new.is_parent() {
        tx.inode_memory_mut(ino).known_absent.remove(kinds_of(new.namespace, &new.name));
    }
}
