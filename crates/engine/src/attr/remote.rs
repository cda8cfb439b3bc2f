//! Remote values: blocks of the attr fork that hold a value too large for a leaf.
//!
//! The blocks are not logged. They are written before the checkpoint that carries the transaction which names them, so
//! a crash leaves either the attribute with its value, or neither; and they are never blocks whose former contents a
//! crash might bring back.

use crate::buffer::{BufferKind, DiskRun, DiskRuns};
use crate::error::Result;
use crate::incore::ForkKind;
use crate::inode::bmap;
use crate::mount::Mount;
use crate::sync::thread_local;
use crate::trans::{InoId, Transaction};
use crate::value::ValueBlocks;
use std::cell::RefCell;
use std::io::ErrorKind;
use std::sync::Arc;
use xfskit_ondisk::attr::MAX_VALUE_BYTES;
use xfskit_ondisk::attr::remote::{blocks_for, bytes_per_block, decode_block, verify_remote};
use xfskit_ondisk::logged::buffer::buffer_type;
use xfskit_ondisk::part_header::{PART_CRC_OFFSET, PART_LSN_OFFSET};
use xfskit_ondisk::{BASIC_BLOCK_BYTES, DiskAddress, FileBlock};

/// A value in blocks of its own, as an entry names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteValue {
    /// First fork block; 0 for none.
    pub block: u32,
    /// Length of the value in bytes.
    pub length: u32,
}

/// A block of a remote value.
pub static ATTR_REMOTE_KIND: BufferKind = BufferKind {
    name: "remote attr block",
    family: "remote attr block",
    log_type: buffer_type::ATTR_REMOTE,
    crc_offset: Some(PART_CRC_OFFSET),
    lsn_offset: Some(PART_LSN_OFFSET),
    verify: verify_remote,
    refine: None,
};

/// Blocks of the filesystem that a value takes.
pub fn blocks_of(tx: &Transaction, value_bytes: usize) -> u32 {
    blocks_for(tx.geometry(), value_bytes)
}

/// Allocates blocks for a value and sees to it that they are written in time.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Io`.
pub fn write(tx: &mut Transaction, ino: InoId, value: &[u8]) -> Result<RemoteValue> {
    let count = blocks_of(tx, value.len());
    let at = free_range(tx, ino, count)?;
    bmap::allocate_avoiding_busy(tx, ino, ForkKind::Attr, at, count)?;
    let value = in_blocks(tx.mount(), value);
    write_at(tx, ino, at, &value)
}

/// Where a value of `count` blocks can be mapped.
///
/// # Errors
/// `NoSpace` when the fork's address space is used up; `Corrupt`, `Io`.
pub fn free_range(tx: &mut Transaction, ino: InoId, count: u32) -> Result<FileBlock> {
    // Block 0 is the root's, mapped or not.
    let at = bmap::first_unused(tx, ino, ForkKind::Attr, FileBlock(1), count)?;
    if at.0 + u64::from(count) > u64::from(u32::MAX) {
        return Err(crate::error::Error::NoSpace);
    }
    Ok(at)
}

/// The one copy of a value between the caller and the device.
pub fn in_blocks(mount: &Mount, value: &[u8]) -> Arc<ValueBlocks> {
    mount.counters.value_bytes_copied.add(value.len() as u64);
    Arc::new(ValueBlocks::new(&mount.geometry, value))
}

/// Sees to it that a value is written in time to the blocks that are mapped for it from `at` on.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn write_at(tx: &mut Transaction, ino: InoId, at: FileBlock, value: &Arc<ValueBlocks>) -> Result<RemoteValue> {
    let (geometry, owner, length) = (tx.geometry(), tx.inode(ino).core.inode.0, value.value_bytes());
    let runs = mapped(tx, ino, at, blocks_of(tx, length))?;
    let per_block = geometry.basic_blocks(1);
    let blocks_of_run = |run: &DiskRun| {
        let start = run.address.0;
        (0..u64::from(run.basic_blocks)).step_by(per_block).map(move |offset| DiskAddress(start + offset))
    };
    value.stamp(geometry, owner, runs.iter().flat_map(blocks_of_run));
    let mut start = 0;
    for run in &runs {
        let end = start + run.basic_blocks as usize * BASIC_BLOCK_BYTES;
        tx.write_before_checkpoint(run.address, value, start..end);
        start = end;
    }
    Ok(RemoteValue { block: at.0 as u32, length: length as u32 })
}

