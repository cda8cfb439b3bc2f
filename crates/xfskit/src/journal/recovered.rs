//! Intents that recovery found without a done item.

use crate::item::{ItemState, LogItem};
use std::sync::Arc;
use xfskit_ondisk::Lsn;

/// An intent that has no done item in the log. As a log item it stays in the AIL, and keeps the tail of the log, until
/// its done item is durable.
#[derive(Debug, Default)]
pub struct RecoveredIntent {
    /// Where its transaction starts in the log.
    pub lsn: Lsn,
    /// Its type.
    pub item_type: u16,
    /// The number by which its done item names it.
    pub id: u64,
    /// Its regions as they stand in the log; the first is the format.
    pub regions: Vec<Vec<u8>>,
    state: ItemState,
}

impl RecoveredIntent {
    /// An intent as the log has it.
    pub fn new(lsn: Lsn, item_type: u16, id: u64, regions: Vec<Vec<u8>>) -> Self {
        Self { lsn, item_type, id, regions, state: ItemState::default() }
    }
}

impl LogItem for RecoveredIntent {
    fn state(&self) -> &ItemState {
        &self.state
    }

    fn home(&self) -> u64 {
        0
    }

    fn is_intent(&self) -> bool {
        true
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn std::any::Any + Send + Sync> {
        self
    }
}
