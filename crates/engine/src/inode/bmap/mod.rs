//! Extent maps: which blocks on disk contain which blocks of a fork.
//!
//! ```text
//! Extents   all records in the inode          ──too many──▶  Btree  root in the inode, records in leaves
//!                                             ◀─few enough──
//! ```
//! In memory the list of extents is always whole (a btree's is read when it is first needed), so look-ups never touch
//! the tree; changes go to both.
//!
//! Invariants: extents are in order, do not overlap, and neighbours that continue each other are one record wherever
//! one of them changed. `core.blocks` counts every block of the fork, the tree's included; the extent counters count
//! records.
//!
//! Locking: the caller holds the inode's lock. Allocation takes AG locks.

mod allocate;
mod apply;
mod bmbt;
mod convert;
mod load;
mod remap;
mod remove;
mod rewrite;
mod share;
mod shift;

pub use allocate::{allocate, allocate_avoiding_busy, allocate_one, allocate_unwritten, map_new};
pub use apply::{leave_inode, push_root_down};
pub use bmbt::{BMBT_KIND, near_inode};
pub use convert::convert;
pub use remap::{expect_extents, map_extent, unmap_extent};
pub use remove::{blocks_for_one, remove, remove_some};
pub use rewrite::{expect_count, expect_records};
pub use share::{expect_share, forget_sharing, may_share, set_may_share, share};
pub use shift::{shift_left, shift_right};

use crate::buffer::{BufferKey, DiskRun, DiskRuns};
use crate::error::Result;
use crate::incore::{Extents, ForkKind, ForkMap};
use crate::space::Owner;
use crate::trans::{InoId, InodeFields, Transaction};
use xfskit_ondisk::{Corruption, Extent, FileBlock, FsBlock};

/// All extents of a fork, in order. A fork that is not mapped by extents has none.
///
/// # Errors
/// `Corrupt`, `Io` when a btree has to be read.
pub fn extents<'t>(tx: &'t mut Transaction<'_>, ino: InoId, fork: ForkKind) -> Result<Extents<'t>> {
    load::load(tx, ino, fork)?;
    Ok(loaded(tx, ino, fork))
}

/// As [`extents`], once they are in memory.
fn loaded<'t>(tx: &'t Transaction<'_>, ino: InoId, fork: ForkKind) -> Extents<'t> {
    match tx.inode(ino).map(fork) {
        Some(ForkMap::Extents(extents)) => Extents::Few(extents),
        Some(ForkMap::Btree(root)) => root.extents.get().map_or(Extents::Few(&[]), Extents::Many),
        None => Extents::Few(&[]),
    }
}

/// The extent that covers a fork block.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn lookup(tx: &mut Transaction, ino: InoId, fork: ForkKind, at: FileBlock) -> Result<Option<Extent>> {
    let next = extents(tx, ino, fork)?.next_at(at).copied();
    Ok(next.filter(|extent| extent.file_block <= at))
}

/// Where `count` fork blocks from `at` lie on disk; `None` if any of them is a hole.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn runs(tx: &mut Transaction, ino: InoId, fork: ForkKind, at: FileBlock, count: u32) -> Result<Option<DiskRuns>> {
    let mut runs = DiskRuns::new();
    let mut next = at;
    let end = at.add(count.into());
    load::load(tx, ino, fork)?;
    let list = loaded(tx, ino, fork);
    while next < end {
        let Some(extent) = list.next_at(next).filter(|extent| extent.file_block <= next) else { return Ok(None) };
        let skip = next.0 - extent.file_block.0;
        let blocks = (extent.count - skip).min(end.0 - next.0);
        let block = FsBlock(extent.block.0 + skip);
        let Some(address) = tx.geometry().fs_block_address(block) else {
            return Err(Corruption::new("extent record", "lies on the device").of(tx.inode(ino).core.inode.0).into());
        };
        let basic_blocks = tx.geometry().basic_blocks(blocks as u32) as u32;
        match runs.last_mut() {
            Some(DiskRun { address: start, basic_blocks: length }) if start.0 + u64::from(*length) == address.0 => {
                *length += basic_blocks;
            }
            _ => runs.push(DiskRun { address, basic_blocks }),
        }
        next = next.add(blocks);
    }
    Ok(Some(runs))
}

/// Where the metadata block of `count` fork blocks at `at` lies; `None` if any of them is a hole.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn key(tx: &mut Transaction, ino: InoId, fork: ForkKind, at: FileBlock, count: u32) -> Result<Option<BufferKey>> {
    // Nearly all lie in one extent.
    let found = lookup(tx, ino, fork, at)?.filter(|extent| extent.end() >= at.add(count.into()));
    let geometry = tx.geometry();
    if let Some(extent) = found
        && let Some(address) = geometry.fs_block_address(FsBlock(extent.block.0 + (at.0 - extent.file_block.0)))
    {
        return Ok(Some(BufferKey::new(address, (count as usize) << geometry.block_log)));
    }
    Ok(runs(tx, ino, fork, at, count)?.map(BufferKey::from_runs))
}

/// The first hole of `count` blocks at or after `from`.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn first_unused(
    tx: &mut Transaction,
    ino: InoId,
    fork: ForkKind,
    from: FileBlock,
    count: u32,
) -> Result<FileBlock> {
    let memory = if fork == ForkKind::Data { tx.inode(ino).dir_memory.as_ref() } else { None };
    let mut candidate = memory.map_or(from, |memory| memory.filled_to(from));
    let list = extents(tx, ino, fork)?;
    for extent in list.iter_from(list.index_at(candidate)) {
        if extent.file_block.0 >= candidate.0 + u64::from(count) {
            break;
        }
        candidate = candidate.max(extent.end());
    }
    if fork == ForkKind::Data
        && let Some(memory) = tx.dir_memory_mut(ino)
    {
        memory.note_filled(from, candidate);
    }
    Ok(candidate)
}

/// The end of the last extent that starts below `bound`; block 0 if there is none.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn last_block(tx: &mut Transaction, ino: InoId, fork: ForkKind, bound: FileBlock) -> Result<FileBlock> {
    let extents = extents(tx, ino, fork)?;
    let next = extents.partition_point(|extent| extent.file_block < bound);
    Ok(next.checked_sub(1).map_or(FileBlock(0), |index| extents[index].end()))
}

/// Changes the count of the inode's blocks, which may be wrong in a damaged inode.
fn count_blocks(tx: &mut Transaction, ino: InoId, change: i64) -> Result<()> {
    let core = &tx.inode(ino).core;
    let Some(blocks) = core.blocks.checked_add_signed(change) else {
        return Err(Corruption::new("inode", "number of blocks").of(core.inode.0).found(core.blocks).into());
    };
    tx.inode_mut(ino, InodeFields::CORE).core.blocks = blocks;
    Ok(())
}

/// The owner that reverse mappings name for blocks of a fork.
pub fn owner(tx: &Transaction, ino: InoId, fork: ForkKind, offset: FileBlock) -> Owner {
    Owner::Fork { inode: tx.inode(ino).core.inode, fork, offset, bmbt: false }
}
