//! Waiting for log space: the thread that needs some makes room itself, and waits for other threads only then.
//!
//! ```text
//! take ──there is enough──▶ done
//!   │ ▲                                          1. write back what holds the tail
//!   ▼ │ a waiting thread looks again             2. write a checkpoint, so that what is pinned can be written back
//! make room, then wait for at most 2 ms          3. write back again
//! ```
//! Invariants
//! - A thread that waits looks again each time space is given back or the tail moves, and every 2 ms.
//! - A new chain that finds the log full of blocks which the device refuses has changed nothing, and gets the device's
//!   error. A chain that has begun can neither go on nor be undone: the filesystem shuts down.
//! - While recovered intents are finished, nothing waits: no other thread gives anything back.
//!
//! Locking: the mutex is held only to look at the accounts and to wait. Code that makes room never waits for the lock
//! of a buffer or an inode.

use super::accounts::{Claim, GrantSpace, Overheads};
use crate::error::{Error, Result};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex};
use std::time::Duration;
use xfskit_ondisk::Lsn;

/// A thread that waits looks again after this time, even if no thread has notified it.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(2);

/// What a thread does to get log space.
pub(in crate::journal) trait MakeRoom: Sync {
    /// Fails when the journal was shut down.
    fn check(&self) -> Result<()>;

    /// Makes everything committed so far durable, and unpins it.
    fn write_checkpoint(&self) -> Result<()>;

    /// Writes back what it can up to `target`. `Io`: the device refused at least one block.
    fn write_back(&self, target: Lsn) -> Result<()>;

    /// Stops everything.
    fn shut_down(&self, reason: String);
}

/// Log space, and the threads that wait for it.
pub(in crate::journal) struct LogSpace {
    accounts: GrantSpace,
    freed: Condvar,
    waiting: Mutex<()>,
    /// Recovered intents are being finished; they alone hold the tail.
    recovering: AtomicBool,
}

impl LogSpace {
    /// The space of an empty log of `log_bytes` bytes that is written from `head` on.
    pub(in crate::journal) fn new(log_bytes: u64, overheads: Overheads, head: Lsn) -> Self {
        Self {
            accounts: GrantSpace::new(log_bytes, overheads, head),
            freed: Condvar::new(),
            waiting: Mutex::new(()),
            recovering: AtomicBool::new(false),
        }
    }

    /// The accounts.
    pub(in crate::journal) fn accounts(&self) -> &GrantSpace {
        &self.accounts
    }

    /// Sets whether recovered intents are being finished.
    pub(in crate::journal) fn set_recovering(&self, recovering: bool) {
        self.recovering.store(recovering, Ordering::Release);
    }

    fn is_recovering(&self) -> bool {
        self.recovering.load(Ordering::Acquire)
    }

    /// Lets the threads that wait look again.
    pub(in crate::journal) fn wake_waiters(&self) {
        let _guard = self.waiting.lock();
        self.freed.notify_all();
    }

    /// Gives back space that was granted and not used.
    pub(super) fn give_back(&self, bytes: u64) {
        if bytes > 0 && self.accounts.give_back(bytes) {
            self.wake_waiters();
        }
    }

    /// Takes space for a chain that begins.
    pub(super) fn take_for_new(&self, need: u64, room: &dyn MakeRoom) -> Result<()> {
        // Recovery finishes chains that had begun.
        let claim = if self.is_recovering() { Claim::Rolling } else { Claim::New };
        self.take(need, claim, room)
    }

    /// Takes space for one more link of a chain that has begun, if that needs no waiting.
    pub(super) fn try_take_for_rolling(&self, need: u64) -> bool {
        self.accounts.try_take(need, Claim::Rolling)
    }

    /// Takes space for one more link of a chain that has begun.
    pub(super) fn take_for_rolling(&self, need: u64, room: &dyn MakeRoom) -> Result<()> {
        if self.try_take_for_rolling(need) {
            return Ok(());
        }
        let result = self.accounts.while_rolling_waits(|| self.take(need, Claim::Rolling, room));
        self.wake_waiters();
        result
    }

    fn take(&self, need: u64, claim: Claim, room: &dyn MakeRoom) -> Result<()> {
        if self.accounts.try_take(need, claim) {
            return Ok(());
        }
        if need > self.accounts.largest_request() {
            return Err(Error::Invalid("the log is too small for this operation"));
        }
        self.accounts.while_seeking(|| self.seek(need, claim, room))
    }

    /// Makes room until there is enough.
    fn seek(&self, need: u64, claim: Claim, room: &dyn MakeRoom) -> Result<()> {
        loop {
            room.check()?;
            match room.write_back(self.accounts.target_for(need)) {
                Ok(()) | Err(Error::Io { .. }) => {}
                Err(error) => return Err(error),
            }
            if self.accounts.try_take(need, claim) {
                return Ok(());
            }
            // Pinned items cannot be written back: a checkpoint makes them durable, and write-back tries again.
            room.write_checkpoint()?;
            let pushed = room.write_back(self.accounts.target_for(need));
            if self.accounts.try_take(need, claim) {
                return Ok(());
            }
            if let Err(error) = pushed
                && self.accounts.is_filled(need, claim)
            {
                if claim == Claim::Rolling {
                    room.shut_down(format!("the journal is full, for metadata could not be written back: {error}"));
                }
                return Err(error);
            }
            if self.is_recovering() {
                return Err(Error::NotSupported(
                    "finishing what a crash cut off in a journal as full as this; mount the image once with a Linux \
                     kernel, or look at it read-only with norecovery",
                ));
            }
            // Other threads hold grants or locks.
            let mut guard = self.waiting.lock();
            if self.accounts.try_take(need, claim) {
                return Ok(());
            }
            self.freed.wait_for(&mut guard, LOOK_AGAIN_AFTER);
        }
    }
}
