//! Times that change alone: they wait in memory until another change logs the inode, or until write-out.
//!
//! ```text
//! set_attr, times alone ──▶ core in memory, `times_wait` ──▶ the next change of the inode logs them with it
//!                                                        └─▶ write-out: many inodes in one transaction
//! ```
//! Invariant: an inode whose times wait is on the mount's list of dirty inodes, unless it has no name: then a crash
//! frees it.
//!
//! Locking, and what a crash leaves: docs/design/times.md.

use super::protected::check_set_attr;
use super::setattr::apply;
use super::stat::stat_of;
use super::{Caller, SetAttr, Stat, Volume};
use crate::error::{Error, Result};
use crate::incore::{Inode, InodeState};
use crate::sync::{HeldLock, LockMode};
use crate::trans::{InodeFields, Reservation, Transaction, reservation_of};
use std::sync::Arc;

/// Inodes whose times one transaction logs.
const MAX_INODES: u32 = 32;

impl Volume {
    /// Sets times in memory.
    pub(super) fn set_times_in_memory(&self, inode: &Arc<Inode>, change: &SetAttr, caller: &Caller) -> Result<Stat> {
        self.mount.journal.check()?;
        if self.mount.options.read_only {
            return Err(Error::ReadOnly);
        }
        let stat = {
            let mut tx = Transaction::read_only(&self.mount);
            let id = tx.join_locked(inode, HeldLock::lock(inode.state_lock(), LockMode::Exclusive));
            super::check_in_use(&tx, id)?;
            check_set_attr(&tx.inode(id).core, change)?;
            let now = self.mount.env.now();
            let state = tx.inode_memory_mut(id);
            let before = times(state);
            if let Some(written) = inode.take_noted_write() {
                // The write came first, and is not to count as later than this.
                (state.core.mtime, state.core.ctime) = (written, written);
            }
            apply(&mut state.core, change, now, caller, &self.mount.geometry);
            if times(state) != before && state.core.links > 0 {
                state.times_wait = true;
                self.mount.dirty_inodes.add(inode);
            }
            stat_of(&tx, tx.inode(id))
        };
        self.relieve_memory(inode)?;
        Ok(stat)
    }

    /// Logs the times of those of the inodes of which nothing else waits, many in one transaction. What is in use by
    /// another thread still waits.
    ///
    /// # Errors
    /// `NoSpace` for the log, on a full host; `Io`, `Shutdown`.
    pub(super) fn write_out_times(&self, inodes: &[Arc<Inode>]) -> Result<()> {
        let only_times =
            |inode: &&Arc<Inode>| inode.state_lock().try_read().is_some_and(|state| has_only_times(inode, &state));
        let inodes: Vec<_> = inodes.iter().filter(only_times).collect();
        let (reservation, most) = self.times_reservation();
        for some in inodes.chunks(most) {
            let mut tx = self.mount.transaction(reservation)?;
            for inode in some {
                let Some(id) = tx.try_join_inode(inode) else { continue };
                if has_only_times(inode, tx.inode(id)) {
                    super::create::take_in_write(&mut tx, id);
                    let _ = tx.inode_mut(id, InodeFields::CORE);
                }
            }
            tx.commit()?;
        }
        Ok(())
    }

    /// What a transaction that logs times reserves, and for how many inodes.
    fn times_reservation(&self) -> (Reservation, usize) {
        let (one, most) = (reservation_of(self.mount.reservations.ichange), self.mount.reservations.itruncate);
        let inodes = (reservation_of(most).log_bytes / one.log_bytes).clamp(1, MAX_INODES);
        (Reservation { log_bytes: one.log_bytes * inodes, ..one }, inodes as usize)
    }
}

fn times(state: &InodeState) -> [xfskit_ondisk::Timestamp; 3] {
    [state.core.atime, state.core.mtime, state.core.ctime]
}

/// Whether times wait of an inode, and nothing else.
pub(super) fn has_only_times(inode: &Inode, state: &InodeState) -> bool {
    !state.freed && state.is_settled() && has_times(inode, state)
}

/// Whether times wait of an inode.
pub(super) fn has_times(inode: &Inode, state: &InodeState) -> bool {
    state.times_wait || inode.noted_write().is_some()
}
