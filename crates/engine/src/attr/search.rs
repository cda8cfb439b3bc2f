//! The search for an attribute, in whichever form the inode has its attributes: a get, a change and a list begin here.
//!
//! ```text
//! search_inode   the inode in memory alone, under its lock: known to be absent, in shortform, or in the tree
//! search         the same in a transaction, and the tree: a slot for one change
//! list_inode     all attributes, as far as the inode alone has them
//! ```
//! What the inode is known not to have ([`super::absent`]) is asked here and nowhere else: callers see an attribute
//! that is not there, and only the counters say that nothing was searched.

use super::shortform::{self, EntryRange};
use super::tree::{self, Completeness, LeafSlot};
use super::{Attr, Form, absent, form_of};
use crate::error::{Error, Result};
use crate::incore::InodeState;
use crate::mount::Mount;
use crate::trans::{InoId, Transaction};
use xfskit_ondisk::Corruption;
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
#[inline]
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
    if absent::is_known(mount, state, key) {
        return Ok(InodeSearch::KnownAbsent);
    }
    if form_of(state) == Form::Tree {
        return Ok(InodeSearch::InTree);
    }
    Ok(shortform::find_in(state, key)?.map_or(InodeSearch::Absent, InodeSearch::Found))
}

/// All attributes of an inode under its lock, as far as the inode alone has them.
pub fn list_inode<'a>(mount: &Mount, state: &'a InodeState) -> InodeList<'a> {
    if absent::is_all_known(mount, state) {
        InodeList::KnownAbsent
    } else if form_of(state) == Form::Tree {
        InodeList::InTree
    } else {
        InodeList::Shortform(shortform::bytes(state))
    }
}

/// Counts a search, or one that was spared because the attribute is known to be absent.
#[inline]
pub(super) fn count(mount: &Mount, is_known_absent: bool) {
    let counters = &mount.counters;
    if is_known_absent { &counters.attr_searches_skipped } else { &counters.attr_searches }.increment();
}

impl AttrSlot {
    /// Whether the attribute is there.
    #[inline]
    pub fn is_found(&self) -> bool {
        matches!(self, Self::InInode(_) | Self::InLeaf(_))
    }

    /// Counts the search.
    #[inline]
    pub fn count(&self, mount: &Mount) {
        count(mount, matches!(self, Self::KnownAbsent));
    }

    /// Where the attribute stands in the inode.
    #[inline]
    pub(super) fn entry(&self) -> Option<EntryRange> {
        if let Self::InInode(entry) = self { Some(*entry) } else { None }
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
    /// Where the attribute stands in the inode.
    #[inline]
    pub(super) fn entry(&self) -> Option<EntryRange> {
        if let Self::Found(found) = self { Some(EntryRange::of(found)) } else { None }
    }

    /// Whether nothing was searched.
    #[inline]
    pub(super) fn is_known_absent(&self) -> bool {
        matches!(self, Self::KnownAbsent)
    }

    /// Counts the search, unless it goes on in the tree.
    pub fn count(&self, mount: &Mount) {
        if !matches!(self, Self::InTree) {
            count(mount, self.is_known_absent());
        }
    }
}

impl InodeList<'_> {
    /// Counts the search of all attributes.
    pub fn count(&self, mount: &Mount) {
        count(mount, matches!(self, Self::KnownAbsent));
    }
}

/// The error for an attribute that must be there. A missing parent pointer is damage: every name has one.
pub(super) fn missing(tx: &Transaction, ino: InoId, key: &Attr<'_>) -> Error {
    if !key.is_parent() {
        return Error::NoAttribute;
    }
    let name = String::from_utf8_lossy(&key.name).into_owned();
    Corruption::new("parent pointer", "every name has one").of(tx.inode(ino).core.inode.0).found(name).into()
}
