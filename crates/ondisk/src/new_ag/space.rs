//! The space of one AG while it is made: what is free, and who owns the rest.
//!
//! Both lists become the records of the free space and rmap trees. On a new image each fits one block: at most four
//! free extents (before the log, behind it, and around the first inodes) and nine owners.

use crate::btree::rmap_owner;

/// An AG is too small for what it is to contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an AG has no room for its metadata (blocks {} to {})", .0.start, .0.end())]
pub struct NoRoom(
    /// The blocks that are not free.
    pub Run,
);

/// A run of blocks of an AG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first.
    pub start: u32,
    /// How many.
    pub count: u32,
}

impl Run {
    fn end(self) -> u32 {
        self.start + self.count
    }
}

/// The space of an AG.
#[derive(Debug, Default)]
pub struct AgSpace {
    /// Free runs, by block.
    pub free: Vec<Run>,
    /// Used runs and their owners, by block.
    pub owned: Vec<(Run, u64)>,
}

impl AgSpace {
    /// An AG of `blocks` blocks, all free.
    pub fn new(blocks: u32) -> Self {
        Self { free: vec![Run { start: 0, count: blocks }], owned: Vec::new() }
    }

    /// How many blocks are free.
    pub fn free_blocks(&self) -> u32 {
        self.free.iter().map(|run| run.count).sum()
    }

    /// Blocks of the longest free run.
    pub fn longest(&self) -> u32 {
        self.free.iter().map(|run| run.count).max().unwrap_or(0)
    }

    /// Free runs by size, then by block.
    pub fn free_by_size(&self) -> Vec<Run> {
        let mut runs = self.free.clone();
        runs.sort_by_key(|run| (run.count, run.start));
        runs
    }

    /// Gives a run of free blocks to `owner`, as a record of its own.
    ///
    /// # Errors
    /// [`NoRoom`] when they are not free.
    pub fn take(&mut self, run: Run, owner: u64) -> Result<(), NoRoom> {
        if run.count == 0 {
            return Ok(());
        }
        let holder = self.free.iter().position(|free| free.start <= run.start && run.end() <= free.end());
        let Some(at) = holder else {
            return Err(NoRoom(run));
        };
        let free = self.free.remove(at);
        let rest = [
            Run { start: free.start, count: run.start - free.start },
            Run { start: run.end(), count: free.end() - run.end() },
        ];
        self.free.splice(at..at, rest.into_iter().filter(|rest| rest.count > 0));
        let at = self.owned.partition_point(|(owned, _)| owned.start < run.start);
        self.owned.insert(at, (run, owner));
        Ok(())
    }

    /// Takes blocks for the free list: the smallest run that has them all, or else the largest ones. Records of
    /// neighbours with the same owner are merged. An AG that the log fills almost completely, with fewer free blocks
    /// than `count`, keeps them free, and its list stays empty.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub fn fill_free_list(&mut self, count: u32) -> Result<Vec<u32>, NoRoom> {
        let mut list = Vec::new();
        if self.free_blocks() < count {
            return Ok(list);
        }
        while (list.len() as u32) < count {
            let wanted = count - list.len() as u32;
            let runs = self.free_by_size();
            let Some(run) = runs.iter().find(|run| run.count >= wanted).or(runs.last()) else { break };
            let taken = Run { start: run.start, count: run.count.min(wanted) };
            self.take(taken, rmap_owner::AG)?;
            list.extend(taken.start..taken.end());
        }
        self.join(rmap_owner::AG);
        Ok(list)
    }

    fn join(&mut self, owner: u64) {
        self.owned.dedup_by(|(next, next_owner), (run, run_owner)| {
            let joins = *next_owner == owner && *run_owner == owner && run.end() == next.start;
            if joins {
                run.count += next.count;
            }
            joins
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_free_list_takes_the_smallest_run_that_holds_it() {
        let mut space = AgSpace::new(100);
        space.take(Run { start: 0, count: 5 }, rmap_owner::AG).unwrap();
        space.take(Run { start: 12, count: 40 }, rmap_owner::LOG).unwrap();
        assert_eq!(space.fill_free_list(6).unwrap(), [5, 6, 7, 8, 9, 10]);
        assert_eq!(space.free, [Run { start: 11, count: 1 }, Run { start: 52, count: 48 }]);
        assert_eq!(space.owned[0], (Run { start: 0, count: 11 }, rmap_owner::AG));
        assert_eq!((space.free_blocks(), space.longest()), (49, 48));
        assert!(space.take(Run { start: 50, count: 4 }, rmap_owner::FS).is_err());
        assert_eq!(AgSpace::new(5).fill_free_list(6).unwrap(), []);
    }
}
