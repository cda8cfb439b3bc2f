//! Reference counts of shared blocks. Only blocks with two or more references have a record.
//!
//! Freeing a file's extent takes one reference off each of its blocks; those that nobody else refers to become free.
//! Records that touch and have equal counts are one record.

use super::ag::Ag;
use super::alloc;
use super::free_space::refcount_cursor;
use crate::error::Result;
use crate::trans::Transaction;
use smallvec::SmallVec;
use xfskit_ondisk::btree::{FreeExtent, REFCOUNT_COW, Refcount};
use xfskit_ondisk::{AgBlock, FsBlock};

/// Most records that one step of a free touches.
const MOST_RECORDS: usize = 16;
/// References that are no longer counted.
const SATURATED: u32 = u32::MAX;

type Records = SmallVec<[Refcount; 4]>;
/// Parts of an extent.
pub(super) type Parts = SmallVec<[FreeExtent; 2]>;

fn end(record: &Refcount) -> u32 {
    record.start + record.count
}

/// The records that overlap or touch the blocks from `start` to before `limit`.
fn records_around(tx: &mut Transaction, ag: Ag, start: u32, limit: u32) -> Result<Records> {
    let mut tree = refcount_cursor(ag);
    let mut records = Records::new();
    let mut next = match tree.lookup_le(tx, &start)? {
        Some(record) if end(&record) >= start => Some(record),
        _ => tree.lookup_ge(tx, &start)?,
    };
    // The record before the one at `start` may end there.
    if let Some(record) = next
        && record.start == start
        && let Some(before) = tree.previous(tx)?
    {
        if end(&before) == start {
            records.push(before);
        }
        tree.next(tx)?;
    }
    while let Some(record) = next.filter(|record| record.start & REFCOUNT_COW == 0 && record.start <= limit) {
        records.push(record);
        if records.len() > MOST_RECORDS + 4 {
            break;
        }
        next = tree.next(tx)?;
    }
    tree.close(tx);
    Ok(records)
}

/// How many of the `count` blocks from `block` one transaction should free: all of them unless they are shared in many
/// pieces. At least one.
///
/// # Errors
/// `Corrupt`, `Io`, `WouldBlock` as [`super::alloc::free`].
pub fn freeable_blocks(tx: &mut Transaction, block: FsBlock, count: u32) -> Result<u32> {
    if !tx.geometry().has_reflink() {
        return Ok(count);
    }
    let (ag, start) = alloc::lock_extent(tx, block, count)?;
    let step = step(tx, ag, FreeExtent { start, count })?;
    ag.release(tx);
    Ok(step)
}

/// How many blocks of the extent have few enough records for one call of [`decrease`]; at least one.
pub(super) fn step(tx: &mut Transaction, ag: Ag, extent: FreeExtent) -> Result<u32> {
    let records = records_around(tx, ag, extent.start.0, extent.end())?;
    Ok(match records.get(MOST_RECORDS / 2) {
        Some(record) => record.start.saturating_sub(extent.start.0).clamp(1, extent.count),
        None => extent.count,
    })
}

/// Takes a reference off every block of `extent`. Returns the parts that nobody refers to any more.
pub(super) fn decrease(tx: &mut Transaction, ag: Ag, extent: FreeExtent) -> Result<Parts> {
    let (start, limit) = (extent.start.0, extent.end());
    let old = records_around(tx, ag, start, limit)?;
    ensure_on_disk!(
        old.len() <= MOST_RECORDS + 4,
        "refcountbt block",
        "an extent is freed in parts that one transaction can hold",
        "{} records",
        old.len()
    );
    let (new, unreferenced) = decreased(&old, start, limit);
    let mut tree = refcount_cursor(ag);
    for record in old.iter().filter(|record| !new.contains(record)) {
        let found = tree.lookup(tx, &record.start)?;
        ensure_on_disk!(found.is_some(), "refcountbt block", "a record is found by its key", "{record:?}");
        tree.remove(tx)?;
    }
    for record in new.iter().filter(|record| !old.contains(record)) {
        tree.insert(tx, record)?;
    }
    tree.close(tx);
    Ok(unreferenced)
}

/// The records after one reference was taken off the blocks from `start` to before `limit`, and the parts of those
/// that are unreferenced now.
fn decreased(old: &[Refcount], start: u32, limit: u32) -> (Records, Parts) {
    let (mut new, mut unreferenced) = (Records::new(), Parts::new());
    let mut add = |from: u32, to: u32, references: u32| {
        if from >= to || references < 2 {
            return;
        }
        match new.last_mut() {
            Some(last) if end(last) == from && last.references == references => last.count += to - from,
            _ => new.push(Refcount { start: from, count: to - from, references }),
        }
    };
    let mut free = |from: u32, to: u32| {
        if from < to {
            unreferenced.push(FreeExtent { start: AgBlock(from), count: to - from });
        }
    };
    let mut at = start;
    for record in old {
        let (from, to) = (record.start.clamp(start, limit), end(record).clamp(start, limit));
        if from < to {
            free(at, from);
            at = to;
        }
        let left = if record.references == SATURATED { SATURATED } else { record.references.saturating_sub(1) };
        add(record.start, from.min(end(record)), record.references);
        add(from, to, left);
        add(to.max(record.start), end(record), record.references);
    }
    free(at, limit);
    (new, unreferenced)
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    fn r(start: u32, count: u32, references: u32) -> Refcount {
        Refcount { start, count, references }
    }

    #[test]
    fn references_go_down_and_equal_neighbours_merge() {
        let (new, free) = decreased(&[r(10, 10, 3), r(20, 5, 2)], 15, 20);
        assert_eq!(new.as_slice(), [r(10, 5, 3), r(15, 10, 2)]);
        assert!(free.is_empty());
        let (new, free) = decreased(&[r(10, 10, 2)], 5, 30);
        assert!(new.is_empty());
        assert_eq!(free.iter().map(|f| (f.start.0, f.count)).collect::<Vec<_>>(), [(5, 5), (20, 10)]);
        let (new, _) = decreased(&[r(0, 5, 2), r(5, 5, 3), r(10, 5, 2)], 5, 10);
        assert_eq!(new.as_slice(), [r(0, 15, 2)]);
        let (new, _) = decreased(&[r(0, 5, u32::MAX)], 0, 5);
        assert_eq!(new.as_slice(), [r(0, 5, u32::MAX)]);
    }
}
