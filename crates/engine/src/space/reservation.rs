//! How many blocks operations may need, and what an AG holds back so that its own trees can always grow.
//!
//! Facts: the kernel's `xfs_trans_space.h` and `xfs_ag_resv.c`.

use super::ag::{Ag, rmap_ask};
use crate::trans::Transaction;
use xfskit_ondisk::limits::Limits;
use xfskit_ondisk::{Geometry, INODES_PER_CHUNK};

/// Blocks of each AG that keep its free list and its headers' trees going when everything else is full.
const AG_SET_ASIDE: u64 = 8;

/// Blocks that the refcountbt of an AG may need later: any of its blocks may be shared.
fn refcount_ask(geometry: &Geometry, limits: &Limits, blocks: u32) -> u64 {
    if geometry.has_reflink() { limits.refcount.blocks_for_records(blocks.into()) } else { 0 }
}

/// Blocks that the finobt of an AG with so many inodes may need later: any of its chunks may get a free inode.
fn finobt_ask(geometry: &Geometry, limits: &Limits, blocks: u32, inodes: u64) -> u64 {
    if !geometry.has_finobt() {
        return 0;
    }
    limits.inobt.blocks_for_records(inodes / u64::from(INODES_PER_CHUNK)).min(u64::from(blocks) / 64)
}

/// Blocks that keep the free lists of all AGs going, which nobody may take.
pub fn free_list_blocks(geometry: &Geometry) -> u64 {
    u64::from(geometry.ag_count) * AG_SET_ASIDE
}

/// Blocks that no operation may take although the superblock counts them as free: at least what all AGs together ever
/// hold back, for otherwise a transaction could find nothing of what it has reserved.
pub fn set_aside_blocks(geometry: &Geometry, limits: &Limits) -> u64 {
    let rmap = rmap_ask(geometry, limits, geometry.ag_blocks);
    free_list_blocks(geometry) + u64::from(geometry.ag_count) * rmap + blocks_for_trees(geometry, limits)
}

/// The part of [`set_aside_blocks`] for the trees that a removal may make larger, and whose blocks count as used: those
/// of reference counts and of chunks with free inodes.
pub fn blocks_for_trees(geometry: &Geometry, limits: &Limits) -> u64 {
    let blocks = geometry.ag_blocks;
    let most_inodes = u64::from(blocks) * u64::from(geometry.inodes_per_block());
    let ask = refcount_ask(geometry, limits, blocks) + finobt_ask(geometry, limits, blocks, most_inodes);
    u64::from(geometry.ag_count) * ask
}

/// Free blocks of an AG that only its own trees may take: the rmapbt must be able to describe every block, the
/// refcountbt every shared one, the finobt every chunk.
pub(super) fn held_back(tx: &Transaction, ag: Ag) -> u32 {
    let (geometry, limits, agf) = (tx.geometry(), &tx.mount().limits, ag.agf(tx));
    let blocks = geometry.blocks_in_ag(ag.number);
    let mut held = rmap_ask(geometry, limits, blocks).saturating_sub(agf.rmap_blocks.get().into());
    held += refcount_ask(geometry, limits, blocks).saturating_sub(agf.refcount_blocks.get().into());
    let inodes = tx.mount().ags[ag.number.0 as usize].inodes().map_or(0, |(inodes, _)| inodes);
    held += finobt_ask(geometry, limits, blocks, inodes.into());
    held.min(u32::MAX.into()) as u32
}

/// Whether an AG has so little left of what it holds back that nothing more is to be shared in it: a shared block may
/// have any number of reverse mappings, so their tree may need more than its share. `least` is what must be there in
/// any case.
pub(super) fn is_short(tx: &Transaction, ag: Ag, least: u32) -> bool {
    let (geometry, limits) = (tx.geometry(), &tx.mount().limits);
    let blocks = geometry.blocks_in_ag(ag.number);
    let ask = rmap_ask(geometry, limits, blocks) + refcount_ask(geometry, limits, blocks);
    let critical = (ask / 10).max(u64::from(4 * (limits.rmap_levels + limits.refcount_levels) + least));
    u64::from(ag.agf(tx).free_blocks.get()) < critical
}

/// Blocks that allocating an inode may need: a chunk, and a split of every level of the inode trees.
pub fn inode_allocation_blocks(geometry: &Geometry, limits: &Limits) -> u64 {
    u64::from(geometry.inode_chunk_blocks()) + inode_tree_blocks(geometry, limits)
}

/// Blocks that the inode trees may grow by when a record is added to each.
pub(super) fn inode_tree_blocks(geometry: &Geometry, limits: &Limits) -> u64 {
    let trees = if geometry.has_finobt() { 2 } else { 1 };
    trees * u64::from(limits.inobt_levels)
}

/// Blocks that freeing an inode may need: its chunk may be new to the finobt.
pub fn inode_free_blocks(geometry: &Geometry, limits: &Limits) -> u64 {
    if geometry.has_finobt() { limits.inobt_levels.into() } else { 0 }
}

/// Blocks that freeing one extent may need: its shared parts may split records of the refcountbt.
pub fn free_blocks_needed(geometry: &Geometry, limits: &Limits) -> u64 {
    if geometry.has_reflink() { 2 * u64::from(limits.refcount_levels) } else { 0 }
}
