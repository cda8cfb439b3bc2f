//! Btree blocks: the headers that all trees share, and the records and keys of each.
//!
//! ```text
//! short header (within an AG)  0 magic 4 level 6 records  8 left 12 right | 16 address 24 LSN 32 uuid 48 AG    52 crc
//! long header (in a file)      0 magic 4 level 6 records  8 left 16 right | 24 address 32 LSN 40 uuid 56 inode 64 crc
//! leaf:  header, records from the front
//! node:  header, keys from the front, pointers from the middle (after the room for the most keys)
//! ```
//! The trees of an AG use short headers: free space by block (`AB3B`) and by size (`AB3C`), inodes (`IAB3`), free
//! inodes (`FIB3`), reverse mappings (`RMB3`), reference counts (`R3FC`). A file's extent map (`BMA3`) uses long ones.
//!
//! Facts: the XFS Algorithms & Data Structures document, "Btrees"; the kernel's `struct xfs_btree_block`.

mod extent_map;
mod format;
mod free_space;
mod inodes;
mod owners;
mod view;

pub use extent_map::Bmbt;
pub use format::{Column, Columns, TreeFormat};
pub use free_space::{BlockKey, Bnobt, Cntbt, FreeExtent, SizeKey};
pub use inodes::{Finobt, Inobt, InodeChunk};
pub use owners::{REFCOUNT_COW, Refcount, Refcountbt, Rmap, RmapOrder, Rmapbt};
pub use view::{BlockView, verify_block};

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Magic number of the free space tree by block.
pub const BNOBT_MAGIC: u32 = 0x4142_3342;
/// Magic number of the free space tree by size.
pub const CNTBT_MAGIC: u32 = 0x4142_3343;
/// Magic number of the inode tree.
pub const INOBT_MAGIC: u32 = 0x4941_4233;
/// Magic number of the free inode tree.
pub const FINOBT_MAGIC: u32 = 0x4649_4233;
/// Magic number of the reverse mapping tree.
pub const RMAPBT_MAGIC: u32 = 0x524d_4233;
/// Magic number of the reference count tree.
pub const REFCOUNTBT_MAGIC: u32 = 0x5233_4643;
/// Magic number of an extent map's tree.
pub const BMBT_MAGIC: u32 = 0x424d_4133;

/// Header of a block of an AG's tree.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug)]
#[repr(C)]
#[allow(missing_docs)] // The fields carry the format document's names.
pub struct ShortBlockHeader {
    pub magic: U32,
    pub level: U16,
    pub records: U16,
    pub left: U32,
    pub right: U32,
    pub address: U64,
    pub lsn: U64,
    pub uuid: [u8; 16],
    pub owner: U32,
    pub crc: [u8; 4],
}

/// Header of a block of a file's extent map.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug)]
#[repr(C)]
#[allow(missing_docs)] // The fields carry the format document's names.
pub struct LongBlockHeader {
    pub magic: U32,
    pub level: U16,
    pub records: U16,
    pub left: U64,
    pub right: U64,
    pub address: U64,
    pub lsn: U64,
    pub uuid: [u8; 16],
    pub owner: U64,
    pub crc: [u8; 4],
    pub pad: [u8; 4],
}

/// Size of a short header in bytes.
pub const SHORT_HEADER_BYTES: usize = 56;
/// Size of a long header in bytes.
pub const LONG_HEADER_BYTES: usize = 72;
/// Where the checksum of a short block stands.
pub const SHORT_CRC_OFFSET: usize = 52;
/// Where the checksum of a long block stands.
pub const LONG_CRC_OFFSET: usize = 64;
/// Where the LSN of a short block stands.
pub const SHORT_LSN_OFFSET: usize = 24;
/// Where the LSN of a long block stands.
pub const LONG_LSN_OFFSET: usize = 32;

/// Record and key of both free space trees (`struct xfs_alloc_rec`).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug)]
#[repr(C)]
#[allow(missing_docs)]
pub struct FreeSpaceRecord {
    pub start: U32,
    pub count: U32,
}

/// Record of both inode trees, with the sparse layout (`struct xfs_inobt_rec`). The key is `first`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug)]
#[repr(C)]
pub struct InodeChunkRecord {
    /// First inode of the chunk, within the AG.
    pub first: U32,
    /// A bit for every four inodes that do not exist; 0 without sparse inodes.
    pub hole_mask: U16,
    /// Inodes that exist; without sparse inodes this byte and `hole_mask` and `free_count` are one 32-bit number.
    pub count: u8,
    /// Free inodes.
    pub free_count: u8,
    /// A bit for every inode that is free or does not exist.
    pub free: U64,
}

/// Record of the reverse mapping tree (`struct xfs_rmap_rec`).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug)]
#[repr(C)]
pub struct RmapRecord {
    /// First block, within the AG.
    pub start: U32,
    /// Number of blocks.
    pub count: U32,
    /// Inode, or one of [`rmap_owner`].
    pub owner: U64,
    /// Fork block, with the flags of [`rmap_offset`] above.
    pub offset: U64,
}

/// Key of the reverse mapping tree (`struct xfs_rmap_key`); nodes have two for each child, the lowest and the highest.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RmapKey {
    pub start: U32,
    pub owner: U64,
    pub offset: U64,
}

/// Record of the reference count tree (`struct xfs_refcount_rec`). The key is `start`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug)]
#[repr(C)]
pub struct RefcountRecord {
    /// First block, within the AG; the top bit marks blocks staged for copy on write.
    pub start: U32,
    /// Number of blocks.
    pub count: U32,
    /// References.
    pub references: U32,
}

/// Owners in the reverse mapping tree that are not inodes.
pub mod rmap_owner {
    /// Free space, never recorded.
    pub const NULL: u64 = u64::MAX;
    /// Unknown owner, for recovery.
    pub const UNKNOWN: u64 = -2i64 as u64;
    /// Headers of the AG.
    pub const FS: u64 = -3i64 as u64;
    /// The log.
    pub const LOG: u64 = -4i64 as u64;
    /// Blocks of the free space and reverse mapping trees and the free list.
    pub const AG: u64 = -5i64 as u64;
    /// Blocks of the inode trees.
    pub const INOBT: u64 = -6i64 as u64;
    /// Inode chunks.
    pub const INODES: u64 = -7i64 as u64;
    /// Blocks of the reference count tree.
    pub const REFCOUNT: u64 = -8i64 as u64;
    /// Blocks staged for copy on write.
    pub const COW: u64 = -9i64 as u64;
}

/// Flags in the top bits of a reverse mapping's offset.
pub mod rmap_offset {
    /// The blocks belong to the attr fork.
    pub const ATTR_FORK: u64 = 1 << 63;
    /// The blocks are nodes of the fork's extent map.
    pub const BMBT_BLOCK: u64 = 1 << 62;
    /// The blocks are unwritten.
    pub const UNWRITTEN: u64 = 1 << 61;
    /// The fork block itself.
    pub const MASK: u64 = (1 << 54) - 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layouts_have_the_documents_sizes() {
        assert_eq!(size_of::<ShortBlockHeader>(), SHORT_HEADER_BYTES);
        assert_eq!(size_of::<LongBlockHeader>(), LONG_HEADER_BYTES);
        assert_eq!(size_of::<RmapRecord>(), 24);
        assert_eq!(size_of::<RmapKey>(), 20);
        assert_eq!(size_of::<InodeChunkRecord>(), 16);
        assert_eq!(size_of::<RefcountRecord>(), 12);
    }
}
