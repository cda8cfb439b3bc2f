//! The cache of inodes.
//!
//! An inode is cached at most once. It may be dropped when nobody refers to it and nothing of it waits in the journal;
//! what is known about it (absent attributes) goes with it.

use crate::cache::Inode;
use crate::error::{Error, Result};
use crate::hash::{NumberMap, shard_of};
use crate::item::CheckpointSeq;
use crate::journal::Journal;
use crate::mount::Mount;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::trans::Transaction;
use std::collections::VecDeque;
use std::sync::Arc;
use xfskit_ondisk::{DiskAddress, InodeNumber, Lsn};

/// The few inodes of a model are to meet in a shard, and to be too many for the cache.
const SHARDS: usize = if cfg!(shuttle) { 2 } else { 64 };
/// Inodes that the smallest cache keeps.
const FEWEST: usize = if cfg!(shuttle) { 4 } else { 256 };
/// What an inode takes in memory, roughly: the object, its forks, its places in the maps.
const INODE_MEMORY_BYTES: usize = 1024;

/// All cached inodes.
pub struct InodeCache {
    shards: Box<[Mutex<Shard>]>,
    most: usize,
    count: AtomicUsize,
    /// The count at which inodes are written back so that they can be dropped.
    trim_at: AtomicUsize,
    trimming: Mutex<()>,
    freed_clusters: Mutex<FreedClusters>,
}

/// Clusters whose blocks were freed and whose inodes may still be on the way home.
struct FreedClusters {
    seqs: NumberMap<DiskAddress, CheckpointSeq>,
    /// Length at which it is worth to look for those that nothing is on the way to any more.
    prune_at: usize,
}

const PRUNE_FREED_AT: usize = 4096;
/// Inodes that an insertion into a full cache looks at.
const EVICT_STEP: usize = 8;

#[derive(Default)]
struct Shard {
    inodes: NumberMap<InodeNumber, Arc<Inode>>,
    clock: VecDeque<InodeNumber>,
    /// Counts inodes that were dropped: what was read from disk before one was may be out of date.
    evictions: u64,
}

impl Shard {
    fn find(&self, inode: InodeNumber) -> Option<Arc<Inode>> {
        let found = self.inodes.get(&inode)?;
        found.touched.store(true, Ordering::Relaxed);
        Some(Arc::clone(found))
    }
}

