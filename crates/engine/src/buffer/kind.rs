//! Kinds of buffers: what the cache must know about a structure to verify it and to write it back.

use crate::error::Result;
use xfskit_ondisk::{Corruption, DiskAddress, Geometry, Lsn, Verdict, checksum_matches, set_checksum};

/// Finds out which kind of its family a block is; `None` for none of them.
pub type Refine = fn(&[u8]) -> Option<&'static BufferKind>;

/// A kind of metadata block. Kinds are statics and are compared by address.
#[derive(Debug)]
pub struct BufferKind {
    /// The structure's name in messages.
    pub name: &'static str,
    /// Kinds that may stand in the same place share a family; the kind with `refine` for that place accepts any of its
    /// family.
    pub family: &'static str,
    /// The type that log items of such a buffer carry, so that recovery knows it (the kernel's `XFS_BLFT_…`).
    pub log_type: u16,
    /// Offset of the checksum, if the structure has one of its own.
    pub crc_offset: Option<usize>,
    /// Offset at which write-back stores the LSN of the last change.
    pub lsn_offset: Option<usize>,
    /// Checks everything that needs no other block. Runs after the checksum was found right.
    pub verify: fn(&Geometry, DiskAddress, &[u8]) -> Verdict,
    /// For a place that may contain one of several kinds: finds out which. Then the `crc_offset` and `lsn_offset` of
    /// the kind that is found are used, not those of this one.
    pub refine: Option<Refine>,
}

impl BufferKind {
    /// Verifies bytes that were read from the device. Returns their kind.
    pub(super) fn verify_read(
        &'static self,
        geometry: &Geometry,
        address: DiskAddress,
        bytes: &[u8],
    ) -> Result<&'static Self> {
        let kind = self.refined(address, bytes)?;
        if let Some(offset) = kind.crc_offset
            && !checksum_matches(bytes, offset)
        {
            return Err(Corruption::new(kind.name, "checksum").at(address).into());
        }
        (kind.verify)(geometry, address, bytes).map_err(|e| e.at(address))?;
        Ok(kind)
    }

    pub(super) fn verify_cached(&'static self, geometry: &Geometry, address: DiskAddress, bytes: &[u8]) -> Result<()> {
        let kind = self.refined(address, bytes)?;
        Ok((kind.verify)(geometry, address, bytes).map_err(|e| e.at(address))?)
    }

    fn refined(&'static self, address: DiskAddress, bytes: &[u8]) -> Result<&'static Self> {
        match self.refine {
            None => Ok(self),
            Some(refine) => Ok(refine(bytes)
                .ok_or_else(|| Corruption::new(self.name, "magic number").at(address).found(first_bytes(bytes)))?),
        }
    }

    /// Whether a buffer of kind `found` is accepted as this kind without another verification.
    pub(super) fn may_be(&'static self, found: &'static Self) -> bool {
        self.refine.is_some() && self.family == found.family
    }

    /// Prepares a copy of the contents for its place on disk: checks it, stores the LSN and the checksum.
    pub fn stamp(&self, geometry: &Geometry, address: DiskAddress, lsn: Lsn, bytes: &mut [u8]) -> Result<()> {
        (self.verify)(geometry, address, bytes).map_err(|e| e.at(address))?;
        if let Some(offset) = self.lsn_offset {
            bytes[offset..offset + 8].copy_from_slice(&lsn.0.to_be_bytes());
        }
        if let Some(offset) = self.crc_offset {
            set_checksum(bytes, offset);
        }
        Ok(())
    }
}

fn first_bytes(bytes: &[u8]) -> String {
    bytes.iter().take(12).map(|byte| format!("{byte:02x}")).collect()
}
