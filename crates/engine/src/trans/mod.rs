//! Transactions: reserve, join, log, commit, roll; and the work that takes several of them ([`deferred`]).
//!
//! ```text
//! mount.transaction(reservation)      log space and blocks are reserved; nothing is locked yet
//!   .join_inode / .read / .create     objects are locked and belong to the transaction
//!   .edit / .inode_mut                contents change; what changed is recorded
//! .commit()                           the dirty items go to the CIL in one step; locks are dropped
//! .roll()                             the same, but inodes stay locked for the next link
//! ```
//! A transaction is all or nothing in the journal. Dropping one that changed nothing is free; dropping one that
//! changed something would leave memory and journal apart, so it shuts the filesystem down (decision 8 of the design).
//!
//! Objects are named by [`BufId`] and [`InoId`], which are valid in the transaction that gave them out: an inode's to
//! its end, a buffer's until it is released or the transaction rolls.
//!
//! A read-only transaction ([`Transaction::read_only`]) takes shared locks, reserves nothing and commits nothing, so
//! that one look-up code serves both.
//!
//! Locking: see [`crate::sync`]. A read of a buffer that the transaction has locked already returns the same id and
//! counts one more use; each use needs its own `release`.
//!
//! # Parts
//!
//! | part | duty |
//! |---|---|
//! | `buffers` | the locked buffers and what changed of them |
//! | `inodes` | the locked inodes and what changed of them |
//! | `counts` | reserved blocks, and the changes of the filesystem's counts |
//! | `items` | intents, done items and records of this link |
//! | [`deferred`] | work that waits for links of its own |
//! | [`Grant`] | log space |
//!
//! No part uses another. `access` has the methods that the layers above call; `begin` and `commit` combine the parts.

mod access;
mod begin;
mod buffers;
#[cfg(test)]
mod chain_tests;
mod commit;
mod counts;
pub mod deferred;
mod hold_times;
mod inodes;
mod items;
mod log_buffer;
mod log_inode;
mod remembered;
mod reservation;
mod scratch;

pub use buffers::BufId;
pub use inodes::InoId;
pub use reservation::{Reservation, reservation_of};
pub use xfskit_ondisk::logged::inode::InodeFields;

use crate::error_tags::REDUCE_MAX_IEXTENTS;
use crate::journal::{Grant, OrderedWrite};
use crate::mount::Mount;
use crate::sync::{ArcMutexGuard, LockMode};
use buffers::LockedBuffers;
use counts::CountChanges;
use hold_times::HoldTimes;
use inodes::LockedInodes;
use items::LoggedItems;
use std::sync::Arc;
use xfskit_ondisk::Geometry;

/// A set of changes that becomes durable as one.
pub struct Transaction<'m> {
    mount: &'m Arc<Mount>,
    /// How it locks: exclusively if it may change anything.
    mode: LockMode,
    /// Log space for this link and those after it.
    grant: Option<Grant<'m>>,
    buffers: LockedBuffers,
    inodes: LockedInodes,
    counts: CountChanges,
    /// Intents and done items of this link.
    items: LoggedItems,
    /// Blocks of remote values that are written before the checkpoint.
    values: Vec<OrderedWrite>,
    /// Work that waits for links of its own.
    deferred: deferred::Queue,
    /// This link has changed something.
    dirty: bool,
    /// The commit waits for the log.
    sync: bool,
    /// Whether extent maps can count few records only, as the first look decided.
    counts_few_extents: Option<bool>,
    hold_times: HoldTimes,
    /// While space is scarce, transactions that may allocate run one at a time.
    _turn: Option<ArcMutexGuard>,
}

impl<'m> Transaction<'m> {
    /// A transaction that changes nothing.
    pub fn read_only(mount: &'m Arc<Mount>) -> Self {
        Self::build(mount, LockMode::Shared, Reservation::default(), None)
    }

    /// A transaction that changes nothing, and takes exclusive locks as one that does.
    pub(crate) fn holding(mount: &'m Arc<Mount>) -> Self {
        Self::build(mount, LockMode::Exclusive, Reservation::default(), None)
    }

    pub(crate) fn build(
        mount: &'m Arc<Mount>,
        mode: LockMode,
        reservation: Reservation,
        grant: Option<Grant<'m>>,
    ) -> Self {
        let (buffers, inodes) = scratch::take();
        Self {
            mount,
            mode,
            grant,
            buffers,
            inodes,
            counts: CountChanges::new(reservation.blocks),
            items: LoggedItems::default(),
            values: Vec::new(),
            deferred: deferred::Queue::default(),
            dirty: false,
            sync: false,
            counts_few_extents: None,
            hold_times: HoldTimes::default(),
            _turn: None,
        }
    }

    /// Holds the lock `turn` until the transaction is over.
    pub(crate) fn with_turn(mut self, turn: Option<ArcMutexGuard>) -> Self {
        self._turn = turn;
        self
    }

    /// The mount.
    pub fn mount(&self) -> &'m Arc<Mount> {
        self.mount
    }

    /// The geometry.
    pub fn geometry(&self) -> &'m Geometry {
        &self.mount.geometry
    }

    /// Whether anything was changed in this link of the chain.
    pub fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// Whether this transaction may change anything.
    pub fn is_writable(&self) -> bool {
        self.mode == LockMode::Exclusive
    }

    /// Whether the error tag makes extent maps count a few records only. The first look decides for the whole chain, as
    /// a real limit would. A first look after a change always returns false, for a caller that looks so late must not
    /// refuse.
    pub fn counts_few_extents(&mut self) -> bool {
        let (mount, is_clean) = (self.mount, !self.dirty);
        *self.counts_few_extents.get_or_insert_with(|| is_clean && mount.error_tags.strikes(REDUCE_MAX_IEXTENTS))
    }

    /// Makes the commit wait until its checkpoint is durable.
    pub fn set_sync(&mut self) {
        self.sync = true;
    }
}
