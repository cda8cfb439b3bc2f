//! Targets of symbolic links that do not fit the inode.
//!
//! ```text
//!  0 "XSLM"  4 offset of the target's part 8 bytes of it 12 crc 16 uuid 32 owner 40 address 48 LSN | 56 the part
//! ```
//! Every run of blocks on disk has one header, however many blocks it has.
//!
//! Facts: the XFS Algorithms & Data Structures document, "Symbolic Links"; the kernel's `xfs_symlink_remote.c`.

use crate::da::prefix;
use crate::{DiskAddress, Geometry, Verdict, ensure};
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `"XSLM"`.
pub const SYMLINK_MAGIC: u32 = 0x5853_4c4d;
/// Size of the header.
pub const SYMLINK_HEADER_BYTES: usize = 56;
/// Where the checksum stands.
pub const SYMLINK_CRC_OFFSET: usize = 12;
/// Where the LSN stands.
pub const SYMLINK_LSN_OFFSET: usize = 48;
/// Targets must be shorter than this.
pub const SYMLINK_LENGTH_LIMIT: usize = 1024;
const NAME: &str = "symbolic link block";

/// Header of a part of a target (`struct xfs_dsymlink_hdr`).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug)]
#[repr(C)]
#[allow(missing_docs)] // The fields carry the format document's names.
pub struct SymlinkHeader {
    pub magic: U32,
    pub offset: U32,
    pub bytes: U32,
    pub crc: [u8; 4],
    pub uuid: [u8; 16],
    pub owner: U64,
    pub address: U64,
    pub lsn: U64,
}

/// Bytes of a target that fit a run of `bytes` bytes.
pub fn capacity(bytes: usize) -> usize {
    bytes - SYMLINK_HEADER_BYTES
}

/// Blocks that a target takes, each with room for a header in case all of them are runs of their own.
pub fn blocks_for(geometry: &Geometry, target_bytes: usize) -> u32 {
    target_bytes.div_ceil(capacity(geometry.block_bytes())) as u32
}

/// Writes a run of blocks: a header, and the `part` of the target that starts at `offset`. Write-back adds the
/// checksum.
pub fn encode_run(geometry: &Geometry, owner: u64, address: DiskAddress, offset: usize, part: &[u8], out: &mut [u8]) {
    let header = SymlinkHeader {
        magic: U32::new(SYMLINK_MAGIC),
        offset: U32::new(offset as u32),
        bytes: U32::new(part.len() as u32),
        crc: [0; 4],
        uuid: geometry.meta_uuid,
        owner: U64::new(owner),
        address: U64::new(address.0),
        lsn: U64::ZERO,
    };
    out[..SYMLINK_HEADER_BYTES].copy_from_slice(header.as_bytes());
    let (target, rest) = out[SYMLINK_HEADER_BYTES..].split_at_mut(part.len());
    target.copy_from_slice(part);
    rest.fill(0);
}

/// The part of a target in a verified run, which must be that from `offset` of a target of inode `owner`.
///
/// # Errors
/// A corruption of the "symbolic link block".
pub fn decode_run(owner: u64, bytes: &[u8], offset: usize) -> Verdict<&[u8]> {
    let header: &SymlinkHeader = prefix(bytes);
    ensure!(header.owner.get() == owner, NAME, "owner", "{} instead of {owner}", header.owner);
    ensure!(header.offset.get() as usize == offset, NAME, "offset", "{} instead of {offset}", header.offset);
    Ok(&bytes[SYMLINK_HEADER_BYTES..SYMLINK_HEADER_BYTES + header.bytes.get() as usize])
}

/// Verifies a run of blocks by itself.
///
/// # Errors
/// A corruption of the "symbolic link block".
pub fn verify_symlink(geometry: &Geometry, address: DiskAddress, bytes: &[u8]) -> Verdict {
    ensure!(bytes.len() >= 512, NAME, "whole block", "{} bytes", bytes.len());
    let header: &SymlinkHeader = prefix(bytes);
    ensure!(header.magic.get() == SYMLINK_MAGIC, NAME, "magic number", "{:#010x}", header.magic);
    ensure!(header.uuid == geometry.meta_uuid, NAME, "uuid");
    ensure!(header.address.get() == address.0, NAME, "own address", "{}", header.address);
    let (offset, part) = (header.offset.get() as usize, header.bytes.get() as usize);
    ensure!(part <= capacity(bytes.len()), NAME, "length fits the run", "{part}");
    ensure!(offset + part < SYMLINK_LENGTH_LIMIT, NAME, "part lies within a target", "{part} at {offset}");
    ensure!(header.owner.get() != 0, NAME, "has an owner");
    Ok(())
}
