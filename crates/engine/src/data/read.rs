//! Reads contents.

use super::{device_offset, file_offset, read_device};
use crate::error::Result;
use crate::incore::ForkKind;
use crate::inode::bmap;
use crate::trans::{InoId, Transaction};
use xfskit_ondisk::{FileBlock, FsBlock};

/// Fills `buffer` with the contents from byte `offset` on; returns how many there are, fewer than asked for only at the
/// end of the file.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn read(tx: &mut Transaction, ino: InoId, offset: u64, buffer: &mut [u8]) -> Result<usize> {
    let size = tx.inode(ino).size_bytes();
    let length = size.saturating_sub(offset).min(buffer.len() as u64) as usize;
    let block_log = tx.geometry().block_log;
    let mut done = 0;
    while done < length {
        let at = offset + done as u64;
        let left = (length - done) as u64;
        let block = at >> block_log;
        let mut until = at + left;
        if let Some(dirty) = &tx.inode(ino).dirty {
            let within = (at & ((1 << block_log) - 1)) as usize;
            if let Some(bytes) = dirty.get(FileBlock(block)) {
                let count = (bytes.len() - within).min(left as usize);
                buffer[done..done + count].copy_from_slice(&bytes[within..within + count]);
                done += count;
                continue;
            }
            if let Some(run) = dirty.first_run(FileBlock(block), 1) {
                until = until.min(run.start << block_log);
            }
        }
        done += read_mapped(tx, ino, at, &mut buffer[done..done + (until - at) as usize])?;
    }
    Ok(length)
}

/// Reads what the map says, as far as one extent or hole goes; returns how many bytes.
fn read_mapped(tx: &mut Transaction, ino: InoId, at: u64, buffer: &mut [u8]) -> Result<usize> {
    let block_log = tx.geometry().block_log;
    let block = FileBlock(at >> block_log);
    let list = bmap::extents(tx, ino, ForkKind::Data)?;
    let (until, source) = match list.next_at(block).copied() {
        Some(extent) if extent.file_block <= block => {
            let place = FsBlock(extent.block.0 + (block.0 - extent.file_block.0));
            (file_offset(extent.end(), block_log), (!extent.unwritten).then_some(place))
        }
        Some(extent) => (file_offset(extent.file_block, block_log), None),
        None => (u64::MAX, None),
    };
    let count = (until - at).min(buffer.len() as u64) as usize;
    let part = &mut buffer[..count];
    match source {
        None => part.fill(0),
        Some(block) => {
            let offset = device_offset(tx, ino, block)? + (at & ((1 << block_log) - 1));
            read_device(tx, offset, part)?;
        }
    }
    Ok(count)
}
