//! The free list of an AG (AGFL): a ring of blocks from which the free space trees and the rmapbt grow and to which
//! they give back, since they cannot allocate from themselves.
//!
//! Before each allocation and each free the list is made long enough for the worst that the operation can do to the
//! trees, and shortened when it is too long. The blocks on it belong to the AG in the reverse mappings, as do the
//! trees', so that a block changes no owner when it moves.

use super::ag::{Ag, read_agfl};
use super::ag_tree::BlockSource;
use super::owner::Owner;
use super::{alloc, free_space, rmap};
use crate::error::{Error, Result};
use crate::trans::Transaction;
use xfskit_ondisk::ag::AGFL_HEADER_BYTES;
use xfskit_ondisk::btree::FreeExtent;
use xfskit_ondisk::{AgBlock, AgNumber};
use zerocopy::big_endian::U32;

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

fn entry_offset(index: u32) -> usize {
    AGFL_HEADER_BYTES + 4 * index as usize
}

/// The free list as the source of a tree's blocks. The AGF counts those of all trees that grow from it.
pub(super) enum FreeList {}

impl BlockSource<Ag> for FreeList {
    fn expect(tx: &mut Transaction, ag: Ag, count: u32) -> Result<()> {
        if ag.agf(tx).fl_count.get() < count { Err(Error::NoSpace) } else { Ok(()) }
    }

    fn take(tx: &mut Transaction, ag: Ag, _near: u64) -> Result<AgBlock> {
        let block = take(tx, ag)?;
        count_tree_block(tx, ag, 1);
        Ok(block)
    }

    fn give(tx: &mut Transaction, ag: Ag, block: AgBlock) -> Result<()> {
        put(tx, ag, block)?;
        count_tree_block(tx, ag, -1);
        Ok(())
    }
}

fn count_tree_block(tx: &mut Transaction, ag: Ag, change: i32) {
    let agf = ag.agf_mut(tx);
    agf.btree_blocks = agf.btree_blocks.get().wrapping_add_signed(change).into();
}

/// Takes a block off the list.
pub(super) fn take(tx: &mut Transaction, ag: Ag) -> Result<AgBlock> {
    let entries = tx.geometry().agfl_entries();
    let (first, count) = (ag.agf(tx).fl_first.get(), ag.agf(tx).fl_count.get());
    ensure_on_disk!(count > 0, "AGFL", "enough blocks for the trees to grow", "AG {}", ag.number);
    let agfl = read_agfl(tx, ag.number)?;
    let block = AgBlock(tx.get_as::<U32>(agfl, entry_offset(first)).get());
    tx.release(agfl);
    ensure_on_disk!(
        block.0 != 0 && tx.geometry().contains(ag.number, block),
        "AGFL",
        "entries within the AG",
        "block {block} in AG {}",
        ag.number
    );
    let agf = ag.agf_mut(tx);
    agf.fl_first = ((first + 1) % entries).into();
    agf.fl_count = (count - 1).into();
    Ok(block)
}

/// Puts a block on the list.
pub(super) fn put(tx: &mut Transaction, ag: Ag, block: AgBlock) -> Result<()> {
    let entries = tx.geometry().agfl_entries();
    let (last, count) = (ag.agf(tx).fl_last.get(), ag.agf(tx).fl_count.get());
    ensure_on_disk!(count < entries, "AGFL", "room on the list", "AG {}", ag.number);
    let agfl = read_agfl(tx, ag.number)?;
    let last = (last + 1) % entries;
    *tx.edit_as::<U32>(agfl, entry_offset(last)) = block.0.into();
    tx.release(agfl);
    let agf = ag.agf_mut(tx);
    agf.fl_last = last.into();
    agf.fl_count = (count + 1).into();
    Ok(())
}

/// Brings the list to its length, without the blocks of `keep`, which the caller is about to allocate. Where there is
/// not enough space the list stays short.
pub(super) fn fix(tx: &mut Transaction, ag: Ag, keep: Option<FreeExtent>) -> Result<()> {
    shrink(tx, ag)?;
    // A refill may use up some of what it brings; each round leaves less to do.
    while missing(tx, ag) > 0 {
        let Some(found) = alloc::find_filling(tx, ag, missing(tx, ag), keep)? else { break };
        free_space::take(tx, ag, found)?;
        rmap::add(tx, ag, Owner::FreeList.rmap(found.start, found.count, false))?;
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
        rmap::remove(tx, ag, Owner::FreeList.rmap(block, 1, false))?;
        free_space::give(tx, ag, FreeExtent { start: block, count: 1 })?;
        tx.extent_freed(ag.number, block, 1);
    }
    Ok(())
}
