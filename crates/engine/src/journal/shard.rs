//! A shard of the CIL, and the commit of one transaction to it.
//!
//! An inode's copy lies in the shard ([`super::copies`]), and its item knows the entry; the switch need not touch the
//! item. Items that many threads log, buffers above all, contain their copy, where every thread can make it anew. The
//! copy of an inode that another thread logs moves there.
//!
//! Invariants: all of a transaction is in one shard; an item is in the lists of several shards only if all entries but
//! one are listed as moved.
//!
//! Locking: a batch has its shard locked from beginning to end, and locks one item at a time below that.

use super::checkpoint::{CheckpointEntry, EntryCopy, ShardPart};
use super::copies::{Copies, Regions, copy_into};
use super::grant::accounts::GrantSpace;
use super::pool::Pool;
use super::values::OrderedWrite;
use crate::counters::Counters;
use crate::hash::NumberSet;
use crate::item::{BoxedVector, CheckpointSeq, CopyPlace, ItemInner, LogItem, LogVector};
use crate::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use xfskit_ondisk::DiskAddress;

/// Bytes that a checkpoint stays charged for an intent that was whited out: its entry stays in memory until the switch,
/// and without a charge nothing would bound the number of such entries.
const WHITED_OUT_BYTES: u32 = 256;

/// The memory that a checkpoint leaves for the next.
pub(super) type CopyPool = Pool<CheckpointEntry>;

/// The part of the CIL that the threads of one slot commit to.
#[derive(Default)]
pub(super) struct Shard {
    entries: Vec<CheckpointEntry>,
    copies: Copies,
    /// Empty vectors for the copies of items that have none.
    spare: Vec<BoxedVector>,
    /// Entries of other shards whose items contain their copies now.
    moved: Vec<(u16, u32)>,
    finished: Vec<Arc<dyn LogItem>>,
    ordered_writes: Vec<OrderedWrite>,
    /// Where blocks lie that were freed.
    cancelled: NumberSet<DiskAddress>,
    charged: u64,
    /// The part of `charged` that was reported to the list.
    reported: u64,
}

/// What a shard gathered for one checkpoint.
pub(super) struct ShardContents {
    pub part: ShardPart,
    pub moved: Vec<(u16, u32)>,
    pub finished: Vec<Arc<dyn LogItem>>,
    pub ordered_writes: Vec<OrderedWrite>,
    pub charged_bytes: u64,
}

impl Shard {
    /// Whether nothing was committed since the last checkpoint was closed.
    pub(super) fn is_empty(&self) -> bool {
        self.charged == 0
    }

    /// Whether blocks that start at `address` were freed.
    pub(super) fn holds_cancel(&self, address: DiskAddress) -> bool {
        self.cancelled.contains(&address)
    }

    /// Takes a list for the entries, if there is none from an earlier commit.
    #[inline]
    pub(super) fn need_list(&mut self, list: impl FnOnce() -> Vec<CheckpointEntry>) {
        if self.entries.capacity() == 0 {
            self.entries = list();
        }
    }

    /// Takes out all that was gathered; spare vectors stay.
    pub(super) fn take(&mut self) -> ShardContents {
        let Self { entries, copies, moved, finished, ordered_writes, charged, spare, .. } = std::mem::take(self);
        self.spare = spare;
        ShardContents { part: ShardPart { entries, copies }, moved, finished, ordered_writes, charged_bytes: charged }
    }

    /// What the charge changed by since it was last reported, modulo 2^64, if that is at least `report_bytes` bytes.
    #[inline]
    pub(super) fn report(&mut self, report_bytes: u64) -> Option<u64> {
        let unreported = self.charged.wrapping_sub(self.reported);
        let is_due = self.charged.abs_diff(self.reported) >= report_bytes;
        is_due.then(|| {
            self.reported = self.charged;
            unreported
        })
    }

