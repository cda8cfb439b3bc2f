//! Reference counts of shared blocks. Only blocks with two or more references have a record.
//!
//! Freeing a file's extent takes one reference off each of its blocks; those without another reference become free.
//! Sharing one adds a reference to each. Records that touch and have equal counts are one record.

use super::ag::{Ag, below_agf};
use super::ag_tree::{AgTreeFormat, BlockSource, RootFields, ag_tree, tree_buffer};
use super::owner::{Counted, Owner};
use super::{alloc, free_list, reservation};
use crate::buffer::BufferKind;
use crate::error::{Error, Result};
use crate::trans::Transaction;
use smallvec::SmallVec;
use std::mem::offset_of;
use xfskit_ondisk::ag::Agf;
use xfskit_ondisk::btree::{FreeExtent, REFCOUNT_COW, Refcount, Refcountbt};
use xfskit_ondisk::limits::Limits;
use xfskit_ondisk::{AgBlock, FsBlock};

tree_buffer! {
    /// Blocks of the reference count tree.
    REFCOUNTBT_KIND, Refcountbt
}

impl AgTreeFormat for Refcountbt {
    type Header = Ag;
    type Source = OwnSpace;
    const BUFFER: &'static BufferKind = &REFCOUNTBT_KIND;
    const FIELDS: RootFields = RootFields {
        root: offset_of!(Agf, refcount_root),
        levels: offset_of!(Agf, refcount_level),
        blocks: Some(offset_of!(Agf, refcount_blocks)),
    };
}

/// The free space of the AG as the source of the tree's blocks.
pub(super) enum OwnSpace {}

impl BlockSource<Ag> for OwnSpace {
    fn expect(tx: &mut Transaction, ag: Ag, count: u32) -> Result<()> {
        alloc::expect_blocks(tx, ag, count)
    }

    fn take(tx: &mut Transaction, ag: Ag, near: u64) -> Result<AgBlock> {
        alloc::allocate_tree_block(tx, ag, near, Owner::Refcountbt)
    }

    fn give(tx: &mut Transaction, ag: Ag, block: AgBlock) -> Result<()> {
        alloc::free_unshared(tx, ag, FreeExtent { start: block, count: 1 }, Owner::Refcountbt)
    }
}

/// Most records that one step of a free touches. A step is measured to take half of them: the same transaction may have
/// split two by another step.
const MAX_RECORDS: usize = 16;
/// References that are no longer counted.
const SATURATED: u32 = u32::MAX;

pub(super) type Records = SmallVec<[Refcount; 4]>;
/// Parts of an extent.
pub(super) type Parts = SmallVec<[FreeExtent; 2]>;

pub(super) fn end(record: &Refcount) -> u32 {
    record.start + record.count
}

/// What happens to the references of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CountChange {
    Increase,
    Decrease,
}

impl CountChange {
    fn apply(self, references: u32) -> u32 {
        match self {
            _ if references == SATURATED => SATURATED,
            Self::Increase => references + 1,
            Self::Decrease => references.saturating_sub(1),
        }
    }
}

