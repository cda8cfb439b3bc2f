//! The cache of inodes.
//!
//! An inode is cached at most once. It may be dropped when no thread uses it and no change of it waits in the journal.
//! What is known about it (absent attributes) is forgotten with it.
//!
//! Of an inode that callers refer to by number, as a FUSE server does for each that the kernel knows, the number of
//! references is kept when it is dropped:
//!
//! ```text
//! cached: Inode::opens ── dropped ──▶ Shard::kept ── read again ──▶ Inode::opens
//! ```
//! Both places are under the lock of the shard. An inode without a name is not dropped while it is referenced, so one
//! whose references are kept has a name, and the last of them frees nothing. Nor is an append-only file, of which the
//! inode knows how far it was received.

use super::Mount;
use crate::error::Result;
use crate::hash::{NumberMap, shard_of};
use crate::incore::Inode;
use crate::item::CheckpointSeq;
use crate::journal::Journal;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Mutex, Padded};
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use xfskit_ondisk::inode::flags;
use xfskit_ondisk::{DiskAddress, InodeNumber, Lsn};

/// The few inodes of a model share shards, and are too many for the cache.
const SHARDS: usize = if cfg!(shuttle) { 2 } else { 64 };
/// Inodes that the smallest cache keeps.
const MIN_INODES: usize = if cfg!(shuttle) { 4 } else { 256 };
/// What an inode takes in memory, roughly: the object, its forks, its places in the maps.
const INODE_MEMORY_BYTES: usize = 768;

/// All cached inodes.
pub struct InodeCache {
    shards: Box<[Padded<Mutex<Shard>>]>,
    /// Inodes that are kept.
    most: usize,
    /// The number of inodes in one shard above which dirty ones are written back, so that they can be dropped.
    trim_at: AtomicUsize,
    /// A shard has reached `trim_at`.
    trim_is_due: AtomicBool,
    trimming: Mutex<()>,
    freed_clusters: Mutex<FreedClusters>,
}

/// Clusters whose blocks were freed and whose inodes may still wait for write-back.
struct FreedClusters {
    seqs: NumberMap<DiskAddress, CheckpointSeq>,
    /// Length at which the map is searched for clusters for which no item waits any more.
    prune_at: usize,
}

const PRUNE_FREED_AT: usize = 4096;
/// Inodes of neighbouring numbers, which are made and looked up one after the other, share a group.
const GROUP: u64 = if cfg!(shuttle) { 2 } else { 16 };
/// Groups that an insertion looks at for an inode to drop. Each inode gets a second round, and a group may have one
/// inode only, so with fewer than two the cache would grow.
const GROUPS_AT_ONCE: usize = 4;
/// Insertions between two searches for inodes to drop, as long as none can be dropped.
const PATIENCE: usize = 8;

#[derive(Default)]
struct Shard {
    groups: NumberMap<u64, Box<InodeGroup>>,
    /// The groups in the order in which eviction looks at them.
    clock: VecDeque<u64>,
    inodes: usize,
    /// The number of inodes at which eviction looks for some to drop.
    evict_at: usize,
    /// Counts inodes that were dropped: what was read from disk before one was may be out of date.
    evictions: u64,
    /// References to inodes that were dropped.
    kept: NumberMap<InodeNumber, u64>,
}

#[derive(Default)]
struct InodeGroup {
    inodes: [Option<Arc<Inode>>; GROUP as usize],
    /// The inodes that were looked up since eviction last passed, a bit each.
    touched: u16,
}

/// What the clock hand found in a group.
struct Pass {
    dropped: usize,
    /// Some were looked up since the hand last passed: the next time they may be dropped.
    was_touched: bool,
    is_empty: bool,
}

impl InodeGroup {
    /// Drops inodes that were not used lately, and keeps their references.
    fn drop_idle(&mut self, kept: &mut NumberMap<InodeNumber, u64>) -> Pass {
        let touched = std::mem::take(&mut self.touched);
        let mut pass = Pass { dropped: 0, was_touched: touched != 0, is_empty: true };
        for (index, slot) in self.inodes.iter_mut().enumerate() {
            let Some(inode) = slot else { continue };
            // An inode that was looked up since the hand last passed gets another round.
            let references = if touched >> index & 1 == 0 { references_if_idle(inode) } else { None };
            match references {
                Some(references) => {
                    if references > 0 {
                        kept.insert(inode.number, references);
                    }
                    *slot = None;
                    pass.dropped += 1;
                }
                None => pass.is_empty = false,
            }
        }
        pass
    }
}

