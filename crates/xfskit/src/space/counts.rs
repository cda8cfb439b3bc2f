//! The filesystem's counters in memory: free blocks, inodes. On disk they are exact only after a clean unmount; after
//! a crash they are summed up from the AGs ("lazy counters").

use crate::sync::Padded;
use crate::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

/// Free blocks and inodes of the whole filesystem.
#[derive(Debug)]
pub struct SpaceCounts {
    /// Free blocks minus those that running transactions have reserved.
    available: Padded<AtomicI64>,
    /// Blocks that ordinary operations may not take: the free lists need them to make progress.
    set_aside: i64,
    /// Blocks kept for operations that must not fail.
    reserve_pool: i64,
    inodes: AtomicU64,
    free_inodes: AtomicU64,
    /// Counts directories, which go to the AGs in turn.
    directories: AtomicU32,
}

impl SpaceCounts {
    /// Counters that start with what the superblock or the AGs say.
    pub fn new(free_blocks: u64, set_aside: u64, reserve_pool: u64, inodes: u64, free_inodes: u64) -> Self {
        Self {
            available: Padded(AtomicI64::new(free_blocks as i64)),
            set_aside: set_aside as i64,
            reserve_pool: reserve_pool as i64,
            inodes: AtomicU64::new(inodes),
            free_inodes: AtomicU64::new(free_inodes),
            directories: AtomicU32::new(0),
        }
    }

    /// Replaces the counters, before anything is reserved.
    pub fn set(&self, free_blocks: u64, inodes: u64, free_inodes: u64) {
        self.available.store(free_blocks as i64, Ordering::Release);
        self.inodes.store(inodes, Ordering::Release);
        self.free_inodes.store(free_inodes, Ordering::Release);
    }

    /// Reserves `count` blocks for a transaction; `may_dip` into the reserve pool. False when there are not enough.
    pub fn reserve_blocks(&self, count: u64, may_dip: bool) -> bool {
        let floor = self.set_aside + if may_dip { 0 } else { self.reserve_pool };
        let left = self.available.fetch_sub(count as i64, Ordering::AcqRel) - count as i64;
        if left >= floor || count == 0 {
            return true;
        }
        self.available.fetch_add(count as i64, Ordering::AcqRel);
        false
    }

    /// Blocks were freed, or a reservation was not used up.
    pub fn give_back_blocks(&self, count: u64) {
        self.available.fetch_add(count as i64, Ordering::AcqRel);
    }

    /// Free blocks; exact when no transaction runs.
    pub fn free_blocks(&self) -> u64 {
        self.available.load(Ordering::Acquire).max(0) as u64
    }

    /// Free blocks that an ordinary operation may have.
    pub fn usable_blocks(&self) -> u64 {
        (self.available.load(Ordering::Acquire) - self.set_aside - self.reserve_pool).max(0) as u64
    }

    /// A number that is one higher with each call, to spread directories over the AGs.
    pub fn next_directory(&self) -> u32 {
        self.directories.fetch_add(1, Ordering::Relaxed)
    }

    /// Changes the inode counters.
    pub fn count_inodes(&self, all: i64, free: i64) {
        self.inodes.fetch_add(all as u64, Ordering::AcqRel);
        self.free_inodes.fetch_add(free as u64, Ordering::AcqRel);
    }

    /// Allocated inodes, free ones included, and free ones.
    pub fn inodes(&self) -> (u64, u64) {
        (self.inodes.load(Ordering::Acquire), self.free_inodes.load(Ordering::Acquire))
    }
}
