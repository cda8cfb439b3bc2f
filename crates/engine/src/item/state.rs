//! The journal's bookkeeping of one item, under the item's lock.
//!
//! Invariants: a stale object is not written back; write-back compares `commits` before the item leaves the
//! AIL, so a change committed meanwhile keeps it there.

use super::{AilPosition, CheckpointSeq, DirtyBits, Gathered, LogVector};
use crate::sync::{Mutex, MutexGuard};

/// The journal's bookkeeping of an item.
#[derive(Debug, Default)]
pub struct ItemState {
    inner: Mutex<ItemInner>,
}

/// The part of the bookkeeping that changes at commit, checkpoint and write-back.
#[derive(Debug, Default)]
pub struct ItemInner {
    /// Membership in the CIL.
    pub gathered: Gathered,
    /// Position in the AIL.
    pub in_ail: AilPosition,
    /// What was changed since the last write-back: a bit for each 128-byte chunk of a buffer, field bits of an inode.
    pub dirty: DirtyBits,
    /// Counts commits, with wrap-around, so that write-back can see whether something changed since it copied the
    /// contents.
    pub commits: u32,
    /// The object was made by another item (the record of new inodes), which the log must keep until the object is
    /// written back: committing it again does not move it to the head of the log.
    pub keeps_position: bool,
    /// The object was freed: it must not be written back any more.
    pub stale: bool,
    /// The intent's done item is in the same checkpoint, so neither is logged.
    pub whiteout: bool,
}

impl ItemInner {
    /// The dirty bits, and the copy for a change.
    pub fn dirty_and_copy_mut(&mut self) -> (&DirtyBits, &mut LogVector) {
        (&self.dirty, self.gathered.copy_mut())
    }
}

impl ItemState {
    /// Locks the bookkeeping.
    pub fn lock(&self) -> MutexGuard<'_, ItemInner> {
        self.inner.lock()
    }

    /// Whether a checkpoint that is not durable yet holds the item.
    pub fn is_pinned(&self) -> bool {
        self.lock().gathered.is_pinned()
    }

    /// The newest checkpoint that holds the item, if any that holds it is not durable yet.
    pub fn pinned_by(&self) -> Option<CheckpointSeq> {
        let inner = self.lock();
        inner.gathered.is_pinned().then(|| inner.gathered.newest())
    }

    /// Whether the object may be dropped from memory: nothing of it waits in the journal or for write-back.
    pub fn is_clean(&self) -> bool {
        let inner = self.lock();
        !inner.gathered.is_pinned() && inner.in_ail.get().is_none()
    }
}
