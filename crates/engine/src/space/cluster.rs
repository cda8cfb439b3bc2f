//! Inode clusters: the buffers in which inodes are read and written.
//!
//! The inode cache, not the cluster buffer, is the truth for a cached inode; the buffer is brought up to date when the
//! inode is written back. Each inode has a checksum of its own, so the buffer as a whole has none.

use crate::buffer::BufferKind;
use crate::error::Result;
use crate::error_tags::ITOBP;
use crate::trans::{BufId, Transaction};
use xfskit_ondisk::inode::INODE_MAGIC;
use xfskit_ondisk::logged::buffer::buffer_type;
use xfskit_ondisk::{Corruption, DiskAddress, Geometry, InodeNumber, Verdict, ensure};

/// A cluster of inodes.
pub static INODE_CLUSTER_KIND: BufferKind = BufferKind {
    name: "inode cluster",
    family: "inode cluster",
    log_type: buffer_type::INODES,
    crc_offset: None,
    lsn_offset: None,
    verify: verify_cluster,
    refine: None,
};

fn verify_cluster(geometry: &Geometry, _: DiskAddress, bytes: &[u8]) -> Verdict {
    for inode in bytes.chunks_exact(geometry.inode_bytes()) {
        let magic = u16::from_be_bytes([inode[0], inode[1]]);
        ensure!(
            magic == INODE_MAGIC && inode[4] == 3,
            "inode cluster",
            "every inode has magic number and version 3",
            "{magic:#06x} and {}",
            inode[4]
        );
    }
    Ok(())
}

/// Where an inode lies: the address of its cluster and its offset there in bytes. Clusters are aligned within the AG
/// as chunks are, so a sparse chunk's clusters are found the same way.
///
/// # Errors
/// `Corrupt` for a number outside the device.
pub fn locate(geometry: &Geometry, inode: InodeNumber) -> Result<(DiskAddress, usize)> {
    let (ag, within) =
        geometry.split_inode(inode).ok_or_else(|| Corruption::new("inode number", "lies on the device").of(inode.0))?;
    let block = geometry.inode_block(within);
    let cluster_blocks = geometry.inode_cluster_blocks();
    // Chunks are aligned to the inode alignment, which clusters divide; without alignment a cluster is a block.
    let first = xfskit_ondisk::AgBlock(block.0 - block.0 % cluster_blocks);
    let offset = ((block.0 - first.0) as usize) << geometry.block_log;
    Ok((geometry.address(ag, first), offset + geometry.inode_offset_in_block(within)))
}

/// Reads the cluster of an inode.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn read(tx: &mut Transaction, inode: InodeNumber) -> Result<(BufId, usize)> {
    tx.mount().error_tags.fail(ITOBP)?;
    let (address, offset) = locate(tx.geometry(), inode)?;
    let bytes = tx.geometry().inode_cluster_bytes();
    Ok((tx.read(address, bytes, &INODE_CLUSTER_KIND)?, offset))
}
