//! New chunks of inodes.
//!
//! ```text
//! a whole chunk     64 inodes in a row, aligned        one record, no holes
//! a sparse one      a part of them, aligned to less    one record with a hole mask; further parts join it
//! large blocks      128 inodes in one block            two records
//! ```
//! The journal carries one small item for a new chunk; the inodes themselves are written back in order.

use super::{update_finobt, update_inobt};
use crate::error::Result;
use crate::space::ag::Ag;
use crate::space::ag_tree::ag_tree;
use crate::space::cluster::INODE_CLUSTER_KIND;
use crate::space::inode_trees::InodeAg;
use crate::space::owner::Owner;
use crate::space::reservation::inode_tree_blocks;
use crate::space::{AllocRequest, Near, alloc};
use crate::trans::Transaction;
use smallvec::SmallVec;
use xfskit_ondisk::btree::{FreeExtent, Inobt, InodeChunk};
use xfskit_ondisk::inode::encode_free_inode;
use xfskit_ondisk::logged::icreate::NewInodes;
use xfskit_ondisk::{AgBlock, AgInode, Geometry, INODES_PER_CHUNK, InodeNumber, NULL_AG_INODE};

/// Inodes that one bit of a hole mask stands for.
const INODES_PER_HOLE_BIT: u32 = 4;

/// Whether another chunk would exceed the share of the space that inodes may take.
pub(super) fn limit_is_reached(tx: &Transaction) -> bool {
    let geometry = tx.geometry();
    let (inodes, _) = tx.mount().space.inodes();
    geometry.max_inodes().is_some_and(|most| inodes + u64::from(geometry.inodes_per_allocation()) > most)
}

/// Alignment of whole chunks in blocks.
fn chunk_alignment(geometry: &Geometry) -> u32 {
    let reaches_cluster = geometry.inode_alignment as usize * geometry.block_bytes() >= geometry.inode_cluster_bytes();
    if reaches_cluster { geometry.inode_alignment } else { 1 }
}

/// Makes a chunk in the AG. False: there is no space, and nothing was changed. `WouldBlock`, likewise, when another
/// transaction holds the AG's free space and it must not be waited for.
pub(super) fn make(tx: &mut Transaction, ag: InodeAg) -> Result<bool> {
    if limit_is_reached(tx) {
        return Ok(false);
    }
    let space = Ag::lock(tx, ag.number)?;
    let whole = find_whole(tx, ag, space)?;
    let found = match whole {
        Some(_) => whole,
        None => find_sparse(tx, ag, space)?,
    };
    let Some(extent) = found else {
        space.release(tx);
        return Ok(false);
    };
    initialize(tx, ag, extent)?;
    if whole.is_some() {
        record_whole(tx, ag, extent)?
    } else {
        record_sparse(tx, ag, extent)?
    }
    let geometry = tx.geometry();
    let inodes = inodes_in(geometry, extent);
    let skipped = if whole.is_some() { 0 } else { extent.start.0 % geometry.inode_alignment };
    let first = geometry.first_inode_of_block(AgBlock(extent.start.0 - skipped));
    ag.agi_mut(tx).newest = first.0.into();
    ag.count_inodes(tx, inodes as i32, inodes as i32);
    Ok(true)
}

fn inodes_in(geometry: &Geometry, extent: FreeExtent) -> u32 {
    extent.count * geometry.inodes_per_block()
}

fn request(tx: &Transaction, ag: InodeAg, blocks: u32) -> AllocRequest {
    let min_left = inode_tree_blocks(tx.geometry(), &tx.mount().limits) as u32;
    AllocRequest { min_left, ..AllocRequest::new(Near::Ag(ag.number), blocks, blocks, Owner::InodeChunk) }
}

