//! Allocating and freeing inodes.
//!
//! ```text
//! allocate_inode   choose an AG (directories in turn, files beside their directory)
//!   chunk            make a new chunk where no inode is free: whole, or sparse when space is fragmented
//!   pick             a chunk with a free inode, near the parent's; its lowest free inode
//! free_inode       mark it free; a chunk without inodes in use goes away with its blocks
//! ```
//! Invariants: the finobt holds exactly the inobt's records that have a free inode; the AGI's counts are the sums of
//! the records.
//!
//! Facts: the kernel's `xfs_ialloc.c`.

mod chunk;
mod pick;

use super::ag::{Ag, below_agi};
use super::ag_tree::{AgTree, ag_tree};
use super::alloc;
use super::inode_trees::{InodeAg, InodeTreeFormat};
use super::owner::Owner;
use crate::btree::Cursor;
use crate::error::{Error, Result};
use crate::error_tags::REFUSE_INODE;
use crate::space::cluster::INODE_CLUSTER_KIND;
use crate::trans::Transaction;
use smallvec::SmallVec;
use xfskit_ondisk::btree::{Finobt, Inobt, InodeChunk};
use xfskit_ondisk::inode::{MODE_DIR, MODE_TYPE};
use xfskit_ondisk::{AgInode, AgNumber, INODES_PER_CHUNK, InodeNumber};

/// A chunk whose blocks were freed with its last inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkFreed {
    /// Its first inode.
    pub first: InodeNumber,
    /// A bit for every inode that existed.
    pub inodes: u64,
}

/// Allocates an inode for a file of `mode` in the directory `parent`: it is marked as used in the inode trees, and
/// its contents on disk are those of a free inode with a generation. `None`: no space, and nothing was changed.
///
/// # Errors
/// `Corrupt`, `Io`; `WouldBlock` as [`allocate_inodes`].
pub fn allocate_inode(tx: &mut Transaction, parent: InodeNumber, mode: u16) -> Result<Option<InodeNumber>> {
    Ok(allocate_inodes(tx, parent, mode, 1)?.first().copied())
}

/// As [`allocate_inode`], up to `most` of one chunk.
///
/// # Errors
/// `Corrupt`, `Io`; `WouldBlock`, before anything was changed, when there may be inodes in an AG that another
/// transaction holds and that must not be waited for, because the transaction holds a later one. One that has changed
/// something finds none then.
pub fn allocate_inodes(
    tx: &mut Transaction,
    parent: InodeNumber,
    mode: u16,
    most: u32,
) -> Result<SmallVec<[InodeNumber; 1]>> {
    if tx.mount().error_tags.strikes(REFUSE_INODE) {
        return Ok(SmallVec::new());
    }
    let ag_count = if tx.mount().options.inode32 { ags_of_32_bits(tx) } else { tx.geometry().ag_count };
    let (parent_ag, parent_inode) = tx.geometry().split_inode(parent).ok_or(Error::Stale(parent.0))?;
    let is_dir = mode & MODE_TYPE == MODE_DIR;
    let first = if is_dir { tx.mount().space.next_directory() % ag_count } else { parent_ag.0 % ag_count };
    let mut blocked = false;
    for step in 0..ag_count {
        let number = AgNumber((first + step) % ag_count);
        if !may_have_inodes(tx, number) {
            continue;
        }
        let (ag, space) = match lock_both(tx, number) {
            Ok(locked) => locked,
            Err(Error::WouldBlock) => {
                blocked = true;
                continue;
            }
            Err(error) => return Err(error),
        };
        let near = (number == parent_ag).then_some(parent_inode);
        let taken = match take_or_make(tx, ag, near, most) {
            Err(Error::WouldBlock) => {
                blocked = true;
                Ok(None)
            }
            other => other,
        };
        if let Some((first, mut mask)) = below_agi(tx, number, taken)? {
            let mut inodes = SmallVec::new();
            while mask != 0 {
                inodes.push(tx.geometry().inode_number(number, AgInode(first.0 + mask.trailing_zeros())));
                mask &= mask - 1;
            }
            return Ok(inodes);
        }
        if let Some(space) = space {
            space.release(tx);
        }
        ag.release(tx);
    }
    if blocked && !tx.is_dirty() { Err(Error::WouldBlock) } else { Ok(SmallVec::new()) }
}

/// How many AGs, from the first on, have only inodes whose numbers have 32 bits; one at least.
fn ags_of_32_bits(tx: &Transaction) -> u32 {
    let geometry = tx.geometry();
    // The first number of the AG behind is above all numbers of one.
    let all_fit = |ag: &u32| geometry.inode_number(AgNumber(ag + 1), AgInode(0)).0 <= 1 << u32::BITS;
    (0..geometry.ag_count).take_while(all_fit).count().max(1) as u32
}

/// Inodes of one chunk: its first, and a bit for each of them.
type Taken = (AgInode, u64);