/// The records that overlap or touch the blocks from `start` to before `limit`; with [`REFCOUNT_COW`] in both, those of
/// blocks staged for copy on write.
pub(super) fn records_around(tx: &mut Transaction, ag: Ag, start: u32, limit: u32) -> Result<Records> {
    let mut tree = ag_tree::<Refcountbt>(ag).cursor();
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
    while let Some(record) = next.filter(|record| (record.start ^ start) & REFCOUNT_COW == 0 && record.start <= limit) {
        records.push(record);
        if records.len() > MAX_RECORDS + 4 {
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
/// `Corrupt`, `Io`, `WouldBlock` as [`super::free()`].
pub fn freeable_blocks(tx: &mut Transaction, block: FsBlock, count: u32) -> Result<u32> {
    if !tx.geometry().has_reflink() {
        return Ok(count);
    }
    let (ag, step) = measure(tx, block, count)?;
    ag.release(tx);
    Ok(step)
}

/// As [`freeable_blocks`], for blocks that lose or get a reference each. The AG stays locked, so that the answer holds.
///
/// # Errors
/// `Corrupt`, `Io`, `WouldBlock` as [`super::free()`].
pub fn lock_some(tx: &mut Transaction, block: FsBlock, count: u32) -> Result<u32> {
    measure(tx, block, count).map(|(_, step)| step)
}

fn measure(tx: &mut Transaction, block: FsBlock, count: u32) -> Result<(Ag, u32)> {
    let (ag, start) = alloc::lock_extent(tx, block, count)?;
    let step = step(tx, ag, FreeExtent { start, count });
    Ok((ag, below_agf(tx, ag.number, step)?))
}

/// How many blocks of the extent have few enough records for one call of [`decrease`]; at least one.
pub(super) fn step(tx: &mut Transaction, ag: Ag, extent: FreeExtent) -> Result<u32> {
    let records = records_around(tx, ag, extent.start.0, extent.end())?;
    Ok(match records.get(MAX_RECORDS / 2) {
        Some(record) => record.start.saturating_sub(extent.start.0).clamp(1, extent.count),
        None => extent.count,
    })
}

/// Takes a reference off every block of `extent`. Returns the parts without a reference; blocks that keep a
/// reference are busy: see [`expect_durable`].
pub(super) fn decrease(tx: &mut Transaction, ag: Ag, extent: FreeExtent) -> Result<Parts> {
    let free = change(tx, ag, extent, CountChange::Decrease)?;
    if free.iter().map(|part| part.count).sum::<u32>() < extent.count {
        tx.extent_freed(ag.number, extent.start, extent.count);
    }
    Ok(free)
}

/// Before blocks that have one reference are written in place: when another has gone by a transaction that is not
/// durable, it is made so. After a crash the blocks would be the other file's again, with bytes that it never had.
///
/// # Errors
/// `Io`, `Shutdown`.
pub fn expect_durable(tx: &Transaction, block: FsBlock, count: u64) -> Result<()> {
    let mount = tx.mount();
    let Some((ag, start)) = tx.geometry().split_fs_block(block) else { return Ok(()) };
    let state = &mount.ags[ag.0 as usize];
    if state.is_busy(start, count as u32, mount.journal.durable()) { mount.sync() } else { Ok(()) }
}

/// Replaces records of the tree; both lists are in order.
pub(super) fn replace(tx: &mut Transaction, ag: Ag, old: &[Refcount], new: &[Refcount]) -> Result<()> {
    let tree = ag_tree::<Refcountbt>(ag);
    for record in old.iter().filter(|record| !new.contains(record)) {
        tree.remove(tx, record)?;
    }
    for record in new.iter().filter(|record| !old.contains(record)) {
        tree.insert(tx, record)?;
    }
    Ok(())
}

fn change(tx: &mut Transaction, ag: Ag, extent: FreeExtent, change: CountChange) -> Result<Parts> {
    let (start, limit) = (extent.start.0, extent.end());
    let old = records_around(tx, ag, start, limit)?;
    ensure_on_disk!(
        old.len() <= MAX_RECORDS + 4,
        "refcountbt block",
        "references change in parts that one transaction can hold",
        "{} records",
        old.len()
    );
    let (new, unreferenced) = changed(&old, start, limit, change);
    replace(tx, ag, &old, &new)?;
    Ok(unreferenced)
}

/// The records after the references of the blocks from `start` to before `limit` changed, and the parts of those that
/// are unreferenced now.
fn changed(old: &[Refcount], start: u32, limit: u32, change: CountChange) -> (Records, Parts) {
    let (mut new, mut unreferenced) = (Records::new(), Parts::new());
    let mut add = |from: u32, to: u32, references: u32| {
        if from >= to {
            return;
        }
        match new.last_mut() {
            _ if references == 0 => unreferenced.push(FreeExtent { start: AgBlock(from), count: to - from }),
            _ if references == 1 => {}
            Some(last) if end(last) == from && last.references == references => last.count += to - from,
            _ => new.push(Refcount { start: from, count: to - from, references }),
        }
    };
    let mut at = start;
    for record in old {
        let (from, to) = (record.start.clamp(start, limit), end(record).clamp(start, limit));
        add(record.start, from.min(end(record)), record.references);
        if from < to {
            // Blocks without a record have one reference.
            add(at, from, change.apply(1));
            at = to;
        }
        if record.start >= limit {
            add(at, limit, change.apply(1));
            at = limit;
        }
        add(from, to, change.apply(record.references));
        add(to.max(record.start), end(record), record.references);
    }
    add(at, limit, change.apply(1));
    (new, unreferenced)
}

/// The first run of blocks, among `count` from `block` on, that another file refers to too: how far behind `block` it
/// begins, and its length.
///
/// # Errors
/// `Corrupt`, `Io`, `WouldBlock` as [`super::free()`].
pub fn shared_part(tx: &mut Transaction, block: FsBlock, count: u32) -> Result<Option<(u32, u32)>> {
    if !tx.geometry().has_reflink() {
        return Ok(None);
    }
    let (ag, start) = alloc::lock_extent(tx, block, count)?;
    let found = first_shared(tx, ag, FreeExtent { start, count });
    let found = below_agf(tx, ag.number, found)?;
    ag.release(tx);
    Ok(found.map(|run| (run.start.0 - start.0, run.count)))
}

/// The first run of blocks of the extent that have a record.
fn first_shared(tx: &mut Transaction, ag: Ag, extent: FreeExtent) -> Result<Option<FreeExtent>> {
    let (start, limit) = (extent.start.0, extent.end());
    let mut tree = ag_tree::<Refcountbt>(ag).cursor();
    let mut next = match tree.lookup_le(tx, &start)? {
        Some(record) if end(&record) > start => Some(record),
        _ => tree.lookup_ge(tx, &start)?,
    };
    let mut run: Option<FreeExtent> = None;
    // Staged blocks have the top bit of their start set and come behind all of these.
    while let Some(record) = next.filter(|record| record.start < limit) {
        let (from, to) = (record.start.max(start), end(&record).min(limit));
        match &mut run {
            None => run = Some(FreeExtent { start: AgBlock(from), count: to - from }),
            Some(run) if run.end() == from => run.count += to - from,
            Some(_) => break,
        }
        next = tree.next(tx)?;
    }
    tree.close(tx);
    Ok(run)
}

/// Locks the AG of shared blocks and says how many of them one transaction can take on.
fn lock_step(tx: &mut Transaction, block: FsBlock, count: u32) -> Result<(Ag, FreeExtent)> {
    let (ag, start) = alloc::lock_extent(tx, block, count)?;
    free_list::fix(tx, ag, None)?;
    let count = step(tx, ag, FreeExtent { start, count })?;
    Ok((ag, FreeExtent { start, count }))
}

/// Blocks that an AG's tree may grow by when the references of one extent change: a new record at each end of it.
fn growth(limits: &Limits) -> u32 {
    2 * limits.refcount_levels
}

/// Locks the AG of blocks that are about to be shared and checks that its tree can take on records for them, after one
/// other extent of the AG has lost a reference.
///
/// # Errors
/// `NoSpace`, `WouldBlock` as [`super::free()`]; `Corrupt`, `Io`.
pub fn expect_growth(tx: &mut Transaction, block: FsBlock, count: u32) -> Result<()> {
    let (ag, _) = alloc::lock_extent(tx, block, count)?;
    alloc::expect_blocks(tx, ag, 2 * growth(&tx.mount().limits))?;
    // Both changes may empty the free list.
    let refills = 2 * free_list::needed(tx, ag);
    if reservation::is_short(tx, ag, refills) { Err(Error::NoSpace) } else { Ok(()) }
}

/// Adds a reference to each of `count` blocks, which [`lock_some`] found to be few enough in this transaction.
///
/// # Errors
/// `NoSpace` when the tree cannot grow; `Corrupt`, `Io`.
pub fn increase(tx: &mut Transaction, block: FsBlock, count: u32) -> Result<()> {
    let (ag, start) = alloc::lock_extent(tx, block, count)?;
    free_list::fix(tx, ag, None)?;
    let done = change(tx, ag, FreeExtent { start, count }, CountChange::Increase);
    below_agf(tx, ag.number, done).map(|_| ())
}

/// Adds a reference to the first of `count` blocks, to as many as one transaction should; returns how many.
///
/// # Errors
/// `NoSpace` when the tree cannot grow; `WouldBlock` as [`super::free()`]; `Corrupt`, `Io`.
pub fn increase_some(tx: &mut Transaction, block: FsBlock, count: u32) -> Result<u32> {
    let (ag, extent) = lock_step(tx, block, count)?;
    let done = change(tx, ag, extent, CountChange::Increase);
    below_agf(tx, ag.number, done)?;
    Ok(extent.count)
}

/// Takes a reference off the first of `count` blocks, off as many as one transaction should; returns how many. Those
/// without a reference become free; their reverse mappings are the caller's to remove.
///
/// # Errors
/// As [`increase_some`].
pub fn decrease_some(tx: &mut Transaction, block: FsBlock, count: u32) -> Result<u32> {
    let (ag, extent) = lock_step(tx, block, count)?;
    let result = (|| {
        for part in decrease(tx, ag, extent)? {
            free_list::fix(tx, ag, None)?;
            alloc::give_back(tx, ag, part, Counted::AsUsed)?;
        }
        Ok(extent.count)
    })();
    below_agf(tx, ag.number, result)
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    fn r(start: u32, count: u32, references: u32) -> Refcount {
        Refcount { start, count, references }
    }

    fn decreased(old: &[Refcount], start: u32, limit: u32) -> (Records, Parts) {
        changed(old, start, limit, CountChange::Decrease)
    }

    #[test]
    fn references_go_up_where_there_was_one_too() {
        let increased = |old: &[Refcount], start, limit| changed(old, start, limit, CountChange::Increase).0;
        assert_eq!(increased(&[], 5, 9).as_slice(), [r(5, 4, 2)]);
        assert_eq!(increased(&[r(5, 5, 2), r(20, 5, 2)], 10, 20).as_slice(), [r(5, 20, 2)]);
        assert_eq!(
            increased(&[r(5, 5, 2), r(12, 5, 4)], 3, 14).as_slice(),
            [r(3, 2, 2), r(5, 5, 3), r(10, 2, 2), r(12, 2, 5), r(14, 3, 4)]
        );
        assert_eq!(increased(&[r(0, 5, u32::MAX)], 2, 6).as_slice(), [r(0, 5, u32::MAX), r(5, 1, 2)]);
    }

    #[test]
    fn up_and_down_agree_with_a_count_of_each_block() {
        let mut seed = 3u64;
        let mut next = |limit: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % limit
        };
        let mut counts = [1u32; 40];
        let mut records = Records::new();
        for _ in 0..2000 {
            let (start, length) = (next(30) as u32, 1 + next(10) as u32);
            let limit = start + length;
            let change = if next(2) == 0 { CountChange::Increase } else { CountChange::Decrease };
            let (from, to) = (start as usize, limit as usize);
            if change == CountChange::Decrease && counts[from..to].contains(&1) {
                continue;
            }
            counts[from..to].iter_mut().for_each(|count| *count = change.apply(*count));
            let near = |record: &Refcount| record.start <= limit && end(record) >= start;
            let (around, rest): (Records, Records) = records.iter().copied().partition(|record| near(record));
            let (new, free) = changed(&around, start, limit, change);
            assert!(free.is_empty());
            records = rest.into_iter().chain(new).collect();
            records.sort_by_key(|record| record.start);
            let mut expected = Records::new();
            for (at, &references) in counts.iter().enumerate().filter(|(_, count)| **count > 1) {
                match expected.last_mut() {
                    Some(last) if end(last) == at as u32 && last.references == references => last.count += 1,
                    _ => expected.push(r(at as u32, 1, references)),
                }
            }
            assert_eq!(records, expected);
        }
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
