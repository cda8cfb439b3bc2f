//! Targets of symbolic links that do not fit the inode.
//!
//! ```text
//!  0 "XSLM"  4 offset of the target's part 8 bytes of it 12 crc 16 uuid 32 owner 40 address 48 LSN | 56 the part
//! ```
//! Every run of blocks on disk has one header, however many blocks it has.
//!
//! Facts: the XFS Algorithms & Data Structures document, "Symbolic Links"; the kernel's `xfs_symlink_remote.c`.

use crate::da::prefix;
use crate::part_header::{PART_HEADER_BYTES, PartHeader};
use crate::{DiskAddress, Geometry, Verdict, ensure};
use zerocopy::IntoBytes;

/// `"XSLM"`.
pub const SYMLINK_MAGIC: u32 = 0x5853_4c4d;
/// Targets must be shorter than this.
pub const SYMLINK_LENGTH_LIMIT: usize = 1024;
const NAME: &str = "symbolic link block";

/// Bytes of a target that fit a run of `bytes` bytes.
pub fn capacity(bytes: usize) -> usize {
    bytes - PART_HEADER_BYTES
}

/// Blocks that a target takes, each with room for a header in case all of them are runs of their own.
pub fn blocks_for(geometry: &Geometry, target_bytes: usize) -> u32 {
    target_bytes.div_ceil(capacity(geometry.block_bytes())) as u32
}

/// Writes a run of blocks: a header, and the `part` of the target that starts at `offset`. Write-back adds the
/// checksum.
pub fn encode_run(geometry: &Geometry, owner: u64, address: DiskAddress, offset: usize, part: &[u8], out: &mut [u8]) {
    let header = PartHeader::new(SYMLINK_MAGIC, geometry, owner, address, offset, part.len());
    out[..PART_HEADER_BYTES].copy_from_slice(header.as_bytes());
    let (target, rest) = out[PART_HEADER_BYTES..].split_at_mut(part.len());
    target.copy_from_slice(part);
    rest.fill(0);
}

/// The part of a target in a verified run, which must be that from `offset` of a target of inode `owner`.
///
/// # Errors
/// A corruption of the "symbolic link block".
pub fn decode_run(owner: u64, bytes: &[u8], offset: usize) -> Verdict<&[u8]> {
    let header: &PartHeader = prefix(bytes);
    header.verify_part(NAME, owner, offset)?;
    Ok(&bytes[PART_HEADER_BYTES..PART_HEADER_BYTES + header.bytes.get() as usize])
}

/// Verifies a run of blocks by itself.
///
/// # Errors
/// A corruption of the "symbolic link block".
pub fn verify_symlink(geometry: &Geometry, address: DiskAddress, bytes: &[u8]) -> Verdict {
    ensure!(bytes.len() >= 512, NAME, "whole block", "{} bytes", bytes.len());
    let header = PartHeader::verify(SYMLINK_MAGIC, NAME, geometry, address, bytes)?;
    let (offset, part) = (header.offset.get() as usize, header.bytes.get() as usize);
    ensure!(part <= capacity(bytes.len()), NAME, "length fits the run", "{part}");
    ensure!(offset + part < SYMLINK_LENGTH_LIMIT, NAME, "part lies within a target", "{part} at {offset}");
    Ok(())
}