/// Takes free inodes of an AG, from a new chunk where it has none.
fn take_or_make(tx: &mut Transaction, ag: InodeAg, near: Option<AgInode>, most: u32) -> Result<Option<Taken>> {
    let found = ag.agi(tx).free_count.get() > 0 || chunk::make(tx, ag)?;
    if found { take_inodes(tx, ag, near, most).map(Some) } else { Ok(None) }
}

/// Locks the AGI, and the AGF too if it could not be waited for later: the inode trees may take or give a block.
fn lock_both(tx: &mut Transaction, number: AgNumber) -> Result<(InodeAg, Option<Ag>)> {
    let ag = InodeAg::lock(tx, number)?;
    match Ag::lock_early(tx, number) {
        Ok(space) => Ok((ag, space)),
        Err(error) => {
            ag.release(tx);
            Err(error)
        }
    }
}

/// Whether it is worth a look at an AG, as far as is remembered.
fn may_have_inodes(tx: &Transaction, ag: AgNumber) -> bool {
    let state = &tx.mount().ags[ag.0 as usize];
    let no_inodes = state.inodes().is_some_and(|(_, free)| free == 0);
    let no_space = state.space().is_some_and(|(free, _)| free == 0);
    !(no_inodes && (no_space || chunk::limit_is_reached(tx)))
}

/// Marks free inodes of a chunk of the AG as used, the lowest ones.
fn take_inodes(tx: &mut Transaction, ag: InodeAg, near: Option<AgInode>, most: u32) -> Result<Taken> {
    let pick::Picked { chunk: old, free_tree } = pick::chunk_with_free_inode(tx, ag, near)?;
    let (mut taken, mut left) = (0, old.allocatable());
    ensure_on_disk!(left != 0, "inobt block", "the AG has a free inode", "{old:?}");
    for _ in 0..most.min(left.count_ones()) {
        taken |= left & left.wrapping_neg();
        left &= left - 1;
    }
    let count = taken.count_ones();
    let new = InodeChunk { free: old.free & !taken, free_count: old.free_count - count as u8, ..old };
    let (mut tree, found) = inobt_at(tx, ag, old.first)?;
    check_same::<Inobt>(found, &old)?;
    if let Some(mut free_tree) = free_tree {
        if new.free_count > 0 {
            free_tree.update(tx, &new)?;
        } else {
            free_tree.remove(tx)?;
        }
        free_tree.close(tx);
    }
    tree.update(tx, &new)?;
    tree.close(tx);
    ag.count_inodes(tx, 0, -(count as i32));
    Ok((old.first, taken))
}

/// Checks that a record of one inode tree says the same as the other's.
fn check_same<F: InodeTreeFormat>(found: Option<InodeChunk>, chunk: &InodeChunk) -> Result<()> {
    let of = |chunk: &InodeChunk| (chunk.first, chunk.free, chunk.hole_mask);
    let same = found.is_some_and(|found| of(&found) == of(chunk));
    ensure_on_disk!(same, F::NAME, "agrees with the other inode tree", "{found:?} and {chunk:?}");
    Ok(())
}

/// A cursor of the inobt at the last record that is not above `inode`, which it holds if any does. Only good for a look
/// at that record, and for a change that leaves its key.
fn inobt_at(tx: &mut Transaction, ag: InodeAg, inode: AgInode) -> Result<(Cursor<AgTree<Inobt>>, Option<InodeChunk>)> {
    let state = &tx.mount().ags[ag.number.0 as usize];
    let mut tree = ag_tree::<Inobt>(ag).cursor();
    if let Some(leaf) = state.inobt_leaf() {
        let found = tree.seek_in_leaf(tx, leaf, &inode)?;
        if found.is_some_and(|chunk| chunk.index_of(inode).is_some()) {
            return Ok((tree, found));
        }
    }
    let found = tree.lookup_le(tx, &inode)?;
    if let Some(leaf) = tree.leaf_pointer() {
        state.remember_inobt_leaf(leaf);
    }
    Ok((tree, found))
}

fn update_inobt(tx: &mut Transaction, ag: InodeAg, chunk: &InodeChunk) -> Result<()> {
    ag_tree::<Inobt>(ag).update(tx, chunk, chunk)
}

/// Makes the finobt's record of a chunk what it must be: none without free inodes.
fn update_finobt(tx: &mut Transaction, ag: InodeAg, chunk: &InodeChunk) -> Result<()> {
    if !tx.geometry().has_finobt() {
        return Ok(());
    }
    let mut tree = ag_tree::<Finobt>(ag).cursor();
    let known = tree.lookup(tx, &chunk.first)?.is_some();
    match (known, chunk.free_count > 0) {
        (true, true) => tree.update(tx, chunk)?,
        (true, false) => tree.remove(tx)?,
        (false, true) => tree.insert(tx, chunk)?,
        (false, false) => {}
    }
    tree.close(tx);
    Ok(())
}

