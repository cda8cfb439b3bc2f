//! The deferred path: attribute updates that the shortform cannot take.
//!
//! ```text
//! set, local value        one step: [shortform → tree] + entry
//! set, remote value       blocks of the value, a few extents in each step; last step: the value + the entry
//! replace                 the same; the last step takes the old entry out and the new one in
//! remove                  one step: entry out; its value's blocks are freed, by extent-free intents if they are many
//! ```
//! The entry appears, changes or goes in exactly one transaction, so a reader never sees a part of an update, logged or
//! not. What an update leaves to later steps is described by an intent (if the caller wants it logged) from which
//! recovery does the whole of it again; blocks that were mapped for a value but not yet named are then mapped and
//! unused until the inode is freed. That is why the incomplete flag, with which the kernel hides half-done entries, is
//! read here and never written.
//!
//! Most updates are over after their first step, in the caller's transaction, and log no intent. The policy `always`
//! makes every update begin with one, as the kernel's `larp` switch does.

use super::update::Logging;
use super::{Attr, Form, Outcome, flags, fork, form, remote, shortform, tree};
use crate::cache::{Fork, ForkKind};
use crate::deferred::{DeferredOp, Step, finish};
use crate::error::{Error, Result};
use crate::error_tags::ATTR_NO_SPACE;
use crate::inode::bmap;
use crate::item::LogVector;
use crate::mount::AttrLogging;
use crate::trans::{InoId, Transaction};
use crate::{dir, symlink};
use xfskit_ondisk::FileBlock;
use xfskit_ondisk::attr::shortform::{SHORTFORM_HEADER_BYTES, entry_bytes};
use xfskit_ondisk::log_record::item_type;

/// Extents of a value that one step allocates: each may split every tree of its AG.
const EXTENTS_PER_STEP: usize = 4;

/// What an update does.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Set { new: Owned },
    Replace { old: Owned, new: Owned },
    Remove { old: Owned },
}

/// An attribute that outlives the caller's buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owned {
    namespace: u8,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Owned {
    fn of(attr: &Attr<'_>) -> Self {
        Self { namespace: attr.namespace, name: attr.name.to_vec(), value: attr.value.to_vec() }
    }

    fn attr(&self) -> Attr<'_> {
        Attr { namespace: self.namespace, name: &self.name, value: &self.value }
    }
}

/// How far an update has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Nothing was done. `announce`: log an intent before anything is.
    Start { announce: bool },
    /// The value's blocks from `at` on are mapped up to `mapped` of `total`.
    Mapping { at: FileBlock, mapped: u32, total: u32 },
}

/// What came of mapping blocks for a value.
enum Mapped {
    /// All blocks are mapped.
    All,
    /// The rest is for the next link.
    Some,
    /// There is no space, and nothing was changed.
    NoSpace,
}

/// An update under way.
struct AttrOp {
    ino: InoId,
    change: Change,
    progress: Progress,
    inode: u64,
    generation: u32,
}

/// Adds an attribute that is not there.
pub(super) fn set(tx: &mut Transaction, ino: InoId, new: &Attr<'_>, logging: Logging) -> Result<()> {
    run(tx, ino, Change::Set { new: Owned::of(new) }, logging)
}

/// Replaces an attribute by another.
pub(super) fn replace(
    tx: &mut Transaction,
    ino: InoId,
    old: &Attr<'_>,
    new: &Attr<'_>,
    logging: Logging,
) -> Result<()> {
    run(tx, ino, Change::Replace { old: Owned::of(old), new: Owned::of(new) }, logging)
}

/// Removes an attribute.
pub(super) fn remove(tx: &mut Transaction, ino: InoId, old: &Attr<'_>, logging: Logging) -> Result<()> {
    if !super::is_there(tx, ino, old)? {
        return Err(super::update::missing(tx, ino, old));
    }
    run(tx, ino, Change::Remove { old: Owned::of(old) }, logging)
}

fn run(tx: &mut Transaction, ino: InoId, change: Change, logging: Logging) -> Result<()> {
    let announce = tx.mount().options.attr_logging == AttrLogging::Always;
    let parent = match &change {
        Change::Set { new: attr } | Change::Replace { new: attr, .. } | Change::Remove { old: attr } => {
            attr.namespace & flags::PARENT != 0
        }
    };
    let core = &tx.inode(ino).core;
    let (inode, generation) = (core.inode.0, core.generation);
    let operation = AttrOp { ino, change, progress: Progress::Start { announce }, inode, generation };
    let may_log = parent || tx.mount().may_log_attr_intents();
    finish(tx, operation, logging == Logging::Logged && may_log)
}

