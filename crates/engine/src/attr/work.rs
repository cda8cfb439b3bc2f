//! The deferred path: changes of attributes that the shortform cannot take.
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
//! Most updates are over after their first step, in the caller's transaction, and log no intent, whether the caller
//! wants them logged or not. `AttrPath::Intents` makes every logged update begin with one, as the kernel did before it
//! had the fast path.

use super::mapping::{Link, Mapped, ValueMapping};
use super::remote::HostRoom;
use super::reserve::reservation;
use super::search::missing;
use super::shortform::fork_bytes;
use super::tree::Completeness;
use super::{Attr, AttrSlot, Change, EmptyFork, Fit, Form, Value, fork, form, remote, search, shortform, tree};
use crate::error::Result;
use crate::error_tags::LARP;
use crate::item::LogVector;
use crate::mount::{AttrPath, BlockPool, Mount};
use crate::trans::deferred::{self, Logging, StepResult, Turn, Work};
use crate::trans::{InoId, Reservation, Transaction};
use xfskit_ondisk::InodeNumber;
use xfskit_ondisk::attr::leaf::LeafValue;
use xfskit_ondisk::log_items;
use xfskit_ondisk::log_record::item_type;

/// What the work may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// What is to go was found, and what is to be added was not.
    Searched,
    /// Recovery does the change, perhaps again: what is to go may be gone, and what is to be added may be there.
    Unknown,
}

/// A change under way.
pub(super) struct AttrUpdate<'a> {
    pub(super) change: Change<'a>,
    /// Blocks for the value, once the change has begun to map them.
    pub(super) mapping: Option<ValueMapping>,
    pub(super) inode: InodeNumber,
    pub(super) generation: u32,
    pub(super) before: Before,
    /// Whether a host without room for the value refuses the change.
    pub(super) full_host: FullHost,
    /// What the host said when all blocks for the value were mapped.
    pub(super) host_room: HostRoom,
}

/// What a host without room for a value means to the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FullHost {
    /// Nothing was changed before it, so it is refused.
    Refuses,
    /// The transaction has done other things, which could not be taken back with it (a new file that inherits a large
    /// ACL), or the host was asked before: the change goes on.
    IsRisked,
}

/// A change of an inode that belongs to the whole chain.
struct UpdateInChain<'a> {
    ino: InoId,
    update: AttrUpdate<'a>,
}

/// What a queued update is about.
pub(super) fn queue_key(tx: &Transaction, ino: InoId, attr: &Attr<'_>) -> Vec<u8> {
    let inode = tx.inode(ino).core.inode.0.to_le_bytes();
    [&inode, [attr.namespace].as_slice(), &attr.name].concat()
}

/// Makes a change that the shortform does not take, now or, with `AttrPath::Intents`, in links of its own. `mapping` is
/// for a value whose blocks are mapped already.
pub(super) fn run(
    tx: &mut Transaction,
    ino: InoId,
    change: Change<'_>,
    logging: Logging,
    mapping: Option<ValueMapping>,
) -> Result<()> {
    let logging = logging_of(tx.mount(), &change, logging);
    let core = &tx.inode(ino).core;
    let (inode, generation) = (core.inode, core.generation);
    let is_queued = tx.mount().options.attr_path == AttrPath::Intents && logging == Logging::Logged;
    if !is_queued {
        let change = if logging == Logging::Logged { change.with_value_in_blocks(tx.mount()) } else { change };
        let before = Before::Searched;
        let (full_host, host_room) = (FullHost::IsRisked, HostRoom::Enough);
        let update = AttrUpdate { change, mapping, inode, generation, before, full_host, host_room };
        return deferred::run(tx, &mut UpdateInChain { ino, update }, logging);
    }
    if let Some(new) = change.new_attr() {
        // The kernel's recovery passes over an intent for an inode that has no attr fork.
        fork::ensure(tx, ino, fork_bytes(new))?;
    }
    let key = change.keys().last().map(|key| queue_key(tx, ino, key)).unwrap_or_default();
    let change = change.into_owned(tx.mount());
    let before = Before::Searched;
    let (full_host, host_room) = (FullHost::IsRisked, HostRoom::Enough);
    let update = AttrUpdate { change, mapping, inode, generation, before, full_host, host_room };
    tx.defer(Turn::First, key, Box::new(UpdateInChain { ino, update }));
    Ok(())
}

/// Whether a change that takes several links is logged.
fn logging_of(mount: &Mount, change: &Change<'_>, wanted: Logging) -> Logging {
    let may_log = change.is_parent() || mount.may_log_attr_intents();
    // Kernels without a fix of 2025 refuse an intent whose value is empty, and nothing empty takes more than one link.
    let is_empty = change.new_attr().is_some_and(|new| new.value.is_empty());
    if may_log && !is_empty { wanted } else { Logging::NotLogged }
}

