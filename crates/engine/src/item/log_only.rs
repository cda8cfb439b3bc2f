//! Items without an object in memory: all that there is of them is in the log.
//!
//! Invariants: an intent stays in the AIL, where it holds the tail of the log, until its done item is durable. Done
//! items and records of new inodes have done their work once they are in the log.

use super::{ItemState, LogItem};
use std::sync::Arc;

/// What an item without an object is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogOnlyRole {
    /// Promises work: logged by this mount, or found in the log by recovery.
    Intent,
    /// Says that an intent is finished.
    Done,
    /// Says that a chunk of inodes was made.
    NewInodes,
}

/// An item without an object.
#[derive(Debug)]
pub struct LogOnlyItem {
    state: ItemState,
    role: LogOnlyRole,
}

impl LogOnlyItem {
    /// An item that no checkpoint holds.
    pub fn new(role: LogOnlyRole) -> Arc<Self> {
        Arc::new(Self { state: ItemState::default(), role })
    }
}

impl LogItem for LogOnlyItem {
    fn state(&self) -> &ItemState {
        &self.state
    }

    fn is_intent(&self) -> bool {
        self.role == LogOnlyRole::Intent
    }

    fn stays_in_ail(&self) -> bool {
        self.role == LogOnlyRole::Intent
    }

    fn goes_first(&self) -> bool {
        self.role == LogOnlyRole::NewInodes
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn std::any::Any + Send + Sync> {
        self
    }
}
