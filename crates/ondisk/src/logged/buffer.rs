//! A logged buffer.
//!
//! ```text
//!  0 type  2 regions  4 flags  6 length in basic blocks   8 address  16 words of the map  20 map: a bit for 128 bytes
//! ```
//! Each run of set bits is one or more regions: a run is split where the writer's memory was not contiguous.
//!
//! Facts: the kernel's `struct xfs_buf_log_format`, `enum xfs_blft`.

use super::Fields;
use crate::log_record::{buffer_flags, item_type};
use crate::{BASIC_BLOCK_BYTES, DiskAddress, Verdict, ensure};
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes that one bit of the map stands for.
pub const CHUNK_BYTES: usize = 128;
/// Longest buffer in basic blocks: 64 KiB and as much again for clusters of the largest inodes.
const MAX_BASIC_BLOCKS: u16 = 256;
const NAME: &str = "logged buffer";

/// The first region of a buffer item before its map (`struct xfs_buf_log_format`).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawFormat {
    item_type: U16,
    regions: U16,
    flags: U16,
    basic_blocks: U16,
    address: U64,
    map_words: U32,
}

/// Bytes of the first region before its map.
pub const FORMAT_BYTES: usize = size_of::<RawFormat>();
const _: () = assert!(FORMAT_BYTES == 20 && offset_of!(RawFormat, address) == 8);

/// Types of logged buffers by their numbers (`enum xfs_blft`).
pub mod buffer_type {
    /// Quota records of users.
    pub const USER_QUOTA: u16 = 1;
    /// Quota records of projects.
    pub const PROJECT_QUOTA: u16 = 2;
    /// Quota records of groups.
    pub const GROUP_QUOTA: u16 = 3;
    /// A block of any btree.
    pub const BTREE: u16 = 4;
    /// An AGF.
    pub const AGF: u16 = 5;
    /// An AGFL.
    pub const AGFL: u16 = 6;
    /// An AGI.
    pub const AGI: u16 = 7;
    /// A cluster of inodes.
    pub const INODES: u16 = 8;
    /// The target of a symbolic link.
    pub const SYMLINK: u16 = 9;
    /// A directory in one block.
    pub const DIR_BLOCK: u16 = 10;
    /// A data block of a directory.
    pub const DIR_DATA: u16 = 11;
    /// A block of free space of a directory.
    pub const DIR_FREE: u16 = 12;
    /// The only leaf block of a directory.
    pub const DIR_LEAF_1: u16 = 13;
    /// A leaf block of a directory.
    pub const DIR_LEAF_N: u16 = 14;
    /// A node of a directory or of attributes.
    pub const DA_NODE: u16 = 15;
    /// A leaf block of attributes.
    pub const ATTR_LEAF: u16 = 16;
    /// A block of an attribute's value.
    pub const ATTR_REMOTE: u16 = 17;
    /// A superblock.
    pub const SUPERBLOCK: u16 = 18;
}

/// The contents of the first region of a buffer item, without the map.
#[derive(Clone, Copy, Debug)]
pub struct BufferFormat {
    /// Where the buffer lies.
    pub address: DiskAddress,
    /// Its length.
    pub basic_blocks: u16,
    /// Bits of [`buffer_flags`], the type included.
    pub flags: u16,
    /// Regions of the item, this one included.
    pub regions: u16,
}

impl BufferFormat {
    /// Fills the first region of a buffer item: [`FORMAT_BYTES`] bytes and the map.
    pub fn encode(&self, map: &[u32], out: &mut [u8]) {
        let format = RawFormat {
            item_type: item_type::BUFFER.into(),
            regions: self.regions.into(),
            flags: self.flags.into(),
            basic_blocks: self.basic_blocks.into(),
            address: self.address.0.into(),
            map_words: (map.len() as u32).into(),
        };
        let (head, words) = out.split_at_mut(FORMAT_BYTES);
        head.copy_from_slice(format.as_bytes());
        for (place, word) in words.chunks_exact_mut(4).zip(map) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// Changes the flags in the first region of a buffer item.
    pub fn patch_flags(region: &mut [u8], flags: u16) {
        let at = offset_of!(RawFormat, flags);
        region[at..at + 2].copy_from_slice(&flags.to_le_bytes());
    }
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
        let fields = Fields::new(NAME, region, FORMAT_BYTES)?;
        let words = fields.u32(16)? as usize;
        let (flags, basic_blocks, address) = (fields.u16(4)?, fields.u16(6)?, fields.u64(8)?);
        let found = || format!("{words} words in {} bytes", region.len());
        ensure!(words <= (region.len() - FORMAT_BYTES) / 4, NAME, "its map is whole", "{}", found());
        ensure!(
            (1..=MAX_BASIC_BLOCKS).contains(&basic_blocks),
            NAME,
            "length is from one sector to 128 KiB",
            "{basic_blocks} sectors"
        );
        ensure!(address < 1 << 54, NAME, "address is on a device", "{address:#x}");
        Ok(Self {
            address: DiskAddress(address),
            basic_blocks,
            flags,
            map: &region[FORMAT_BYTES..FORMAT_BYTES + 4 * words],
        })
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> usize {
        usize::from(self.basic_blocks) * BASIC_BLOCK_BYTES
    }

    /// The type of its contents, as the writer has recorded it.
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
        let mut region = vec![0xee; FORMAT_BYTES + 4];
        let flags = buffer_type::AGF << buffer_flags::TYPE_SHIFT;
        BufferFormat { address: DiskAddress(9), basic_blocks: 1, flags, regions: 2 }.encode(&[map], &mut region);
        region
    }

    /// The bytes of an item that the kernel wrote: an AGF of 512 bytes at sector 1, of which the first 128 are logged.
    #[test]
    fn the_format_is_the_kernels() {
        let mut region = [0; 24];
        let flags = buffer_type::AGF << buffer_flags::TYPE_SHIFT;
        BufferFormat { address: DiskAddress(1), basic_blocks: 1, flags, regions: 2 }.encode(&[1], &mut region);
        let kernels = [0x3c, 0x12, 2, 0, 0, 0x28, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0];
        assert_eq!(region, kernels);
        BufferFormat::patch_flags(&mut region, flags | buffer_flags::CANCEL);
        assert!(LoggedBuffer::decode(&region).unwrap().is_cancel());
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