/// Whether the host has room for what is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostRoom {
    /// It has, or the device cannot tell.
    Enough,
    /// The write of a value would fail, when its transaction is committed already.
    Lacking,
}

/// Makes the host set storage aside for `count` blocks that are mapped for a value from `at` on. The value is written
/// when its transaction can no longer be given up, so this is the last moment to find the host full.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn allocate_on_host(tx: &mut Transaction, ino: InoId, at: FileBlock, count: u32) -> Result<HostRoom> {
    for run in mapped(tx, ino, at, count)? {
        let (offset, bytes) = (run.address.bytes(), run.basic_blocks as usize * BASIC_BLOCK_BYTES);
        let device = &tx.mount().device;
        let allocated = match device.allocate(offset, bytes as u64) {
            Err(error) if error.kind() == ErrorKind::Unsupported => device.write(offset, &vec![0; bytes]),
            allocated => allocated,
        };
        // Another error than this one is that of the value itself, if it occurs again.
        if allocated.is_err_and(|error| matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)) {
            return Ok(HostRoom::Lacking);
        }
    }
    Ok(HostRoom::Enough)
}

/// Where the fork blocks of a value lie on disk.
fn mapped(tx: &mut Transaction, ino: InoId, at: FileBlock, count: u32) -> Result<DiskRuns> {
    let runs = bmap::runs(tx, ino, ForkKind::Attr, at, count)?;
    ensure_on_disk!(runs.is_some(), "remote attr block", "block is mapped", "fork block {at}");
    Ok(runs.expect("a hole was refused"))
}

thread_local! {
    /// The blocks of one run: memory that the processor's cache has, when many values are read.
    static BLOCKS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Reads a value.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn read(tx: &mut Transaction, ino: InoId, remote: RemoteValue) -> Result<Vec<u8>> {
    let length = remote.length as usize;
    ensure_on_disk!(length <= MAX_VALUE_BYTES, "attr leaf block", "length of a value", "{length}");
    let (geometry, owner) = (tx.geometry(), tx.inode(ino).core.inode.0);
    let runs = mapped(tx, ino, FileBlock(remote.block.into()), blocks_of(tx, length))?;
    let mut value = Vec::with_capacity(length);
    BLOCKS.with(|blocks| {
        let blocks = &mut *blocks.borrow_mut();
        for run in runs {
            let bytes = run.basic_blocks as usize * BASIC_BLOCK_BYTES;
            blocks.resize(bytes.max(blocks.len()), 0);
            tx.read_unlogged(run.address, &mut blocks[..bytes])?;
            for (index, block) in blocks[..bytes].chunks(geometry.block_bytes()).enumerate() {
                let address = DiskAddress(run.address.0 + (index * geometry.basic_blocks(1)) as u64);
                let (offset, part) = (value.len(), (length - value.len()).min(bytes_per_block(geometry)));
                let part = decode_block(geometry, owner, address, block, offset, part).map_err(|e| e.at(address))?;
                value.extend_from_slice(part);
            }
        }
        Ok(value)
    })
}

/// Frees the blocks of a value.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn free(tx: &mut Transaction, ino: InoId, remote: RemoteValue) -> Result<()> {
    if remote.block == 0 {
        return Ok(());
    }
    let count = blocks_of(tx, remote.length as usize);
    bmap::remove(tx, ino, ForkKind::Attr, FileBlock(remote.block.into()), count.into())
}