/// The chunk of an inode and the inode's index in it, if the chunk exists and has the inode.
fn find_chunk(tx: &mut Transaction, ag: InodeAg, inode: AgInode) -> Result<Option<(InodeChunk, u32)>> {
    let found = ag_tree::<Inobt>(ag).lookup_le(tx, &inode)?;
    Ok(found.and_then(|chunk| index_in(&chunk, inode).map(|index| (chunk, index))))
}

/// The index of an inode in its chunk, if the chunk has it.
fn index_in(chunk: &InodeChunk, inode: AgInode) -> Option<u32> {
    chunk.index_of(inode).filter(|index| chunk.holes() >> index & 1 == 0)
}

/// Whether an inode number names an inode in use. For numbers from outside, such as those of file handles.
///
/// # Errors
/// `Corrupt`, `Io`, `WouldBlock` when the AG must not be waited for and another transaction holds it.
pub fn is_allocated(tx: &mut Transaction, inode: InodeNumber) -> Result<bool> {
    let Some((number, within)) = tx.geometry().split_inode(inode) else { return Ok(false) };
    let ag = InodeAg::lock(tx, number)?;
    let found = find_chunk(tx, ag, within)?;
    ag.release(tx);
    Ok(found.is_some_and(|(chunk, index)| chunk.free >> index & 1 == 0))
}

/// Frees an inode. When it was the last of its chunk, the chunk's blocks are freed and its buffers invalidated.
///
/// # Errors
/// `WouldBlock`, before anything was changed, when the AG must not be waited for and another transaction holds it;
/// `NoSpace`, likewise, when the finobt cannot grow; `Corrupt` when the inode is free already, `Io`.
pub fn free_inode(tx: &mut Transaction, inode: InodeNumber) -> Result<Option<ChunkFreed>> {
    let (number, within) = tx.geometry().split_inode(inode).ok_or(Error::Stale(inode.0))?;
    let (ag, _) = lock_both(tx, number)?;
    let freed = free_in(tx, ag, inode, within);
    below_agi(tx, number, freed)
}

fn free_in(tx: &mut Transaction, ag: InodeAg, inode: InodeNumber, within: AgInode) -> Result<Option<ChunkFreed>> {
    let (mut tree, found) = inobt_at(tx, ag, within)?;
    let found = found.and_then(|chunk| index_in(&chunk, within).map(|index| (chunk, index)));
    ensure_on_disk!(found.is_some(), "inobt block", "a freed inode has a chunk", "inode {inode}");
    let (old, index) = found.expect("checked above");
    ensure_on_disk!(old.free >> index & 1 == 0, "inobt block", "a freed inode was in use", "inode {inode}");
    let new = InodeChunk { free: old.free | 1 << index, free_count: old.free_count + 1, ..old };
    let unused = u32::from(new.free_count) == new.inodes();
    // A block that holds several chunks cannot go with one of them.
    if unused && tx.geometry().inodes_per_block() <= INODES_PER_CHUNK {
        tree.close(tx);
        return remove_chunk(tx, ag, &new).map(Some);
    }
    if tx.geometry().has_finobt() {
        if old.free_count == 0 {
            ag_tree::<Finobt>(ag).insert(tx, &new)?;
        } else {
            let mut free_tree = ag_tree::<Finobt>(ag).cursor();
            check_same::<Finobt>(free_tree.lookup(tx, &old.first)?, &old)?;
            free_tree.update(tx, &new)?;
            free_tree.close(tx);
        }
    }
    tree.update(tx, &new)?;
    tree.close(tx);
    ag.count_inodes(tx, 0, 1);
    Ok(None)
}

/// Removes a chunk without inodes in use from the trees and frees its blocks.
fn remove_chunk(tx: &mut Transaction, ag: InodeAg, chunk: &InodeChunk) -> Result<ChunkFreed> {
    update_finobt(tx, ag, &InodeChunk { free_count: 0, ..*chunk })?;
    let mut tree = ag_tree::<Inobt>(ag).cursor();
    tree.lookup(tx, &chunk.first)?;
    tree.remove(tx)?;
    tree.close(tx);
    let inodes = chunk.inodes() as i32;
    // The inode that is freed now was not yet counted as free.
    ag.count_inodes(tx, -inodes, 1 - inodes);
    let space = Ag::lock(tx, ag.number)?;
    for run in chunk::block_runs(tx.geometry(), chunk) {
        let (cluster_blocks, bytes) = (tx.geometry().inode_cluster_blocks(), tx.geometry().inode_cluster_bytes());
        for block in (run.start.0..run.end()).step_by(cluster_blocks as usize) {
            let address = tx.geometry().address(ag.number, xfskit_ondisk::AgBlock(block));
            tx.invalidate_at(address, bytes, &INODE_CLUSTER_KIND)?;
        }
        alloc::free_unshared(tx, space, run, Owner::InodeChunk)?;
    }
    Ok(ChunkFreed { first: tx.geometry().inode_number(ag.number, chunk.first), inodes: !chunk.holes() })
}
