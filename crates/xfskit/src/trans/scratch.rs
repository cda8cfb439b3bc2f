//! The lists of a transaction, which the next one of the same thread uses again.

use super::{HeldBuffer, HeldInode};
use crate::sync::thread_local;
use std::cell::RefCell;

/// What a transaction holds.
type Lists = (Vec<Option<HeldBuffer>>, Vec<HeldInode>);

/// Lists with more room than this are not kept.
const MAX_KEPT: usize = 256;

thread_local! {
    static LISTS: RefCell<Lists> = const { RefCell::new((Vec::new(), Vec::new())) };
}

/// Empty lists.
pub(super) fn take() -> Lists {
    LISTS.with(|lists| std::mem::take(&mut *lists.borrow_mut()))
}

/// Lets go of what the lists hold and keeps their memory.
pub(super) fn give_back(buffers: &mut Vec<Option<HeldBuffer>>, inodes: &mut Vec<HeldInode>) {
    buffers.clear();
    inodes.clear();
    if buffers.capacity().max(inodes.capacity()) <= MAX_KEPT {
        LISTS.with(|lists| *lists.borrow_mut() = (std::mem::take(buffers), std::mem::take(inodes)));
    }
}