impl AttrOp {
    fn new_attr(&self) -> Option<&Owned> {
        match &self.change {
            Change::Set { new } | Change::Replace { new, .. } => Some(new),
            Change::Remove { .. } => None,
        }
    }

    /// Maps a portion of the value's blocks. A transaction that holds AGs may find no space because it may not wait for
    /// lower ones: only a `fresh` one knows that there is none.
    fn map_some(&mut self, tx: &mut Transaction, fresh: bool) -> Result<Mapped> {
        let Progress::Mapping { at, mapped, total } = &mut self.progress else { return Ok(Mapped::All) };
        if tx.mount().error_tags.strikes(ATTR_NO_SPACE) {
            return Ok(if fresh { Mapped::NoSpace } else { Mapped::Some });
        }
        for extent in 0..EXTENTS_PER_STEP {
            if mapped == total {
                break;
            }
            let next = at.add((*mapped).into());
            match bmap::allocate_one(tx, self.ino, ForkKind::Attr, next, *total - *mapped) {
                Err(Error::NoSpace) if extent > 0 || !fresh => return Ok(Mapped::Some),
                Err(Error::NoSpace) if !tx.is_dirty() => return Ok(Mapped::NoSpace),
                got => *mapped += got?,
            }
        }
        Ok(if mapped == total { Mapped::All } else { Mapped::Some })
    }

    /// The step in which the entry appears, changes or goes.
    fn conclude(&self, tx: &mut Transaction) -> Result<()> {
        let ino = self.ino;
        match &self.change {
            Change::Set { new } => self.add(tx, new),
            Change::Replace { old, new } => {
                if form(tx, ino) == Form::Tree
                    && same_size(old, new)
                    && tree::overwrite(tx, ino, &old.attr(), &new.value)?
                {
                    return Ok(());
                }
                take_out(tx, ino, &old.attr())?;
                self.add(tx, new)?;
                tree::to_shortform(tx, ino, true).map(|_| ())
            }
            Change::Remove { old } => {
                take_out(tx, ino, &old.attr())?;
                tree::to_shortform(tx, ino, false).map(|_| ())
            }
        }
    }

    fn add(&self, tx: &mut Transaction, new: &Owned) -> Result<()> {
        let ino = self.ino;
        if form(tx, ino) != Form::Tree {
            ensure_fork(tx, ino, SHORTFORM_HEADER_BYTES + entry_bytes(new.name.len(), new.value.len()))?;
            // The intent was only announced, or room was made since: the shortform may do after all.
            if let Progress::Start { .. } = self.progress
                && self.is_local(tx)
                && shortform::add(tx, ino, &new.attr())? == Outcome::Done
            {
                return Ok(());
            }
            make_tree(tx, ino)?;
        }
        let value = match self.progress {
            Progress::Mapping { at, .. } => {
                let place = remote::write_at(tx, ino, at, &new.value)?;
                tree::NewValue::Remote { block: place.block, length: place.length }
            }
            Progress::Start { .. } => tree::NewValue::Local(&new.value),
        };
        tree::add(tx, ino, &new.attr(), value, false)
    }

    fn is_local(&self, tx: &Transaction) -> bool {
        self.new_attr().is_none_or(|new| tree::is_local_value(tx.geometry(), new.name.len(), new.value.len()))
    }
}

/// Whether a local value can be overwritten where it stands. A parent pointer's value decides its place.
fn same_size(old: &Owned, new: &Owned) -> bool {
    old.namespace & flags::PARENT == 0 && old.name == new.name
}

/// Takes an entry out of whatever form it is in, and frees its value's blocks.
fn take_out(tx: &mut Transaction, ino: InoId, key: &Attr<'_>) -> Result<()> {
    if form(tx, ino) != Form::Tree {
        return match shortform::remove(tx, ino, key, true)? {
            true => Ok(()),
            false => Err(super::update::missing(tx, ino, key)),
        };
    }
    let Some(place) = tree::lookup(tx, ino, key, false)? else { return Err(super::update::missing(tx, ino, key)) };
    tree::remove(tx, ino, key, false)?;
    place.map_or(Ok(()), |place| remote::free(tx, ino, place))
}

/// Turns shortform attributes, or none, into a tree, making room for the attr fork if need be.
fn make_tree(tx: &mut Transaction, ino: InoId) -> Result<()> {
    if tree::from_shortform(tx, ino)? == Outcome::Done {
        return Ok(());
    }
    make_room(tx, ino)?;
    match tree::from_shortform(tx, ino)? {
        Outcome::Done => Ok(()),
        Outcome::NoRoom => Err(Error::NoSpace),
    }
}

