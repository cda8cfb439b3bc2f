//! Maps holes of a fork with newly allocated blocks.

use super::bmbt::near_inode;
use super::rewrite::{expect_count, expect_records, rewrite};
use super::{count_blocks, extents, owner};
use crate::error::{Error, Result};
use crate::error_tags::BMAP_ALLOC_MINLEN_EXTENT;
use crate::incore::ForkKind;
use crate::space::{AllocRequest, Busy, ExtentState, Near, alloc};
use crate::trans::{InoId, Transaction};
use smallvec::SmallVec;
use xfskit_ondisk::extent::MAX_EXTENT_BLOCKS;
use xfskit_ondisk::{Extent, FileBlock, FsBlock};

/// Maps `count` fork blocks from `at`, all holes, with metadata blocks, as few extents as the free space allows.
///
/// # Errors
/// `NoSpace`: before anything was changed if the transaction's reservation is too small.
pub fn allocate(
    tx: &mut Transaction,
    ino: InoId,
    fork: ForkKind,
    at: FileBlock,
    count: u32,
) -> Result<SmallVec<[Extent; 1]>> {
    allocate_with(tx, ino, fork, at, count, Busy::Taken)
}

/// As [`allocate`], but never takes busy blocks, whose freeing is not durable yet. For contents that are written
/// without the journal.
///
/// # Errors
/// As [`allocate`].
pub fn allocate_avoiding_busy(
    tx: &mut Transaction,
    ino: InoId,
    fork: ForkKind,
    at: FileBlock,
    count: u32,
) -> Result<SmallVec<[Extent; 1]>> {
    allocate_with(tx, ino, fork, at, count, Busy::Avoided)
}

/// Maps one extent of at most `count` blocks at `at` for contents that are written without the journal. Returns its
/// number of blocks.
///
/// # Errors
/// As [`allocate`].
pub fn allocate_one(tx: &mut Transaction, ino: InoId, fork: ForkKind, at: FileBlock, count: u32) -> Result<u32> {
    expect_count(tx, ino, fork, 1)?;
    let (block, got) = take(tx, ino, fork, at, count, ExtentState::Written)?;
    map_new(tx, ino, fork, Extent { file_block: at, block, count: got.into(), unwritten: false })?;
    Ok(got)
}

/// Maps one unwritten extent of at most `count` blocks in a hole of a file. Returns its number of blocks. The blocks
/// are not busy: they are written without the journal, perhaps before the transactions that freed and allocated them
/// are durable.
///
/// # Errors
/// As [`allocate`], and `TooLarge` when the map cannot count another record.
pub fn allocate_unwritten(tx: &mut Transaction, ino: InoId, at: FileBlock, count: u32) -> Result<u32> {
    let levels = u64::from(tx.mount().limits.data_levels);
    expect_records(tx, ino, ForkKind::Data, 1)?;
    let most = u64::from(count).min(tx.blocks_left().saturating_sub(levels)) as u32;
    let (block, got) = take(tx, ino, ForkKind::Data, at, most, ExtentState::Unwritten)?;
    map_new(tx, ino, ForkKind::Data, Extent { file_block: at, block, count: got.into(), unwritten: true })?;
    Ok(got)
}

/// Allocates one extent of at most `count` blocks that are not busy, for fork block `at`, without mapping it.
///
/// # Errors
/// As [`allocate`].
fn take(
    tx: &mut Transaction,
    ino: InoId,
    fork: ForkKind,
    at: FileBlock,
    count: u32,
    state: ExtentState,
) -> Result<(FsBlock, u32)> {
    if tx.blocks_left() == 0 || count == 0 {
        return Err(Error::NoSpace);
    }
    let smallest = tx.mount().error_tags.strikes(BMAP_ALLOC_MINLEN_EXTENT);
    let want = if smallest { 1 } else { u64::from(count).min(tx.blocks_left()) as u32 };
    let aligned = stripe_alignment(tx, ino, fork, at, want)?;
    for attempt in 0..2 {
        for (min, alignment) in [(want, aligned), (want, 1), (1, 1)] {
            let near = near_fork_block(tx, ino, fork, at)?;
            let owner = owner(tx, ino, fork, at);
            let request =
                AllocRequest { busy: Busy::Avoided, state, alignment, ..AllocRequest::new(near, min, want, owner) };
            if let Some(found) = alloc::allocate(tx, &request)? {
                return Ok(found);
            }
        }
        if attempt == 0 {
            // The reserved blocks may be free but busy. A force makes their freeing durable, and they are not busy any
            // more.
            tx.mount().journal.force_all()?;
        }
    }
    Err(Error::NoSpace)
}

