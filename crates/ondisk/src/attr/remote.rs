//! Blocks of a remote value.
//!
//! ```text
//!  0 "XARM"  4 offset of the value's part 8 bytes of it 12 crc 16 uuid 32 owner 40 address 48 LSN | 56 the part
//! ```
//! Every filesystem block has a header of its own. The blocks are not logged, so their LSN is always -1. Recovery
//! overwrites a block with this LSN unconditionally.
//!
//! Facts: the XFS Algorithms & Data Structures document, "Remote Attribute Values"; the kernel's `xfs_attr_remote.c`.

use super::MAX_VALUE_BYTES;
use crate::da::prefix;
use crate::part_header::{PART_CRC_OFFSET, PART_HEADER_BYTES, PartHeader};
use crate::{DiskAddress, Geometry, Verdict, checksum_matches, ensure, set_checksum};
use zerocopy::IntoBytes;
use zerocopy::big_endian::U64;

/// `"XARM"`.
pub const REMOTE_MAGIC: u32 = 0x5841_524d;
const NAME: &str = "remote attr block";

/// Bytes of a value that fit a block.
pub fn bytes_per_block(geometry: &Geometry) -> usize {
    geometry.block_bytes() - PART_HEADER_BYTES
}

/// Blocks that a value takes.
pub fn blocks_for(geometry: &Geometry, value_bytes: usize) -> u32 {
    value_bytes.div_ceil(bytes_per_block(geometry)) as u32
}

/// The blocks of `value`, all headers zero.
pub fn lay_out(geometry: &Geometry, value: &[u8]) -> Vec<u8> {
    let bytes = blocks_for(geometry, value.len()) as usize * geometry.block_bytes();
    let mut blocks = Vec::with_capacity(bytes);
    for part in value.chunks(bytes_per_block(geometry)) {
        blocks.extend_from_slice(&[0; PART_HEADER_BYTES]);
        blocks.extend_from_slice(part);
    }
    blocks.resize(bytes, 0);
    blocks
}

/// Fills in the header of the block that contains the `bytes` bytes from `offset` of a value of inode `owner`.
pub fn stamp_block(
    geometry: &Geometry,
    owner: u64,
    address: DiskAddress,
    offset: usize,
    bytes: usize,
    block: &mut [u8],
) {
    let mut header = PartHeader::new(REMOTE_MAGIC, geometry, owner, address, offset, bytes);
    header.lsn = U64::MAX_VALUE;
    block[..PART_HEADER_BYTES].copy_from_slice(header.as_bytes());
    set_checksum(block, PART_CRC_OFFSET);
}

/// The part of a value in a block, which must be the `bytes` bytes from `offset` of a value of inode `owner`.
///
/// # Errors
/// A corruption of the "remote attr block".
pub fn decode_block<'a>(
    geometry: &Geometry,
    owner: u64,
    address: DiskAddress,
    block: &'a [u8],
    offset: usize,
    bytes: usize,
) -> Verdict<&'a [u8]> {
    verify_remote(geometry, address, block)?;
    ensure!(checksum_matches(block, PART_CRC_OFFSET), NAME, "checksum");
    let header: &PartHeader = prefix(block);
    header.verify_part(NAME, owner, offset)?;
    ensure!(header.bytes.get() as usize == bytes, NAME, "length", "{} instead of {bytes}", header.bytes);
    Ok(&block[PART_HEADER_BYTES..PART_HEADER_BYTES + bytes])
}

/// Verifies a block by itself, but for its checksum.
///
/// # Errors
/// A corruption of the "remote attr block".
pub fn verify_remote(geometry: &Geometry, address: DiskAddress, block: &[u8]) -> Verdict {
    ensure!(block.len() == geometry.block_bytes(), NAME, "whole block", "{} bytes", block.len());
    let header = PartHeader::verify(REMOTE_MAGIC, NAME, geometry, address, block)?;
    let (offset, bytes) = (header.offset.get() as usize, header.bytes.get() as usize);
    ensure!(bytes <= bytes_per_block(geometry), NAME, "length fits the block", "{bytes}");
    ensure!(offset + bytes <= MAX_VALUE_BYTES, NAME, "part lies within a value", "{bytes} at {offset}");
    Ok(())
}
