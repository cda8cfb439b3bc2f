//! Intents and their done items, as a link of a chain logs them.

use super::Work;
use crate::item::{LogItem, LogOnlyItem, LogOnlyRole, LogVector};
use crate::trans::Transaction;
use std::sync::Arc;

/// An intent that was logged, by this mount or by one that a crash ended.
pub(super) struct LoggedIntent {
    pub(super) item: Arc<dyn LogItem>,
    pub(super) id: u64,
}

impl Transaction<'_> {
    /// Logs an intent for all that is left of `work`.
    pub(super) fn log_intent_for(&mut self, work: &dyn Work) -> LoggedIntent {
        let id = self.mount.intent_ids.next();
        let mut copy = LogVector::default();
        work.encode_intent(id, &mut copy);
        LoggedIntent { item: self.log_intent(copy), id }
    }

    /// Logs an intent that was encoded already.
    pub fn log_intent(&mut self, copy: LogVector) -> Arc<dyn LogItem> {
        let item: Arc<dyn LogItem> = LogOnlyItem::new(LogOnlyRole::Intent);
        self.log_item(Arc::clone(&item), copy, None);
        item
    }

    /// Logs that `intent` is done.
    pub(super) fn log_done(&mut self, copy: LogVector, intent: LoggedIntent) {
        self.log_item(LogOnlyItem::new(LogOnlyRole::Done), copy, Some(intent.item));
    }
}
