//! Blocks staged for copy on write: allocated for a file that shares blocks, not yet mapped by it.
//!
//! ```text
//! refcountbt   a record with one reference and the top bit of its start set     rmapbt   owner COW
//! ```
//! After a crash no transaction will map them, and by the records recovery knows what to free.
//!
//! Records that touch are one record. The kernel changes the two trees by intents of their own, so [`stage`] and
//! [`unstage`] change the first alone.

use super::ag::{Ag, below_agf};
use super::ag_tree::ag_tree;
use super::owner::Counted;
use super::refcount::{Records, end, records_around, replace};
use super::{alloc, free_list, rmap_change};
use crate::error::Result;
use crate::trans::Transaction;
use xfskit_ondisk::btree::{FreeExtent, REFCOUNT_COW, Refcount, Refcountbt, Rmap, rmap_owner};
use xfskit_ondisk::{AgBlock, AgNumber, FsBlock};

/// Records blocks as staged.
///
/// # Errors
/// `Corrupt` when some are already; `NoSpace` when the tree cannot grow; `WouldBlock` as [`super::free()`]; `Io`.
pub fn stage(tx: &mut Transaction, block: FsBlock, count: u32) -> Result<()> {
    let (ag, start) = alloc::lock_extent(tx, block, count)?;
    free_list::fix(tx, ag, None)?;
    let (start, limit) = (start.0 | REFCOUNT_COW, (start.0 + count) | REFCOUNT_COW);
    let old = records_around(tx, ag, start, limit)?;
    let apart = old.iter().all(|record| end(record) <= start || limit <= record.start);
    ensure_on_disk!(apart, "refcountbt block", "blocks are staged once", "{count} blocks from {block:?}");
    let whole = old.iter().fold((start, limit), |(from, to), record| (from.min(record.start), to.max(end(record))));
    let new = Refcount { start: whole.0, count: whole.1 - whole.0, references: 1 };
    let changed = replace(tx, ag, &old, &[new]);
    below_agf(tx, ag.number, changed)
}

/// Records blocks as staged no more.
///
/// # Errors
/// `Corrupt` when some are not; else as [`stage`].
pub fn unstage(tx: &mut Transaction, block: FsBlock, count: u32) -> Result<()> {
    let (ag, start) = alloc::lock_extent(tx, block, count)?;
    free_list::fix(tx, ag, None)?;
    let changed = unstage_in(tx, ag, FreeExtent { start, count });
    below_agf(tx, ag.number, changed)
}

fn unstage_in(tx: &mut Transaction, ag: Ag, extent: FreeExtent) -> Result<()> {
    let (start, limit) = (extent.start.0 | REFCOUNT_COW, extent.end() | REFCOUNT_COW);
    let old = records_around(tx, ag, start, limit)?;
    let mut new = Records::new();
    let mut covered = 0;
    for record in &old {
        let (from, to) = (record.start.max(start), end(record).min(limit));
        if from >= to {
            new.push(*record);
            continue;
        }
        covered += to - from;
        if record.start < from {
            new.push(Refcount { count: from - record.start, ..*record });
        }
        if to < end(record) {
            new.push(Refcount { start: to, count: end(record) - to, ..*record });
        }
    }
    ensure_on_disk!(covered == extent.count, "refcountbt block", "blocks that leave staging are staged", "{extent:?}");
    replace(tx, ag, &old, &new)
}

/// The first staged extent of an AG at or behind `from`.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn first_staged(tx: &mut Transaction, number: AgNumber, from: AgBlock) -> Result<Option<FreeExtent>> {
    let ag = Ag::lock(tx, number)?;
    let mut tree = ag_tree::<Refcountbt>(ag).cursor();
    let found = tree.lookup_ge(tx, &(from.0 | REFCOUNT_COW));
    tree.close(tx);
    let found = below_agf(tx, number, found)?;
    ag.release(tx);
    let Some(record) = found else { return Ok(None) };
    ensure_on_disk!(record.references == 1, "refcountbt block", "staged blocks have one reference", "{record:?}");
    Ok(Some(FreeExtent { start: AgBlock(record.start & !REFCOUNT_COW), count: record.count }))
}

/// Frees staged blocks.
///
/// # Errors
/// As [`unstage`].
pub fn free_staged(tx: &mut Transaction, number: AgNumber, extent: FreeExtent) -> Result<()> {
    let ag = Ag::lock(tx, number)?;
    let result = (|| {
        free_list::fix(tx, ag, None)?;
        unstage_in(tx, ag, extent)?;
        let old = Rmap { start: extent.start, count: extent.count, owner: rmap_owner::COW, offset: 0 };
        rmap_change::unmap(tx, number, old)?;
        free_list::fix(tx, ag, None)?;
        alloc::give_back(tx, ag, extent, Counted::AsUsed)
    })();
    below_agf(tx, number, result)
}
