//! The search for an attribute, in whichever form the inode has its attributes: a get, a change and a list begin here.
//!
//! ```text
//! search_inode   the inode in memory alone, under its lock: known to be absent, in shortform, or in the tree
//! search         the same in a transaction, and the tree: a slot for one change
//! list_inode     all attributes, as far as the inode alone has them
//! ```
//! The inode in memory remembers kinds of attributes that it does not have
//! ([`KnownAbsent`](crate::incore::KnownAbsent)). That is asked here and nowhere else, so callers see an attribute that
//! is not there, and only the counters say that nothing was searched.

use super::shortform::{self, EntryRange};
use super::tree::{self, Completeness, LeafSlot};
use super::{Attr, Form, flags, form_of};
use crate::error::Result;
use crate::incore::{InodeState, KnownAbsent};
use crate::mount::Mount;
use crate::trans::{InoId, Transaction};
use xfskit_ondisk::attr::shortform::ShortformAttr;

/// Where an attribute stands, or that it is not there. Good for one change of the inode's attributes, in the
/// transaction that searched.
#[derive(Debug)]
#[must_use]
pub enum AttrSlot {
    /// The inode is known not to have it: nothing was searched.
    KnownAbsent,
    /// It was not found.
    Absent,
    /// In the inode.
    InInode(EntryRange),
    /// In a leaf, whose path stays locked.
    InLeaf(LeafSlot),
}

/// What the inode in memory says of an attribute.
#[derive(Clone, Copy, Debug)]
pub enum InodeSearch<'a> {
    /// It is known to be absent: nothing was searched.
    KnownAbsent,
    /// It is not there.
    Absent,
    /// It is in the inode.
    Found(ShortformAttr<'a>),
    /// The attributes are in a tree.
    InTree,
}

/// What the inode in memory says of all its attributes.
#[derive(Clone, Copy, Debug)]
pub enum InodeList<'a> {
    /// There are none that users see, which is known.
    KnownAbsent,
    /// The bytes of the shortform; none if there are no attributes.
    Shortform(&'a [u8]),
    /// They are in a tree.
    InTree,
}

/// Searches for an attribute.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn search(tx: &mut Transaction, ino: InoId, key: &Attr<'_>) -> Result<AttrSlot> {
    Ok(match search_inode(tx.mount(), tx.inode(ino), key)? {
        InodeSearch::KnownAbsent => AttrSlot::KnownAbsent,
        InodeSearch::Absent => AttrSlot::Absent,
        InodeSearch::Found(entry) => AttrSlot::InInode(EntryRange::of(&entry)),
        InodeSearch::InTree => {
            tree::find(tx, ino, key, Completeness::Complete)?.map_or(AttrSlot::Absent, AttrSlot::InLeaf)
        }
    })
}

/// As [`search`], in an inode under its lock, as far as the inode alone has the answer.
///
/// # Errors
/// `Corrupt`.
#[inline]
pub fn search_inode<'a>(mount: &Mount, state: &'a InodeState, key: &Attr<'_>) -> Result<InodeSearch<'a>> {
    if mount.options.known_absent && is_known_absent(state.known_absent, key) {
        return Ok(InodeSearch::KnownAbsent);
    }
    if form_of(state) == Form::Tree {
        return Ok(InodeSearch::InTree);
    }
    Ok(shortform::find_in(state, key)?.map_or(InodeSearch::Absent, InodeSearch::Found))
}

/// All attributes of an inode under its lock, as far as the inode alone has them.
pub fn list_inode<'a>(mount: &Mount, state: &'a InodeState) -> InodeList<'a> {
    if mount.options.known_absent && state.known_absent.contains(KnownAbsent::ALL) {
        InodeList::KnownAbsent
    } else if form_of(state) == Form::Tree {
        InodeList::InTree
    } else {
        InodeList::Shortform(shortform::bytes(state))
    }
}

/// Whether one of the kinds that an attribute belongs to is known to be absent. Parent pointers are of no kind.
fn is_known_absent(known: KnownAbsent, key: &Attr<'_>) -> bool {
    space_kind(key.namespace).is_some_and(|kind| known.contains(kind))
        || acl_kind(key.namespace, &key.name).is_some_and(|kind| known.contains(kind))
}

/// The kinds that are not absent where there is an attribute.
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

/// Forgets what an attribute that is added contradicts.
pub(super) fn forget_absent(tx: &mut Transaction, ino: InoId, new: Option<&Attr<'_>>) {
    if let Some(new) = new.filter(|new| !new.is_parent()) {
        tx.inode_memory_mut(ino).known_absent.remove(kinds_of(new.namespace, &new.name));
    }
}

fn count(mount: &Mount, is_known: bool) {
    let counters = &mount.counters;
    if is_known { &counters.attr_searches_skipped } else { &counters.attr_searches }.increment();
}

impl AttrSlot {
    /// Whether the attribute is there.
    pub fn is_found(&self) -> bool {
        matches!(self, Self::InInode(_) | Self::InLeaf(_))
    }

    /// Counts the search.
    pub fn count(&self, mount: &Mount) {
        count(mount, matches!(self, Self::KnownAbsent));
    }

    /// The value of an attribute that was found; gives the blocks back.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    pub fn into_value(self, tx: &mut Transaction, ino: InoId) -> Result<Option<Vec<u8>>> {
        match self {
            Self::KnownAbsent | Self::Absent => Ok(None),
            Self::InInode(entry) => Ok(Some(entry.value(tx.inode(ino)).to_vec())),
            Self::InLeaf(slot) => tree::value_at(tx, ino, slot).map(Some),
        }
    }

    /// Gives the blocks back.
    pub fn release(self, tx: &mut Transaction) {
        if let Self::InLeaf(slot) = self {
            slot.release(tx);
        }
    }
}

impl InodeSearch<'_> {
    /// Counts the search, unless it goes on in the tree.
    pub fn count(&self, mount: &Mount) {
        if !matches!(self, Self::InTree) {
            count(mount, matches!(self, Self::KnownAbsent));
        }
    }
}

impl InodeList<'_> {
    /// Counts the search of all attributes.
    pub fn count(&self, mount: &Mount) {
        count(mount, matches!(self, Self::KnownAbsent));
    }
}
