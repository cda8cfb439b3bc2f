//! Reads contents: from the device where they are mapped and written, zeros from everywhere else.

use crate::cache::ForkKind;
use crate::error::{Error, Result};
use crate::inode::bmap;
use crate::trans::{InoId, Transaction};
use xfskit_ondisk::{Corruption, FileBlock, FsBlock};

/// Fills `buffer` with the contents from byte `offset` on; returns how many there are, fewer than asked for only at the
/// end of the file.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn read(tx: &mut Transaction, ino: InoId, offset: u64, buffer: &mut [u8]) -> Result<usize> {
    let size = tx.inode(ino).core.size;
    let length = size.saturating_sub(offset).min(buffer.len() as u64) as usize;
    let (block_log, block_bytes) = (tx.geometry().block_log, tx.geometry().block_bytes() as u64);
    let mut done = 0;
    while done < length {
        let at = offset + done as u64;
        let block = FileBlock(at >> block_log);
        let left = (length - done) as u64;
        let within = at & (block_bytes - 1);
        let list = bmap::extents(tx, ino, ForkKind::Data)?;
        let next = list.partition_point(|extent| extent.end() <= block);
        let extent = list.get(next).copied();
        let (until, source) = match extent {
            Some(extent) if extent.file_block <= block => {
                let place = FsBlock(extent.block.0 + (block.0 - extent.file_block.0));
                (extent.end().0 << block_log, (!extent.unwritten).then_some(place))
            }
            Some(extent) => (extent.file_block.0 << block_log, None),
            None => (u64::MAX, None),
        };
        let count = (until - at).min(left) as usize;
        let part = &mut buffer[done..done + count];
        match source {
            None => part.fill(0),
            Some(block) => {
                let address = tx.geometry().fs_block_address(block).ok_or_else(|| {
                    Corruption::new("extent record", "lies on the device").of(tx.inode(ino).core.inode.0)
                })?;
                let offset = address.bytes() + within;
                tx.mount().device.read(offset, part).map_err(|source| Error::Io { offset, source })?;
            }
        }
        done += count;
    }
    Ok(length)
}
