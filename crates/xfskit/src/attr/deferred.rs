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
//! recovery does the whole of it again (see [`super::redo`]); blocks that were mapped for a value but not yet named are
//! freed then, if there is an intent of the inode, and else with it. That is why the incomplete flag, with which the
//! kernel hides half-done entries, is read here and never written.
//!
//! Most updates are over after their first step, in the caller's transaction, and log no intent. The policy `always`
//! makes every update begin with one, as the kernel's `larp` switch does.

use super::tree::Completeness;
use super::update::{self, Logging};
use super::{Attr, AttrSlot, Change, EmptyFork, Fit, Form, Value, fork, form, redo, remote, search, shortform, tree};
use crate::error::{Error, Result};
use crate::error_tags::{ATTR_NO_SPACE, LARP, REFUSE_FORK};
use crate::incore::{DataFork, ForkKind, ForkMap};
use crate::inode::bmap;
use crate::item::LogVector;
use crate::mount::{AttrLogging, Mount};
use crate::trans::deferred::{self, Step, Turn, Work};
use crate::trans::{InoId, Reservation, Transaction};
use crate::{dir, symlink};
use xfskit_ondisk::attr::leaf::LeafValue;
use xfskit_ondisk::attr::shortform::{SHORTFORM_HEADER_BYTES, entry_bytes};
use xfskit_ondisk::log_items;
use xfskit_ondisk::log_record::item_type;
use xfskit_ondisk::{FileBlock, InodeNumber};

/// Extents of a value that one step allocates: each may split every tree of its AG.
const EXTENTS_PER_STEP: usize = 4;

/// How far an update has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing was done.
    Start,
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
pub(super) struct Update<'a> {
    pub(super) change: Change<'a>,
    pub(super) progress: Progress,
    pub(super) inode: InodeNumber,
    pub(super) generation: u32,
    /// Recovery does it, perhaps again: what is to go may be gone, and what is to come may be there.
    pub(super) again: bool,
}

/// An update of an inode that belongs to the whole chain.
struct AttrOp<'a> {
    ino: InoId,
    update: Update<'a>,
}

/// What a queued update is about.
pub(super) fn queue_key(tx: &Transaction, ino: InoId, attr: &Attr<'_>) -> Vec<u8> {
    let inode = tx.inode(ino).core.inode.0.to_le_bytes();
    [&inode, [attr.namespace].as_slice(), &attr.name].concat()
}

/// Makes a change that the shortform does not take, now or, under the policy `always`, in links of its own.
pub(super) fn run(
    tx: &mut Transaction,
    ino: InoId,
    change: Change<'_>,
    logging: Logging,
    place: Option<ValuePlace>,
) -> Result<()> {
    let announce = tx.mount().options.attr_logging == AttrLogging::Always;
    let parent = change.is_parent();
    let core = &tx.inode(ino).core;
    let (inode, generation) = (core.inode, core.generation);
    let progress = match place {
        Some(ValuePlace { at, total }) => Progress::Mapping { at, mapped: total, total },
        None => Progress::Start,
    };
    let mut operation = AttrOp { ino, update: Update { change, progress, inode, generation, again: false } };
    let may_log = parent || tx.mount().may_log_attr_intents();
    // Kernels without a fix of 2025 refuse an intent whose value is empty, and nothing empty takes more than one link.
    let is_empty = operation.update.change.new_attr().is_some_and(|new| new.value.is_empty());
    let logged = logging == Logging::Logged && may_log && !is_empty;
    let logging = if logged { Logging::Logged } else { Logging::NotLogged };
    if !(announce && logged) {
        return deferred::run(tx, &mut operation, logging);
    }
    if let Some(new) = operation.update.change.new_attr() {
        // The kernel's recovery passes over an intent for an inode that has no attr fork.
        let bytes = SHORTFORM_HEADER_BYTES + entry_bytes(new.name.len(), new.value.len());
        ensure_fork(tx, ino, bytes)?;
    }
    let key = operation.update.change.keys().last().map(|key| queue_key(tx, ino, key)).unwrap_or_default();
    let change = operation.update.change.into_owned(tx.mount());
    tx.defer(Turn::First, key, Box::new(AttrOp { ino, update: Update { change, ..operation.update } }));
    Ok(())
}

