//! Writes to blocks that have no place on the device yet: their bytes wait as dirty blocks.

use super::piece::{BlockState, piece};
use super::{FlushedBefore, device_offset, read_device, write_mapped};
use crate::error::{Error, Result};
use crate::incore::{BlockPlace, DirtyBlocks};
use crate::mount::BlockPool;
use crate::trans::{InoId, Transaction};
use xfskit_ondisk::FileBlock;

/// The bytes of a write that fall into one block.
struct Part<'a> {
    block: FileBlock,
    within: usize,
    data: &'a [u8],
}

fn parts(block_log: u8, offset: u64, data: &[u8]) -> impl Iterator<Item = Part<'_>> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at & ((1 << block_log) - 1)) as usize;
        let count = ((1 << block_log) - within).min(data.len() - done);
        let part = Part { block: FileBlock(at >> block_log), within, data: &data[done..done + count] };
        done += count;
        (count > 0).then_some(part)
    })
}

/// Makes sure that the file has an object for its dirty blocks.
fn dirty<'t>(tx: &'t mut Transaction<'_>, ino: InoId) -> &'t mut DirtyBlocks {
    let block_log = tx.geometry().block_log;
    tx.inode_memory_mut(ino).dirty.get_or_insert_with(|| Box::new(DirtyBlocks::new(block_log)))
}

/// Adds a block that is not dirty yet.
fn insert(tx: &mut Transaction, ino: InoId, part: &Part<'_>, within: usize, data: &[u8], place: BlockPlace) {
    dirty(tx, ino).insert(part.block, within, data, place);
    let block_bytes = tx.geometry().block_bytes() as u64;
    tx.mount().dirty_inodes.count_bytes(0, block_bytes);
}

/// Writes `data` at byte `offset`: in place where the blocks may be written in place, the rest as dirty blocks, for
/// which space is taken first. The inode is locked exclusively; the caller puts it on the list of dirty inodes. What
/// lies between the end of the file and `offset` reads as zeros: see [`extend`].
///
/// # Errors
/// `NoSpace` before anything was done; `Corrupt`, `Io`.
pub fn buffer(tx: &mut Transaction, ino: InoId, offset: u64, data: &[u8]) -> Result<()> {
    let block_log = tx.geometry().block_log;
    let end = offset + data.len() as u64;
    let mut reserved = blocks_to_pay(tx, ino, offset >> block_log, end.div_ceil(1 << block_log))?;
    if !tx.mount().space.reserve_blocks(reserved, BlockPool::Ordinary) {
        return Err(Error::NoSpace);
    }
    let result = parts(block_log, offset, data).try_for_each(|part| put(tx, ino, &part, &mut reserved));
    // Gives back what was reserved and, after an I/O error, not used.
    tx.mount().space.give_back_blocks(reserved);
    result?;
    if end > tx.inode(ino).size_bytes() {
        dirty(tx, ino).size_bytes = Some(end);
    }
    Ok(())
}

/// The number of blocks of a range that are not dirty and need a new place.
fn blocks_to_pay(tx: &mut Transaction, ino: InoId, first: u64, end: u64) -> Result<u64> {
    let mut need = 0;
    let mut at = first;
    while at < end {
        let found = piece(tx, ino, at, end)?;
        if matches!(found.state, BlockState::Hole | BlockState::Shared(_)) {
            let dirty = tx.inode(ino).dirty.as_ref();
            let waits = |block: &u64| dirty.is_some_and(|dirty| dirty.get(FileBlock(*block)).is_some());
            need += (found.first..found.end).filter(|block| !waits(block)).count() as u64;
        }
        at = found.end;
    }
    Ok(need)
}

