//! The owners of all blocks, gathered by the passes and compared with the trees of each AG.
//!
//! ```text
//! AG headers, log, AGFL, tree blocks, inode chunks, forks, bmbt blocks, CoW staging   } sorted by block
//! free space (bnobt)                                                                  }
//!    one sweep: no gap; only data forks overlap, and only on an image that can share
//!    depth of the overlaps == refcountbt            all but free space == rmapbt
//! ```

use crate::context::Context;
use crate::join::join;
use crate::report::{Consequence, Fault, Owner};
use std::collections::BinaryHeap;
use xfskit_ondisk::btree::{REFCOUNT_COW, Refcount, Rmap, rmap_offset, rmap_owner};
use xfskit_ondisk::{AgBlock, AgNumber, InodeNumber};

/// The blocks are free.
pub(crate) const FREE: u64 = rmap_owner::NULL;

/// A run of blocks and its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) ag: AgNumber,
    pub(crate) start: u32,
    pub(crate) count: u32,
    /// The owner's inode says that it may share blocks.
    pub(crate) may_share: bool,
    /// As in a reverse mapping, or [`FREE`].
    pub(crate) owner: u64,
    /// As in a reverse mapping.
    pub(crate) offset: u64,
}

impl Usage {
    pub(crate) fn end(&self) -> u32 {
        self.start + self.count
    }

    /// Sort key: by address, then in the order of reverse mappings.
    pub(crate) fn order(&self) -> (AgNumber, u32, u64, u64) {
        (self.ag, self.start, self.owner, self.offset & !rmap_offset::UNWRITTEN)
    }

    fn is_data(&self) -> bool {
        self.owner >> 63 == 0 && self.offset & (rmap_offset::ATTR_FORK | rmap_offset::BMBT_BLOCK) == 0
    }

    fn rmap(&self) -> Rmap {
        Rmap { start: AgBlock(self.start), count: self.count, owner: self.owner, offset: self.offset }
    }
}

/// The owner of a mapping, in words.
fn describe(owner: u64, offset: u64) -> String {
    match owner {
        FREE => "free space".into(),
        rmap_owner::FS => "AG headers".into(),
        rmap_owner::LOG => "the log".into(),
        rmap_owner::AG => "free space or rmap trees, or the free list".into(),
        rmap_owner::INOBT => "inode trees".into(),
        rmap_owner::INODES => "inodes".into(),
        rmap_owner::REFCOUNT => "the refcountbt".into(),
        rmap_owner::COW => "CoW staging".into(),
        inode => {
            let fork = if offset & rmap_offset::ATTR_FORK != 0 { "attr fork" } else { "data fork" };
            let place = match offset & rmap_offset::BMBT_BLOCK {
                0 => format!(" at {}", offset & rmap_offset::MASK),
                _ => ", its extent map".into(),
            };
            let unwritten = if offset & rmap_offset::UNWRITTEN != 0 { ", unwritten" } else { "" };
            format!("inode {inode}, {fork}{place}{unwritten}")
        }
    }
}

/// The owner of a run of blocks, for a fault.
fn owner_of(ag: AgNumber, owner: u64) -> Owner {
    if owner >> 63 == 0 { Owner::Inode(InodeNumber(owner)) } else { Owner::Ag(ag) }
}

/// What an AG's trees say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claims<'a> {
    pub(crate) ag: AgNumber,
    /// `None` where the tree is damaged or the image has none.
    pub(crate) rmaps: Option<&'a [Rmap]>,
    /// As above.
    pub(crate) refcounts: Option<&'a [Refcount]>,
    /// The free space is known.
    pub(crate) free_known: bool,
}

/// Compares one AG. `usage` is sorted. Returns the numbers of used and free blocks.
pub(crate) fn compare(context: &Context<'_>, claims: Claims<'_>, usage: &[Usage]) -> (u64, u64) {
    let owners_known = context.owners_known.load(std::sync::atomic::Ordering::Relaxed);
    let figures = sweep(context, claims, usage, owners_known);
    // Both trees merge adjacent records, so an unknown owner also changes the records that are expected beside it.
    if owners_known {
        if let Some(rmaps) = claims.rmaps {
            compare_rmaps(context, claims.ag, usage, rmaps);
        }
        if let Some(refcounts) = claims.refcounts {
            compare_refcounts(context, claims.ag, usage, refcounts);
        }
    }
    figures
}

