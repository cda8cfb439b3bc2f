//! A logged buffer.
//!
//! ```text
//!  0 type  2 regions  4 flags  6 length in basic blocks   8 address  16 words of the map  20 map: a bit for 128 bytes
//! ```
//! Each run of set bits is one or more regions: a run may be cut where the writer's memory was.
//!
//! Facts: the kernel's `struct xfs_buf_log_format`, `enum xfs_blft`.

use super::Fields;
use crate::log_record::buffer_flags;
use crate::{BASIC_BLOCK_BYTES, DiskAddress, Verdict, ensure};

/// Bytes that one bit of the map stands for.
pub const CHUNK_BYTES: usize = 128;
/// Longest buffer in basic blocks: 64 KiB and as much again for clusters of the largest inodes.
const MOST_BASIC_BLOCKS: u16 = 256;
const NAME: &str = "logged buffer";

/// Types of logged buffers by their numbers.
pub mod buffer_type {
    /// Quota records of users.
    pub const USER_QUOTA: u16 = 1;
    /// Quota records of projects.
    pub const PROJECT_QUOTA: u16 = 2;
    /// Quota records of groups.
    pub const GROUP_QUOTA: u16 = 3;
    /// A cluster of inodes.
    pub const INODES: u16 = 8;
    /// A superblock.
    pub const SUPERBLOCK: u16 = 18;
}

/// The format of a logged buffer.
#[derive(Clone, Copy, Debug)]
pub struct LoggedBuffer<'a> {
    /// Where it lies.
    pub address: DiskAddress,
    /// Its length.
    pub basic_blocks: u16,
    /// Bits of [`buffer_flags`], the type included.
    pub flags: u16,
    map: &'a [u8],
}

impl<'a> LoggedBuffer<'a> {
    /// Decodes the first region of a buffer item.
    ///
    /// # Errors
    /// A corruption of the "logged buffer".
    pub fn decode(region: &'a [u8]) -> Verdict<Self> {
        let fields = Fields::new(NAME, region, 20)?;
        let words = fields.u32(16)? as usize;
        let (flags, basic_blocks, address) = (fields.u16(4)?, fields.u16(6)?, fields.u64(8)?);
        let found = || format!("{words} words in {} bytes", region.len());
        ensure!(words <= (region.len() - 20) / 4, NAME, "its map is whole", "{}", found());
        ensure!(
            (1..=MOST_BASIC_BLOCKS).contains(&basic_blocks),
            NAME,
            "length is from one sector to 128 KiB",
            "{basic_blocks} sectors"
        );
        ensure!(address < 1 << 54, NAME, "address is on a device", "{address:#x}");
        Ok(Self { address: DiskAddress(address), basic_blocks, flags, map: &region[20..20 + 4 * words] })
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> usize {
        usize::from(self.basic_blocks) * BASIC_BLOCK_BYTES
    }

    /// What it holds, as the writer says.
    pub fn kind(&self) -> u16 {
        self.flags >> buffer_flags::TYPE_SHIFT
    }

    /// Whether the item says that the blocks were freed.
    pub fn is_cancel(&self) -> bool {
        self.flags & buffer_flags::CANCEL != 0
    }

    /// Whether only the links of the unlinked lists count.
    pub fn is_inodes(&self) -> bool {
        self.flags & buffer_flags::INODES != 0
    }

    fn bit(&self, bit: usize) -> bool {
        self.map.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
    }

    /// The logged parts of the contents: the offset of each region within the buffer, and its bytes.
    ///
    /// # Errors
    /// A corruption when the map and the regions do not fit each other or the buffer.
    pub fn parts<'r>(&self, regions: impl Iterator<Item = &'r [u8]>) -> Verdict<Vec<(usize, &'r [u8])>> {
        let (bits, mut bit) = (self.map.len() * 8, 0);
        let mut parts = Vec::new();
        for region in regions {
            while bit < bits && !self.bit(bit) {
                bit += 1;
            }
            let start = bit * CHUNK_BYTES;
            let chunks = region.len() / CHUNK_BYTES;
            ensure!(
                chunks > 0 && region.len().is_multiple_of(CHUNK_BYTES),
                NAME,
                "regions are whole parts of 128 bytes",
                "{} bytes",
                region.len()
            );
            ensure!(
                start + region.len() <= self.bytes() && (bit..bit + chunks).all(|bit| self.bit(bit)),
                NAME,
                "regions fit its map",
                "{} bytes at {start}",
                region.len()
            );
            parts.push((start, region));
            bit += chunks;
        }
        ensure!((bit..bits).all(|bit| !self.bit(bit)), NAME, "every part of its map has a region", "from part {bit}");
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(map: u32) -> Vec<u8> {
        let mut region = vec![0; 24];
        region[4..6].copy_from_slice(&(5u16 << 11).to_le_bytes());
        region[6..8].copy_from_slice(&1u16.to_le_bytes());
        region[8] = 9;
        region[16] = 1;
        region[20..24].copy_from_slice(&map.to_le_bytes());
        region
    }

    #[test]
    fn a_run_of_bits_may_be_cut_into_regions() {
        let region = format(0b1110);
        let buffer = LoggedBuffer::decode(&region).unwrap();
        assert_eq!((buffer.kind(), buffer.address, buffer.bytes()), (5, DiskAddress(9), 512));
        let (one, two) = ([1; 128], [2; 256]);
        let parts = buffer.parts([one.as_slice(), two.as_slice()].into_iter()).unwrap();
        assert_eq!(parts.iter().map(|(at, bytes)| (*at, bytes.len())).collect::<Vec<_>>(), [(128, 128), (256, 256)]);
    }

    #[test]
    fn regions_that_do_not_fit_are_refused() {
        let region = format(0b11);
        let buffer = LoggedBuffer::decode(&region).unwrap();
        let bytes = [0; 512];
        for lengths in [&[128usize][..], &[384], &[100], &[256, 128], &[0, 256]] {
            let regions = lengths.iter().map(|&length| &bytes[..length]);
            assert!(buffer.parts(regions).is_err(), "{lengths:?}");
        }
        let region = format(0b1_0000);
        assert!(LoggedBuffer::decode(&region).unwrap().parts([&bytes[..128]].into_iter()).is_err());
        assert!(LoggedBuffer::decode(&region[..22]).is_err());
        assert!(LoggedBuffer::decode(&region[..2]).is_err());
    }
}