impl InodeCache {
    /// A cache that tries to stay below `limit_bytes`.
    pub fn new(limit_bytes: usize) -> Self {
        let most = (limit_bytes / INODE_MEMORY_BYTES).max(FEWEST);
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            most,
            count: AtomicUsize::new(0),
            trim_at: AtomicUsize::new(most / 2 * 3),
            trimming: Mutex::new(()),
            freed_clusters: Mutex::new(FreedClusters { seqs: NumberMap::default(), prune_at: PRUNE_FREED_AT }),
        }
    }

    fn shard(&self, inode: InodeNumber) -> &Mutex<Shard> {
        &self.shards[shard_of(inode.0, SHARDS)]
    }

    /// The inode if it is cached.
    pub fn find(&self, inode: InodeNumber) -> Option<Arc<Inode>> {
        self.shard(inode).lock().find(inode)
    }

    /// Adds an inode; if somebody else was faster, theirs counts.
    pub fn insert(&self, inode: Inode) -> Arc<Inode> {
        let mut shard = self.shard(inode.number).lock();
        self.insert_into(&mut shard, inode)
    }

    fn insert_into(&self, shard: &mut Shard, inode: Inode) -> Arc<Inode> {
        let number = inode.number;
        if let Some(found) = shard.inodes.get(&number) {
            return Arc::clone(found);
        }
        let inode = Arc::new(inode);
        shard.inodes.insert(number, Arc::clone(&inode));
        shard.clock.push_back(number);
        if self.count.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.evict(shard, EVICT_STEP);
        }
        inode
    }

    /// The inode if it is cached; otherwise what [`Self::insert_read`] wants to know.
    fn find_or_version(&self, inode: InodeNumber) -> std::result::Result<Arc<Inode>, u64> {
        let shard = self.shard(inode).lock();
        shard.find(inode).ok_or(shard.evictions)
    }

    /// As [`Self::insert`], of an inode that was read from disk after the look-up that returned `version`. `None`: it
    /// may have been changed, written back and dropped meanwhile.
    fn insert_read(&self, inode: Inode, version: u64) -> Option<Arc<Inode>> {
        let mut shard = self.shard(inode.number).lock();
        (shard.evictions == version).then(|| self.insert_into(&mut shard, inode))
    }

    fn evict(&self, shard: &mut Shard, most: usize) {
        for _ in 0..most {
            let Some(number) = shard.clock.pop_front() else { return };
            let Some(inode) = shard.inodes.get(&number) else { continue };
            let idle = Arc::strong_count(inode) == 1 && inode.opens.load(Ordering::Acquire) == 0;
            // Whoever was looked up since the hand last came by gets another round.
            let used = inode.touched.swap(false, Ordering::Relaxed);
            if idle && !used && inode.item().is_clean() {
                shard.inodes.remove(&number);
                shard.evictions += 1;
                self.count.fetch_sub(1, Ordering::Relaxed);
            } else {
                shard.clock.push_back(number);
            }
        }
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

    /// Forgets freed clusters that nothing is on the way to, when they have become many.
    pub fn prune_freed(&self, journal: &Journal) {
        let mut freed = self.freed_clusters.lock();
        if freed.seqs.len() < freed.prune_at {
            return;
        }
        // The freeing is durable, so every change of the inodes is in the AIL or was taken off.
        let durable = journal.durable();
        let homes = journal.ail().homes();
        freed.seqs.retain(|cluster, seq| *seq > durable || homes.contains(&cluster.0));
        freed.prune_at = (2 * freed.seqs.len()).max(PRUNE_FREED_AT);
    }

    /// Drops as many inodes as it takes to get below the limit, if so many are idle.
    fn evict_to_limit(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let surplus = shard.inodes.len().saturating_sub(self.most / SHARDS);
            if surplus > 0 {
                // Twice around: the first round forgives those that were used.
                let rounds = 2 * shard.clock.len();
                self.evict(&mut shard, rounds);
            }
        }
    }

    /// The inodes that somebody outside still refers to.
    pub fn held(&self) -> Vec<Arc<Inode>> {
        let held = |inode: &&Arc<Inode>| inode.opens.load(Ordering::Acquire) > 0;
        let of = |shard: &Mutex<Shard>| shard.lock().inodes.values().filter(held).cloned().collect::<Vec<_>>();
        self.shards.iter().flat_map(of).collect()
    }

    /// Number of cached inodes.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether no inode is cached.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Mount {
    /// The inode of a number, from memory or from disk. Takes no lock that a caller might hold, but that of the inode's
    /// cluster buffer.
    ///
    /// # Errors
    /// `Stale` for a free inode or one outside the device, `Corrupt`, `Io`.
    pub fn inode(self: &Arc<Self>, number: InodeNumber) -> Result<Arc<Inode>> {
        loop {
            let version = match self.inodes.find_or_version(number) {
                Ok(inode) => {
                    self.counters.inode_hits.increment();
                    return Ok(inode);
                }
                Err(version) => version,
            };
            let inode = self.read_inode(number)?;
            if inode.state_lock().read().core.mode == 0 {
                return Err(Error::Stale(number.0));
            }
            if let Some(inode) = self.inodes.insert_read(inode, version) {
                return Ok(inode);
            }
        }
    }

    /// Writes inodes back and drops them when far more are cached than should be: those on their way home cannot be
    /// dropped, and the log alone would allow a great many. Nothing may be locked.
    ///
    /// # Errors
    /// `Io`, `Shutdown`.
    pub fn trim_inodes(&self) -> Result<()> {
        let cache = &self.inodes;
        if cache.len() < cache.trim_at.load(Ordering::Relaxed) {
            return Ok(());
        }
        let Some(_trimming) = cache.trimming.try_lock() else { return Ok(()) };
        self.journal.push_tail(Lsn(u64::MAX))?;
        cache.evict_to_limit();
        if cache.len() > cache.most {
            self.journal.force_all()?;
            self.journal.push_tail(Lsn(u64::MAX))?;
            cache.evict_to_limit();
        }
        // Inodes that are open stay; the next look is due when as many again have come.
        cache.trim_at.store(cache.len().max(cache.most) + cache.most / 2, Ordering::Relaxed);
        Ok(())
    }

    /// Reads an inode that may be free and does not cache it.
    ///
    /// # Errors
    /// `Stale` for a number outside the device, `Corrupt`, `Io`.
    pub fn read_inode(self: &Arc<Self>, number: InodeNumber) -> Result<Inode> {
        self.counters.inode_misses.increment();
        if self.geometry.split_inode(number).is_none() {
            return Err(Error::Stale(number.0));
        }
        let (address, _) = super::cluster::locate(&self.geometry, number)?;
        let mut tx = Transaction::read_only(self);
        let (buffer, offset) = super::cluster::read(&mut tx, number)?;
        let bytes = &tx.bytes(buffer)[offset..offset + self.geometry.inode_bytes()];
        let state = super::fork::decode_inode(&self.geometry, number, bytes).map_err(|error| match error {
            Error::Corrupt(corruption) => Error::Corrupt(corruption.at(address)),
            other => other,
        })?;
        Ok(Inode::new(state, address.0, offset))
    }
}
