//! Logged objects: how a checkpoint records buffers, inodes and quota records, in the byte order of the machine that
//! wrote it (little-endian).
//!
//! ```text
//! item    region 0: the format, a structure that starts with type and number of regions, 16 bits each
//!         regions 1..: the contents that the format describes
//! ```
//! Decoders take regions as recovery assembled them from the journal and trust nothing in them.

pub mod buffer;
pub mod dquot;
pub mod icreate;
pub mod inode;
#[cfg(test)]
mod tests;

use crate::{Corruption, Verdict};

/// Little-endian fields of a region, at fixed places.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    name: &'static str,
    bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    /// The fields of a region of at least `length` bytes.
    pub(crate) fn new(name: &'static str, region: &'a [u8], length: usize) -> Verdict<Self> {
        if region.len() < length {
            return Err(
                Corruption::new(name, "its format is whole").found(format_args!("{} of {length} bytes", region.len()))
            );
        }
        Ok(Self { name, bytes: region })
    }

    fn array<const N: usize>(self, at: usize) -> Verdict<[u8; N]> {
        self.bytes
            .get(at..at + N)
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or_else(|| Corruption::new(self.name, "its format is whole"))
    }

    pub(crate) fn u16(self, at: usize) -> Verdict<u16> {
        self.array(at).map(u16::from_le_bytes)
    }

    pub(crate) fn u32(self, at: usize) -> Verdict<u32> {
        self.array(at).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(self, at: usize) -> Verdict<u64> {
        self.array(at).map(u64::from_le_bytes)
    }

    pub(crate) fn be32(self, at: usize) -> Verdict<u32> {
        self.array(at).map(u32::from_be_bytes)
    }
}

/// The type of an item and the number of its regions, from its first region.
///
/// # Errors
/// A corruption of the "log item" when the region is too short to say.
pub fn decode_header(region: &[u8]) -> Verdict<(u16, u16)> {
    let fields = Fields::new("log item", region, 4)?;
    Ok((fields.u16(0)?, fields.u16(2)?))
}
