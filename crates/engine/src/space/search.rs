//! The search for a free extent in one AG.
//!
//! Near a block the order is: the block itself, extents of full length among its neighbours in the bnobt, the
//! smallest that is long enough in the cntbt, the longest there is. Without a place, by size alone.

use super::ag::Ag;
use super::ag_tree::ag_tree;
use super::free_space::extent_at;
use super::owner::Owner;
use super::request::{AllocRequest, Busy, Near};
use crate::error::Result;
use crate::trans::Transaction;
use xfskit_ondisk::AgBlock;
use xfskit_ondisk::btree::{BlockKey, Bnobt, Cntbt, FreeExtent, SizeKey};

/// So many busy extents of an AG make allocations that keep off them slow: each looks at all of them.
const MANY_BUSY: usize = 512;

/// Neighbours in the bnobt that are looked at in each direction.
const NEIGHBOURS: usize = 16;
/// Extents of sufficient length in the cntbt among which the nearest is chosen.
const CANDIDATES: usize = 8;

/// The same blocks in order, as runs that do not overlap.
pub(super) fn merged(mut extents: Vec<FreeExtent>) -> Vec<FreeExtent> {
    extents.sort_unstable();
    extents.dedup_by(|next, last| {
        let joins = next.start.0 <= last.end();
        if joins {
            last.count = last.end().max(next.end()) - last.start.0;
        }
        joins
    });
    extents
}

/// As [`merged`], of runs as the state of an AG notes them.
pub(super) fn merged_runs(runs: Vec<(AgBlock, u32)>) -> Vec<FreeExtent> {
    merged(runs.into_iter().map(|(start, count)| FreeExtent { start, count }).collect())
}

/// The search for an extent in one AG.
pub(super) struct Search<'a> {
    pub request: &'a AllocRequest,
    pub max: u32,
    pub hint: Option<AgBlock>,
    /// In order, without overlaps.
    pub busy: Vec<FreeExtent>,
}

impl Search<'_> {
    pub fn run(&self, tx: &mut Transaction, ag: Ag) -> Result<Option<FreeExtent>> {
        if let Some(hint) = self.hint {
            let here = extent_at(tx, ag, hint)?.and_then(|extent| self.fit_from(extent, hint.0));
            let exact = here.filter(|found| found.start == hint);
            if self.request.exact || exact.is_some_and(|found| found.count == self.max) {
                return Ok(exact);
            }
            if let Some(found) = here.filter(|found| found.count == self.max) {
                return Ok(Some(found));
            }
            if let Some(found) = self.among_neighbours(tx, ag, hint)? {
                return Ok(Some(found));
            }
        }
        if let Some(found) = self.long_enough(tx, ag)? {
            return Ok(Some(found));
        }
        self.longest(tx, ag)
    }

    /// The nearest extent of full length among the neighbours of `hint`.
    fn among_neighbours(&self, tx: &mut Transaction, ag: Ag, hint: AgBlock) -> Result<Option<FreeExtent>> {
        let key = BlockKey { start: hint, count: 0 };
        let mut best: Option<FreeExtent> = None;
        let mut consider = |extent: FreeExtent| {
            let found = self.fit(extent).filter(|found| found.count == self.max);
            best = [best, found].into_iter().flatten().min_by_key(|found| found.start.0.abs_diff(hint.0));
            found.is_some()
        };
        let mut tree = ag_tree::<Bnobt>(ag).cursor();
        let mut next = tree.lookup_le(tx, &key)?;
        for _ in 0..NEIGHBOURS {
            let Some(extent) = next else { break };
            if consider(extent) {
                break;
            }
            next = tree.previous(tx)?;
        }
        let mut next = tree.lookup_ge(tx, &key)?;
        for _ in 0..NEIGHBOURS {
            let Some(extent) = next else { break };
            if consider(extent) {
                break;
            }
            next = tree.next(tx)?;
        }
        tree.close(tx);
        Ok(best)
    }

    /// An extent of full length by size: of the first few that fit, the nearest.
    fn long_enough(&self, tx: &mut Transaction, ag: Ag) -> Result<Option<FreeExtent>> {
        let mut best: Option<FreeExtent> = None;
        let mut candidates = if self.hint.is_some() { CANDIDATES } else { 1 };
        let mut tree = ag_tree::<Cntbt>(ag).cursor();
        let mut next = tree.lookup_ge(tx, &SizeKey { count: self.max, start: AgBlock(0) })?;
        while let Some(extent) = next {
            if let Some(found) = self.fit(extent).filter(|found| found.count == self.max) {
                let distance = |found: &FreeExtent| self.hint.map_or(0, |hint| found.start.0.abs_diff(hint.0));
                best = best.into_iter().chain([found]).min_by_key(distance);
                candidates -= 1;
                if candidates == 0 {
                    break;
                }
            }
            next = tree.next(tx)?;
        }
        tree.close(tx);
        Ok(best)
    }

    /// The longest extent that fits, of at least the shortest length that will do.
    fn longest(&self, tx: &mut Transaction, ag: Ag) -> Result<Option<FreeExtent>> {
        if self.request.min == self.max {
            return Ok(None);
        }
        let mut best: Option<FreeExtent> = None;
        let mut tree = ag_tree::<Cntbt>(ag).cursor();
        let mut next = tree.last(tx)?;
        while let Some(extent) = next {
            let enough = best.map_or(self.request.min, |best| best.count + 1);
            if extent.count < enough {
                break;
            }
            best = self.fit(extent).filter(|found| found.count >= enough).or(best);
            next = tree.previous(tx)?;
        }
        tree.close(tx);
        Ok(best)
    }

    /// The part of a free extent that the request can have.
    fn fit(&self, extent: FreeExtent) -> Option<FreeExtent> {
        self.fit_from(extent, extent.start.0)
    }

    /// As [`Self::fit`], not before `from`.
    fn fit_from(&self, extent: FreeExtent, from: u32) -> Option<FreeExtent> {
        let mut at = from.max(extent.start.0).max(self.request.bounds.start);
        let mut best: Option<FreeExtent> = None;
        let first_busy = self.busy.partition_point(|busy| busy.end() <= at);
        let mut busy = self.busy[first_busy..].iter().take_while(|busy| busy.start.0 < extent.end());
        loop {
            let obstacle = busy.next();
            let limit = obstacle.map_or(extent.end(), |busy| busy.start.0.min(extent.end()));
            let start = at.checked_next_multiple_of(self.request.alignment)?;
            if start >= self.request.bounds.end {
                return best;
            }
            let count = limit.saturating_sub(start).min(self.max);
            if count >= self.request.min && best.is_none_or(|best| best.count < count) {
                best = Some(FreeExtent { start: AgBlock(start), count });
            }
            if best.is_some_and(|best| best.count == self.max) {
                return best;
            }
            match obstacle {
                Some(busy) => at = at.max(busy.end()),
                None => return best,
            }
        }
    }
}