/// Looks for blocks with two owners or with none. Returns the numbers of used and free blocks.
fn sweep(context: &Context<'_>, claims: Claims<'_>, usage: &[Usage], owners_known: bool) -> (u64, u64) {
    let geometry = &context.geometry;
    let (length, can_share) = (geometry.blocks_in_ag(claims.ag), geometry.has_reflink());
    let mut end = 0;
    let mut free = 0u64;
    // The run that reaches furthest, and the one that does among those that must not share blocks.
    let (mut holder, mut firm): (Option<&Usage>, Option<&Usage>) = (None, None);
    let gap = |from: u32, to: u32| {
        if from < to && owners_known && claims.free_known {
            let fault = Fault::new("free space", "every block is free or has an owner", Consequence::LostSpace);
            let found = format_args!("{} blocks from {from} of the AG", to - from).to_string();
            context.report(fault.at(geometry.address(claims.ag, AgBlock(from))).ag(claims.ag).found(found));
        }
    };
    for run in usage {
        gap(end, run.start);
        let shareable = run.is_data() && can_share;
        let other = if shareable { firm } else { holder };
        if let Some(other) = other.filter(|other| run.start < other.end()) {
            overlap(context, run, other, "blocks have one owner");
        } else if let Some(other) =
            holder.filter(|other| run.start < other.end() && !(other.may_share && run.may_share))
        {
            let culprit = if run.may_share { other } else { run };
            overlap(
                context,
                culprit,
                if run.may_share { run } else { other },
                "only inodes with the reflink flag share blocks",
            );
        }
        if holder.is_none_or(|holder| holder.end() < run.end()) {
            holder = Some(run);
        }
        if !shareable && firm.is_none_or(|firm| firm.end() < run.end()) {
            firm = Some(run);
        }
        end = end.max(run.end());
        free += if run.owner == FREE { u64::from(run.count) } else { 0 };
    }
    gap(end, length);
    (u64::from(length).saturating_sub(free), free)
}

fn overlap(context: &Context<'_>, run: &Usage, other: &Usage, check: &'static str) {
    let fault = Fault::new("block", check, Consequence::SharedSpace);
    let until = run.end().min(other.end());
    let from = run.start.max(other.start);
    let found = format!(
        "{} blocks from {from} of AG {}: {}; and {}",
        until.saturating_sub(from),
        run.ag,
        describe(run.owner, run.offset),
        describe(other.owner, other.offset)
    );
    let owner = owner_of(run.ag, if run.owner >> 63 == 0 { run.owner } else { other.owner });
    context.report(fault.at(context.geometry.address(run.ag, AgBlock(from))).owned(owner).found(found));
}

/// Joins mappings that continue each other, as the tree does.
fn merged(mappings: impl Iterator<Item = Rmap>) -> Vec<Rmap> {
    let mut list: Vec<Rmap> = Vec::new();
    for next in mappings {
        match list.last_mut() {
            Some(last) if continues(last, &next) => last.count += next.count,
            _ => list.push(next),
        }
    }
    list
}

fn continues(last: &Rmap, next: &Rmap) -> bool {
    let flags = |rmap: &Rmap| rmap.offset & !rmap_offset::MASK;
    let offset = if last.has_offset() { last.offset + u64::from(last.count) } else { last.offset };
    last.owner == next.owner
        && u64::from(last.start.0) + u64::from(last.count) == u64::from(next.start.0)
        && flags(last) == flags(next)
        && offset == next.offset
}

