//! The committed item list: what the next checkpoint will carry.
//!
//! ```text
//! shard (one for each thread slot)   entries: item, where its copy is │ copies of inodes │ charge, ordered writes
//! ```
//! A commit holds the lock of its thread's shard while it formats, and no other's; so all of a transaction is in one
//! shard, and commits of different threads meet only at the items they share. A push locks all shards for the moment it
//! takes to carry the lists off.
//!
//! An inode's copy lies in the shard ([`super::copies`]), and its item knows the entry; the push need not touch it.
//! What many threads log, buffers above all, has its copy in its item, where every thread can make it anew; an inode
//! that another thread logs moves there.

use super::copies::{Copied, Copies, Regions, copy_into};
use super::grant::GrantSpace;
use super::pool::Pool;
use super::values::OrderedWrite;
use crate::counters::Counters;
use crate::hash::NumberSet;
use crate::item::{BoxedVector, CheckpointSeq, CopyPlace, ItemInner, LogItem, LogVector};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard, Padded, THREAD_SLOTS, thread_slot};
use std::sync::Arc;
use xfskit_ondisk::DiskAddress;

/// Which part of what pushes the CIL a shard may keep for itself.
const TELLS_OF_PUSH: u64 = 64;

/// What a checkpoint stays charged for an intent that was whited out: its entry waits for the switch in memory, and
/// without a charge nothing would bound how many do.
const WHITED_OUT_BYTES: u32 = 256;

/// The list.
pub(super) struct Cil {
    shards: Box<[Padded<Mutex<Shard>>]>,
    /// The number of the gathering checkpoint; changes with all shards locked.
    current: AtomicU64,
    /// What the shards have told of their charges: nearly all of it, or a little more.
    charged: AtomicU64,
    /// Bytes of which a shard tells at once.
    tells_at: u64,
    /// Cancel records in the gathering checkpoint.
    cancels: AtomicU64,
    pool: Pool,
}

#[derive(Default)]
struct Shard {
    entries: Vec<Entry>,
    copies: Copies,
    /// Empty vectors for the copies of items that have none.
    spare: Vec<BoxedVector>,
    /// Entries of other shards whose item has its copy in itself now.
    moved: Vec<(u16, u32)>,
    finished: Vec<Arc<dyn LogItem>>,
    ordered_writes: Vec<OrderedWrite>,
    /// Where blocks lie that were freed.
    cancelled: NumberSet<DiskAddress>,
    charged: u64,
    /// The part of `charged` that is told.
    told: u64,
}

impl Shard {
    /// Charges the checkpoint for what it grew by. What shrank is given back: the value of an intent that was whited
    /// out would push checkpoints of which nothing is written. The first commit of each shard pays for the opening,
    /// which is paid once too often when there are several, and is never given back.
    fn charge(&mut self, grown: i64, space: &GrantSpace) -> i64 {
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

/// What a commit came to.
pub(super) struct CommitOutcome {
    pub seq: CheckpointSeq,
    /// What the checkpoint is charged for it; less than nothing where it needs less than before.
    pub charge_bytes: i64,
}

/// An item of a checkpoint, and where its copy is.
pub(super) struct Entry {
    pub item: Arc<dyn LogItem>,
    copy: Copy,
    pub stale: bool,
    /// The item's `keeps_position` as this checkpoint has it: the next may free the blocks meanwhile.
    pub keeps_position: bool,
    goes_first: bool,
}

enum Copy {
    /// In the item, while the checkpoint gathers; later nowhere: an ordered item has none.
    InItem,
    /// In the shard.
    InShard(Copied),
    /// Taken out of the item.
    Vector(u32),
    /// Nowhere: another entry has it, or the intent was whited out.
    Gone,
}

/// What one shard gathered.
pub(super) struct Part {
    pub entries: Vec<Entry>,
    copies: Copies,
}

/// A checkpoint that was carried off the list.
pub(super) struct Checkpoint {
    pub seq: CheckpointSeq,
    pub parts: Vec<Part>,
    vectors: Vec<BoxedVector>,
    /// Intents whose done items this checkpoint carries: they leave the AIL when it is durable.
    pub finished: Vec<Arc<dyn LogItem>>,
    pub ordered_writes: Vec<OrderedWrite>,
    pub charged_bytes: u64,
}

impl Entry {
    /// Whether the checkpoint holds the item through this entry.
    pub(super) fn counts(&self) -> bool {
        !matches!(self.copy, Copy::Gone)
    }
}

impl Checkpoint {
    /// Number of entries.
    pub(super) fn entry_count(&self) -> usize {
        self.parts.iter().map(|part| part.entries.len()).sum()
    }

    /// Takes all entries out; the lists stay for [`Cil::recycle`].
    pub(super) fn take_entries(&mut self) -> impl Iterator<Item = Entry> {
        self.parts.iter_mut().flat_map(|part| part.entries.drain(..))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.finished.is_empty()
            && self.ordered_writes.is_empty()
            && !self.parts.iter().flat_map(|part| &part.entries).any(Entry::counts)
    }

    /// How many regions there are.
    pub(super) fn region_count(&self) -> usize {
        let regions = |entry: &Entry| match &entry.copy {
            Copy::InShard(place) => place.region_count(),
            Copy::Vector(index) => self.vectors[*index as usize].region_count(),
            Copy::InItem | Copy::Gone => 0,
        };
        self.parts.iter().flat_map(|part| &part.entries).map(regions).sum()
    }

    /// Hands all regions to `each`, in the order in which recovery is to see them: blocks that are made over by an item
    /// come before whatever was done to them since.
    pub(super) fn regions<E>(&self, mut each: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        for first in [true, false] {
            for part in &self.parts {
                for entry in part.entries.iter().filter(|entry| entry.goes_first == first) {
                    match &entry.copy {
                        Copy::InShard(place) => part.copies.regions(place).try_for_each(&mut each)?,
                        Copy::Vector(index) => {
                            self.vectors[*index as usize].regions().try_for_each(|region| each(&region))?;
                        }
                        Copy::InItem | Copy::Gone => {}
                    }
                }
            }
        }
        Ok(())
    }
}

/// The commit of one transaction: what it logs goes into the shard of its thread in one step.
pub struct Batch<'c> {
    shard: MutexGuard<'c, Shard>,
    index: u16,
    seq: CheckpointSeq,
    grown: i64,
    whiteouts: bool,
    cil: &'c Cil,
    counters: &'c Counters,
    relogged: u64,
    logged: u64,
}

impl Cil {
    /// A list that is pushed at `push_bytes`, and keeps `pool_bytes` of memory for its copies.
    pub(super) fn new(push_bytes: u64, pool_bytes: u64) -> Self {
        Self {
            shards: (0..THREAD_SLOTS).map(|_| Padded::default()).collect(),
            current: AtomicU64::new(1),
            charged: AtomicU64::new(0),
            tells_at: push_bytes / TELLS_OF_PUSH,
            cancels: AtomicU64::new(0),
            pool: Pool::new(push_bytes, pool_bytes),
        }
    }

