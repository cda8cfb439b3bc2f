//! The header of a block, or a run of blocks, that contains a part of a long attribute value or of a long symbolic
//! link's target. Both have the same layout and differ in their magic number.
//!
//! ```text
//!  0 magic  4 offset of the part 8 bytes of it 12 crc 16 uuid 32 owner 40 address 48 LSN | 56 the part
//! ```

use crate::da::prefix;
use crate::{DiskAddress, Geometry, Verdict, ensure};
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Size of the header.
pub const PART_HEADER_BYTES: usize = 56;
/// Where the checksum stands.
pub const PART_CRC_OFFSET: usize = 12;
/// Where the LSN stands.
pub const PART_LSN_OFFSET: usize = 48;

const _: () = assert!(size_of::<PartHeader>() == PART_HEADER_BYTES);

/// The header (`struct xfs_attr3_rmt_hdr`, `struct xfs_dsymlink_hdr`).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug)]
#[repr(C)]
#[allow(missing_docs)] // The fields carry the format document's names.
pub struct PartHeader {
    pub magic: U32,
    pub offset: U32,
    pub bytes: U32,
    pub crc: [u8; 4],
    pub uuid: [u8; 16],
    pub owner: U64,
    pub address: U64,
    pub lsn: U64,
}

impl PartHeader {
    /// The header of the `bytes` bytes from `offset` of what inode `owner` has, without checksum.
    pub fn new(magic: u32, geometry: &Geometry, owner: u64, address: DiskAddress, offset: usize, bytes: usize) -> Self {
        Self {
            magic: U32::new(magic),
            offset: U32::new(offset as u32),
            bytes: U32::new(bytes as u32),
            crc: [0; 4],
            uuid: geometry.meta_uuid,
            owner: U64::new(owner),
            address: U64::new(address.0),
            lsn: U64::ZERO,
        }
    }

    /// Verifies what both kinds have in common.
    ///
    /// # Errors
    /// A corruption of the structure `name`.
    pub fn verify<'a>(
        magic: u32,
        name: &'static str,
        geometry: &Geometry,
        address: DiskAddress,
        block: &'a [u8],
    ) -> Verdict<&'a Self> {
        let header: &Self = prefix(block);
        ensure!(header.magic.get() == magic, name, "magic number", "{:#010x}", header.magic);
        ensure!(header.uuid == geometry.meta_uuid, name, "uuid");
        ensure!(header.address.get() == address.0, name, "own address", "{}", header.address);
        ensure!(header.owner.get() != 0, name, "has an owner");
        Ok(header)
    }

    /// Verifies that the part belongs to inode `owner` and starts at `offset`.
    ///
    /// # Errors
    /// A corruption of the structure `name`.
    pub fn verify_part(&self, name: &'static str, owner: u64, offset: usize) -> Verdict {
        ensure!(self.owner.get() == owner, name, "owner", "{} instead of {owner}", self.owner);
        ensure!(self.offset.get() as usize == offset, name, "offset", "{} instead of {offset}", self.offset);
        Ok(())
    }
}