    /// Charges the checkpoint for what it grew by, or refunds what it shrank by: otherwise the value of an intent that
    /// was whited out would count towards a push, although it is not written. The first commit of each shard pays for
    /// the opening, so several shards pay for it more than once, and it is never refunded.
    #[inline]
    pub(super) fn charge(&mut self, grown: i64, space: &GrantSpace) -> i64 {
        if grown < 0 && self.charged > 0 {
            let back = space.refund(grown.unsigned_abs()).min(self.charged.saturating_sub(space.opening()));
            self.charged -= back;
            return -(back as i64);
        }
        let charge = space.charge(grown.max(0) as u64, self.charged == 0);
        self.charged += charge;
        charge as i64
    }
}

/// The commit of one transaction: what it logs goes into the shard of its thread in one step.
pub struct Batch<'c> {
    shard: &'c mut Shard,
    index: u16,
    seq: CheckpointSeq,
    grown: i64,
    whiteouts: bool,
    pool: &'c CopyPool,
    cancels: &'c AtomicU64,
    counters: &'c Counters,
    relogged: u64,
    logged: u64,
}

/// What the batches of all shards share.
pub(super) struct BatchShared<'c> {
    /// Leave out intents whose done items are in the same checkpoint.
    pub whiteouts: bool,
    pub pool: &'c CopyPool,
    /// Cancel records in the gathering checkpoint.
    pub cancels: &'c AtomicU64,
    pub counters: &'c Counters,
}

/// What a batch has done to its shard.
pub(super) struct BatchResult {
    /// Bytes by which the checkpoint grew; less than 0 where it shrank.
    pub grown: i64,
    /// Items that the checkpoint did not contain before.
    pub logged: u64,
    /// Items that it contained already.
    pub relogged: u64,
}

impl<'c> Batch<'c> {
    /// A batch that is empty.
    #[inline]
    pub(super) fn new(shard: &'c mut Shard, index: u16, seq: CheckpointSeq, shared: BatchShared<'c>) -> Self {
        let BatchShared { whiteouts, pool, cancels, counters } = shared;
        Self { shard, index, seq, grown: 0, whiteouts, pool, cancels, counters, relogged: 0, logged: 0 }
    }

    /// What the batch has done to its shard.
    #[inline]
    pub(super) fn result(self) -> BatchResult {
        BatchResult { grown: self.grown, logged: self.logged, relogged: self.relogged }
    }

    /// Adds writes that must be done before the checkpoint.
    pub fn write_before(&mut self, writes: &[OrderedWrite]) {
        self.shard.ordered_writes.extend_from_slice(writes);
    }

    /// Logs an item without an object in memory: an intent, a done item, a record. A done item whose intent is in the
    /// same checkpoint is left out together with it.
    pub fn log_copy(&mut self, item: Arc<dyn LogItem>, copy: LogVector, finishes: Option<Arc<dyn LogItem>>) {
        if let Some(intent) = finishes {
            if self.whiteouts && self.white_out(&*intent) {
                self.counters.intents_whited_out.increment();
                return;
            }
            self.shard.finished.push(intent);
        }
        let goes_first = item.goes_first();
        self.log_in_item(&item, |item| Arc::clone(item), goes_first, |inner, _, _| inner.gathered.set_copy(copy));
    }

