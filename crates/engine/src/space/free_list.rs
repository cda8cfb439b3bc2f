//! The length of an AG's free list ([`super::agfl`]).
//!
//! Before each allocation and each free the list is made long enough for the worst that the operation can do to the
//! trees, and shortened when it is too long. The blocks on it belong to the AG in the reverse mappings, as do the
//! trees', so that a block changes no owner when it moves.

use super::ag::Ag;
use super::agfl::{put, take};
use super::owner::Owner;
use super::search::find_filling;
use super::{free_space, rmap};
use crate::error::Result;
use crate::trans::Transaction;
use xfskit_ondisk::btree::FreeExtent;
use xfskit_ondisk::{AgBlock, AgNumber};

/// Blocks by which one operation shortens a list that is too long.
const SHRINK_STEP: u32 = 2;

/// Blocks that the list must hold before an operation: each tree may split on every level and grow a new root, and
/// again below the root while the list is being refilled.
pub(super) fn needed(tx: &Transaction, ag: Ag) -> u32 {
    let (agf, limits) = (ag.agf(tx), &tx.mount().limits);
    let worst = |levels: u32, most: u32| 2 * (levels + 1).min(most) - 2;
    let mut blocks = worst(agf.bno_level.get(), limits.alloc_levels) + worst(agf.cnt_level.get(), limits.alloc_levels);
    if tx.geometry().has_rmap() {
        blocks += worst(agf.rmap_level.get(), limits.rmap_levels);
    }
    blocks
}

/// Blocks that must be added to the list.
pub(super) fn missing(tx: &Transaction, ag: Ag) -> u32 {
    needed(tx, ag).saturating_sub(ag.agf(tx).fl_count.get())
}

/// Brings the list to its length, without the blocks of `keep`, which the caller is about to allocate. Where there is
/// not enough space the list stays short.
pub(super) fn fix(tx: &mut Transaction, ag: Ag, keep: Option<FreeExtent>) -> Result<()> {
    shrink(tx, ag)?;
    // A refill may use up some of what it brings; each round leaves less to do.
    while missing(tx, ag) > 0 {
        let Some(found) = find_filling(tx, ag, missing(tx, ag), keep)? else { break };
        free_space::take(tx, ag, found)?;
        rmap::add(tx, ag, Owner::FreeList.rmap(found.start, found.count))?;
        for block in found.start.0..found.end() {
            put(tx, ag, AgBlock(block))?;
        }
    }
    Ok(())
}

/// Empties the list of an AG whose ends and count contradict each other, as the kernel does (`xfs_agfl_reset`): a block
/// that is taken for a free one could have an owner. What was on the list is lost until xfs_repair finds it.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn reset(tx: &mut Transaction, number: AgNumber) -> Result<()> {
    let ag = Ag::lock(tx, number)?;
    let entries = tx.geometry().agfl_entries();
    let blocks = ag.agf(tx).fl_count.get();
    tracing::warn!(
        "AG {number}: the free list was written by a kernel before 4.17, which kept it otherwise; it is emptied, and \
         {blocks} blocks are lost until xfs_repair finds them"
    );
    let agf = ag.agf_mut(tx);
    (agf.fl_first, agf.fl_last, agf.fl_count) = (0.into(), (entries - 1).into(), 0.into());
    Ok(())
}

fn shrink(tx: &mut Transaction, ag: Ag) -> Result<()> {
    let count = ag.agf(tx).fl_count.get();
    let surplus = count.saturating_sub(needed(tx, ag));
    // A few at a time keep the transaction small, unless the ring is in danger of running full.
    let step = if count > tx.geometry().agfl_entries() / 2 { surplus } else { surplus.min(SHRINK_STEP) };
    for _ in 0..step {
        let block = take(tx, ag)?;
        rmap::remove(tx, ag, Owner::FreeList.rmap(block, 1))?;
        free_space::give(tx, ag, FreeExtent { start: block, count: 1 })?;
        tx.extent_freed(ag.number, block, 1);
    }
    Ok(())
}
