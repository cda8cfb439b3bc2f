//! The committed item list: what the next checkpoint will carry.
//!
//! Commits share the gate; a push closes it for the moment it takes to carry the lists off. Items are gathered in
//! shards chosen by thread, so that commits of different threads meet only at the items they share.

use super::grant::GrantSpace;
use crate::counters::Counters;
use crate::hash::NumberSet;
use crate::item::{CheckpointSeq, DirtyBits, LogItem, LogVector};
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Mutex, RwLock};
use std::sync::Arc;
use xfskit_ondisk::DiskAddress;

const SHARDS: usize = 16;

/// A write to the data device that must come before the checkpoint: the value of a remote attribute.
#[derive(Clone, Debug)]
pub struct OrderedWrite {
    /// Byte offset on the data device.
    pub offset: u64,
    /// What to write.
    pub bytes: Arc<[u8]>,
}

/// One item of a commit.
pub struct CommitItem {
    /// The item.
    pub item: Arc<dyn LogItem>,
    /// What this transaction changed of it.
    pub dirty: DirtyBits,
    /// Makes the item's log copy from everything that is dirty.
    pub format: FormatFn,
    /// The object was freed.
    pub stale: bool,
    /// A done item: the intent that it finishes.
    pub finishes: Option<Arc<dyn LogItem>>,
    /// Writes that come before the checkpoint.
    pub ordered_writes: Vec<OrderedWrite>,
}

/// How an item is formatted, while the transaction holds its lock.
pub enum FormatFn {
    /// Nothing is logged: the item only takes its place in the AIL.
    Ordered,
    /// A copy made beforehand.
    Ready(LogVector),
    /// A cancel record, made beforehand, and where the blocks lie.
    Cancel(LogVector, Vec<DiskAddress>),
}

/// The list.
pub(super) struct Cil {
    /// Held shared by commits, exclusively by a switch. The value is the number of the gathering checkpoint.
    gate: RwLock<u64>,
    shards: Box<[Mutex<Shard>]>,
    charged: AtomicU64,
    next_shard: AtomicUsize,
}

#[derive(Default)]
struct Shard {
    items: Vec<Arc<dyn LogItem>>,
    finished: Vec<Arc<dyn LogItem>>,
    ordered_writes: Vec<OrderedWrite>,
    /// Where blocks lie that were freed.
    cancelled: NumberSet<DiskAddress>,
}

/// What a commit came to.
pub(super) struct CommitOutcome {
    pub seq: CheckpointSeq,
    pub charge_bytes: u64,
}

/// An item of a checkpoint with its copy.
pub(super) struct Entry {
    pub item: Arc<dyn LogItem>,
    pub vector: LogVector,
    pub stale: bool,
}

/// A checkpoint that was carried off the list.
pub(super) struct Checkpoint {
    pub seq: CheckpointSeq,
    pub entries: Vec<Entry>,
    /// Intents whose done items this checkpoint carries: they leave the AIL when it is durable.
    pub finished: Vec<Arc<dyn LogItem>>,
    pub ordered_writes: Vec<OrderedWrite>,
    pub charged_bytes: u64,
}

impl Checkpoint {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.finished.is_empty()
    }
}

crate::sync::thread_local! {
    static SHARD: std::cell::Cell<usize> = const { std::cell::Cell::new(usize::MAX) };
}

impl Cil {
    pub(super) fn new() -> Self {
        Self {
            gate: RwLock::new(1),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            charged: AtomicU64::new(0),
            next_shard: AtomicUsize::new(0),
        }
    }

    pub(super) fn current(&self) -> CheckpointSeq {
        CheckpointSeq(*self.gate.read())
    }

    pub(super) fn charged_bytes(&self) -> u64 {
        self.charged.load(Ordering::Acquire)
    }

    /// Whether the gathering checkpoint carries a cancel record for blocks that start at `address`.
    pub(super) fn holds_cancel(&self, address: DiskAddress) -> bool {
        self.shards.iter().any(|shard| shard.lock().cancelled.contains(&address))
    }

    fn my_shard(&self) -> &Mutex<Shard> {
        let index = SHARD.with(|shard| {
            if shard.get() == usize::MAX {
                shard.set(self.next_shard.fetch_add(1, Ordering::Relaxed));
            }
            shard.get() % SHARDS
        });
        &self.shards[index]
    }

