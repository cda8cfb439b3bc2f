//! What a link logs besides objects in memory: intents, done items, records of new inodes.
//!
//! Invariant: the items are committed in the order in which they were logged, before the objects, so recovery reads an
//! intent and its done item in that order.

use crate::error::Result;
use crate::error_tags::{ErrorTags, LOG_DONE, LOG_INTENT};
use crate::item::{LogItem, LogVector};
use crate::journal::Batch;
use std::sync::Arc;

/// An item without an object, as this link of the chain logs it.
struct LoggedItem {
    item: Arc<dyn LogItem>,
    copy: LogVector,
    /// A done item: the intent that it finishes.
    finishes: Option<Arc<dyn LogItem>>,
}

/// The items of a link.
#[derive(Default)]
pub(super) struct LoggedItems {
    items: Vec<LoggedItem>,
}

impl LoggedItems {
    /// Logs an item; a done item with the intent that it finishes.
    pub(super) fn add(&mut self, item: Arc<dyn LogItem>, copy: LogVector, finishes: Option<Arc<dyn LogItem>>) {
        self.items.push(LoggedItem { item, copy, finishes });
    }

    /// Number of items.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Fails where a test wants a link with an intent or a done item to fail.
    #[inline]
    pub(super) fn fail_if_tagged(&self, tags: &ErrorTags) -> Result<()> {
        if self.items.is_empty() {
            return Ok(());
        }
        if self.items.iter().any(|logged| logged.item.is_intent()) {
            tags.fail(LOG_INTENT)?;
        }
        if self.items.iter().any(|logged| logged.finishes.is_some()) {
            tags.fail(LOG_DONE)?;
        }
        Ok(())
    }

    /// Logs all items.
    #[inline]
    pub(super) fn log_all_to(&mut self, batch: &mut Batch<'_>) {
        self.items.drain(..).for_each(|logged| batch.log_copy(logged.item, logged.copy, logged.finishes));
    }
}
