//! Contents of many small new files in one piece: one search, one write, one extent taken from the free space.

use super::{FlushedBefore, LONG_PIECE_BYTES, device_offset, is_far, write_device};
use crate::error::Result;
use crate::incore::ForkKind;
use crate::inode::bmap;
use crate::space::{AllocRequest, Busy, alloc};
use crate::trans::{InoId, InodeFields, Transaction};
use xfskit_ondisk::{Extent, FileBlock, FsBlock};

/// Blocks that are found in advance for the files after these.
const ROOM_BLOCKS: u32 = 2048;

/// Bytes that are written at once: few enough to stay in a processor's cache.
const PIECE_BYTES: usize = 128 << 10;

/// Contents that are on the device, in blocks that are still free.
#[derive(Clone, Copy, Debug)]
pub struct Packed {
    block: FsBlock,
}

/// Writes contents, each from a block's start on, one behind the other, near the directory `dir`. A reader sees no
/// change. `None` when the directory's AG has no room for them in one piece.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn pack(tx: &mut Transaction, dir: InoId, contents: &[&[u8]]) -> Result<Option<Packed>> {
    let block_bytes = tx.geometry().block_bytes();
    let count: usize = contents.iter().map(|bytes| bytes.len().div_ceil(block_bytes)).sum();
    let (holder, count) = (tx.inode(dir).core.inode, count as u32);
    let Some(block) = find(tx, dir, count)? else { return Ok(None) };
    let holder_ag = tx.geometry().split_inode(holder).map(|(ag, _)| ag);
    if tx.geometry().split_fs_block(block).map(|(ag, _)| ag) != holder_ag {
        // The inodes are allocated in the directory's AG, and a transaction that has changed something does not wait
        // for another AG.
        alloc::settle_window(tx, holder, block, 0);
        return Ok(None);
    }
    let written = device_offset(tx, dir, block).and_then(|offset| write(tx, offset, contents));
    if let Err(error) = written {
        alloc::settle_window(tx, holder, block, 0);
        return Err(error);
    }
    Ok(Some(Packed { block }))
}

/// Writes contents one behind the other, each filled up to whole blocks.
fn write(tx: &Transaction, mut offset: u64, contents: &[&[u8]]) -> Result<()> {
    let block_bytes = tx.geometry().block_bytes();
    let piece_bytes = if is_far(tx) { LONG_PIECE_BYTES } else { PIECE_BYTES };
    let whole = contents.iter().map(|bytes| bytes.len().next_multiple_of(block_bytes)).sum();
    let mut piece = Vec::with_capacity(piece_bytes.min(whole));
    for (index, bytes) in contents.iter().enumerate() {
        piece.extend_from_slice(bytes);
        piece.resize(piece.len().next_multiple_of(block_bytes), 0);
        let next = contents.get(index + 1).map_or(usize::MAX, |next| next.len().next_multiple_of(block_bytes));
        if piece.len().saturating_add(next) > piece_bytes {
            write_device(tx, offset, &piece, FlushedBefore::Records)?;
            offset += piece.len() as u64;
            piece.clear();
        }
    }
    Ok(())
}

fn find(tx: &mut Transaction, dir: InoId, count: u32) -> Result<Option<FsBlock>> {
    let holder = tx.inode(dir).core.inode;
    if let Some(block) = alloc::firm_any_window(tx, holder, count) {
        return Ok(Some(block));
    }
    let owner = bmap::owner(tx, dir, ForkKind::Data, FileBlock(0));
    let room = ROOM_BLOCKS.min((tx.mount().space.usable_blocks() / 64) as u32);
    let request = AllocRequest {
        busy: Busy::Avoided,
        holder: Some(holder),
        ..AllocRequest::new(bmap::near_inode(tx, holder), count, count + room, owner)
    };
    let found = alloc::open_window(tx, &request, FileBlock(0), (FileBlock(0), count))?;
    Ok(found.map(|(block, _)| block))
}

/// Gives the first of the packed contents to the files, in their order; the transaction has reserved blocks for them.
/// Packed blocks beyond those of `files` stay free.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Io`.
pub fn unpack(tx: &mut Transaction, dir: InoId, packed: Packed, files: &[(InoId, u64)]) -> Result<()> {
    let holder = tx.inode(dir).core.inode;
    let block_log = tx.geometry().block_log;
    let blocks = |size: u64| size.div_ceil(1 << block_log);
    let mut parts = Vec::with_capacity(files.len());
    for &(file, size) in files {
        parts.push((bmap::owner(tx, file, ForkKind::Data, FileBlock(0)), blocks(size) as u32));
    }
    if parts.is_empty() {
        alloc::settle_window(tx, holder, packed.block, 0);
        return Ok(());
    }
    alloc::allocate_firm(tx, holder, packed.block, &parts)?;
    let mut block = packed.block;
    for &(file, size) in files {
        let extent = Extent { file_block: FileBlock(0), block, count: blocks(size), unwritten: false };
        bmap::map_new(tx, file, ForkKind::Data, extent)?;
        tx.inode_mut(file, InodeFields::CORE).core.size = size;
        block = FsBlock(block.0 + extent.count);
    }
    Ok(())
}
