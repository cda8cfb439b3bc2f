//! How many inodes have no name and are not freed yet: those on the unlinked lists.
//!
//! A change that fails after it has counted shuts the filesystem down, so the count need not be taken back.

use crate::sync::atomic::{AtomicU64, Ordering};

/// Counts inodes that went onto unlinked lists, and that left them.
#[derive(Debug, Default)]
pub struct NamelessCount {
    came: AtomicU64,
    went: AtomicU64,
}

impl NamelessCount {
    /// One has lost its last name, or was found by recovery.
    pub fn add(&self) {
        self.came.fetch_add(1, Ordering::AcqRel);
    }

    /// One is freed, or has a name again.
    pub fn remove(&self) {
        self.went.fetch_add(1, Ordering::AcqRel);
    }

    /// How many there are.
    pub fn now(&self) -> u64 {
        // Those that went are read first: one that comes and goes meanwhile is counted, and not the other way round.
        let went = self.went.load(Ordering::Acquire);
        self.came.load(Ordering::Acquire).saturating_sub(went)
    }

    /// How many there have been.
    pub fn ever(&self) -> u64 {
        self.came.load(Ordering::Acquire)
    }
}