    pub(super) fn current(&self) -> CheckpointSeq {
        CheckpointSeq(self.current.load(Ordering::Acquire))
    }

    /// What the gathering checkpoint is charged, as far as the shards have told.
    pub(super) fn charged_bytes(&self) -> u64 {
        self.charged.load(Ordering::Relaxed)
    }

    /// Whether nothing was committed since the last switch.
    pub(super) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().charged == 0)
    }

    /// Whether the gathering checkpoint carries a cancel record for blocks that start at `address`.
    pub(super) fn holds_cancel(&self, address: DiskAddress) -> bool {
        self.cancels.load(Ordering::Acquire) > 0
            && self.shards.iter().any(|shard| shard.lock().cancelled.contains(&address))
    }

    /// Puts what `fill` logs on the list.
    pub(super) fn commit(
        &self,
        counters: &Counters,
        space: &GrantSpace,
        whiteouts: bool,
        fill: impl FnOnce(&mut Batch<'_>),
    ) -> CommitOutcome {
        let index = thread_slot();
        let mut shard = self.shards[index].lock();
        if shard.entries.capacity() == 0 {
            shard.entries = self.pool.list();
        }
        // The shard's lock keeps the number as it is.
        let seq = self.current();
        let mut batch =
            Batch { shard, index: index as u16, seq, grown: 0, whiteouts, cil: self, counters, relogged: 0, logged: 0 };
        fill(&mut batch);
        let Batch { mut shard, grown, relogged, logged, .. } = batch;
        let charge_bytes = shard.charge(grown, space);
        if shard.charged.abs_diff(shard.told) >= self.tells_at {
            // Around zero where it fell.
            self.charged.fetch_add(shard.charged.wrapping_sub(shard.told), Ordering::Relaxed);
            shard.told = shard.charged;
        }
        drop(shard);
        if relogged > 0 {
            counters.items_relogged.add(relogged);
        }
        if logged > 0 {
            counters.items_logged.add(logged);
        }
        CommitOutcome { seq, charge_bytes }
    }

    /// Closes the gathering checkpoint and opens the next.
    pub(super) fn switch(&self, counters: &Counters) -> Checkpoint {
        let mut shards: Vec<_> = self.shards.iter().map(|shard| shard.lock()).collect();
        let mut checkpoint = Checkpoint {
            seq: self.current(),
            parts: Vec::with_capacity(shards.len()),
            vectors: Vec::new(),
            finished: Vec::new(),
            ordered_writes: Vec::new(),
            charged_bytes: 0,
        };
        let mut moved = Vec::new();
        for shard in &mut shards {
            let Shard { entries, copies, moved: more, finished, ordered_writes, charged, spare, .. } =
                std::mem::take(&mut **shard);
            shard.spare = spare;
            moved.extend(more);
            checkpoint.finished.extend(finished);
            checkpoint.ordered_writes.extend(ordered_writes);
            checkpoint.charged_bytes += charged;
            checkpoint.parts.push(Part { entries, copies });
        }
        for (shard, entry) in moved {
            checkpoint.parts[shard as usize].entries[entry as usize].copy = Copy::Gone;
        }
        // The next commit of an item makes its copy anew: those of this checkpoint are taken before there can be one.
        checkpoint.take_vectors(counters);
        self.charged.store(0, Ordering::Relaxed);
        self.cancels.store(0, Ordering::Release);
        self.current.store(checkpoint.seq.0 + 1, Ordering::Release);
        checkpoint
    }

    /// Takes back the memory of a checkpoint that is durable.
    pub(super) fn recycle(&self, checkpoint: Checkpoint) {
        let (lists, copies): (Vec<_>, Vec<_>) =
            checkpoint.parts.into_iter().map(|part| (part.entries, part.copies)).unzip();
        copies.into_iter().for_each(|copies| self.pool.give_back_slabs(copies.into_slabs()));
        self.pool.give_back_lists(lists.into_iter());
        self.pool.give_back_vectors(checkpoint.vectors);
    }
}