/// The extents of the AG that must be left alone, sorted: what this link freed, since a buffer of another size may
/// still stand there, and for what is written outside of the journal, all whose freeing is not durable.
pub(super) fn busy_extents(tx: &Transaction, ag: Ag, request: &AllocRequest) -> Vec<FreeExtent> {
    let mount = tx.mount();
    let mut busy: Vec<_> = tx.freed_extents(ag.number).collect();
    busy.extend(mount.ags[ag.number.0 as usize].windows.of_others(request.holder));
    if request.busy == Busy::Avoided {
        let state = &mount.ags[ag.number.0 as usize];
        let freed = state.busy_extents(mount.journal.durable());
        // Those of a checkpoint that is being written are as good as gone.
        if freed.len() >= MANY_BUSY && state.count_busy_since(mount.journal.current()) >= MANY_BUSY {
            mount.journal.want_push();
        }
        busy.extend(freed);
    }
    merged_runs(busy)
}

/// Finds up to `want` free blocks in one run for the free list, outside of `keep`: the smallest extent that has them
/// all, or else the longest; of a long extent the end, so that files which grow into its start stay in one piece. What
/// this link freed is taken when nothing else is left.
pub(super) fn find_filling(
    tx: &mut Transaction,
    ag: Ag,
    want: u32,
    keep: Option<FreeExtent>,
) -> Result<Option<FreeExtent>> {
    let request = AllocRequest::new(Near::Ag(ag.number), 1, want, Owner::FreeList);
    let mut busy = busy_extents(tx, ag, &request);
    let has_obstacles = !busy.is_empty();
    busy.extend(keep);
    let search = Search { request: &request, max: want, hint: None, busy: merged(busy) };
    if let Some(found) = search.run(tx, ag)? {
        return at_the_end(tx, ag, found, &search.busy).map(Some);
    }
    if !has_obstacles {
        return Ok(None);
    }
    let windows = &tx.mount().ags[ag.number.0 as usize].windows;
    windows.give_back();
    let firm = windows.of_others(None).into_iter().map(|(start, count)| FreeExtent { start, count });
    let busy = merged(firm.chain(keep).collect());
    Search { request: &request, max: want, hint: None, busy }.run(tx, ag)
}

/// As many blocks as were found, from the end of their extent if it is long and its end is not busy.
fn at_the_end(tx: &mut Transaction, ag: Ag, found: FreeExtent, busy: &[FreeExtent]) -> Result<FreeExtent> {
    const LONG_BLOCKS: u32 = 1024;
    let Some(whole) = extent_at(tx, ag, found.start)? else { return Ok(found) };
    let end = FreeExtent { start: AgBlock(whole.end() - found.count), count: found.count };
    let is_busy = busy.iter().any(|busy| busy.start.0 < end.end() && end.start.0 < busy.end());
    Ok(if whole.count < LONG_BLOCKS || is_busy { found } else { end })
}

#[cfg(test)]
mod unit_tests {
    use super::*;
    use xfskit_ondisk::AgNumber;

    fn run(start: u32, count: u32) -> FreeExtent {
        FreeExtent { start: AgBlock(start), count }
    }

    #[test]
    fn a_fit_is_aligned_and_keeps_off_busy_blocks() {
        let request = AllocRequest { alignment: 8, ..AllocRequest::new(Near::Ag(AgNumber(0)), 4, 20, Owner::Inobt) };
        let busy = merged(vec![run(30, 10), run(10, 3), run(12, 2)]);
        assert_eq!(busy, [run(10, 4), run(30, 10)]);
        let search = Search { request: &request, max: 20, hint: None, busy };
        assert_eq!(search.fit(run(5, 8)), None);
        assert_eq!(search.fit(run(5, 50)), Some(run(40, 15)));
        assert_eq!(search.fit(run(5, 60)), Some(run(40, 20)));
        assert_eq!(search.fit(run(5, 20)), Some(run(16, 9)));
    }
}