fn compare_rmaps(context: &Context<'_>, ag: AgNumber, usage: &[Usage], rmaps: &[Rmap]) {
    let expected = merged(usage.iter().filter(|run| run.owner != FREE).map(Usage::rmap));
    let actual = merged(rmaps.iter().copied());
    let key = |rmap: &Rmap| (rmap.start, rmap.owner, rmap.offset & !rmap_offset::UNWRITTEN);
    let report = |rmap: &Rmap, check, beside: Option<&Rmap>| {
        let mut found = format!("{} blocks from {}: {}", rmap.count, rmap.start, describe(rmap.owner, rmap.offset));
        if let Some(other) = beside {
            found.push_str(&format!("; recorded are {} blocks: {}", other.count, describe(other.owner, other.offset)));
        }
        let fault = Fault::new("rmapbt record", check, Consequence::Index);
        context.report(fault.at(context.geometry.address(ag, rmap.start)).owned(owner_of(ag, rmap.owner)).found(found));
    };
    join(&expected, &actual, key, |want, have| match (want, have) {
        (Some(want), None) => report(want, "there is one for every owner", None),
        (Some(want), Some(have)) if want != have => report(want, "is what the owner maps", Some(have)),
        (None, Some(have)) => report(have, "its owner has the blocks", None),
        _ => {}
    });
}

/// The runs of blocks that two or more data forks use, with their number of uses.
fn expected_refcounts(usage: &[Usage]) -> Vec<Refcount> {
    let mut list: Vec<Refcount> = Vec::new();
    let mut ends: BinaryHeap<std::cmp::Reverse<u32>> = BinaryHeap::new();
    let mut from = 0;
    let mut emit = |from: u32, to: u32, depth: usize| {
        if depth < 2 || from >= to {
            return;
        }
        match list.last_mut() {
            Some(last) if last.start + last.count == from && last.references == depth as u32 => last.count += to - from,
            _ => list.push(Refcount { start: from, count: to - from, references: depth as u32 }),
        }
    };
    for run in usage.iter().filter(|run| run.is_data()) {
        while let Some(&std::cmp::Reverse(end)) = ends.peek().filter(|end| end.0 <= run.start) {
            emit(from, end, ends.len());
            from = end;
            ends.pop();
        }
        emit(from, run.start, ends.len());
        from = run.start;
        ends.push(std::cmp::Reverse(run.end()));
    }
    while let Some(std::cmp::Reverse(end)) = ends.peek().copied() {
        emit(from, end, ends.len());
        from = end;
        ends.pop();
    }
    list
}

fn compare_refcounts(context: &Context<'_>, ag: AgNumber, usage: &[Usage], refcounts: &[Refcount]) {
    let expected = expected_refcounts(usage);
    let mut actual: Vec<Refcount> = Vec::new();
    for record in refcounts.iter().filter(|record| record.start & REFCOUNT_COW == 0) {
        match actual.last_mut() {
            Some(last) if last.start + last.count == record.start && last.references == record.references => {
                last.count += record.count;
            }
            _ => actual.push(*record),
        }
    }
    let report = |record: &Refcount, check| {
        let fault = Fault::new("refcountbt record", check, Consequence::SharedSpace);
        let found =
            format_args!("{} blocks from {}, {} owners", record.count, record.start, record.references).to_string();
        context.report(fault.at(context.geometry.address(ag, AgBlock(record.start))).ag(ag).found(found));
    };
    join(
        &expected,
        &actual,
        |record| record.start,
        |want, have| {
            if want == have {
                return;
            }
            if let Some(want) = want {
                report(want, "counts the owners");
            }
            if let Some(have) = have {
                report(have, "counts owners that exist");
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(start: u32, count: u32, owner: u64) -> Usage {
        Usage { ag: AgNumber(0), start, count, may_share: true, owner, offset: 0 }
    }

    #[test]
    fn references_are_counted_where_runs_overlap() {
        let usage = [data(0, 10, 1), data(5, 10, 2), data(5, 5, 3), data(20, 5, 1), data(20, 5, 2), data(25, 5, 1)];
        let found = expected_refcounts(&usage);
        let records: Vec<_> = found.iter().map(|r| (r.start, r.count, r.references)).collect();
        assert_eq!(records, [(5, 5, 3), (20, 5, 2)]);
    }

    #[test]
    fn mappings_that_continue_each_other_are_one() {
        let first = Rmap { start: AgBlock(5), count: 3, owner: 131, offset: 0 };
        let second = Rmap { start: AgBlock(8), count: 2, owner: 131, offset: 3 };
        let unwritten = Rmap { start: AgBlock(10), count: 2, owner: 131, offset: 5 | rmap_offset::UNWRITTEN };
        assert_eq!(merged([first, second, unwritten].into_iter()).len(), 2);
    }
}
