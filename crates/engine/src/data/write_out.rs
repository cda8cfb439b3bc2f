//! Writes contents to blocks that the file does not have yet: one run, one extent, one transaction.
//!
//! ```text
//! hole       window ─▶ write ─▶ allocate, map
//! shared     window ─▶ write ─▶ allocate, unmap the old blocks, map
//! unwritten            write ─▶ convert
//! written              write
//! ```
//! Nothing is changed before the last step, so an error leaves everything as it was. The same transaction sets the
//! size.

use super::piece::{BlockState, Piece, piece};
use super::{FlushedBefore, LONG_PIECE_BYTES, device_offset, expect_sole_owner, is_far, window, write_device};
use crate::error::{Error, Result};
use crate::incore::ForkKind;
use crate::inode::bmap;
use crate::space::{ExtentState, alloc, refcount};
use crate::trans::{InoId, InodeFields, Transaction};
use std::ops::Range;
use xfskit_ondisk::{Extent, FileBlock, FsBlock};

/// From where the bytes are taken.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// The dirty blocks of the inode.
    Dirty,
    /// The caller: whole blocks from the first of the run on.
    Bytes(&'a [u8]),
    /// The caller, which has read them from these blocks: the size stays.
    Copy(&'a [u8]),
}

/// Writes out blocks from the start of `run` on, as many as one transaction does; returns where the next begins. With
/// [`Source::Dirty`] all of the run is dirty; with bytes, none of it, and the transaction has blocks for it reserved.
///
/// # Errors
/// `NoSpace` and I/O errors before anything was changed; `Corrupt`, `Io`.
pub fn write_out_run(tx: &mut Transaction, ino: InoId, run: Range<u64>, source: Source<'_>) -> Result<u64> {
    let found = piece(tx, ino, run.start, run.end)?;
    let done = match found.state {
        BlockState::Written(block) => {
            expect_sole_owner(tx, ino, block, found.count())?;
            write_blocks(tx, ino, run.start..found.end, block, source)?;
            found.end
        }
        BlockState::Unwritten(block) => {
            write_blocks(tx, ino, run.start..found.end, block, source)?;
            run.start + bmap::convert(tx, ino, FileBlock(run.start), found.count(), ExtentState::Written)?
        }
        BlockState::Hole => place_and_map(tx, ino, found, None, source)?,
        BlockState::Shared(old) => {
            // Blocks that are shared in many pieces take many records of the refcount tree.
            let count = refcount::freeable_blocks(tx, old, found.count() as u32)?;
            let part = Piece { end: found.first + u64::from(count), ..found };
            place_and_map(tx, ino, part, Some(old), source)?
        }
    };
    let blocks = match found.state {
        BlockState::Hole | BlockState::Shared(_) => RunBlocks::New,
        BlockState::Written(_) | BlockState::Unwritten(_) => RunBlocks::Own,
    };
    finish_run(tx, ino, run.start..done, source, blocks);
    Ok(done)
}

/// Finds, writes and maps new blocks for a piece, or for the start of it. Returns the block behind the mapped ones.
fn place_and_map(
    tx: &mut Transaction,
    ino: InoId,
    found: Piece,
    old: Option<FsBlock>,
    source: Source<'_>,
) -> Result<u64> {
    let space = window::find(tx, ino, found.first, found.count(), old)?;
    let run = found.first..found.first + u64::from(space.count);
    if let Err(error) = write_blocks(tx, ino, run.clone(), space.block, source) {
        window::give_up(tx, ino, space);
        return Err(error);
    }
    if let Source::Dirty = source {
        tx.take_over_blocks(space.count.into());
    }
    let result = map(tx, ino, &run, space, old);
    if result.is_err() && !tx.is_dirty() {
        window::give_up(tx, ino, space);
        if let Source::Dirty = source {
            tx.hand_back_blocks(space.count.into());
        }
    }
    result.map(|()| run.end)
}

fn map(
    tx: &mut Transaction,
    ino: InoId,
    run: &Range<u64>,
    space: window::NewBlocks,
    old: Option<FsBlock>,
) -> Result<()> {
    // The mapping of a new piece within a shared extent leaves two parts of that extent beside it.
    bmap::expect_records(tx, ino, ForkKind::Data, if old.is_some() { 2 } else { 1 })?;
    // What the trees may take is wanted beside the blocks for the contents.
    let trees = if old.is_some() { bmap::blocks_for_one(tx) } else { u64::from(tx.mount().limits.data_levels) };
    if tx.blocks_left() < u64::from(space.count) + trees {
        return Err(Error::NoSpace);
    }
    if let Some(old) = old {
        alloc::lock_pair(tx, old, space.block)?;
    }
    window::allocate(tx, ino, run.start, space)?;
    if old.is_some() {
        bmap::remove(tx, ino, ForkKind::Data, FileBlock(run.start), space.count.into())?;
    }
    let (file_block, count) = (FileBlock(run.start), space.count.into());
    bmap::map_new(tx, ino, ForkKind::Data, Extent { file_block, block: space.block, count, unwritten: false })
}

/// Writes the bytes of a run to the device.
fn write_blocks(tx: &Transaction, ino: InoId, run: Range<u64>, block: FsBlock, source: Source<'_>) -> Result<()> {
    let block_log = tx.geometry().block_log;
    let offset = device_offset(tx, ino, block)?;
    match source {
        Source::Bytes(bytes) | Source::Copy(bytes) => {
            write_device(tx, offset, &bytes[..((run.end - run.start) << block_log) as usize], FlushedBefore::Records)
        }
        Source::Dirty => {
            let Some(dirty) = &tx.inode(ino).dirty else { return Ok(()) };
            if is_far(tx) {
                return write_joined(tx, offset, dirty.pieces(run).map(|(_, bytes)| bytes));
            }
            dirty.pieces(run.clone()).try_for_each(|(at, bytes)| {
                write_device(tx, offset + ((at.0 - run.start) << block_log), bytes, FlushedBefore::Records)
            })
        }
    }
}

/// Writes pieces that lie one behind the other, as few long ones.
fn write_joined<'a>(tx: &Transaction, mut offset: u64, pieces: impl Iterator<Item = &'a [u8]>) -> Result<()> {
    let mut joined = Vec::new();
    for piece in pieces {
        if joined.len() + piece.len() > LONG_PIECE_BYTES {
            write_device(tx, offset, &joined, FlushedBefore::Records)?;
            offset += joined.len() as u64;
            joined.clear();
        }
        joined.extend_from_slice(piece);
    }
    write_device(tx, offset, &joined, FlushedBefore::Records)
}

