//! What threads keep of something that all share, so that they seldom meet at its counter.
//!
//! ```text
//! shared counter ──take──▶ a transaction ──keep──▶ the slot of its thread ──take──▶ the next transaction
//!       ▲                                                  │
//!       └──────────────────── collect ─────────────────────┘     by a thread that finds too little
//! ```
//! What a transaction reserved and did not use stays with the slot of its thread, up to a limit. The shared counter is
//! its owner's ([`SpaceCounts`](crate::mount::SpaceCounts) for free blocks, the journal's for log space), and so is the
//! rule for when no slot may keep anything.

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Padded, THREAD_SLOTS, thread_slot};

/// Amounts of one thing, kept by the slots of threads.
#[derive(Debug)]
pub struct Credits {
    slots: [Padded<AtomicU64>; THREAD_SLOTS],
    /// Most that a slot keeps; 0 for nothing.
    limit: u64,
}

impl Credits {
    /// Nothing is kept; later at most `limit` by each slot.
    pub fn new(limit: u64) -> Self {
        Self { slots: Default::default(), limit }
    }

    /// Most that a slot keeps.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Takes `amount` out of this thread's slot, if it has as much.
    pub fn take(&self, amount: u64) -> bool {
        let left = |kept: u64| kept.checked_sub(amount);
        self.limit > 0 && self.slots[thread_slot()].fetch_update(Ordering::AcqRel, Ordering::Relaxed, left).is_ok()
    }

    /// Puts `amount` into this thread's slot; false when that would be more than it may keep.
    pub fn keep(&self, amount: u64) -> bool {
        let slot = &self.slots[thread_slot()];
        // Threads that share a slot may exceed the limit together, by little.
        let fits = slot.load(Ordering::Relaxed) + amount <= self.limit;
        if fits {
            slot.fetch_add(amount, Ordering::AcqRel);
        }
        fits
    }

    /// Takes all that is kept out of all slots.
    pub fn collect(&self) -> u64 {
        self.slots.iter().map(|slot| slot.swap(0, Ordering::AcqRel)).sum()
    }

    /// What is kept in all; exact when no transaction runs.
    pub fn total(&self) -> u64 {
        self.slots.iter().map(|slot| slot.load(Ordering::Acquire)).sum()
    }

    /// As if the thread of slot `index` had kept `amount`.
    #[cfg(test)]
    pub(crate) fn put(&self, index: usize, amount: u64) {
        self.slots[index].store(amount, Ordering::Release);
    }
}