/// The contents of the data fork leave the inode, so that an attr fork has room beside what remains.
fn make_room(tx: &mut Transaction, ino: InoId) -> Result<()> {
    let state = tx.inode(ino);
    match &state.data {
        Fork::Local(_) if state.core.is_dir() => dir::leave_inode(tx, ino),
        Fork::Local(_) => symlink::leave_inode(tx, ino),
        Fork::Extents(_) => bmap::leave_inode(tx, ino, ForkKind::Data),
        Fork::Dev(_) | Fork::Btree { .. } => Ok(()),
    }
}

impl DeferredOp for AttrOp {
    fn step(mut self, tx: &mut Transaction) -> Result<Step<Self>> {
        if self.progress == (Progress::Start { announce: true }) {
            self.progress = Progress::Start { announce: false };
            return Ok(Step::Roll(self));
        }
        let fresh = matches!(self.progress, Progress::Mapping { .. });
        if !fresh && !self.is_local(tx) {
            if form(tx, self.ino) != Form::Tree {
                make_tree(tx, self.ino)?;
            }
            let bytes = self.new_attr().map_or(0, |new| new.value.len());
            let total = remote::blocks_of(tx, bytes);
            let at = remote::free_range(tx, self.ino, total)?;
            self.progress = Progress::Mapping { at, mapped: 0, total };
        }
        match self.map_some(tx, fresh)? {
            Mapped::Some => Ok(Step::Roll(self)),
            Mapped::NoSpace => Ok(Step::NoSpace(self)),
            Mapped::All => self.conclude(tx).map(|()| Step::Done),
        }
    }

    fn undo(self, tx: &mut Transaction) -> Result<()> {
        if let Progress::Mapping { at, mapped, .. } = self.progress {
            bmap::remove(tx, self.ino, ForkKind::Attr, at, mapped.into())?;
        }
        tree::to_shortform(tx, self.ino, false).map(|_| ())
    }

    fn format_intent(&self, id: u64, copy: &mut LogVector) {
        let nothing = Owned { namespace: 0, name: Vec::new(), value: Vec::new() };
        let (old, new) = match &self.change {
            Change::Set { new } => (new, &nothing),
            Change::Replace { old, new } if new.namespace & flags::PARENT != 0 => (old, new),
            Change::Replace { new, .. } => (new, &nothing),
            Change::Remove { old } => (old, &nothing),
        };
        let parent = old.namespace & flags::PARENT != 0;
        let has_value = parent || !matches!(self.change, Change::Remove { .. });
        let kind = match &self.change {
            Change::Set { .. } => 1,
            Change::Remove { .. } => 2,
            Change::Replace { .. } => 3,
        } + if parent { 3 } else { 0 };
        let value: &[u8] = if has_value { &old.value } else { &[] };
        let regions = [old.name.as_slice(), &new.name, value, &new.value];
        let count = 1 + regions.iter().filter(|region| !region.is_empty()).count();
        copy.push_with(40, |out| {
            out[0..2].copy_from_slice(&item_type::ATTRI.to_le_bytes());
            out[2..4].copy_from_slice(&(count as u16).to_le_bytes());
            let generation = if parent { self.generation } else { 0 };
            out[4..8].copy_from_slice(&generation.to_le_bytes());
            out[8..16].copy_from_slice(&id.to_le_bytes());
            out[16..24].copy_from_slice(&self.inode.to_le_bytes());
            out[24..28].copy_from_slice(&(kind as u32).to_le_bytes());
            // Two 16-bit lengths, which read as one 32-bit length where there is no new name.
            out[28..30].copy_from_slice(&(old.name.len() as u16).to_le_bytes());
            out[30..32].copy_from_slice(&(new.name.len() as u16).to_le_bytes());
            out[32..36].copy_from_slice(&(value.len() as u32).to_le_bytes());
            out[36..40].copy_from_slice(&u32::from(old.namespace & flags::NAMESPACE).to_le_bytes());
        });
        for region in regions.into_iter().filter(|region| !region.is_empty()) {
            copy.push(region);
        }
    }

    fn format_done(id: u64, copy: &mut LogVector) {
        copy.push_with(16, |out| {
            out[0..2].copy_from_slice(&item_type::ATTRD.to_le_bytes());
            out[2..4].copy_from_slice(&1u16.to_le_bytes());
            out[8..16].copy_from_slice(&id.to_le_bytes());
        });
    }
}

/// Gives an inode without an attr fork one, whatever is in its way.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Io`.
fn ensure_fork(tx: &mut Transaction, ino: InoId, bytes: usize) -> Result<()> {
    if form(tx, ino) != Form::None || fork::make(tx, ino, bytes) == Outcome::Done {
        return Ok(());
    }
    make_room(tx, ino)?;
    match fork::make(tx, ino, bytes) {
        Outcome::Done => Ok(()),
        Outcome::NoRoom => Err(Error::NoSpace),
    }
}