impl Checkpoint {
    fn take_vectors(&mut self, counters: &Counters) {
        for entry in self.parts.iter_mut().flat_map(|part| &mut part.entries) {
            if !matches!(entry.copy, Copy::InItem) {
                continue;
            }
            let mut inner = entry.item.state().lock();
            let vector = inner.gathered.take_copy();
            (entry.stale, entry.keeps_position) = (inner.stale, inner.keeps_position);
            if inner.whiteout {
                inner.gathered.unpin();
                entry.copy = Copy::Gone;
                continue;
            }
            drop(inner);
            if entry.item.is_intent() {
                counters.intents_logged.increment();
            }
            let Some(vector) = vector else { continue };
            if vector.value_bytes() > 0 {
                // A region is made of it, and the record takes one more.
                counters.value_bytes_copied.add(2 * vector.value_bytes() as u64);
            }
            entry.copy = Copy::Vector(self.vectors.len() as u32);
            self.vectors.push(vector);
        }
    }
}

impl Batch<'_> {
    /// These writes come before the checkpoint.
    pub fn write_before(&mut self, writes: &[OrderedWrite]) {
        self.shard.ordered_writes.extend_from_slice(writes);
    }

    /// Logs an item that is nothing but its copy: an intent, a done item, a record. A done item whose intent is in the
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

    /// Logs a buffer. `format` brings the copy up to date; whether it is of this checkpoint is its second argument.
    pub fn log_buffer<T: LogItem + 'static>(&mut self, item: &Arc<T>, format: impl FnOnce(&mut ItemInner, bool)) {
        let pool = &self.cil.pool;
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
        self.cil.cancels.fetch_add(1, Ordering::AcqRel);
        self.log_object(item, |inner, _, _| {
            inner.stale = true;
            inner.dirty.clear();
            inner.keeps_position = false;
            inner.gathered.set_copy(copy);
        });
    }

    /// A buffer that another item makes only takes its place in the AIL.
    pub fn order<T: LogItem + 'static>(&mut self, item: &Arc<T>) {
        self.log_object(item, |inner, _, _| {
            // Made anew: an older copy, or the cancel record of a former life, would undo what recovery makes of it.
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
        self.shard.entries.push(Entry {
            item: share(item),
            copy: Copy::InItem,
            stale: false,
            keeps_position: false,
            goes_first,
        });
    }

    /// Logs an inode. `prepare` adds what changed to the dirty bits and says what the copy will hold.
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
        let (pool, shard) = (&self.cil.pool, &mut *self.shard);
        if !again {
            let copied = shard.copies.add(&copy, ends, pool);
            let place = CopyPlace::Shard { shard: self.index, entry: shard.entries.len() as u32 };
            inner.gathered.join(self.seq, place);
            let copy = Copy::InShard(copied);
            shard.entries.push(Entry {
                item: Arc::clone(item) as _,
                copy,
                stale: false,
                keeps_position: false,
                goes_first: false,
            });
            self.logged += 1;
            return;
        }
        self.relogged += 1;
        match inner.gathered.place() {
            CopyPlace::Item => copy_into(inner.gathered.copy_mut(), &copy, &ends),
            CopyPlace::Shard { shard: index, entry } if index == self.index => {
                if let Copy::InShard(old) = &mut shard.entries[entry as usize].copy {
                    *old = shard.copies.replace(*old, &copy, ends, pool);
                }
            }
            CopyPlace::Shard { shard: other, entry } => {
                shard.moved.push((other, entry));
                copy_into(inner.gathered.copy_mut(), &copy, &ends);
                inner.gathered.move_to_item();
                let item = Arc::clone(item) as _;
                shard.entries.push(Entry {
                    item,
                    copy: Copy::InItem,
                    stale: false,
                    keeps_position: false,
                    goes_first: false,
                });
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