/// Blocks of the fork that are mapped for a value and not named by anything yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValuePlace {
    at: FileBlock,
    total: u32,
}

/// Maps blocks for a value of so many bytes, in as many links as it takes. Nothing of that can be seen, so whoever
/// maps all its values first can then make all its changes in one link.
///
/// # Errors
/// `NoSpace`, with nothing mapped; `Corrupt`, `Io`, `Shutdown`.
pub fn map_value(tx: &mut Transaction, ino: InoId, value_bytes: usize) -> Result<ValuePlace> {
    ensure_fork(tx, ino, SHORTFORM_HEADER_BYTES)?;
    let ValuePlace { at, total } = find_place(tx, ino, value_bytes)?;
    let (mut mapped, mut fresh) = (0, false);
    loop {
        match map_some(tx, ino, at, &mut mapped, total, fresh)? {
            Mapped::All => return Ok(ValuePlace { at, total }),
            Mapped::Some => tx.in_later_link(Transaction::roll)?,
            Mapped::NoSpace => {
                unmap(tx, ino, at, mapped)?;
                return Err(Error::NoSpace);
            }
        }
        fresh = true;
    }
}

/// Gives back what was mapped for values that will not come, in links of their own.
///
/// # Errors
/// `Corrupt`, `Io`, `Shutdown`.
pub fn unmap_values(tx: &mut Transaction, ino: InoId, mut places: impl Iterator<Item = ValuePlace>) -> Result<()> {
    places.try_for_each(|place| unmap(tx, ino, place.at, place.total))
}

fn unmap(tx: &mut Transaction, ino: InoId, at: FileBlock, count: u32) -> Result<()> {
    tx.in_later_link(|tx| {
        take_back(tx, ino, at, count)?;
        tx.finish_deferred(Turn::Last)?;
        tx.roll()
    })
}

/// Unmaps what was mapped for a value, and undoes what was done to the fork for its sake.
fn take_back(tx: &mut Transaction, ino: InoId, at: FileBlock, count: u32) -> Result<()> {
    bmap::remove(tx, ino, ForkKind::Attr, at, count.into())?;
    tree::to_shortform(tx, ino, EmptyFork::Remove).map(|_| ())
}

/// Where the blocks of a value can be mapped, in a fork that is a tree from here on.
fn find_place(tx: &mut Transaction, ino: InoId, value_bytes: usize) -> Result<ValuePlace> {
    if form(tx, ino) != Form::Tree {
        make_tree(tx, ino)?;
    }
    let total = remote::blocks_of(tx, value_bytes);
    Ok(ValuePlace { at: remote::free_range(tx, ino, total)?, total })
}

/// Maps a portion of a value's blocks. A transaction that holds AGs may find no space because it may not wait for
/// lower ones: only a `fresh` one knows that there is none.
fn map_some(
    tx: &mut Transaction,
    ino: InoId,
    at: FileBlock,
    mapped: &mut u32,
    total: u32,
    fresh: bool,
) -> Result<Mapped> {
    for extent in 0..EXTENTS_PER_STEP {
        if *mapped == total {
            break;
        }
        if extent == 0 && tx.mount().error_tags.strikes(ATTR_NO_SPACE) {
            return Ok(if fresh { Mapped::NoSpace } else { Mapped::Some });
        }
        let next = at.add((*mapped).into());
        match bmap::allocate_one(tx, ino, ForkKind::Attr, next, total - *mapped) {
            Err(Error::NoSpace) if extent > 0 || !fresh => return Ok(Mapped::Some),
            Err(Error::NoSpace) if !tx.is_dirty() => return Ok(Mapped::NoSpace),
            got => *mapped += got?,
        }
    }
    Ok(if *mapped == total { Mapped::All } else { Mapped::Some })
}

