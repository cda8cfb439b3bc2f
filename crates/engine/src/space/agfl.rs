//! The free list of an AG (AGFL): a ring of blocks from which the free space trees and the rmapbt grow and to which
//! they give back, since they cannot allocate from themselves.

use super::ag::{Ag, read_agfl};
use super::ag_tree::BlockSource;
use crate::error::{Error, Result};
use crate::trans::Transaction;
use xfskit_ondisk::AgBlock;
use xfskit_ondisk::ag::AGFL_HEADER_BYTES;
use zerocopy::big_endian::U32;

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
