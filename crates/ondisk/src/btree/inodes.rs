//! The inode trees: chunks of 64 inodes, all of them and those with free ones.

use super::format::{TreeFormat, u32_at, u64_at};
use super::{FINOBT_MAGIC, INOBT_MAGIC};
use crate::{AgInode, AgNumber, Geometry};

/// A chunk of 64 inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeChunk {
    /// Its first inode.
    pub first: AgInode,
    /// A bit for every four inodes that do not exist.
    pub hole_mask: u16,
    /// Inodes that exist; 0 on an image without sparse inodes, where all 64 do.
    pub recorded_count: u8,
    /// Free inodes.
    pub free_count: u8,
    /// A bit for every inode that is free or does not exist.
    pub free: u64,
}

impl InodeChunk {
    /// Inodes that exist.
    #[inline]
    pub fn inodes(&self) -> u32 {
        if self.recorded_count == 0 { crate::INODES_PER_CHUNK } else { self.recorded_count.into() }
    }

    /// A bit for every inode that does not exist.
    #[inline]
    pub fn holes(&self) -> u64 {
        if self.hole_mask == 0 {
            return 0;
        }
        let spread = |bit: u32| if self.hole_mask >> bit & 1 == 1 { 0xfu64 << (4 * bit) } else { 0 };
        (0..16).map(spread).fold(0, |all, four| all | four)
    }

    /// A bit for every inode that exists and is free.
    #[inline]
    pub fn allocatable(&self) -> u64 {
        self.free & !self.holes()
    }

    /// The index of `inode` within the chunk, if it may lie in it.
    #[inline]
    pub fn index_of(&self, inode: AgInode) -> Option<u32> {
        inode.0.checked_sub(self.first.0).filter(|&index| index < crate::INODES_PER_CHUNK)
    }

    #[inline]
    fn decode(bytes: &[u8]) -> Self {
        Self {
            first: AgInode(u32_at(bytes, 0)),
            hole_mask: u16::from_be_bytes([bytes[4], bytes[5]]),
            recorded_count: bytes[6],
            free_count: bytes[7],
            free: u64_at(bytes, 8),
        }
    }

    #[inline]
    fn encode(&self, out: &mut [u8]) {
        out[..4].copy_from_slice(&self.first.0.to_be_bytes());
        out[4..6].copy_from_slice(&self.hole_mask.to_be_bytes());
        out[6] = self.recorded_count;
        out[7] = self.free_count;
        out[8..16].copy_from_slice(&self.free.to_be_bytes());
    }

    fn is_sane(&self, geometry: &Geometry, ag: AgNumber) -> bool {
        let last = self.first.0.checked_add(crate::INODES_PER_CHUNK - 1);
        let in_ag = last.is_some_and(|last| geometry.contains(ag, geometry.inode_block(AgInode(last))));
        let exist = crate::INODES_PER_CHUNK - self.holes().count_ones();
        let counted = if geometry.has_sparse_inodes() { self.recorded_count != 0 } else { self.recorded_count == 0 };
        (in_ag || self.hole_mask != 0)
            && last.is_some()
            && counted
            && self.inodes() == exist
            && u32::from(self.free_count) == self.allocatable().count_ones()
            && geometry.contains(ag, geometry.inode_block(self.first))
    }
}

macro_rules! inode_tree {
    ($(#[$doc:meta])* $name:ident, $text:literal, $magic:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;

        impl TreeFormat for $name {
            type Record = InodeChunk;
            type Key = AgInode;
            const NAME: &'static str = $text;
            const MAGIC: u32 = $magic;
            const RECORD_BYTES: usize = 16;
            const KEY_BYTES: usize = 4;

            #[inline]
            fn decode_record(bytes: &[u8]) -> InodeChunk {
                InodeChunk::decode(bytes)
            }
            #[inline]
            fn encode_record(record: &InodeChunk, out: &mut [u8]) {
                record.encode(out);
            }
            #[inline]
            fn decode_key(bytes: &[u8]) -> AgInode {
                AgInode(u32_at(bytes, 0))
            }
            #[inline]
            fn encode_key(key: &AgInode, out: &mut [u8]) {
                out[..4].copy_from_slice(&key.0.to_be_bytes());
            }
            #[inline]
            fn key(record: &InodeChunk) -> AgInode {
                record.first
            }
            #[inline]
            fn record_key(bytes: &[u8]) -> AgInode {
                AgInode(u32_at(bytes, 0))
            }
            fn is_sane(geometry: &Geometry, ag: AgNumber, record: &InodeChunk) -> bool {
                record.is_sane(geometry, ag)
            }
        }
    };
}

inode_tree! {
    /// All inode chunks.
    Inobt, "inobt block", INOBT_MAGIC
}
inode_tree! {
    /// Inode chunks with free inodes.
    Finobt, "finobt block", FINOBT_MAGIC
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparse_chunk_knows_which_inodes_exist() {
        let chunk = InodeChunk { first: AgInode(128), hole_mask: 0xff00, recorded_count: 32, free_count: 31, free: !1 };
        assert_eq!(chunk.holes(), 0xffff_ffff_0000_0000);
        assert_eq!(chunk.allocatable(), 0xffff_fffe);
        let mut bytes = [0; 16];
        Inobt::encode_record(&chunk, &mut bytes);
        assert_eq!(Inobt::decode_record(&bytes), chunk);
    }
}
