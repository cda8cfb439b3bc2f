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
use crate::{DiskAddress, Geometry, Verdict, checksum_matches, ensure, set_checksum};
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `"XARM"`.
pub const REMOTE_MAGIC: u32 = 0x5841_524d;
/// Size of the header.
pub const REMOTE_HEADER_BYTES: usize = 56;
/// Where the checksum stands.
pub const REMOTE_CRC_OFFSET: usize = 12;
/// Where the LSN stands.
pub const REMOTE_LSN_OFFSET: usize = 48;
const NAME: &str = "remote attr block";

/// Header of a block (`struct xfs_attr3_rmt_hdr`).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug)]
#[repr(C)]
#[allow(missing_docs)] // The fields carry the format document's names.
pub struct RemoteHeader {
    pub magic: U32,
    pub offset: U32,
    pub bytes: U32,
    pub crc: [u8; 4],
    pub uuid: [u8; 16],
    pub owner: U64,
    pub address: U64,
    pub lsn: U64,
}

/// Bytes of a value that fit a block.
pub fn bytes_per_block(geometry: &Geometry) -> usize {
    geometry.block_bytes() - REMOTE_HEADER_BYTES
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
        blocks.extend_from_slice(&[0; REMOTE_HEADER_BYTES]);
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
    let header = RemoteHeader {
        magic: U32::new(REMOTE_MAGIC),
        offset: U32::new(offset as u32),
        bytes: U32::new(bytes as u32),
        crc: [0; 4],
        uuid: geometry.meta_uuid,
        owner: U64::new(owner),
        address: U64::new(address.0),
        lsn: U64::MAX_VALUE,
    };
    block[..REMOTE_HEADER_BYTES].copy_from_slice(header.as_bytes());
    set_checksum(block, REMOTE_CRC_OFFSET);
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
    ensure!(checksum_matches(block, REMOTE_CRC_OFFSET), NAME, "checksum");
    let header: &RemoteHeader = prefix(block);
    ensure!(header.owner.get() == owner, NAME, "owner", "{} instead of {owner}", header.owner);
    ensure!(header.offset.get() as usize == offset, NAME, "offset", "{} instead of {offset}", header.offset);
    ensure!(header.bytes.get() as usize == bytes, NAME, "length", "{} instead of {bytes}", header.bytes);
    Ok(&block[REMOTE_HEADER_BYTES..REMOTE_HEADER_BYTES + bytes])
}

/// Verifies a block by itself, but for its checksum.
///
/// # Errors
/// A corruption of the "remote attr block".
pub fn verify_remote(geometry: &Geometry, address: DiskAddress, block: &[u8]) -> Verdict {
    ensure!(block.len() == geometry.block_bytes(), NAME, "whole block", "{} bytes", block.len());
    let header: &RemoteHeader = prefix(block);
    ensure!(header.magic.get() == REMOTE_MAGIC, NAME, "magic number", "{:#010x}", header.magic);
    ensure!(header.uuid == geometry.meta_uuid, NAME, "uuid");
    ensure!(header.address.get() == address.0, NAME, "own address", "{}", header.address);
    let (offset, bytes) = (header.offset.get() as usize, header.bytes.get() as usize);
    ensure!(bytes <= bytes_per_block(geometry), NAME, "length fits the block", "{bytes}");
    ensure!(offset + bytes <= MAX_VALUE_BYTES, NAME, "part lies within a value", "{bytes} at {offset}");
    ensure!(header.owner.get() != 0, NAME, "has an owner");
    Ok(())
}
