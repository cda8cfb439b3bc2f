//! The active item list: items whose newest copy is durable in the log and not yet at home, oldest first.
//!
//! The oldest item's LSN is the tail: where recovery would have to start.

use super::cil::Entry;
use crate::hash::NumberSet;
use crate::item::LogItem;
use crate::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use xfskit_ondisk::Lsn;

/// The list.
#[derive(Default)]
pub struct Ail {
    items: Mutex<BTreeMap<(Lsn, usize), Arc<dyn LogItem>>>,
}

/// Tells items of one LSN apart: the address of the object, which lives as long as it is listed.
fn identity(item: &Arc<dyn LogItem>) -> usize {
    Arc::as_ptr(item).cast::<()>() as usize
}

impl Ail {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// The oldest LSN.
    pub fn tail(&self) -> Option<Lsn> {
        self.items.lock().first_key_value().map(|((lsn, _), _)| *lsn)
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.items.lock().len()
    }

    /// Whether everything is at home.
    pub fn is_empty(&self) -> bool {
        self.items.lock().is_empty()
    }

    /// A checkpoint that starts at `lsn` is durable: its items take their new places and are unpinned.
    pub(super) fn insert_checkpoint(&self, lsn: Lsn, entries: Vec<Entry>) {
        let mut items = self.items.lock();
        for Entry { item, stale, .. } in entries {
            let mut inner = item.state().lock();
            let stays = inner.keeps_position && !stale && inner.in_ail.is_some();
            if !stays {
                if let Some(old) = inner.in_ail.take() {
                    items.remove(&(old, identity(&item)));
                }
                if !stale && item.wants_write_back() {
                    inner.in_ail = Some(lsn);
                    items.insert((lsn, identity(&item)), Arc::clone(&item));
                }
            }
            drop(inner);
            item.state().unpin();
        }
    }

    /// Takes an item in that the log held before the mount.
    pub(super) fn insert(&self, lsn: Lsn, item: Arc<dyn LogItem>) {
        let mut items = self.items.lock();
        item.state().lock().in_ail = Some(lsn);
        items.insert((lsn, identity(&item)), item);
    }

    /// The homes of all items.
    pub fn homes(&self) -> NumberSet<u64> {
        self.items.lock().values().map(|item| item.home()).collect()
    }

    /// The items up to `target`, oldest first.
    pub fn items_up_to(&self, target: Lsn) -> Vec<Arc<dyn LogItem>> {
        self.items.lock().range(..=(target, usize::MAX)).map(|(_, item)| Arc::clone(item)).collect()
    }

    /// Takes an item off, if it was not committed again since `commits` was read.
    pub fn remove_if_unchanged(&self, item: &Arc<dyn LogItem>, commits: u64) -> bool {
        let mut items = self.items.lock();
        let mut inner = item.state().lock();
        if inner.commits != commits || inner.in_cil.is_some() || item.state().is_pinned() {
            return false;
        }
        inner.dirty.clear();
        inner.keeps_position = false;
        match inner.in_ail.take() {
            Some(lsn) => items.remove(&(lsn, identity(item))).is_some(),
            None => false,
        }
    }

    /// Takes an item off whatever happened to it: a finished intent, an object that was freed.
    pub fn remove(&self, item: &Arc<dyn LogItem>) {
        let mut items = self.items.lock();
        let lsn = item.state().lock().in_ail.take();
        if let Some(lsn) = lsn {
            items.remove(&(lsn, identity(item)));
        }
    }
}
