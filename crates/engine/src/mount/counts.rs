//! The filesystem's counters in memory: free blocks, inodes. On disk they are exact only after a clean unmount; after
//! a crash they are summed up from the AGs ("lazy counters").
//!
//! ```text
//! free blocks = shared + what the slots of threads keep + in trees      inodes = at opening + what the slots counted
//! ```
//! Blocks of reverse mapping trees count as free in the superblock. As many as AGs hold back for them are set aside in
//! any case; those beyond that are in trees, and nobody can reserve them.
//!
//! Most transactions reserve blocks and use none of them. While many blocks are free, a reservation that is given back
//! stays with the slot of its thread for the next transaction ([`Credits`]). A thread that finds too few blocks
//! collects the slots' credits before it gives up.

use crate::credits::Credits;
use crate::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Mutex, Padded, THREAD_SLOTS, thread_slot};

/// Free blocks and inodes of the whole filesystem.
#[derive(Debug)]
pub struct SpaceCounts {
    /// Free blocks minus those that running transactions have reserved, those that slots keep, and those in trees.
    shared: Padded<AtomicI64>,
    in_trees: AtomicI64,
    kept: Credits,
    /// Held while blocks move from the slots to `shared`. Otherwise a thread could find them in neither place and give
    /// up.
    collecting: Mutex<()>,
    floors: Floors,
    inodes: AtomicU64,
    free_inodes: AtomicU64,
    changes: [Padded<Changes>; THREAD_SLOTS],
    /// Counts directories, which go to the AGs in turn.
    directories: AtomicU32,
}

/// Which free blocks may be reserved; each pool contains those before it. Which operation takes which, and why a full
/// image can always be emptied, says `docs/design/extent-maps.md`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockPool {
    /// Those for every operation.
    #[default]
    Ordinary,
    /// Those kept for what was accepted before, or has begun and must not stop half-way.
    Reserve,
    /// Those kept for removals alone, with those that the AGs hold back for trees that a removal may make larger.
    Removal,
    /// All: for recovery, which must go through, and beside which nothing else runs.
    Recovery,
}

/// Blocks of the whole filesystem that not everyone may have.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeptBlocks {
    /// What the AGs hold back, and what keeps their free lists going.
    pub set_aside: u64,
    /// The part of this for trees that count as used and that a removal may make larger.
    pub for_trees: u64,
    /// Blocks beyond these that ordinary operations leave.
    pub reserve_pool: u64,
}

/// How many free blocks the reservations of each pool leave.
#[derive(Clone, Copy, Debug)]
struct Floors {
    ordinary: i64,
    reserve: i64,
    removal: i64,
}

/// Most blocks of the reserve pool that are for removals alone: removals give back more than they take, and so they
/// need no more than some of them need at once.
const MAX_REMOVAL_POOL: u64 = 2048;

impl Floors {
    fn new(kept: KeptBlocks) -> Self {
        let removal_pool = (kept.reserve_pool / 2).min(MAX_REMOVAL_POOL);
        Self {
            ordinary: (kept.set_aside + kept.reserve_pool) as i64,
            reserve: (kept.set_aside + removal_pool) as i64,
            removal: kept.set_aside.saturating_sub(kept.for_trees) as i64,
        }
    }

    fn of(&self, pool: BlockPool) -> i64 {
        match pool {
            BlockPool::Ordinary => self.ordinary,
            BlockPool::Reserve => self.reserve,
            BlockPool::Removal => self.removal,
            BlockPool::Recovery => 0,
        }
    }
}

/// What the threads of a slot counted.
#[derive(Debug, Default)]
struct Changes {
    inodes: AtomicI64,
    free_inodes: AtomicI64,
}

/// All slots together keep at most this fraction (one block in 64) of the free blocks.
const KEPT_SHARE: u64 = 64;
/// Most that a slot keeps: what a few dozen operations reserve.
const MAX_KEPT: u64 = 2048;

impl SpaceCounts {
    /// Counters that start with what the superblock or the AGs say.
    pub fn new(free_blocks: u64, kept: KeptBlocks, inodes: u64, free_inodes: u64) -> Self {
        let slot_limit = free_blocks / KEPT_SHARE / THREAD_SLOTS as u64;
        Self {
            shared: Padded(AtomicI64::new(free_blocks as i64)),
            in_trees: AtomicI64::new(0),
            kept: Credits::new(slot_limit.min(MAX_KEPT)),
            collecting: Mutex::default(),
            floors: Floors::new(kept),
            inodes: AtomicU64::new(inodes),
            free_inodes: AtomicU64::new(free_inodes),
            changes: Default::default(),
            directories: AtomicU32::new(0),
        }
    }

    /// Replaces the counters, before anything is reserved.
    pub fn set(&self, free_blocks: u64, inodes: u64, free_inodes: u64) {
        self.kept.collect();
        for slot in &self.changes {
            slot.inodes.store(0, Ordering::Release);
            slot.free_inodes.store(0, Ordering::Release);
        }
        self.shared.store(free_blocks as i64 - self.in_trees.load(Ordering::Acquire), Ordering::Release);
        self.inodes.store(inodes, Ordering::Release);
        self.free_inodes.store(free_inodes, Ordering::Release);
    }

    /// Reserves `count` blocks of `pool` for a transaction. False when there are not enough.
    pub fn reserve_blocks(&self, count: u64, pool: BlockPool) -> bool {
        let floor = self.floors.of(pool);
        count == 0 || self.kept.take(count) || self.take_shared(count as i64, floor) || {
            // Tries again even if this collects nothing: another thread may have collected the credits.
            self.collect();
            self.take_shared(count as i64, floor)
        }
    }