/// How many references there are to an inode that can be dropped; `None` for one that cannot.
fn references_if_idle(inode: &mut Arc<Inode>) -> Option<u64> {
    // No thread has it, and what those have done that had it is seen here.
    let inode = Arc::get_mut(inode).filter(|inode| inode.item().is_clean())?;
    let references = inode.opens.load(Ordering::Acquire);
    if references == 0 {
        return Some(0);
    }
    let state = inode.state_lock().try_read()?;
    let is_appended = state.core.flags & flags::APPEND != 0 && !state.core.is_dir();
    debug_assert!(state.is_settled() && !state.times_wait, "what is dirty is on a list, which has the inode");
    (state.core.links > 0 && !is_appended).then_some(references)
}

impl Shard {
    fn find(&mut self, inode: InodeNumber) -> Option<Arc<Inode>> {
        let found = self.peek(inode)?;
        let group = self.groups.get_mut(&(inode.0 / GROUP))?;
        group.touched |= 1 << (inode.0 % GROUP);
        Some(found)
    }

    /// As [`Self::find`], which does not count as a use.
    fn peek(&self, inode: InodeNumber) -> Option<Arc<Inode>> {
        self.groups.get(&(inode.0 / GROUP))?.inodes[(inode.0 % GROUP) as usize].clone()
    }

    /// Moves the clock hand over some groups, until only `least` inodes are left. Returns whether it was worth it:
    /// whether some were dropped, or may be the next time.
    fn evict(&mut self, groups: usize, least: usize) -> bool {
        let mut was_worth_it = false;
        for _ in 0..groups {
            if self.inodes <= least {
                break;
            }
            let Some(number) = self.clock.pop_front() else { break };
            let Some(group) = self.groups.get_mut(&number) else { continue };
            let pass = group.drop_idle(&mut self.kept);
            self.inodes -= pass.dropped;
            self.evictions += pass.dropped as u64;
            was_worth_it |= pass.was_touched || pass.dropped > 0;
            if pass.is_empty {
                self.groups.remove(&number);
            } else {
                self.clock.push_back(number);
            }
        }
        was_worth_it
    }
}

impl InodeCache {
    /// A cache that tries to stay below `limit_bytes`.
    pub fn new(limit_bytes: usize) -> Self {
        let most = (limit_bytes / INODE_MEMORY_BYTES).max(MIN_INODES);
        Self {
            shards: (0..SHARDS).map(|_| Padded::default()).collect(),
            most,
            trim_at: AtomicUsize::new(most / 2 * 3 / SHARDS),
            trim_is_due: AtomicBool::new(false),
            trimming: Mutex::new(()),
            freed_clusters: Mutex::new(FreedClusters { seqs: NumberMap::default(), prune_at: PRUNE_FREED_AT }),
        }
    }

    fn shard(&self, inode: InodeNumber) -> &Mutex<Shard> {
        &self.shards[shard_of(inode.0 / GROUP, SHARDS)]
    }

    /// The inode if it is cached.
    pub fn find(&self, inode: InodeNumber) -> Option<Arc<Inode>> {
        self.shard(inode).lock().find(inode)
    }

    /// Adds an inode; if another thread was faster, returns that thread's inode.
    pub fn insert(&self, inode: Inode) -> Arc<Inode> {
        let mut shard = self.shard(inode.number).lock();
        self.insert_into(&mut shard, inode)
    }

    fn insert_into(&self, shard: &mut Shard, inode: Inode) -> Arc<Inode> {
        let (group, index) = (inode.number.0 / GROUP, (inode.number.0 % GROUP) as usize);
        let slot = match shard.groups.entry(group) {
            Entry::Occupied(found) => &mut found.into_mut().inodes[index],
            Entry::Vacant(vacant) => {
                shard.clock.push_back(group);
                &mut vacant.insert(Box::default()).inodes[index]
            }
        };
        if let Some(found) = slot {
            return Arc::clone(found);
        }
        if let Some(opens) = shard.kept.remove(&inode.number) {
            inode.opens.store(opens, Ordering::Release);
        }
        let inode = Arc::new(inode);
        *slot = Some(Arc::clone(&inode));
        shard.inodes += 1;
        if shard.inodes > self.most / SHARDS && shard.inodes >= shard.evict_at {
            let before = shard.inodes;
            let was_worth_it = shard.evict(GROUPS_AT_ONCE, before - 1);
            shard.evict_at = if was_worth_it { 0 } else { before + PATIENCE };
            if shard.inodes >= self.trim_at.load(Ordering::Relaxed) {
                self.trim_is_due.store(true, Ordering::Release);
            }
        }
        inode
    }

    /// The inode if it is cached; otherwise `count` of its references that were kept are released.
    pub fn find_or_release(&self, inode: InodeNumber, count: u64) -> Option<Arc<Inode>> {
        let mut shard = self.shard(inode).lock();
        if let Some(found) = shard.peek(inode) {
            return Some(found);
        }
        let Entry::Occupied(mut kept) = shard.kept.entry(inode) else { return None };
        if *kept.get() < count {
            tracing::warn!(
                inode = inode.0,
                before = *kept.get(),
                count,
                "more references were dropped than there were"
            );
        }
        match kept.get().saturating_sub(count) {
            0 => drop(kept.remove()),
            left => *kept.get_mut() = left,
        }
        None
    }