/// Which blocks a run was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunBlocks {
    /// New ones, which used up what was reserved for the run.
    New,
    /// Those that the file has.
    Own,
}

/// Drops the dirty blocks that were written out, and lets the size on disk cover them.
fn finish_run(tx: &mut Transaction, ino: InoId, run: Range<u64>, source: Source<'_>, blocks: RunBlocks) {
    let block_log = tx.geometry().block_log;
    let size = tx.inode(ino).size_bytes();
    if let Source::Dirty = source
        && let Some(dirty) = &mut tx.inode_memory_mut(ino).dirty
    {
        let paid = dirty.remove(run.clone());
        tx.mount().space.give_back_blocks(if blocks == RunBlocks::New { 0 } else { paid });
        tx.mount().dirty_inodes.count_bytes((run.end - run.start) << block_log, 0);
    }
    let end = run.end << block_log;
    let reached = match source {
        Source::Dirty => end.min(size),
        // Whole blocks that the caller gave are within the size that the file gets.
        Source::Bytes(_) => end,
        Source::Copy(_) => 0,
    };
    grow_size(tx, ino, reached);
}

/// Grows the size in the core to `size`, if it is smaller.
fn grow_size(tx: &mut Transaction, ino: InoId, size: u64) {
    if tx.inode(ino).core.size < size {
        tx.inode_mut(ino, InodeFields::CORE).core.size = size;
    }
    let core_size = tx.inode(ino).core.size;
    let state = tx.inode_memory_mut(ino);
    if let Some(dirty) = &mut state.dirty {
        dirty.size_bytes = dirty.size_bytes.filter(|ahead| *ahead > core_size);
        if dirty.is_empty() {
            state.dirty = None;
        }
    }
}

/// The end of a link of a write-out: sets in the core when the contents were written, and the size if no block is
/// dirty. While some are, the size is set up to `reached`: the caller has written all blocks below it that were dirty
/// when it began, and blocks that other threads have written into holes since read as zeros after a crash.
pub fn write_out_core(tx: &mut Transaction, ino: InoId, reached: u64) {
    let state = tx.inode(ino);
    let is_written = state.dirty.as_ref().is_none_or(|dirty| dirty.count() == 0);
    let size = state.size_bytes();
    grow_size(tx, ino, if is_written { size } else { size.min(reached) });
    let handle = std::sync::Arc::clone(tx.inode_handle(ino));
    if let Some(time) = handle.take_noted_write() {
        let core = &mut tx.inode_mut(ino, InodeFields::CORE).core;
        (core.mtime, core.ctime) = (time, time);
    }
    if tx.inode(ino).times_wait {
        let _ = tx.inode_mut(ino, InodeFields::CORE);
    }
}
