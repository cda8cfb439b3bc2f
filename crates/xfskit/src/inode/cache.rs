//! The cache of inodes.
//!
//! An inode is cached at most once. It may be dropped when nobody refers to it and nothing of it waits in the journal;
//! what is known about it (absent attributes) goes with it.

use crate::cache::Inode;
use crate::error::{Error, Result};
use crate::item::CheckpointSeq;
use crate::mount::Mount;
use crate::sync::Mutex;
use crate::trans::Transaction;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use xfskit_ondisk::{DiskAddress, InodeNumber};

const SHARDS: usize = 64;
/// What an inode takes in memory, roughly: the object, its forks, its places in the maps.
const INODE_MEMORY_BYTES: usize = 1024;

/// All cached inodes.
pub struct InodeCache {
    shards: Box<[Mutex<Shard>]>,
    most: usize,
    count: AtomicUsize,
    freed_clusters: Mutex<HashMap<DiskAddress, CheckpointSeq>>,
}

#[derive(Default)]
struct Shard {
    inodes: HashMap<InodeNumber, Arc<Inode>>,
    clock: VecDeque<InodeNumber>,
}

impl InodeCache {
    /// A cache that tries to stay below `limit_bytes`.
    pub fn new(limit_bytes: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            most: (limit_bytes / INODE_MEMORY_BYTES).max(256),
            count: AtomicUsize::new(0),
            freed_clusters: Mutex::default(),
        }
    }

    fn shard(&self, inode: InodeNumber) -> &Mutex<Shard> {
        &self.shards[crate::env::mix(inode.0) as usize % SHARDS]
    }

    /// The inode if it is cached.
    pub fn find(&self, inode: InodeNumber) -> Option<Arc<Inode>> {
        self.shard(inode).lock().inodes.get(&inode).cloned()
    }

    /// Adds an inode; if somebody else was faster, theirs counts.
    pub fn insert(&self, inode: Inode) -> Arc<Inode> {
        let number = inode.number;
        let mut shard = self.shard(number).lock();
        if let Some(found) = shard.inodes.get(&number) {
            return Arc::clone(found);
        }
        let inode = Arc::new(inode);
        shard.inodes.insert(number, Arc::clone(&inode));
        shard.clock.push_back(number);
        if self.count.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.evict_some(&mut shard);
        }
        inode
    }

    fn evict_some(&self, shard: &mut Shard) {
        for _ in 0..8.min(shard.clock.len()) {
            let Some(number) = shard.clock.pop_front() else { return };
            let Some(inode) = shard.inodes.get(&number) else { continue };
            let idle = Arc::strong_count(inode) == 1 && inode.opens.load(Ordering::Acquire) == 0;
            if idle && inode.item().is_clean() {
                shard.inodes.remove(&number);
                self.count.fetch_sub(1, Ordering::Relaxed);
            } else {
                shard.clock.push_back(number);
            }
        }
    }

    /// Forgets an inode that was freed; a later one of that number is another.
    pub fn forget(&self, inode: InodeNumber) {
        if self.shard(inode).lock().inodes.remove(&inode).is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The blocks of a cluster were freed by a transaction of checkpoint `seq`: its inodes are not written back.
    pub fn cluster_freed(&self, cluster: DiskAddress, seq: CheckpointSeq) {
        self.freed_clusters.lock().insert(cluster, seq);
    }

    /// A cluster was made (again): its inodes are written back.
    pub fn cluster_made(&self, cluster: DiskAddress) {
        self.freed_clusters.lock().remove(&cluster);
    }

    /// When the cluster was freed, if it was.
    pub fn freed_in(&self, cluster: DiskAddress) -> Option<CheckpointSeq> {
        let freed = self.freed_clusters.lock();
        if freed.is_empty() { None } else { freed.get(&cluster).copied() }
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
        if let Some(inode) = self.inodes.find(number) {
            self.counters.inode_hits.increment();
            return Ok(inode);
        }
        let inode = self.read_inode(number)?;
        if inode.state_lock().read().core.mode == 0 {
            return Err(Error::Stale(number.0));
        }
        Ok(self.inodes.insert(inode))
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
        Ok(Inode::new(state, address.0))
    }
}