impl Update<'_> {
    /// The step in which the entry appears, changes or goes.
    fn conclude(&self, tx: &mut Transaction, ino: InoId) -> Result<()> {
        match &self.change {
            change if self.again => {
                for key in change.keys() {
                    redo::remove_every(tx, ino, key)?;
                }
                if let Some(new) = change.new_attr() {
                    self.add(tx, ino, new)?;
                }
                tree::to_shortform(
                    tx,
                    ino,
                    if change.new_attr().is_some() { EmptyFork::Keep } else { EmptyFork::Remove },
                )
                .map(|_| ())
            }
            Change::Set(new) => self.add(tx, ino, new),
            Change::Replace(new) => {
                let slot = search(tx, ino, new)?;
                if let AttrSlot::InLeaf(slot) = &slot
                    && let Some(value) = new.value.bytes()
                    && tree::overwrite_at(tx, slot, value)?
                {
                    return Ok(());
                }
                self.replace(tx, ino, (slot, new), new)
            }
            Change::ReplaceParent { old, new } => {
                let slot = search(tx, ino, old)?;
                self.replace(tx, ino, (slot, old), new)
            }
            Change::Remove(old) => {
                let slot = search(tx, ino, old)?;
                take_out(tx, ino, slot, old)?;
                tree::to_shortform(tx, ino, EmptyFork::Remove).map(|_| ())
            }
        }
    }

    fn replace(
        &self,
        tx: &mut Transaction,
        ino: InoId,
        (slot, old): (AttrSlot, &Attr<'_>),
        new: &Attr<'_>,
    ) -> Result<()> {
        take_out(tx, ino, slot, old)?;
        self.add(tx, ino, new)?;
        tree::to_shortform(tx, ino, EmptyFork::Keep).map(|_| ())
    }

    fn add(&self, tx: &mut Transaction, ino: InoId, new: &Attr<'_>) -> Result<()> {
        if form(tx, ino) != Form::Tree {
            ensure_fork(tx, ino, SHORTFORM_HEADER_BYTES + entry_bytes(new.name.len(), new.value.len()))?;
            // The update was queued, or room was made since: the shortform may do after all.
            if self.progress == Progress::Start && self.is_local(tx) && shortform::add(tx, ino, new)? == Fit::Done {
                return Ok(());
            }
            make_tree(tx, ino)?;
        }
        let value = match self.progress {
            Progress::Mapping { at, .. } => {
                let blocks = match &new.value {
                    Value::Bytes(bytes) => &remote::in_blocks(tx.mount(), bytes),
                    Value::Blocks(blocks) => blocks,
                };
                let place = remote::write_at(tx, ino, at, blocks)?;
                LeafValue::Remote { block: place.block, length: place.length }
            }
            Progress::Start => {
                LeafValue::Local(new.value.bytes().expect("only what no entry may hold is laid out in blocks"))
            }
        };
        tree::add(tx, ino, new, value, Completeness::Complete)
    }

    fn is_local(&self, tx: &Transaction) -> bool {
        self.change.new_attr().is_none_or(|new| tree::is_local_value(tx.geometry(), new.name.len(), new.value.len()))
    }

    /// Does as much as fits the link.
    pub(super) fn step(&mut self, tx: &mut Transaction, ino: InoId) -> Result<Step> {
        let fresh = matches!(self.progress, Progress::Mapping { .. });
        if !fresh && !self.is_local(tx) {
            let bytes = self.change.value_bytes();
            let ValuePlace { at, total } = find_place(tx, ino, bytes)?;
            self.progress = Progress::Mapping { at, mapped: 0, total };
        }
        let mapped = match &mut self.progress {
            Progress::Start => Mapped::All,
            Progress::Mapping { at, mapped, total } => map_some(tx, ino, *at, mapped, *total, fresh)?,
        };
        match mapped {
            Mapped::Some => Ok(Step::Roll),
            Mapped::NoSpace => Ok(Step::NoSpace),
            Mapped::All => self.conclude(tx, ino).map(|()| Step::Done),
        }
    }

    /// Takes back what earlier links did.
    pub(super) fn undo(&mut self, tx: &mut Transaction, ino: InoId) -> Result<()> {
        match self.progress {
            Progress::Start => Ok(()),
            Progress::Mapping { at, mapped, .. } => take_back(tx, ino, at, mapped),
        }
    }

    /// Log space and blocks for a step.
    pub(super) fn reserve(&self, mount: &Mount) -> Reservation {
        update::reservation(mount, self.change.value_bytes(), Logging::Logged).dipping()
    }

    /// Encodes an intent for the whole of it.
    pub(super) fn encode_intent(&self, id: u64, copy: &mut LogVector) {
        self.change.encode_intent(self.inode, self.generation, id, copy);
    }
}