    /// The inode if it is cached, without a note that it was used.
    pub fn peek(&self, inode: InodeNumber) -> Option<Arc<Inode>> {
        self.shard(inode).lock().peek(inode)
    }

    /// How many references to an inode there are.
    pub fn references(&self, inode: InodeNumber) -> u64 {
        let shard = self.shard(inode).lock();
        match shard.peek(inode) {
            Some(found) => found.opens.load(Ordering::Acquire),
            None => shard.kept.get(&inode).copied().unwrap_or(0),
        }
    }

    /// The inode if it is cached; otherwise the version to pass to [`Self::insert_read`].
    pub(crate) fn find_or_version(&self, inode: InodeNumber) -> std::result::Result<Arc<Inode>, u64> {
        let mut shard = self.shard(inode).lock();
        shard.find(inode).ok_or(shard.evictions)
    }

    /// As [`Self::insert`], of an inode that was read from disk after the look-up that returned `version`. `None`: it
    /// may have been changed, written back and dropped meanwhile.
    pub(crate) fn insert_read(&self, inode: Inode, version: u64) -> Option<Arc<Inode>> {
        let mut shard = self.shard(inode.number).lock();
        (shard.evictions == version).then(|| self.insert_into(&mut shard, inode))
    }

    /// The blocks of a cluster were freed by a transaction of checkpoint `seq`: its inodes are not written back.
    pub fn cluster_freed(&self, cluster: DiskAddress, seq: CheckpointSeq) {
        self.freed_clusters.lock().seqs.insert(cluster, seq);
    }

    /// A cluster was made (again): its inodes are written back.
    pub fn cluster_made(&self, cluster: DiskAddress) {
        self.freed_clusters.lock().seqs.remove(&cluster);
    }

    /// When the cluster was freed, if it was.
    pub fn freed_in(&self, cluster: DiskAddress) -> Option<CheckpointSeq> {
        let freed = self.freed_clusters.lock();
        if freed.seqs.is_empty() { None } else { freed.seqs.get(&cluster).copied() }
    }

    /// Forgets freed clusters for which no item waits, when they have become many.
    pub fn prune_freed(&self, journal: &Journal) {
        let mut freed = self.freed_clusters.lock();
        if freed.seqs.len() < freed.prune_at {
            return;
        }
        // The freeing is durable, so every change of the inodes is in the AIL or was taken off.
        let durable = journal.durable();
        let waiting = journal.ail().block_addresses();
        freed.seqs.retain(|cluster, seq| *seq > durable || waiting.contains(&cluster.0));
        freed.prune_at = (2 * freed.seqs.len()).max(PRUNE_FREED_AT);
    }

    /// Drops inodes until the cache is below its limit, as far as they are idle.
    fn evict_to_limit(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            if shard.inodes > self.most / SHARDS {
                // Two rounds: the first clears the bits of inodes that were used, the second may drop them.
                let rounds = 2 * shard.clock.len();
                shard.evict(rounds, self.most / SHARDS);
                shard.evict_at = 0;
            }
        }
    }

    /// The cached inodes that are referenced, among them all that are referenced and have no name.
    pub fn held(&self) -> Vec<Arc<Inode>> {
        let held = |inode: &&Arc<Inode>| inode.opens.load(Ordering::Acquire) > 0;
        let of = |shard: &Padded<Mutex<Shard>>| {
            let shard = shard.lock();
            let inodes = shard.groups.values().flat_map(|group| group.inodes.iter().flatten());
            inodes.filter(held).cloned().collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(of).collect()
    }

    /// Number of cached inodes.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().inodes).sum()
    }

    /// Whether no inode is cached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Mount {
    /// Writes inodes back and drops them when far more are cached than the limit. Inodes that wait for write-back
    /// cannot be dropped, and the log has room for a great many. The caller must hold no lock.
    ///
    /// # Errors
    /// `Io`, `Shutdown`.
    pub fn trim_inodes(&self) -> Result<()> {
        let cache = &self.inodes;
        if !cache.trim_is_due.load(Ordering::Acquire) {
            return Ok(());
        }
        let Some(_trimming) = cache.trimming.try_lock() else { return Ok(()) };
        self.journal.push_tail_as_far_as_possible(Lsn(u64::MAX))?;
        cache.evict_to_limit();
        if cache.len() > cache.most {
            self.journal.force_all()?;
            self.journal.push_tail_as_far_as_possible(Lsn(u64::MAX))?;
            cache.evict_to_limit();
        }
        // Inodes that are in use stay. The next trim is due when half as many as the limit have been added.
        cache.trim_at.store((cache.len().max(cache.most) + cache.most / 2) / SHARDS, Ordering::Relaxed);
        cache.trim_is_due.store(false, Ordering::Release);
        Ok(())
    }
}
