//! A logged quota record.
//!
//! ```text
//! format   0 type  2 regions  4 id  8 address  16 length in blocks  20 offset within the block
//! record   0 "DQ"  2 version  3 flags  4 id  8 ... limits and usage ... 104 | 108 checksum  112 LSN  120 uuid  136
//! ```
//! Facts: the kernel's `struct xfs_dq_logformat`, `struct xfs_dqblk`.

use super::Fields;
use crate::{BASIC_BLOCK_BYTES, DiskAddress, Geometry, Lsn, Verdict, checksum_matches, ensure, set_checksum};

/// `"DQ"`.
pub const DQUOT_MAGIC: u16 = 0x4451;
/// Size of a record in its block.
pub const DQUOT_BYTES: usize = 136;
/// Size of the part that is logged.
const LOGGED_BYTES: usize = 104;
const CRC_OFFSET: usize = 108;
const LSN_OFFSET: usize = 112;
const UUID_OFFSET: usize = 120;
const NAME: &str = "logged quota record";

/// Bits of a record's flags that say what kind of owner it has.
pub mod dquot_type {
    /// A user's.
    pub const USER: u8 = 0x01;
    /// A project's.
    pub const PROJECT: u8 = 0x02;
    /// A group's.
    pub const GROUP: u8 = 0x04;
}

/// A logged quota record.
#[derive(Clone, Copy, Debug)]
pub struct LoggedDquot<'a> {
    /// Where its block lies.
    pub address: DiskAddress,
    /// Its offset there.
    pub offset: usize,
    /// Bits of [`dquot_type`].
    pub kind: u8,
    record: &'a [u8],
}

impl<'a> LoggedDquot<'a> {
    /// Decodes a quota item.
    ///
    /// # Errors
    /// A corruption of the "logged quota record".
    pub fn decode(geometry: &Geometry, format: &[u8], record: &'a [u8]) -> Verdict<Self> {
        let fields = Fields::new(NAME, format, 24)?;
        let (id, address, blocks, offset) = (fields.u32(4)?, fields.u64(8)?, fields.u32(16)?, fields.u32(20)?);
        ensure!(blocks == 1, NAME, "its buffer is one block", "{blocks} blocks");
        ensure!(address < 1 << 54, NAME, "address is on a device", "{address:#x}");
        let offset = offset as usize;
        ensure!(
            offset.is_multiple_of(DQUOT_BYTES) && offset + DQUOT_BYTES <= geometry.block_bytes(),
            NAME,
            "lies within its block",
            "offset {offset}"
        );
        ensure!(record.len() >= LOGGED_BYTES, NAME, "whole", "{} of {LOGGED_BYTES} bytes", record.len());
        let record = &record[..LOGGED_BYTES];
        ensure!(record[..2] == DQUOT_MAGIC.to_be_bytes() && record[2] == 1, NAME, "magic number and version");
        let stored = u32::from_be_bytes([record[4], record[5], record[6], record[7]]);
        ensure!(stored == id, NAME, "own id", "{stored} instead of {id}");
        Ok(Self { address: DiskAddress(address), offset, kind: record[3] & 0x07, record })
    }

    /// Puts the record into `slot`, [`DQUOT_BYTES`] of its block.
    pub fn apply(&self, geometry: &Geometry, lsn: Lsn, slot: &mut [u8]) {
        slot[..LOGGED_BYTES].copy_from_slice(self.record);
        slot[LSN_OFFSET..LSN_OFFSET + 8].copy_from_slice(&lsn.0.to_be_bytes());
        slot[UUID_OFFSET..DQUOT_BYTES].copy_from_slice(&geometry.meta_uuid);
        set_checksum(&mut slot[..DQUOT_BYTES], CRC_OFFSET);
    }
}

/// The LSN of the record in `slot`, if the record is whole.
pub fn dquot_lsn(slot: &[u8]) -> Option<Lsn> {
    let record = slot.get(..DQUOT_BYTES)?;
    let bytes = record[LSN_OFFSET..LSN_OFFSET + 8].try_into().ok()?;
    checksum_matches(record, CRC_OFFSET).then(|| Lsn(u64::from_be_bytes(bytes)))
}

/// Verifies a block of quota records.
///
/// # Errors
/// A corruption of the "quota block".
pub fn verify_block(_: &Geometry, _: DiskAddress, bytes: &[u8]) -> Verdict {
    const BLOCK: &str = "quota block";
    debug_assert!(bytes.len() >= BASIC_BLOCK_BYTES);
    for record in bytes.chunks_exact(DQUOT_BYTES) {
        ensure!(record[..2] == DQUOT_MAGIC.to_be_bytes() && record[2] == 1, BLOCK, "magic number and version");
        ensure!(checksum_matches(record, CRC_OFFSET), BLOCK, "checksums");
    }
    Ok(())
}

/// The quotas that a quota-off item switches off, as bits of [`dquot_type`].
///
/// # Errors
/// A corruption when the item is too short.
pub fn decode_quota_off(format: &[u8]) -> Verdict<u8> {
    let flags = Fields::new("quota-off item", format, 8)?.u32(4)?;
    let bit = |account: u32, kind: u8| if flags & account != 0 { kind } else { 0 };
    Ok(bit(0x01, dquot_type::USER) | bit(0x08, dquot_type::PROJECT) | bit(0x40, dquot_type::GROUP))
}
