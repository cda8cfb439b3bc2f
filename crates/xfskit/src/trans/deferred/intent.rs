//! Intents as the journal sees them, and their numbers.

use super::Work;
use crate::item::{ItemState, LogItem, LogVector};
use crate::sync::Mutex;
use crate::trans::{PassingItem, Transaction};
use std::collections::HashSet;
use std::sync::Arc;

/// The numbers by which done items name their intents. They count up from 1 at each mount, so that a run can be
/// replayed, and pass over those of recovered intents that are not finished: only among intents that live at the same
/// time must they differ.
#[derive(Default)]
pub struct IntentIds {
    inner: Mutex<IdsInner>,
}

#[derive(Default)]
struct IdsInner {
    last: u64,
    recovered: HashSet<u64>,
}

impl IntentIds {
    /// Passes over the ids of recovered intents.
    pub fn avoid(&self, ids: impl IntoIterator<Item = u64>) {
        self.inner.lock().recovered.extend(ids);
    }

    fn next(&self) -> u64 {
        let mut inner = self.inner.lock();
        loop {
            inner.last += 1;
            if !inner.recovered.contains(&inner.last) {
                return inner.last;
            }
        }
    }
}

/// An intent as the journal sees it. It stays in the AIL until its done item is durable.
#[derive(Default)]
struct Intent {
    state: ItemState,
}

impl LogItem for Intent {
    fn state(&self) -> &ItemState {
        &self.state
    }

    fn is_intent(&self) -> bool {
        true
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn std::any::Any + Send + Sync> {
        self
    }
}

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
        let item: Arc<dyn LogItem> = Arc::new(Intent::default());
        self.log_item(Arc::clone(&item), copy, None);
        item
    }

    /// Logs that `intent` is done.
    pub(super) fn log_done(&mut self, copy: LogVector, intent: LoggedIntent) {
        self.log_item(Arc::new(PassingItem::default()), copy, Some(intent.item));
    }
}
