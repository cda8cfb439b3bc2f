//! Targets of symbolic links: in the inode, or in blocks of their own with headers.
//!
//! ```text
//! inline   the target in the data fork                  up to the fork's size
//! remote   extent: header "XSLM", part of the target    up to 1023 bytes, in one extent where the space allows it
//! ```

use crate::buffer::BufferKind;
use crate::error::{Error, Result};
use crate::incore::{DataFork, ForkKind};
use crate::inode::bmap;
use crate::trans::{InoId, InodeFields, Transaction};
use xfskit_ondisk::logged::buffer::buffer_type;
use xfskit_ondisk::part_header::{PART_CRC_OFFSET, PART_HEADER_BYTES, PART_LSN_OFFSET};
use xfskit_ondisk::symlink::{SYMLINK_LENGTH_LIMIT, capacity, decode_run, encode_run, verify_symlink};
use xfskit_ondisk::{DiskAddress, Extent, FileBlock, ForkFormat, Geometry};

pub use xfskit_ondisk::symlink::blocks_for as blocks_needed;

/// Extents of a remote target.
pub static SYMLINK_KIND: BufferKind = BufferKind {
    name: "symlink block",
    family: "symlink block",
    log_type: buffer_type::SYMLINK,
    crc_offset: Some(PART_CRC_OFFSET),
    lsn_offset: Some(PART_LSN_OFFSET),
    verify: verify_symlink,
    refine: None,
};

/// Where an extent of a target lies, and its size in bytes.
fn location(geometry: &Geometry, extent: &Extent) -> (DiskAddress, usize) {
    // Extents of an inode in memory were verified to lie on the device.
    let address = geometry.fs_block_address(extent.block).unwrap_or_default();
    (address, (extent.count as usize) << geometry.block_log)
}

/// Reads the target.
///
/// # Errors
/// `Invalid` for another kind of file; `Corrupt`, `Io`.
pub fn read(tx: &mut Transaction, ino: InoId) -> Result<Vec<u8>> {
    let state = tx.inode(ino);
    if !state.core.is_symlink() {
        return Err(Error::Invalid("not a symbolic link"));
    }
    let (inode, size) = (state.core.inode, state.core.size as usize);
    ensure_on_disk!(size <= SYMLINK_LENGTH_LIMIT, "symlink", "target of at most 1024 bytes", "{size} in inode {inode}");
    if let DataFork::Local(target) = &state.data {
        return Ok(target.to_vec());
    }
    let extents = bmap::extents(tx, ino, ForkKind::Data)?.to_vec();
    let mut target = Vec::with_capacity(size);
    for extent in extents {
        ensure_on_disk!(extent.count <= 1024, "symlink", "target of at most 1024 bytes", "{extent:?} in inode {inode}");
        let (address, bytes) = location(tx.geometry(), &extent);
        let buffer = tx.read(address, bytes, &SYMLINK_KIND)?;
        let part = decode_run(inode.0, tx.bytes(buffer), target.len()).map_err(|e| e.at(address))?;
        target.extend_from_slice(part);
        tx.release(buffer);
    }
    ensure_on_disk!(
        target.len() == size,
        "symlink",
        "target as long as its size",
        "{} of {size} bytes in inode {inode}",
        target.len()
    );
    Ok(target)
}

/// Writes the target of a new symbolic link.
///
/// # Errors
/// `NoSpace` before anything was changed.
pub fn write(tx: &mut Transaction, ino: InoId, target: &[u8]) -> Result<()> {
    let room = tx.inode(ino).core.data_fork_bytes(tx.geometry());
    if target.len() > room {
        return write_remote(tx, ino, target);
    }
    let state = tx.inode_mut(ino, InodeFields::DATA_LOCAL);
    state.core.size = target.len() as u64;
    state.core.data_format = ForkFormat::Local;
    state.data = DataFork::Local(target.to_vec());
    Ok(())
}

/// Moves the target from the inode to blocks of its own.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Io`.
pub fn leave_inode(tx: &mut Transaction, ino: InoId) -> Result<()> {
    let target = read(tx, ino)?;
    write_remote(tx, ino, &target)
}

fn write_remote(tx: &mut Transaction, ino: InoId, target: &[u8]) -> Result<()> {
    let state = tx.inode_mut(ino, InodeFields::DATA_EXTENTS);
    state.core.data_format = ForkFormat::Extents;
    state.data = DataFork::EMPTY;
    let blocks = blocks_needed(tx.geometry(), target.len());
    bmap::allocate(tx, ino, ForkKind::Data, FileBlock(0), blocks)?;
    // The extents are read back from the map, which has merged pieces that continue each other.
    let mut written = 0;
    for extent in bmap::extents(tx, ino, ForkKind::Data)?.to_vec() {
        let (address, bytes) = location(tx.geometry(), &extent);
        let part = &target[written..target.len().min(written + capacity(bytes))];
        let buffer = tx.create(address, bytes, &SYMLINK_KIND)?;
        let owner = tx.inode(ino).core.inode.0;
        let geometry = std::sync::Arc::clone(&tx.mount().geometry);
        encode_run(&geometry, owner, address, written, part, tx.unlogged_mut(buffer));
        tx.log(buffer, 0..PART_HEADER_BYTES + part.len());
        written += part.len();
    }
    assert_eq!(written, target.len(), "the blocks were counted for the whole target");
    tx.inode_mut(ino, InodeFields::CORE).core.size = target.len() as u64;
    Ok(())
}

/// Frees the blocks of a remote target, before its inode is freed.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn remove(tx: &mut Transaction, ino: InoId) -> Result<()> {
    for extent in bmap::extents(tx, ino, ForkKind::Data)?.to_vec() {
        let (address, bytes) = location(tx.geometry(), &extent);
        tx.invalidate_at(address, bytes, &SYMLINK_KIND)?;
        bmap::remove(tx, ino, ForkKind::Data, extent.file_block, extent.count)?;
    }
    Ok(())
}
