//! The active item list: items whose newest copy is durable in the log and not yet written in place, oldest first.
//!
//! ```text
//! bucket (LSN of a checkpoint)  items, how many of them are still here │ the next checkpoint's │ ...
//! ```
//! The oldest item's LSN is the tail: where recovery would have to start. An item is in the bucket that its own
//! [`ItemInner::in_ail`](crate::item::ItemInner::in_ail) names; an entry of it in another bucket's list does not count.
//! So an item leaves its bucket without a search. A list is cleaned when its bucket is read, and dropped when its
//! bucket is empty.

use super::checkpoint::CheckpointEntry;
use crate::hash::NumberSet;
use crate::item::{ItemInner, LogItem};
use crate::sync::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use xfskit_ondisk::Lsn;

/// The list.
#[derive(Default)]
pub struct Ail {
    buckets: Mutex<Buckets>,
}

#[derive(Default)]
struct Buckets {
    /// By LSN; the first and the last have items.
    list: VecDeque<Bucket>,
    /// Items in all buckets.
    items: usize,
}

struct Bucket {
    lsn: Lsn,
    listed: Vec<Arc<dyn LogItem>>,
    /// How many of the listed items are still in this bucket.
    items: usize,
}

impl Bucket {
    fn is_here(&self, item: &Arc<dyn LogItem>) -> bool {
        item.state().lock().in_ail.get() == Some(self.lsn)
    }

    /// Cleans the list when most of its entries do not count.
    fn tidy(&mut self) {
        if self.listed.len() > 2 * self.items {
            let mut listed = std::mem::take(&mut self.listed);
            listed.retain(|item| self.is_here(item));
            listed.shrink_to_fit();
            self.listed = listed;
        }
    }
}

impl Buckets {
    /// The bucket of an LSN; made if there is none.
    fn bucket(&mut self, lsn: Lsn) -> &mut Bucket {
        let index = self.list.partition_point(|bucket| bucket.lsn < lsn);
        if self.list.get(index).is_none_or(|bucket| bucket.lsn != lsn) {
            self.list.insert(index, Bucket { lsn, listed: Vec::new(), items: 0 });
        }
        &mut self.list[index]
    }

    /// Takes an item off; `false` if it was not on the list.
    fn take_off(&mut self, inner: &mut ItemInner) -> bool {
        let Some(lsn) = inner.in_ail.take() else { return false };
        self.bucket(lsn).items -= 1;
        self.items -= 1;
        true
    }

    /// Drops empty buckets. Returns them, so that the caller frees their lists without the lock.
    fn drop_empty(&mut self) -> Vec<Bucket> {
        let mut empty = Vec::new();
        if self.list.iter().any(|bucket| bucket.items == 0) {
            let (kept, gone) = std::mem::take(&mut self.list).into_iter().partition(|bucket| bucket.items > 0);
            self.list = kept;
            empty = Vec::from(gone);
        }
        empty
    }
}

impl Ail {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// The oldest LSN.
    pub fn tail(&self) -> Option<Lsn> {
        self.buckets.lock().list.iter().find(|bucket| bucket.items > 0).map(|bucket| bucket.lsn)
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.buckets.lock().items
    }

    /// Whether everything is written in place.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A checkpoint that starts at `lsn` is durable: its items, at most `count`, take their new places and are
    /// unpinned. Returns those whose objects it frees.
    pub(super) fn insert_checkpoint(
        &self,
        lsn: Lsn,
        count: usize,
        entries: impl Iterator<Item = CheckpointEntry>,
    ) -> Vec<Arc<dyn LogItem>> {
        let (mut listed, mut freed) = (Vec::with_capacity(count), Vec::new());
        let mut buckets = self.buckets.lock();
        for CheckpointEntry { item, stale, keeps_position, .. } in entries.filter(CheckpointEntry::counts) {
            let mut inner = item.state().lock();
            inner.gathered.unpin();
            if keeps_position && !stale && inner.in_ail.get().is_some() {
                continue;
            }
            buckets.take_off(&mut inner);
            if stale {
                drop(inner);
                freed.push(item);
                continue;
            }
            if !item.stays_in_ail() {
                continue;
            }
            inner.in_ail.set(lsn);
            drop(inner);
            listed.push(item);
        }
        if !listed.is_empty() {
            buckets.items += listed.len();
            let bucket = buckets.bucket(lsn);
            bucket.items += listed.len();
            bucket.listed.append(&mut listed);
        }
        let empty = buckets.drop_empty();
        drop(buckets);
        drop(empty);
        freed
    }

