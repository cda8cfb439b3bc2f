//! The committed item list: what the next checkpoint will carry.
//!
//! ```text
//! shard (one for each thread slot)   entries: item, where its copy is │ copies of inodes │ charge, ordered writes
//! ```
//! A commit holds the lock of its thread's shard while it formats, and of no other shard. So all of a transaction is in
//! one shard, and commits of different threads contend only for the items that they share. A switch locks all shards
//! while it takes their lists.

use super::checkpoint::{Checkpoint, EntryCopy};
use super::grant::accounts::GrantSpace;
use super::pool::Pool;
use super::shard::{Batch, BatchResult, BatchShared, CopyPool, Shard, ShardContents};
use crate::counters::Counters;
use crate::item::CheckpointSeq;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, Padded, THREAD_SLOTS, thread_slot};
use xfskit_ondisk::DiskAddress;

/// A shard reports its charge in portions. This many portions push the CIL.
const REPORTS_PER_PUSH: u64 = 64;

/// The list.
pub(super) struct Cil {
    shards: Box<[Padded<Mutex<Shard>>]>,
    /// The number of the gathering checkpoint; changes with all shards locked.
    current: AtomicU64,
    /// What the shards have reported of their charges: nearly all of it, or a little more.
    charged: AtomicU64,
    /// Bytes that a shard reports at once.
    report_bytes: u64,
    /// Cancel records in the gathering checkpoint.
    cancels: AtomicU64,
    pool: CopyPool,
}

/// What a commit costs the gathering checkpoint.
pub(super) struct CommitCharge {
    pub seq: CheckpointSeq,
    /// What the checkpoint is charged for the commit, in bytes; negative where the checkpoint needs less than before.
    pub charge_bytes: i64,
}

impl Cil {
    /// A list that is pushed at `push_bytes`, and keeps `pool_bytes` of memory for its copies.
    pub(super) fn new(push_bytes: u64, pool_bytes: u64) -> Self {
        Self {
            shards: (0..THREAD_SLOTS).map(|_| Padded::default()).collect(),
            current: AtomicU64::new(1),
            charged: AtomicU64::new(0),
            report_bytes: push_bytes / REPORTS_PER_PUSH,
            cancels: AtomicU64::new(0),
            pool: Pool::new(push_bytes, pool_bytes),
        }
    }

    pub(super) fn current(&self) -> CheckpointSeq {
        CheckpointSeq(self.current.load(Ordering::Acquire))
    }

    /// What the gathering checkpoint is charged, as far as the shards have reported it.
    pub(super) fn charged_bytes(&self) -> u64 {
        self.charged.load(Ordering::Relaxed)
    }

    /// Whether nothing was committed since the last switch.
    pub(super) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().is_empty())
    }

    /// Whether the gathering checkpoint carries a cancel record for blocks that start at `address`.
    pub(super) fn holds_cancel(&self, address: DiskAddress) -> bool {
        self.cancels.load(Ordering::Acquire) > 0 && self.shards.iter().any(|shard| shard.lock().holds_cancel(address))
    }

    /// Puts what `fill` logs on the list.
    pub(super) fn commit(
        &self,
        counters: &Counters,
        space: &GrantSpace,
        whiteouts: bool,
        fill: impl FnOnce(&mut Batch<'_>),
    ) -> CommitCharge {
        let index = thread_slot();
        let mut shard = self.shards[index].lock();
        shard.need_list(|| self.pool.list());
        // The number cannot change while a shard's lock is held.
        let seq = self.current();
        let shared = BatchShared { whiteouts, pool: &self.pool, cancels: &self.cancels, counters };
        let mut batch = Batch::new(&mut shard, index as u16, seq, shared);
        fill(&mut batch);
        let BatchResult { grown, logged, relogged } = batch.result();
        let charge_bytes = shard.charge(grown, space);
        if let Some(unreported) = shard.report(self.report_bytes) {
            // Wraps, and so subtracts, where the charge became smaller.
            self.charged.fetch_add(unreported, Ordering::Relaxed);
        }
        drop(shard);
        if relogged > 0 {
            counters.items_relogged.add(relogged);
        }
        if logged > 0 {
            counters.items_logged.add(logged);
        }
        CommitCharge { seq, charge_bytes }
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
        let mut all_moved = Vec::new();
        for shard in &mut shards {
            let ShardContents { part, moved, finished, ordered_writes, charged_bytes } = shard.take();
            all_moved.extend(moved);
            checkpoint.finished.extend(finished);
            checkpoint.ordered_writes.extend(ordered_writes);
            checkpoint.charged_bytes += charged_bytes;
            checkpoint.parts.push(part);
        }
        for (shard, entry) in all_moved {
            checkpoint.parts[shard as usize].entries[entry as usize].copy = EntryCopy::Gone;
        }
        // The next commit of an item overwrites its copy, so the copies are taken while all shards are still locked.
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