impl AttrUpdate<'_> {
    /// The step in which the entry appears, changes or goes.
    fn conclude(&self, tx: &mut Transaction, ino: InoId) -> Result<()> {
        let change = &self.change;
        if self.before == Before::Unknown {
            for key in change.keys() {
                remove_every(tx, ino, key)?;
            }
            let Some(new) = change.new_attr() else { return leave_tree(tx, ino, EmptyFork::Remove) };
            self.add(tx, ino, new)?;
            return leave_tree(tx, ino, EmptyFork::Keep);
        }
        match change {
            Change::Set(new) => self.add(tx, ino, new),
            Change::Replace(new) => {
                let slot = search(tx, ino, new)?;
                if let AttrSlot::InLeaf(slot) = &slot
                    && let Some(value) = new.value.bytes()
                    && tree::overwrite_at(tx, slot, value)?
                {
                    return Ok(());
                }
                take_out(tx, ino, slot, new)?;
                self.add(tx, ino, new)?;
                leave_tree(tx, ino, EmptyFork::Keep)
            }
            Change::ReplaceParent { old, new } => {
                let slot = search(tx, ino, old)?;
                take_out(tx, ino, slot, old)?;
                self.add(tx, ino, new)?;
                leave_tree(tx, ino, EmptyFork::Keep)
            }
            Change::Remove(old) => {
                let slot = search(tx, ino, old)?;
                take_out(tx, ino, slot, old)?;
                leave_tree(tx, ino, EmptyFork::Remove)
            }
        }
    }

    fn add(&self, tx: &mut Transaction, ino: InoId, new: &Attr<'_>) -> Result<()> {
        if form(tx, ino) != Form::Tree {
            fork::ensure(tx, ino, fork_bytes(new))?;
            // The update was queued, or room was made since: the shortform may do after all.
            if self.mapping.is_none() && self.is_local(tx) && shortform::add(tx, ino, new)? == Fit::Done {
                return Ok(());
            }
            tree::make(tx, ino)?;
        }
        let value = match self.mapping {
            Some(mapping) => {
                let blocks = match &new.value {
                    Value::Bytes(bytes) => &remote::in_blocks(tx.mount(), bytes),
                    Value::Blocks(blocks) => blocks,
                };
                let remote = remote::write_at(tx, ino, mapping.at(), blocks)?;
                LeafValue::Remote { block: remote.block, length: remote.length }
            }
            None => LeafValue::Local(new.value.bytes().expect("only what no entry may hold is laid out in blocks")),
        };
        tree::add(tx, ino, new, value, tree::Completeness::Complete)
    }

    fn is_local(&self, tx: &Transaction) -> bool {
        self.change.new_attr().is_none_or(|new| tree::is_local_value(tx.geometry(), new.name.len(), new.value.len()))
    }

    /// Does as much as fits the link.
    pub(super) fn step(&mut self, tx: &mut Transaction, ino: InoId) -> Result<StepResult> {
        if self.host_room == HostRoom::Lacking {
            return Ok(StepResult::NoSpace);
        }
        let link = if self.mapping.is_some() { Link::Fresh } else { Link::InUse };
        if self.mapping.is_none() && !self.is_local(tx) {
            self.full_host = if tx.is_dirty() { FullHost::IsRisked } else { FullHost::Refuses };
            self.mapping = Some(ValueMapping::begin(tx, ino, self.change.value_bytes())?);
        }
        let mapped = match &mut self.mapping {
            None => Mapped::All,
            Some(mapping) => mapping.advance(tx, ino, link)?,
        };
        if let (Mapped::All, Some(mapping), FullHost::Refuses) = (mapped, self.mapping, self.full_host) {
            self.host_room = mapping.host_room(tx, ino)?;
        }
        match mapped {
            // A link that has mapped blocks cannot say that there is no space; the next one can.
            Mapped::All if self.host_room == HostRoom::Lacking => Ok(StepResult::Roll),
            Mapped::Some => Ok(StepResult::Roll),
            Mapped::NoSpace => Ok(StepResult::NoSpace),
            Mapped::All => self.conclude(tx, ino).map(|()| StepResult::Done),
        }
    }

    /// Takes back what earlier links did.
    pub(super) fn undo(&mut self, tx: &mut Transaction, ino: InoId) -> Result<()> {
        self.mapping.map_or(Ok(()), |mapping| mapping.take_back(tx, ino))
    }

    /// Log space and blocks for a step of recovery.
    pub(super) fn reserve(&self, mount: &Mount) -> Reservation {
        // What began as a removal may have been paid by what is kept for removals, and a parent pointer must not be
        // lost: recovery finds blocks for them.
        let must_go_on = self.change.value_bytes() == 0 || self.change.is_parent();
        let pool = if must_go_on { BlockPool::Recovery } else { BlockPool::Reserve };
        reservation(mount, self.change.value_bytes(), Logging::Logged).with_pool(pool)
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
        AttrSlot::KnownAbsent | AttrSlot::Absent => Err(missing(tx, ino, key)),
    }
}

/// Brings the attributes back into the inode if they fit.
fn leave_tree(tx: &mut Transaction, ino: InoId, empty: EmptyFork) -> Result<()> {
    tree::to_shortform(tx, ino, empty).map(|_| ())
}

impl Work for UpdateInChain<'_> {
    fn encode_intent(&self, id: u64, copy: &mut LogVector) {
        self.update.encode_intent(id, copy);
    }

    fn encode_done(&self, id: u64, copy: &mut LogVector) {
        encode_done(id, copy);
    }

    fn step(&mut self, tx: &mut Transaction) -> Result<StepResult> {
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

/// Removes every entry of a key, whole or incomplete, with the blocks of its value.
fn remove_every(tx: &mut Transaction, ino: InoId, key: &Attr<'_>) -> Result<()> {
    match form(tx, ino) {
        Form::None | Form::Empty => {}
        Form::Shortform => while shortform::remove(tx, ino, key, EmptyFork::Keep)? {},
        Form::Tree => {
            for entry in [Completeness::Incomplete, Completeness::Complete] {
                while tree::remove(tx, ino, key, entry)? {}
            }
        }
    }
    Ok(())
}
