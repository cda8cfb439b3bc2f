//! The inodes of a transaction: locked from joining to the end of the chain.
//!
//! Invariants: an inode joins once; its dirty fields name what changed since the last commit of a link, and the core is
//! among them whenever any is.
//!
//! Locking: each entry owns its inode's lock, shared in a read-only transaction. [`crate::sync`] has the order.

use super::log_inode::log_inode;
use crate::incore::{Inode, InodeState};
use crate::journal::Batch;
use crate::sync::HeldLock;
use std::sync::Arc;
use xfskit_ondisk::Geometry;
use xfskit_ondisk::logged::inode::InodeFields;

/// An inode that a transaction has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InoId(u32);

struct LockedInode {
    inode: Arc<Inode>,
    state: HeldLock<InodeState>,
    dirty: InodeFields,
}

/// All inodes of a transaction.
#[derive(Default)]
pub(super) struct LockedInodes {
    list: Vec<LockedInode>,
}

impl LockedInodes {
    /// No inodes.
    pub(super) const fn new() -> Self {
        Self { list: Vec::new() }
    }

    /// Adds an inode that was locked for this transaction.
    #[inline]
    pub(super) fn add(&mut self, inode: &Arc<Inode>, state: HeldLock<InodeState>) -> InoId {
        self.list.push(LockedInode { inode: Arc::clone(inode), state, dirty: InodeFields::empty() });
        InoId(self.list.len() as u32 - 1)
    }

    /// The cached object.
    #[inline]
    pub(super) fn handle(&self, id: InoId) -> &Arc<Inode> {
        &self.list[id.0 as usize].inode
    }

    /// The state.
    #[inline]
    pub(super) fn state(&self, id: InoId) -> &InodeState {
        &self.list[id.0 as usize].state
    }

    /// The state for a change of the parts that `fields` names; the core is logged with any of them.
    #[inline]
    pub(super) fn edit(&mut self, id: InoId, fields: InodeFields) -> &mut InodeState {
        let locked = &mut self.list[id.0 as usize];
        locked.dirty |= fields | InodeFields::CORE;
        locked.state.exclusive()
    }

    /// The state for a change that does not reach the disk.
    #[inline]
    pub(super) fn memory_mut(&mut self, id: InoId) -> &mut InodeState {
        self.list[id.0 as usize].state.exclusive()
    }

    /// Number of inodes that changed.
    pub(super) fn changed(&self) -> usize {
        self.list.iter().filter(|locked| !locked.dirty.is_empty()).count()
    }

    /// Whether an inode that changed has an attr fork.
    #[inline]
    pub(super) fn changes_attrs(&self) -> bool {
        self.list.iter().any(|locked| !locked.dirty.is_empty() && locked.state.attr.is_some())
    }

    /// Called when the next link has to wait for log space with the inodes locked: locked inodes are not written back.
    /// Logs those in the AIL again, so that they move to the head of the log and none of them is the tail for which the
    /// link would wait.
    pub(super) fn relog(&mut self) {
        for locked in &mut self.list {
            if locked.dirty.is_empty() && locked.inode.item().lock().in_ail.get().is_some() {
                locked.dirty = InodeFields::CORE;
            }
        }
    }

    /// Logs what changed of all inodes.
    #[inline]
    pub(super) fn log_all_to(&mut self, batch: &mut Batch<'_>, geometry: &Geometry) {
        for locked in self.list.iter_mut().filter(|locked| !locked.dirty.is_empty()) {
            log_inode(batch, &locked.inode, locked.state.exclusive(), locked.dirty, geometry);
        }
    }

    /// After the link's commit: the inodes begin the next one locked and without changes.
    #[inline]
    pub(super) fn begin_next_link(&mut self) {
        for locked in &mut self.list {
            locked.dirty = InodeFields::empty();
        }
    }

    /// Drops all locks; the list's memory stays.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.list.clear();
    }

    /// Inodes that the list's memory has room for.
    pub(super) fn capacity(&self) -> usize {
        self.list.capacity()
    }
}