/// Space for a whole chunk: behind the newest one, or near the root of the inobt.
fn find_whole(tx: &mut Transaction, ag: InodeAg, space: Ag) -> Result<Option<FreeExtent>> {
    let geometry = tx.geometry();
    let (blocks, alignment) = (geometry.inode_chunk_blocks(), chunk_alignment(geometry));
    let stripe_unit = geometry.stripe_unit;
    let newest = AgInode(ag.agi(tx).newest.get());
    if newest != NULL_AG_INODE {
        let behind = AgBlock(geometry.inode_block(newest).0.saturating_add(blocks));
        if geometry.contains(ag.number, behind) && behind.0.is_multiple_of(alignment) {
            let exact = AllocRequest { exact: true, alignment, ..request(tx, ag, blocks) };
            if let Some(found) = alloc::allocate_in(tx, space, Some(behind), &exact)? {
                return Ok(Some(found));
            }
        }
    }
    let root = AgBlock(ag.agi(tx).root.get());
    let striped = (stripe_unit > alignment && stripe_unit.is_multiple_of(alignment)).then_some(stripe_unit);
    for alignment in striped.into_iter().chain([alignment]) {
        let near = AllocRequest { alignment, ..request(tx, ag, blocks) };
        if let Some(found) = alloc::allocate_in(tx, space, Some(root), &near)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Space for a part of a chunk. Its record begins where a whole chunk's would, which must lie within the AG and not
/// at its start.
fn find_sparse(tx: &mut Transaction, ag: InodeAg, space: Ag) -> Result<Option<FreeExtent>> {
    let geometry = tx.geometry();
    let (blocks, whole) = (geometry.sparse_inode_alignment, geometry.inode_chunk_blocks());
    let possible = geometry.has_sparse_inodes() && blocks > 0 && blocks < whole;
    if !possible || !blocks.is_multiple_of(geometry.inode_cluster_blocks()) {
        return Ok(None);
    }
    let alignment = geometry.inode_alignment;
    let ag_blocks = geometry.blocks_in_ag(ag.number);
    let end = (ag_blocks - ag_blocks % alignment).saturating_sub(whole);
    let root = AgBlock(ag.agi(tx).root.get());
    let near = AllocRequest { alignment: blocks, bounds: alignment..end.saturating_add(1), ..request(tx, ag, blocks) };
    alloc::allocate_in(tx, space, Some(root), &near)
}

/// Writes the free inodes of new blocks and logs that they were made.
fn initialize(tx: &mut Transaction, ag: InodeAg, extent: FreeExtent) -> Result<()> {
    let generation = tx.mount().env.random() as u32;
    let (cluster_blocks, bytes) = (tx.geometry().inode_cluster_blocks(), tx.geometry().inode_cluster_bytes());
    for block in (extent.start.0..extent.end()).step_by(cluster_blocks as usize) {
        let block = AgBlock(block);
        let address = tx.geometry().address(ag.number, block);
        let buffer = tx.create(address, bytes, &INODE_CLUSTER_KIND)?;
        let geometry = std::sync::Arc::clone(&tx.mount().geometry);
        let first = geometry.inode_number(ag.number, geometry.first_inode_of_block(block));
        for (index, inode) in tx.unlogged_mut(buffer).chunks_exact_mut(geometry.inode_bytes()).enumerate() {
            encode_free_inode(&geometry, InodeNumber(first.0 + index as u64), generation, inode);
        }
        tx.order(buffer);
        tx.mount().inodes.cluster_made(address);
    }
    tx.log_new_inodes(NewInodes { ag: ag.number, block: extent.start, blocks: extent.count, generation });
    Ok(())
}

fn record_whole(tx: &mut Transaction, ag: InodeAg, extent: FreeExtent) -> Result<()> {
    let first = tx.geometry().first_inode_of_block(extent.start).0;
    let recorded_count = if tx.geometry().has_sparse_inodes() { INODES_PER_CHUNK as u8 } else { 0 };
    let last = first + inodes_in(tx.geometry(), extent);
    for first in (first..last).step_by(INODES_PER_CHUNK as usize) {
        let chunk = InodeChunk {
            first: AgInode(first),
            hole_mask: 0,
            recorded_count,
            free_count: INODES_PER_CHUNK as u8,
            free: u64::MAX,
        };
        update_finobt(tx, ag, &chunk)?;
        ag_tree::<Inobt>(ag).insert(tx, &chunk)?;
    }
    Ok(())
}

/// Records a part of a chunk, together with the parts that are there already.
fn record_sparse(tx: &mut Transaction, ag: InodeAg, extent: FreeExtent) -> Result<()> {
    let geometry = tx.geometry();
    let inodes = inodes_in(geometry, extent);
    let misaligned = extent.start.0 % geometry.inode_alignment;
    let skipped = misaligned * geometry.inodes_per_block();
    let first = AgInode(geometry.first_inode_of_block(extent.start).0 - skipped);
    let bits = |inodes: u32| (1u32 << (inodes / INODES_PER_HOLE_BIT)) - 1;
    let exists = (bits(inodes) << (skipped / INODES_PER_HOLE_BIT)) as u16;
    let mut chunk = InodeChunk {
        first,
        hole_mask: !exists,
        recorded_count: inodes as u8,
        free_count: inodes as u8,
        free: u64::MAX,
    };
    let old = ag_tree::<Inobt>(ag).lookup(tx, &first)?;
    let Some(old) = old else {
        update_finobt(tx, ag, &chunk)?;
        return ag_tree::<Inobt>(ag).insert(tx, &chunk);
    };
    ensure_on_disk!(!old.hole_mask & exists == 0, "inobt block", "new inodes fill a hole", "{old:?}");
    chunk.hole_mask &= old.hole_mask;
    chunk.free &= old.free;
    chunk.recorded_count += old.recorded_count;
    chunk.free_count += old.free_count;
    update_finobt(tx, ag, &chunk)?;
    update_inobt(tx, ag, &chunk)
}

/// The runs of blocks that a chunk has.
pub(super) fn block_runs(geometry: &Geometry, chunk: &InodeChunk) -> SmallVec<[FreeExtent; 2]> {
    let first = geometry.inode_block(chunk.first);
    let blocks = geometry.inode_chunk_blocks();
    let inodes_per_block = geometry.inodes_per_block();
    let exists = |block: u32| chunk.holes() >> (block * inodes_per_block).min(INODES_PER_CHUNK - 1) & 1 == 0;
    let mut runs: SmallVec<[FreeExtent; 2]> = SmallVec::new();
    for block in (0..blocks).filter(|&block| exists(block)) {
        match runs.last_mut() {
            Some(run) if run.end() == first.0 + block => run.count += 1,
            _ => runs.push(FreeExtent { start: first.add(block), count: 1 }),
        }
    }
    runs
}
