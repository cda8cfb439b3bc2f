//! Blocks of the attr fork for a value, mapped before an entry names them.
//!
//! ```text
//! | tree | a value | ..... | mapped │ to be mapped │     at .. at + mapped .. at + total
//! ```
//! A value in many pieces takes several links: each maps a few extents, and the last link, with which all are mapped,
//! writes the value and adds the entry. Until then no reader and no other operation sees the blocks; a crash leaves
//! them to [`super::leftovers`], or to the end of the inode.

use super::remote::HostRoom;
use super::{EmptyFork, Form, fork, form, remote, tree};
use crate::error::{Error, Result};
use crate::error_tags::ATTR_NO_SPACE;
use crate::incore::ForkKind;
use crate::inode::bmap;
use crate::trans::deferred::Turn;
use crate::trans::{InoId, Transaction};
use xfskit_ondisk::FileBlock;
use xfskit_ondisk::attr::shortform::SHORTFORM_HEADER_BYTES;

/// Extents of a value that one link maps: each may split every tree of its AG.
const EXTENTS_PER_LINK: usize = 4;

/// Blocks of the fork for a value that no entry names, mapped from the first on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueMapping {
    at: FileBlock,
    total: u32,
    mapped: u32,
}

/// What is known of the AGs that a link may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// It may hold AGs already, and may not wait for lower ones: that it finds no space says nothing.
    InUse,
    /// It has just begun: what it does not find is not there.
    Fresh,
}

/// The result of mapping blocks in one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mapped {
    /// All blocks are mapped.
    All,
    /// The rest is for the next link.
    Some,
    /// There is no space, and nothing was changed.
    NoSpace,
}

/// Maps blocks for a value of so many bytes, in as many links as it takes. No reader sees any of it, so a caller that
/// maps all its values first can then make all its changes in one link.
///
/// # Errors
/// `NoSpace`, with nothing mapped; `Corrupt`, `Io`, `Shutdown`.
pub fn map_value(tx: &mut Transaction, ino: InoId, value_bytes: usize) -> Result<ValueMapping> {
    fork::ensure(tx, ino, SHORTFORM_HEADER_BYTES)?;
    let mut mapping = ValueMapping::begin(tx, ino, value_bytes)?;
    let mut link = Link::InUse;
    loop {
        match mapping.advance(tx, ino, link)? {
            Mapped::All if mapping.host_room(tx, ino)? == HostRoom::Enough => return Ok(mapping),
            // What was mapped is taken back in a link of its own.
            Mapped::All => {
                tx.in_later_link(Transaction::roll)?;
                mapping.unmap(tx, ino)?;
                return Err(Error::NoSpace);
            }
            Mapped::Some => tx.in_later_link(Transaction::roll)?,
            Mapped::NoSpace => {
                mapping.unmap(tx, ino)?;
                return Err(Error::NoSpace);
            }
        }
        link = Link::Fresh;
    }
}

/// Gives back what was mapped for values that will not be stored, in links of their own.
///
/// # Errors
/// `Corrupt`, `Io`, `Shutdown`.
pub fn unmap_values(tx: &mut Transaction, ino: InoId, mut mappings: impl Iterator<Item = ValueMapping>) -> Result<()> {
    mappings.try_for_each(|mapping| mapping.unmap(tx, ino))
}

impl ValueMapping {
    /// Where the blocks of a value can be mapped, in a fork that is a tree from here on. Nothing is mapped yet.
    pub(super) fn begin(tx: &mut Transaction, ino: InoId, value_bytes: usize) -> Result<Self> {
        if form(tx, ino) != Form::Tree {
            tree::make(tx, ino)?;
        }
        let total = remote::blocks_of(tx, value_bytes);
        Ok(Self { at: remote::free_range(tx, ino, total)?, total, mapped: 0 })
    }

    /// The first of the blocks.
    pub(super) fn at(self) -> FileBlock {
        self.at
    }

    /// Maps as many of the blocks as one link should.
    pub(super) fn advance(&mut self, tx: &mut Transaction, ino: InoId, link: Link) -> Result<Mapped> {
        let Self { at, total, mapped } = self;
        let is_fresh = link == Link::Fresh;
        for extent in 0..EXTENTS_PER_LINK {
            if mapped == total {
                break;
            }
            if extent == 0 && tx.mount().error_tags.strikes(ATTR_NO_SPACE) {
                return Ok(if is_fresh { Mapped::NoSpace } else { Mapped::Some });
            }
            let next = at.add((*mapped).into());
            match bmap::allocate_one(tx, ino, ForkKind::Attr, next, *total - *mapped) {
                Err(Error::NoSpace) if extent > 0 || !is_fresh => return Ok(Mapped::Some),
                Err(Error::NoSpace) if !tx.is_dirty() => return Ok(Mapped::NoSpace),
                got => *mapped += got?,
            }
        }
        Ok(if mapped == total { Mapped::All } else { Mapped::Some })
    }

    /// Whether the host has room for the value, all of whose blocks are mapped.
    pub(super) fn host_room(self, tx: &mut Transaction, ino: InoId) -> Result<HostRoom> {
        remote::allocate_on_host(tx, ino, self.at, self.total)
    }

    /// Whether the blocks that are not mapped yet are still free: another update may have mapped them for its value.
    pub(super) fn is_rest_free(self, tx: &mut Transaction, ino: InoId) -> Result<bool> {
        let (rest, count) = (self.at.add(self.mapped.into()), self.total - self.mapped);
        Ok(count == 0 || bmap::first_unused(tx, ino, ForkKind::Attr, rest, count)? == rest)
    }

    /// Unmaps the blocks, and undoes what was done to the fork for their sake.
    pub(super) fn take_back(self, tx: &mut Transaction, ino: InoId) -> Result<()> {
        bmap::remove(tx, ino, ForkKind::Attr, self.at, self.mapped.into())?;
        tree::to_shortform(tx, ino, EmptyFork::Remove).map(|_| ())
    }

    fn unmap(self, tx: &mut Transaction, ino: InoId) -> Result<()> {
        tx.in_later_link(|tx| {
            self.take_back(tx, ino)?;
            tx.finish_deferred(Turn::Last)?;
            tx.roll()
        })
    }
}