    fn take_shared(&self, count: i64, floor: i64) -> bool {
        // Checks and subtracts in one step, so that a request that fails takes nothing from other threads meanwhile.
        let left = |shared: i64| shared.checked_sub(count).filter(|&left| left >= floor);
        self.shared.fetch_update(Ordering::AcqRel, Ordering::Relaxed, left).is_ok()
    }

    /// Moves the slots' credits to `shared`.
    fn collect(&self) {
        let _collecting = self.collecting.lock();
        self.shared.fetch_add(self.kept.collect() as i64, Ordering::AcqRel);
    }

    /// Blocks were freed, or a reservation was not used up.
    pub fn give_back_blocks(&self, count: u64) {
        let plenty = self.floors.ordinary + 4 * THREAD_SLOTS as i64 * self.kept.limit() as i64;
        if self.shared.load(Ordering::Relaxed) < plenty || !self.kept.keep(count) {
            self.shared.fetch_add(count as i64, Ordering::AcqRel);
        }
    }

    /// Trees whose blocks count as free have so many more of them, beyond what is set aside, or fewer.
    pub fn count_in_trees(&self, change: i64) {
        if change != 0 {
            self.in_trees.fetch_add(change, Ordering::AcqRel);
            self.shared.fetch_sub(change, Ordering::AcqRel);
        }
    }

    /// Free blocks as the superblock counts them; exact when no transaction runs.
    pub fn free_blocks(&self) -> u64 {
        (self.reservable() + self.in_trees.load(Ordering::Acquire)).max(0) as u64
    }

    fn reservable(&self) -> i64 {
        self.shared.load(Ordering::Acquire) + self.kept.total() as i64
    }

    /// Free blocks that an ordinary operation may have.
    pub fn usable_blocks(&self) -> u64 {
        (self.reservable() - self.floors.ordinary).max(0) as u64
    }

    /// Whether an ordinary operation finds fewer free blocks than `count`.
    pub fn has_less_than(&self, count: u64) -> bool {
        let lacks = || self.shared.load(Ordering::Acquire) - self.floors.ordinary < count as i64;
        // The credits are collected only if the shared blocks do not suffice.
        lacks() && {
            self.collect();
            lacks()
        }
    }

    /// A number that is one higher with each call, to spread directories over the AGs.
    pub fn next_directory(&self) -> u32 {
        self.directories.fetch_add(1, Ordering::Relaxed)
    }

    /// Changes the inode counters.
    pub fn count_inodes(&self, all: i64, free: i64) {
        let slot = &self.changes[thread_slot()];
        if all != 0 {
            slot.inodes.fetch_add(all, Ordering::AcqRel);
        }
        slot.free_inodes.fetch_add(free, Ordering::AcqRel);
    }

    /// Allocated inodes, free ones included, and free ones.
    pub fn inodes(&self) -> (u64, u64) {
        let changes =
            |of: fn(&Changes) -> &AtomicI64| self.changes.iter().map(|slot| of(slot).load(Ordering::Acquire)).sum();
        // The slots are read one after the other: chunks made and freed meanwhile may count in part.
        let sum = |first: &AtomicU64, changes: i64| first.load(Ordering::Acquire).saturating_add_signed(changes);
        (sum(&self.inodes, changes(|slot| &slot.inodes)), sum(&self.free_inodes, changes(|slot| &slot.free_inodes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_keeps_is_there_for_others_when_there_is_too_little() {
        let kept = KeptBlocks { set_aside: 100, for_trees: 40, reserve_pool: 1000 };
        let counts = SpaceCounts::new(100_000, kept, 64, 0);
        assert!(counts.reserve_blocks(50, BlockPool::Ordinary));
        counts.give_back_blocks(50);
        assert!(counts.kept.total() > 0, "the case that is meant");
        assert_eq!((counts.free_blocks(), counts.usable_blocks()), (100_000, 98_900));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| counts.reserve_blocks(98_900, BlockPool::Ordinary));
            assert!(other.join().unwrap());
        });
        assert!(!counts.reserve_blocks(1, BlockPool::Ordinary) && counts.reserve_blocks(500, BlockPool::Reserve));
        assert!(!counts.reserve_blocks(1, BlockPool::Reserve) && counts.reserve_blocks(540, BlockPool::Removal));
        assert!(!counts.reserve_blocks(1, BlockPool::Removal) && counts.reserve_blocks(60, BlockPool::Recovery));
        assert_eq!(counts.free_blocks(), 0);
        counts.give_back_blocks(100_000);
        assert_eq!(counts.free_blocks(), 100_000);
        assert!(!counts.has_less_than(98_900) && counts.has_less_than(98_901));
    }

    /// Of two threads that find too few blocks, one collects all credits, and the other finds none to collect.
    #[test]
    fn two_who_find_too_little_at_once_both_get_theirs() {
        for _ in 0..2000 {
            let counts = SpaceCounts::new(10_000, KeptBlocks::default(), 64, 0);
            assert!(counts.reserve_blocks(9_992, BlockPool::Ordinary));
            counts.kept.put(THREAD_SLOTS - 1, 100);
            std::thread::scope(|scope| {
                let both = [(); 2].map(|()| scope.spawn(|| counts.reserve_blocks(54, BlockPool::Ordinary)));
                assert!(both.into_iter().all(|thread| thread.join().unwrap()));
            });
        }
    }

    #[test]
    fn inodes_are_counted_across_threads() {
        let counts = SpaceCounts::new(1000, KeptBlocks::default(), 64, 10);
        counts.count_inodes(64, 64);
        std::thread::scope(|scope| {
            scope.spawn(|| (0..70).for_each(|_| counts.count_inodes(0, -1)));
        });
        assert_eq!(counts.inodes(), (128, 4));
    }
}