fn put(tx: &mut Transaction, ino: InoId, part: &Part<'_>, reserved: &mut u64) -> Result<()> {
    if let Some(bytes) = tx.inode_memory_mut(ino).dirty.as_mut().and_then(|dirty| dirty.get_mut(part.block)) {
        bytes[part.within..part.within + part.data.len()].copy_from_slice(part.data);
        return Ok(());
    }
    match piece(tx, ino, part.block.0, part.block.0 + 1)?.state {
        BlockState::Written(block) => {
            let end = (part.block.0 << tx.geometry().block_log) + (part.within + part.data.len()) as u64;
            let flushed = FlushedBefore::of_write(tx, ino, end);
            write_mapped(tx, ino, (block, part.within as u64), part.data, flushed)
        }
        BlockState::Unwritten(_) => {
            insert(tx, ino, part, part.within, part.data, BlockPlace::Mapped);
            Ok(())
        }
        BlockState::Hole => {
            insert(tx, ino, part, part.within, part.data, BlockPlace::New);
            *reserved -= 1;
            Ok(())
        }
        BlockState::Shared(block) => {
            let mut whole = vec![0; tx.geometry().block_bytes()];
            if part.data.len() < whole.len() {
                read_device(tx, device_offset(tx, ino, block)?, &mut whole)?;
            }
            whole[part.within..part.within + part.data.len()].copy_from_slice(part.data);
            insert(tx, ino, part, 0, &whole, BlockPlace::New);
            *reserved -= 1;
            Ok(())
        }
    }
}

/// Makes the bytes from `from` to before `to` read as zeros: writes zeros into dirty blocks and written ones. Holes and
/// unwritten blocks stay what they are.
///
/// # Errors
/// As [`buffer`].
pub fn zero(tx: &mut Transaction, ino: InoId, from: u64, to: u64) -> Result<()> {
    let block_log = tx.geometry().block_log;
    let zeros = vec![0; (to.saturating_sub(from)).min(1 << 16) as usize];
    let mut at = from;
    while at < to {
        let block = at >> block_log;
        let found = piece(tx, ino, block, to.div_ceil(1 << block_log))?;
        let is_dirty = tx.inode(ino).dirty.as_ref().is_some_and(|dirty| dirty.get(FileBlock(block)).is_some());
        let until = if is_dirty { (block + 1) << block_log } else { found.end << block_log };
        let until = until.min(to).min(at + zeros.len() as u64);
        if is_dirty || matches!(found.state, BlockState::Written(_) | BlockState::Shared(_)) {
            buffer_within(tx, ino, at, &zeros[..(until - at) as usize])?;
        }
        at = until;
    }
    // The map changes with them, so that a crash shows all of the range as zeros or as it was.
    tx.mount().journal.order_in_place();
    Ok(())
}

/// As [`buffer`], for bytes that do not move the end of the file although they may lie behind it.
fn buffer_within(tx: &mut Transaction, ino: InoId, offset: u64, data: &[u8]) -> Result<()> {
    let ahead = tx.inode(ino).dirty.as_ref().and_then(|dirty| dirty.size_bytes);
    let result = buffer(tx, ino, offset, data);
    if let Some(dirty) = &mut tx.inode_memory_mut(ino).dirty {
        dirty.size_bytes = ahead;
    }
    result
}

/// The end of the file is about to move past byte `to`: the bytes of its last block behind the old end become zeros.
/// Written blocks behind that one must have been unmapped.
///
/// # Errors
/// As [`buffer`].
pub fn extend(tx: &mut Transaction, ino: InoId, to: u64) -> Result<()> {
    let size = tx.inode(ino).size_bytes();
    let block_end = size.next_multiple_of(tx.geometry().block_bytes() as u64);
    if to > size { zero(tx, ino, size, block_end.min(to)) } else { Ok(()) }
}

/// The end of the file is about to move back to byte `to`: the bytes of its last block behind that become zeros.
/// Otherwise a crash that restores the old size could show old bytes beside bytes that were written to the block
/// afterwards.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn cut_tail(tx: &mut Transaction, ino: InoId, to: u64) -> Result<()> {
    let block_log = tx.geometry().block_log;
    let zeros = to.next_multiple_of(1 << block_log) - to;
    let first = to >> block_log;
    if zeros > 0
        && let BlockState::Written(block) = piece(tx, ino, first, first + 1)?.state
    {
        let place = (block, to - (first << block_log));
        write_mapped(tx, ino, place, &vec![0; zeros as usize], FlushedBefore::Records)?;
    }
    Ok(())
}