/// The done item of an update's intent.
pub(super) fn encode_done(id: u64, copy: &mut LogVector) {
    copy.push(&log_items::encode_done(item_type::ATTRD, id));
}

/// Takes an attribute out of whatever form it is in, and frees its value's blocks.
fn take_out(tx: &mut Transaction, ino: InoId, slot: AttrSlot, key: &Attr<'_>) -> Result<()> {
    match slot {
        AttrSlot::InInode(entry) => shortform::remove_at(tx, ino, entry, EmptyFork::Keep),
        AttrSlot::InLeaf(slot) => tree::take_out(tx, ino, slot),
        AttrSlot::KnownAbsent | AttrSlot::Absent => Err(update::missing(tx, ino, key)),
    }
}

/// Turns shortform attributes, or none, into a tree, making room for the attr fork if need be.
fn make_tree(tx: &mut Transaction, ino: InoId) -> Result<()> {
    ensure_fork(tx, ino, usize::MAX)?;
    match tree::from_shortform(tx, ino)? {
        Fit::Done => Ok(()),
        Fit::NoRoom => Err(Error::NoSpace),
    }
}

/// The contents of the data fork leave the inode, or all of its map's root but one entry, so that an attr fork has room
/// beside what remains.
fn make_room(tx: &mut Transaction, ino: InoId) -> Result<()> {
    let state = tx.inode(ino);
    match &state.data {
        DataFork::Local(_) if state.core.is_dir() => dir::leave_inode(tx, ino),
        DataFork::Local(_) => symlink::leave_inode(tx, ino),
        DataFork::Mapped(ForkMap::Extents(_)) => bmap::leave_inode(tx, ino, ForkKind::Data),
        DataFork::Mapped(ForkMap::Btree(_)) => bmap::push_root_down(tx, ino, ForkKind::Data),
        DataFork::Dev(_) => Ok(()),
    }
}

impl Work for AttrOp<'_> {
    fn encode_intent(&self, id: u64, copy: &mut LogVector) {
        self.update.encode_intent(id, copy);
    }

    fn encode_done(&self, id: u64, copy: &mut LogVector) {
        encode_done(id, copy);
    }

    fn step(&mut self, tx: &mut Transaction) -> Result<Step> {
        self.update.step(tx, self.ino)
    }

    fn undo(&mut self, tx: &mut Transaction) -> Result<()> {
        self.update.undo(tx, self.ino)
    }

    fn reserve(&self, mount: &Mount) -> Reservation {
        self.update.reserve(mount)
    }

    fn error_tag(&self) -> &'static str {
        LARP
    }
}

/// Gives an inode without an attr fork one, whatever is in its way. It starts where the data fork as it was wants it,
/// so that the kernel's inode comes out.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Io`.
fn ensure_fork(tx: &mut Transaction, ino: InoId, bytes: usize) -> Result<()> {
    if form(tx, ino) != Form::None {
        return Ok(());
    }
    let offset = fork::offset_of_new(tx, ino, bytes);
    if fork::make_at(tx, ino, offset) == Fit::Done {
        return Ok(());
    }
    if tx.mount().error_tags.strikes(REFUSE_FORK) {
        return Err(Error::NoSpace);
    }
    make_room(tx, ino)?;
    match fork::make_at(tx, ino, offset) {
        Fit::Done => Ok(()),
        Fit::NoRoom => Err(Error::NoSpace),
    }
}
