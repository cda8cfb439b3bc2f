//! Keeps the lists of a transaction for the next one of the same thread.

use super::buffers::LockedBuffers;
use super::inodes::LockedInodes;
use crate::sync::thread_local;
use std::cell::RefCell;

/// The lists for which a transaction needs memory.
type Lists = (LockedBuffers, LockedInodes);

/// Lists with more room than this are not kept.
const MAX_CAPACITY: usize = 256;

thread_local! {
    static LISTS: RefCell<Lists> = const { RefCell::new((LockedBuffers::new(), LockedInodes::new())) };
}

/// Empty lists.
pub(super) fn take() -> Lists {
    LISTS.with(|lists| std::mem::take(&mut *lists.borrow_mut()))
}

/// Drops the locks of the lists and keeps their memory.
pub(super) fn give_back(buffers: &mut LockedBuffers, inodes: &mut LockedInodes) {
    buffers.clear();
    inodes.clear();
    if buffers.capacity().max(inodes.capacity()) <= MAX_CAPACITY {
        LISTS.with(|lists| *lists.borrow_mut() = (std::mem::take(buffers), std::mem::take(inodes)));
    }
}
