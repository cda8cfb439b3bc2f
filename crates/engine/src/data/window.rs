//! Finds blocks for contents: behind the blocks that the file has, in one piece with them if possible, with room to
//! grow.

use super::piece::extent_before;
use crate::error::{Error, Result};
use crate::error_tags::BMAP_ALLOC_MINLEN_EXTENT;
use crate::incore::ForkKind;
use crate::inode::bmap;
use crate::space::{AllocRequest, Busy, Near, alloc};
use crate::trans::{InoId, Transaction};
use xfskit_ondisk::extent::MAX_EXTENT_BLOCKS;
use xfskit_ondisk::{FileBlock, FsBlock};

/// Files below this size get no room to grow: most never do.
const MIN_TO_GROW_BYTES: u64 = 64 << 10;
/// Most room that a file gets.
const MAX_ROOM_BYTES: u64 = 64 << 20;
/// Free space behind the last extent is used only if it has this many blocks, or all that are wanted: with fewer the
/// file would soon continue elsewhere.
const SHORTEST_CONTINUATION: u32 = 16;

/// Most blocks between the end of an extent and what is written behind it that may be filled later.
const MAX_GAP_BLOCKS: u64 = 4096;

/// Blocks that the file may write: firm blocks of its window.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewBlocks {
    /// The first.
    pub block: FsBlock,
    /// How many.
    pub count: u32,
}

/// Finds up to `count` blocks for the fork blocks from `first` on. `near`: where they should lie if there is nothing
/// before them.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Io`.
pub(super) fn find(
    tx: &mut Transaction,
    ino: InoId,
    first: u64,
    count: u64,
    near: Option<FsBlock>,
) -> Result<NewBlocks> {
    let holder = tx.inode(ino).core.inode;
    let smallest = tx.mount().error_tags.strikes(BMAP_ALLOC_MINLEN_EXTENT);
    let want = if smallest { 1 } else { count.min(MAX_EXTENT_BLOCKS) as u32 };
    if let Some((block, count)) = alloc::firm_window(tx, holder, FileBlock(first), want) {
        return Ok(NewBlocks { block, count });
    }
    let room = if smallest { 0 } else { room_to_grow(tx, ino, first, count)? };
    let attempts = attempts(tx, ino, first, want, room, near)?;
    for round in 0..2 {
        for (request, file_block) in attempts.iter().flatten() {
            if let Some((block, count)) = alloc::open_window(tx, request, *file_block, (FileBlock(first), want))? {
                return Ok(NewBlocks { block, count });
            }
        }
        if round == 0 {
            // The free blocks may be busy. A sync makes their freeing durable, and they are not busy any more.
            tx.mount().sync()?;
        }
    }
    Err(Error::NoSpace)
}

/// The requests to try, best first: behind the extent before (leaving room for a gap that is filled later); near it,
/// all in one piece; any blocks. Each has the fork block that will lie at the start of the blocks found.
fn attempts(
    tx: &mut Transaction,
    ino: InoId,
    first: u64,
    want: u32,
    room: u32,
    near: Option<FsBlock>,
) -> Result<[Option<(AllocRequest, FileBlock)>; 3]> {
    let holder = tx.inode(ino).core.inode;
    let before = extent_before(tx, ino, first)?.map(|e| (e.end(), FsBlock(e.block.0 + e.count)));
    let on_device = |block: &FsBlock| tx.geometry().fs_block_address(*block).is_some();
    // If an extent is copied on write piece by piece, each piece goes behind the one before.
    let is_near = |end: FileBlock| first.checked_sub(end.0).is_some_and(|gap| gap <= MAX_GAP_BLOCKS);
    let behind = before.filter(|(end, block)| is_near(*end) && on_device(block));
    let place = before.map(|(_, block)| block).filter(|_| near.is_none()).or(near).filter(on_device);
    let place = place.map_or_else(|| bmap::near_inode(tx, holder), Near::Block);
    let owner = bmap::owner(tx, ino, ForkKind::Data, FileBlock(first));
    let base = AllocRequest {
        busy: Busy::Avoided,
        holder: Some(holder),
        ..AllocRequest::new(place, want, want + room, owner)
    };
    let behind = behind.map(|(end, block)| {
        let gap = (first - end.0) as u32;
        let (min, max) = (gap + want.min(SHORTEST_CONTINUATION), gap + want + room);
        (AllocRequest { near: Near::Block(block), exact: true, min, max, ..base.clone() }, end)
    });
    let whole = AllocRequest { alignment: tx.geometry().stripe_alignment(want), ..base.clone() };
    let anything = AllocRequest { max: want, min: 1, ..base };
    Ok([behind, Some((whole, FileBlock(first))), Some((anything, FileBlock(first)))])
}

/// Blocks that the file should get beyond those that it needs now: as many as it has, if it grows at its end.
fn room_to_grow(tx: &mut Transaction, ino: InoId, first: u64, count: u64) -> Result<u32> {
    let block_log = tx.geometry().block_log;
    let end = first + count;
    let grows = last_end(tx, ino)? <= end && end << block_log >= tx.inode(ino).size_bytes();
    if !grows || end << block_log < MIN_TO_GROW_BYTES {
        return Ok(0);
    }
    let spare = tx.mount().space.usable_blocks() / 64;
    Ok(end.min(MAX_ROOM_BYTES >> block_log).min(spare).min(MAX_EXTENT_BLOCKS / 2) as u32)
}

/// The end of the file's last extent.
fn last_end(tx: &mut Transaction, ino: InoId) -> Result<u64> {
    Ok(extent_before(tx, ino, u64::MAX)?.map_or(0, |extent| extent.end().0))
}

/// Allocates the blocks that were found and written.
///
/// # Errors
/// `Corrupt`, `Io`; `NoSpace` when a damaged image has another file's blocks there.
pub(super) fn allocate(tx: &mut Transaction, ino: InoId, first: u64, space: NewBlocks) -> Result<()> {
    let inode = tx.inode(ino).core.inode;
    let owner = bmap::owner(tx, ino, ForkKind::Data, FileBlock(first));
    let request = AllocRequest {
        exact: true,
        holder: Some(inode),
        ..AllocRequest::new(Near::Block(space.block), space.count, space.count, owner)
    };
    let found = alloc::allocate(tx, &request)?;
    if found.is_none() {
        return Err(Error::NoSpace);
    }
    alloc::settle_window(tx, inode, space.block, space.count);
    Ok(())
}

/// The blocks that were found are not needed after all.
pub(super) fn give_up(tx: &Transaction, ino: InoId, space: NewBlocks) {
    alloc::settle_window(tx, tx.inode(ino).core.inode, space.block, 0);
}
