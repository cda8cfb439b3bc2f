//! The numbers of intents.

use crate::sync::Mutex;
use std::collections::HashSet;

/// The numbers by which done items name their intents. They count up from 1 at each mount, so that a run can be
/// replayed, and skip those of recovered intents that are not finished. Numbers need to differ only among intents that
/// are unfinished at the same time.
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
    /// Lets [`Self::next`] skip the ids of recovered intents.
    pub fn avoid(&self, ids: impl IntoIterator<Item = u64>) {
        self.inner.lock().recovered.extend(ids);
    }

    /// The next number.
    pub fn next(&self) -> u64 {
        let mut inner = self.inner.lock();
        loop {
            inner.last += 1;
            if !inner.recovered.contains(&inner.last) {
                return inner.last;
            }
        }
    }
}
