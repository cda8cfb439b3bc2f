//! Writes contents.

use crate::cache::ForkKind;
use crate::error::{Error, Result};
use crate::inode::bmap;
use crate::trans::{InoId, InodeFields, Transaction};
use xfskit_ondisk::{Corruption, FileBlock};

/// Writes `data` at byte `offset`.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Io`.
pub fn write(tx: &mut Transaction, ino: InoId, offset: u64, data: &[u8]) -> Result<()> {
    let (block_log, block_bytes) = (tx.geometry().block_log, tx.geometry().block_bytes());
    let mut done = 0;
    while done < data.len() {
        let at = offset + done as u64;
        let block = FileBlock(at >> block_log);
        let within = (at & (block_bytes as u64 - 1)) as usize;
        let count = (block_bytes - within).min(data.len() - done);
        let fresh = bmap::lookup(tx, ino, ForkKind::Data, block)?.is_none();
        if fresh {
            bmap::allocate_avoiding_busy(tx, ino, ForkKind::Data, block, 1)?;
        }
        let extent = bmap::lookup(tx, ino, ForkKind::Data, block)?.ok_or(Error::NoSpace)?;
        let place = xfskit_ondisk::FsBlock(extent.block.0 + (block.0 - extent.file_block.0));
        let address = tx
            .geometry()
            .fs_block_address(place)
            .ok_or_else(|| Corruption::new("extent record", "lies on the device").of(tx.inode(ino).core.inode.0))?;
        let io = |source| Error::Io { offset: address.bytes(), source };
        let device = tx.mount().device.clone();
        if fresh && count < block_bytes {
            device.write(address.bytes(), &vec![0; block_bytes]).map_err(io)?;
        }
        device.write(address.bytes() + within as u64, &data[done..done + count]).map_err(io)?;
        done += count;
    }
    let core = &mut tx.inode_mut(ino, InodeFields::CORE).core;
    core.size = core.size.max(offset + data.len() as u64);
    tx.mount().journal.unflushed_flag().store(true, crate::sync::atomic::Ordering::Release);
    Ok(())
}
