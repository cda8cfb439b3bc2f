//! How the tail of the log moves: who needs log space has metadata written back to its places.
//!
//! | a block that the device refuses | what follows |
//! |---|---|
//! | log space is left | it stays in the AIL, durable in the log; each push tries it again |
//! | none is left before it | a new chain gets the device's error; one that has begun shuts the filesystem down |
//! | the unmount | shuts down: the log stays dirty, and recovery tries again |

use super::grant::Claim;
use super::{Ail, Journal};
use crate::error::{Error, Result};
use crate::item::LogItem;
use crate::sync::atomic::Ordering;
use std::sync::Arc;
use xfskit_ondisk::Lsn;

/// What a write-back came to.
#[derive(Debug, Default)]
pub struct WrittenBack {
    /// Items that left the AIL.
    pub left: usize,
    /// The first error. What met an I/O error is still in the AIL; after any other error the rest was not tried.
    pub failed: Option<Error>,
}

/// Writes objects back to their homes so that the tail of the log can move. The journal knows only that it can be
/// asked; who does it knows buffers and inodes.
pub trait WriteBack: Send + Sync {
    /// Writes back what it can of `items`, each with its home. A block that the device refuses keeps none of the others
    /// from it.
    fn write_back(&self, ail: &Ail, items: Vec<(u64, Arc<dyn LogItem>)>) -> WrittenBack;

    /// Lets go of objects whose freeing is durable, as far as they have no new life yet.
    fn let_go(&self, freed: Vec<Arc<dyn LogItem>>);
}

impl Journal {
    /// Moves the tail when little of the log is free, so that reservations seldom have to wait.
    pub(super) fn relieve(&self) -> Result<()> {
        if self.space.is_relief_due() {
            self.push_tail_as_far_as_possible(self.space.relief_target())?;
        }
        Ok(())
    }

    /// Writes back everything in the AIL up to `target`. A block that the device refuses stays in the AIL, and the tail
    /// of the log before it: it is durable in the log, and the next push tries again. Returns how many items left the
    /// AIL.
    ///
    /// # Errors
    /// `Io`: at least one block could not be written back; the journal goes on. `Corrupt`: a block in memory did not
    /// pass its verifier; the journal is then shut down.
    pub fn push_tail(&self, target: Lsn) -> Result<usize> {
        self.check()?;
        let items = self.ail.ready_up_to(target);
        if items.is_empty() {
            return Ok(0);
        }
        self.counters.tail_pushes.increment();
        let write_back = self.write_back.lock().clone();
        let Some(write_back) = write_back else { return Ok(0) };
        let WrittenBack { left, failed } = write_back.write_back(&self.ail, items);
        match failed {
            None => self.write_back_fails.store(false, Ordering::Relaxed),
            Some(Error::Io { .. }) => {}
            Some(error) => {
                self.shut_down(format!("metadata could not be written back: {error}"));
                return Err(error);
            }
        }
        self.refresh_tail();
        let Some(error) = failed else { return Ok(left) };
        if !self.write_back_fails.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, "metadata cannot be written to its place: it stays in the journal for now");
        }
        Err(error)
    }

    /// As [`Self::push_tail`], for callers who can do without: what the device refuses is left to those that need its
    /// space.
    ///
    /// # Errors
    /// `Corrupt`, `Shutdown`.
    pub fn push_tail_as_far_as_possible(&self, target: Lsn) -> Result<()> {
        match self.push_tail(target) {
            Ok(_) | Err(Error::Io { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Publishes the AIL's tail to the space accounting.
    pub fn refresh_tail(&self) {
        let head = self.space.head();
        self.space.set_tail(self.ail.tail().unwrap_or(head));
        self.wake_waiters();
    }

    /// Takes space for one more link of a chain that has begun, if nobody has to wait for it.
    pub(super) fn try_take_rolling(&self, need: u64) -> bool {
        self.space.try_take(need, Claim::Rolling)
    }

    /// Takes space for one more link of a chain that has begun.
    pub(super) fn take_space_rolling(&self, need: u64) -> Result<()> {
        if self.space.try_take(need, Claim::Rolling) {
            return Ok(());
        }
        self.space.count_rolling_waiter(true);
        let result = self.take_space(need, Claim::Rolling);
        self.space.count_rolling_waiter(false);
        self.wake_waiters();
        result
    }

    /// Takes space, pushing checkpoints and the tail until there is enough.
    pub(super) fn take_space(&self, need: u64, claim: Claim) -> Result<()> {
        if self.space.try_take(need, claim) {
            return Ok(());
        }
        if need > self.space.largest_request() {
            return Err(Error::Invalid("the log is too small for this operation"));
        }
        self.space.count_seeker(true);
        let result = self.seek_space(need, claim);
        self.space.count_seeker(false);
        result
    }

    fn seek_space(&self, need: u64, claim: Claim) -> Result<()> {
        loop {
            self.check()?;
            self.push_tail_as_far_as_possible(self.space.target_for(need))?;
            if self.space.try_take(need, claim) {
                return Ok(());
            }
            // What is pinned cannot be written back: make it durable, then push again.
            self.force_all()?;
            let pushed = self.push_tail(self.space.target_for(need));
            if self.space.try_take(need, claim) {
                return Ok(());
            }
            if let Err(error) = pushed
                && self.space.is_filled(need, claim)
            {
                return Err(self.refuse_space(claim, error));
            }
            if self.is_recovering() {
                return Err(Error::NotSupported(
                    "finishing what a crash cut off in a journal as full as this; mount the image once with a Linux \
                     kernel, or look at it read-only with norecovery",
                ));
            }
            // Others hold grants or locks: wait until one of them lets go.
            let mut guard = self.waiting.lock();
            if self.space.try_take(need, claim) {
                return Ok(());
            }
            self.space_freed.wait_for(&mut guard, std::time::Duration::from_millis(2));
        }
    }

    /// The log is full of what the device does not take to its place. A new chain has changed nothing and is refused;
    /// one that has begun can neither go on nor be undone.
    fn refuse_space(&self, claim: Claim, error: Error) -> Error {
        if matches!(claim, Claim::Rolling) {
            self.shut_down(format!("the journal is full, for metadata could not be written back: {error}"));
        }
        error
    }

    /// Gives back space that was granted and not used.
    pub(super) fn give_back(&self, bytes: u64) {
        if bytes > 0 && self.space.give_back(bytes) {
            self.wake_waiters();
        }
    }

    /// Makes everything durable at home: checkpoint, write-back of all items, flush. What is then in the log is not
    /// needed any more.
    ///
    /// # Errors
    /// `Io`, after which the journal is shut down: what the device does not take to its place is in the log, for
    /// recovery;
    /// `Shutdown`; `WouldBlock` when objects stay locked.
    pub fn quiesce(&self) -> Result<()> {
        for _ in 0..1000 {
            self.force_all()?;
            if let Err(error) = self.push_tail(Lsn(u64::MAX)) {
                self.shut_down(format!("metadata could not be written back: {error}"));
                return Err(error);
            }
            if self.ail.tail().is_none() && self.cil.is_empty() {
                // No checkpoint may take this flush for its own.
                let _writer = self.writer.lock();
                self.check()?;
                if self.unflushed.swap(false, Ordering::AcqRel) {
                    self.flush_data()?;
                }
                return Ok(());
            }
        }
        Err(Error::WouldBlock)
    }
}