    /// Puts the items of one transaction on the list.
    pub(super) fn commit(
        &self,
        items: &mut Vec<CommitItem>,
        counters: &Counters,
        space: &GrantSpace,
        whiteouts: bool,
    ) -> CommitOutcome {
        let gate = self.gate.read();
        let seq = CheckpointSeq(*gate);
        let mut shard = self.my_shard().lock();
        let mut grown: i64 = 0;
        for commit in items.drain(..) {
            shard.ordered_writes.extend(commit.ordered_writes);
            if let Some(intent) = commit.finishes {
                if whiteouts && white_out(&*intent, seq, &mut grown) {
                    counters.intents_whited_out.increment();
                    continue;
                }
                shard.finished.push(intent);
            }
            grown += insert(&mut shard, seq, commit.item, &commit.dirty, commit.format, commit.stale, counters);
        }
        drop(shard);
        // A transaction that whites out more than it adds still pays for nothing less than nothing.
        let payload = grown.max(0) as u64;
        let first = self.charged.load(Ordering::Acquire) == 0;
        let mut charge_bytes = space.charge(payload, false);
        self.charged.fetch_add(charge_bytes, Ordering::AcqRel);
        if first {
            charge_bytes += self.charge_opening(space);
        }
        CommitOutcome { seq, charge_bytes }
    }

    /// Charges what opening a checkpoint costs. Two commits may both think that they are the first; paying twice is
    /// harmless.
    fn charge_opening(&self, space: &GrantSpace) -> u64 {
        let opening = space.charge(0, true);
        self.charged.fetch_add(opening, Ordering::AcqRel);
        opening
    }

    /// Closes the gathering checkpoint and opens the next.
    pub(super) fn switch(&self, counters: &Counters) -> Checkpoint {
        let mut gate = self.gate.write();
        let seq = CheckpointSeq(*gate);
        *gate += 1;
        let mut checkpoint = Checkpoint {
            seq,
            entries: Vec::new(),
            finished: Vec::new(),
            ordered_writes: Vec::new(),
            charged_bytes: self.charged.swap(0, Ordering::AcqRel),
        };
        for shard in &self.shards {
            let shard = std::mem::take(&mut *shard.lock());
            checkpoint.ordered_writes.extend(shard.ordered_writes);
            checkpoint.finished.extend(shard.finished);
            for item in shard.items {
                let mut inner = item.state().lock();
                inner.in_cil = None;
                let vector = std::mem::take(&mut inner.vector);
                let (stale, whiteout) = (inner.stale, inner.whiteout);
                drop(inner);
                if whiteout {
                    item.state().unpin();
                    continue;
                }
                if item.is_intent() {
                    counters.intents_logged.increment();
                }
                checkpoint.entries.push(Entry { item, vector, stale });
            }
        }
        // Blocks that are made over by an item come before whatever was done to them since.
        checkpoint.entries.sort_by_key(|entry| !entry.item.goes_first());
        checkpoint
    }
}

/// Takes an intent out of the checkpoint that it shares with its done item.
fn white_out(intent: &dyn LogItem, seq: CheckpointSeq, grown: &mut i64) -> bool {
    let mut inner = intent.state().lock();
    if inner.in_cil != Some(seq) {
        return false;
    }
    *grown -= inner.vector.log_bytes() as i64;
    inner.vector.clear();
    inner.whiteout = true;
    true
}

/// Puts one item on the list, or replaces its copy; says by how many bytes the checkpoint grew.
fn insert(
    shard: &mut Shard,
    seq: CheckpointSeq,
    item: Arc<dyn LogItem>,
    dirty: &DirtyBits,
    format: FormatFn,
    stale: bool,
    counters: &Counters,
) -> i64 {
    let mut inner = item.state().lock();
    let before = inner.vector.log_bytes() as i64;
    inner.commits += 1;
    inner.stale = stale;
    inner.dirty.merge(dirty);
    match format {
        FormatFn::Ordered => {
            // Made anew: an older copy, or the cancel record of a former life, would undo what recovery makes of it.
            inner.keeps_position = true;
            inner.dirty.clear();
            inner.vector.clear();
        }
        FormatFn::Ready(vector) => inner.vector = vector,
        FormatFn::Cancel(vector, addresses) => {
            shard.cancelled.extend(addresses);
            inner.dirty.clear();
            inner.keeps_position = false;
            inner.vector = vector;
        }
    }
    let grown = inner.vector.log_bytes() as i64 - before;
    let fresh = inner.in_cil.is_none();
    inner.in_cil = Some(seq);
    drop(inner);
    if fresh {
        item.state().pin();
        counters.items_logged.increment();
        shard.items.push(item);
    } else {
        counters.items_relogged.increment();
    }
    grown
}