    /// Logs a buffer. `format` brings the copy up to date; its second argument says whether the copy is of this
    /// checkpoint.
    pub fn log_buffer<T: LogItem + 'static>(&mut self, item: &Arc<T>, format: impl FnOnce(&mut ItemInner, bool)) {
        let pool = self.pool;
        self.log_object(item, |inner, again, spare| {
            inner.gathered.lend(|| pool.vector(spare));
            format(inner, again);
        });
    }

    /// Logs that a buffer's blocks were freed.
    pub fn log_cancel<T: LogItem + 'static>(
        &mut self,
        item: &Arc<T>,
        copy: LogVector,
        addresses: impl Iterator<Item = DiskAddress>,
    ) {
        self.shard.cancelled.extend(addresses);
        self.cancels.fetch_add(1, Ordering::AcqRel);
        self.log_object(item, |inner, _, _| {
            inner.stale = true;
            inner.dirty.clear();
            inner.keeps_position = false;
            inner.gathered.set_copy(copy);
        });
    }

    /// Puts a buffer whose contents another item makes into the checkpoint without a copy, so that it enters the AIL.
    pub fn order<T: LogItem + 'static>(&mut self, item: &Arc<T>) {
        self.log_object(item, |inner, _, _| {
            // The buffer is made anew: an older copy, or a cancel record for its former use, would undo what recovery
            // makes of it.
            inner.keeps_position = true;
            inner.dirty.clear();
            inner.gathered.clear_copy();
        });
    }

    fn log_object<T: LogItem + 'static>(
        &mut self,
        item: &Arc<T>,
        format: impl FnOnce(&mut ItemInner, bool, &mut Vec<BoxedVector>),
    ) {
        self.log_in_item(item, |item| Arc::clone(item) as _, false, format);
    }

    /// As [`Self::log_buffer`], of any item; the third argument of `format` are vectors for those that need one.
    fn log_in_item<T: LogItem + ?Sized>(
        &mut self,
        item: &Arc<T>,
        share: impl FnOnce(&Arc<T>) -> Arc<dyn LogItem>,
        goes_first: bool,
        format: impl FnOnce(&mut ItemInner, bool, &mut Vec<BoxedVector>),
    ) {
        let mut inner = item.state().lock();
        inner.commits = inner.commits.wrapping_add(1);
        inner.stale = false;
        let again = inner.gathered.is_in(self.seq);
        format(&mut inner, again, &mut self.shard.spare);
        let bytes = inner.gathered.copy().map_or(0, LogVector::log_bytes) as u32;
        self.grown += inner.gathered.resize(self.seq, bytes);
        if again {
            self.relogged += 1;
            return;
        }
        inner.gathered.join(self.seq, CopyPlace::Item);
        drop(inner);
        self.logged += 1;
        self.shard.entries.push(CheckpointEntry::new(share(item), EntryCopy::InItem, goes_first));
    }

    /// Logs an inode. `prepare` adds what changed to the dirty bits and returns the contents of the copy.
    #[inline]
    pub fn log_inode<T: LogItem + 'static, C: Regions>(
        &mut self,
        item: &Arc<T>,
        prepare: impl FnOnce(&mut ItemInner) -> C,
    ) {
        let mut inner = item.state().lock();
        inner.commits = inner.commits.wrapping_add(1);
        inner.stale = false;
        let copy = prepare(&mut inner);
        let ends = copy.ends();
        let bytes = ends.log_bytes() as u32;
        let again = inner.gathered.is_in(self.seq);
        self.grown += inner.gathered.resize(self.seq, bytes);
        let (pool, shard) = (&self.pool.slabs, &mut *self.shard);
        if !again {
            let copied = shard.copies.add(&copy, ends, pool);
            let place = CopyPlace::Shard { shard: self.index, entry: shard.entries.len() as u32 };
            inner.gathered.join(self.seq, place);
            shard.entries.push(CheckpointEntry::new(Arc::clone(item) as _, EntryCopy::InShard(copied), false));
            self.logged += 1;
            return;
        }
        self.relogged += 1;
        match inner.gathered.place() {
            CopyPlace::Item => copy_into(inner.gathered.copy_mut(), &copy, &ends),
            CopyPlace::Shard { shard: index, entry } if index == self.index => {
                if let EntryCopy::InShard(old) = &mut shard.entries[entry as usize].copy {
                    *old = shard.copies.replace(*old, &copy, ends, pool);
                }
            }
            CopyPlace::Shard { shard: other, entry } => {
                shard.moved.push((other, entry));
                copy_into(inner.gathered.copy_mut(), &copy, &ends);
                inner.gathered.move_to_item();
                shard.entries.push(CheckpointEntry::new(Arc::clone(item) as _, EntryCopy::InItem, false));
            }
        }
    }

    /// Takes an intent out of the checkpoint that it shares with its done item.
    fn white_out(&mut self, intent: &dyn LogItem) -> bool {
        let mut inner = intent.state().lock();
        if !inner.gathered.is_in(self.seq) {
            return false;
        }
        self.grown -= i64::from(inner.gathered.drop_copy().saturating_sub(WHITED_OUT_BYTES));
        inner.whiteout = true;
        true
    }
}