    /// Adds an item that the log contained before the mount.
    pub(super) fn insert(&self, lsn: Lsn, item: Arc<dyn LogItem>) {
        let mut buckets = self.buckets.lock();
        item.state().lock().in_ail.set(lsn);
        buckets.items += 1;
        let bucket = buckets.bucket(lsn);
        bucket.items += 1;
        bucket.listed.push(item);
    }

    /// The disk addresses of the blocks that all items lie in.
    pub fn block_addresses(&self) -> NumberSet<u64> {
        let buckets = self.buckets.lock();
        let of = |bucket: &Bucket| bucket.listed.iter().map(|item| item.block_address()).collect::<Vec<_>>();
        buckets.list.iter().flat_map(of).collect()
    }

    /// The items up to `target` that can be written back, each with its block's address: no intents, and no pinned
    /// items. Each item is read once, since most have left the processor's caches.
    pub fn ready_up_to(&self, target: Lsn) -> Vec<(u64, Arc<dyn LogItem>)> {
        let mut buckets = self.buckets.lock();
        let end = buckets.list.partition_point(|bucket| bucket.lsn <= target);
        let mut items = Vec::with_capacity(buckets.list.range(..end).map(|bucket| bucket.items).sum());
        for bucket in buckets.list.range_mut(..end) {
            bucket.tidy();
            let lsn = bucket.lsn;
            let is_ready = |item: &&Arc<dyn LogItem>| {
                let inner = item.state().lock();
                inner.in_ail.get() == Some(lsn) && !inner.gathered.is_pinned() && !item.is_intent()
            };
            items.extend(bucket.listed.iter().filter(is_ready).map(|item| (item.block_address(), Arc::clone(item))));
        }
        items
    }

    /// Whether an intent waits for its done item.
    #[cfg(test)]
    pub fn has_intents(&self) -> bool {
        let buckets = self.buckets.lock();
        let waits = |bucket: &Bucket| bucket.listed.iter().any(|item| item.is_intent() && bucket.is_here(item));
        buckets.list.iter().any(waits)
    }

    /// Takes an item off, if it was not committed again since `commits` was read.
    pub fn remove_if_unchanged(&self, item: &Arc<dyn LogItem>, commits: u32) -> bool {
        self.remove_all_unchanged(std::iter::once((item, commits))) == 1
    }

    /// As [`Self::remove_if_unchanged`], for many; returns how many left.
    pub fn remove_all_unchanged<'a>(&self, items: impl Iterator<Item = (&'a Arc<dyn LogItem>, u32)>) -> usize {
        let mut buckets = self.buckets.lock();
        let mut left = 0;
        for (item, commits) in items {
            let mut inner = item.state().lock();
            if inner.commits != commits || inner.gathered.is_pinned() {
                continue;
            }
            inner.dirty.clear();
            inner.keeps_position = false;
            left += usize::from(buckets.take_off(&mut inner));
        }
        let empty = buckets.drop_empty();
        drop(buckets);
        drop(empty);
        left
    }

    /// Takes an item off, even if it was committed again: a finished intent, an object that was freed.
    pub fn remove(&self, item: &Arc<dyn LogItem>) {
        let mut buckets = self.buckets.lock();
        buckets.take_off(&mut item.state().lock());
    }
}