/// The first of `count` blocks is to be a multiple of this. Blocks that follow a mapped fork block are not aligned, so
/// that they stay next to it.
fn stripe_alignment(tx: &mut Transaction, ino: InoId, fork: ForkKind, at: FileBlock, count: u32) -> Result<u32> {
    let alignment = tx.geometry().stripe_alignment(count);
    let continues = match at.0.checked_sub(1) {
        Some(before) if alignment > 1 => super::lookup(tx, ino, fork, FileBlock(before))?.is_some(),
        _ => false,
    };
    Ok(if continues { 1 } else { alignment })
}

/// Maps an extent into a hole. The transaction has allocated it for this place in the fork, reverse mapping included.
///
/// # Errors
/// `NoSpace`, before anything else was changed, when the map cannot grow; `Corrupt`, `Io`.
pub fn map_new(tx: &mut Transaction, ino: InoId, fork: ForkKind, extent: Extent) -> Result<()> {
    insert(tx, ino, fork, extent)?;
    count_blocks(tx, ino, extent.count as i64)
}

fn allocate_with(
    tx: &mut Transaction,
    ino: InoId,
    fork: ForkKind,
    at: FileBlock,
    count: u32,
    busy: Busy,
) -> Result<SmallVec<[Extent; 1]>> {
    if tx.blocks_left() < u64::from(count) {
        return Err(Error::NoSpace);
    }
    // In the worst case each block is a record.
    expect_count(tx, ino, fork, count as usize)?;
    let mut mapped = SmallVec::new();
    let mut next = at;
    let end = at.add(count.into());
    let mut whole = true;
    while next < end {
        let want = (end.0 - next.0).min(MAX_EXTENT_BLOCKS) as u32;
        let near = near_fork_block(tx, ino, fork, next)?;
        let request = AllocRequest {
            busy,
            ..AllocRequest::new(near, if whole { want } else { 1 }, want, owner(tx, ino, fork, next))
        };
        let Some((block, got)) = alloc::allocate(tx, &request)? else {
            if !whole {
                return Err(Error::NoSpace);
            }
            // No free extent is long enough: allocate piece by piece.
            whole = false;
            continue;
        };
        let extent = Extent { file_block: next, block, count: got.into(), unwritten: false };
        map_new(tx, ino, fork, extent)?;
        mapped.push(extent);
        next = next.add(got.into());
    }
    Ok(mapped)
}

/// Where the next blocks of a fork should lie: behind the block before them, or near the inode.
fn near_fork_block(tx: &mut Transaction, ino: InoId, fork: ForkKind, at: FileBlock) -> Result<Near> {
    let list = extents(tx, ino, fork)?;
    let next = list.index_behind(at);
    if let Some(before) = next.checked_sub(1).map(|index| list[index]) {
        return Ok(Near::Block(FsBlock(before.block.0 + before.count - 1)));
    }
    let inode = tx.inode(ino).core.inode;
    Ok(near_inode(tx, inode))
}

/// Adds an extent to the map.
pub(super) fn insert(tx: &mut Transaction, ino: InoId, fork: ForkKind, extent: Extent) -> Result<()> {
    let at = extents(tx, ino, fork)?.index_behind(extent.file_block);
    rewrite(tx, ino, fork, at..at, &[extent])
}
