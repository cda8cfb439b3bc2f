//! Targets of symbolic links: in the inode, or in blocks of their own with headers.
//!
//! ```text
//! inline   the target in the data fork                  up to the fork's size
//! remote   block: header "XSLM", part of the target     up to 1024 bytes, in as many blocks as it takes
//! ```

use crate::cache::{BufferKind, Fork, ForkKind};
use crate::ensure_on_disk;
use crate::error::{Error, Result};
use crate::inode::bmap;
use crate::trans::{BlfType, InoId, InodeFields, Transaction};
use xfskit_ondisk::symlink::{
    SYMLINK_CRC_OFFSET, SYMLINK_HEADER_BYTES, SYMLINK_LSN_OFFSET, SYMLINK_MAX_BYTES, SymlinkHeader, verify_symlink_block,
};
use xfskit_ondisk::{FileBlock, ForkFormat, Geometry};
use zerocopy::{FromBytes, IntoBytes};

/// Blocks of a remote target.
pub static SYMLINK_KIND: BufferKind = BufferKind {
    name: "symlink block",
    family: "symlink block",
    log_type: BlfType::Symlink as u16,
    crc_offset: Some(SYMLINK_CRC_OFFSET),
    lsn_offset: Some(SYMLINK_LSN_OFFSET),
    verify: verify_symlink_block,
    refine: None,
};

/// Blocks that a target of `length` bytes takes when it is not in the inode.
pub fn blocks_needed(geometry: &Geometry, length: usize) -> u32 {
    length.div_ceil(geometry.block_bytes() - SYMLINK_HEADER_BYTES) as u32
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
    ensure_on_disk!(size <= SYMLINK_MAX_BYTES, "symlink", "target of at most 1024 bytes", "{size} in inode {inode}");
    if let Fork::Local(target) = &state.data {
        return Ok(target.clone());
    }
    let mut target = Vec::with_capacity(size);
    let mut block = FileBlock(0);
    while target.len() < size {
        let runs = bmap::runs(tx, ino, ForkKind::Data, block, 1)?;
        ensure_on_disk!(runs.is_some(), "symlink", "target without holes", "block {block} of inode {inode}");
        let Some(runs) = runs else { break };
        let buffer = tx.read_runs(runs, &SYMLINK_KIND)?;
        let bytes = tx.bytes(buffer);
        if let Ok((header, rest)) = SymlinkHeader::ref_from_prefix(bytes) {
            let length = header.bytes.get() as usize;
            ensure_on_disk!(
                header.owner.get() == inode.0 && header.offset.get() as usize == target.len() && length > 0 && target.len() + length <= size,
                "symlink block", "owner, offset and length", "of inode {inode} at {}", target.len()
            );
            target.extend_from_slice(&rest[..length]);
        }
        tx.release(buffer);
        block = block.add(1);
    }
    Ok(target)
}

/// Writes the target of a new symbolic link.
///
/// # Errors
/// `NoSpace` before anything was changed.
pub fn write(tx: &mut Transaction, ino: InoId, target: &[u8]) -> Result<()> {
    let room = tx.inode(ino).core.data_fork_bytes(tx.geometry());
    if target.len() <= room {
        let state = tx.inode_mut(ino, InodeFields::DATA_LOCAL);
        state.core.size = target.len() as u64;
        state.core.data_format = ForkFormat::Local;
        state.data = Fork::Local(target.to_vec());
        return Ok(());
    }
    let state = tx.inode_mut(ino, InodeFields::DATA_EXTENTS);
    state.core.data_format = ForkFormat::Extents;
    state.data = Fork::Extents(Vec::new());
    let blocks = blocks_needed(tx.geometry(), target.len());
    bmap::allocate(tx, ino, ForkKind::Data, FileBlock(0), blocks)?;
    let room = tx.geometry().block_bytes() - SYMLINK_HEADER_BYTES;
    for (index, part) in target.chunks(room).enumerate() {
        write_block(tx, ino, index, index * room, part)?;
    }
    tx.inode_mut(ino, InodeFields::CORE).core.size = target.len() as u64;
    Ok(())
}

fn write_block(tx: &mut Transaction, ino: InoId, index: usize, offset: usize, part: &[u8]) -> Result<()> {
    let runs = bmap::runs(tx, ino, ForkKind::Data, FileBlock(index as u64), 1)?.expect("the block was just allocated");
    let buffer = tx.create_runs(runs, &SYMLINK_KIND)?;
    let header = SymlinkHeader {
        magic: xfskit_ondisk::symlink::SYMLINK_MAGIC.into(),
        offset: (offset as u32).into(),
        bytes: (part.len() as u32).into(),
        crc: [0; 4],
        uuid: tx.geometry().meta_uuid,
        owner: tx.inode(ino).core.inode.0.into(),
        address: tx.address(buffer).0.into(),
        lsn: 0.into(),
    };
    tx.edit(buffer, 0..SYMLINK_HEADER_BYTES).copy_from_slice(header.as_bytes());
    tx.edit(buffer, SYMLINK_HEADER_BYTES..SYMLINK_HEADER_BYTES + part.len()).copy_from_slice(part);
    Ok(())
}

/// Frees the blocks of a remote target, before its inode is freed.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn remove(tx: &mut Transaction, ino: InoId) -> Result<()> {
    if matches!(tx.inode(ino).data, Fork::Local(_)) {
        return Ok(());
    }
    let blocks = bmap::last_block(tx, ino, ForkKind::Data, FileBlock(u64::MAX))?;
    for block in 0..blocks.0 {
        if let Some(runs) = bmap::runs(tx, ino, ForkKind::Data, FileBlock(block), 1)? {
            let bytes = tx.geometry().block_bytes();
            tx.invalidate_at(runs[0].address, bytes, &SYMLINK_KIND)?;
        }
    }
    bmap::remove(tx, ino, ForkKind::Data, FileBlock(0), blocks.0)
}
