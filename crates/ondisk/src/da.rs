//! Blocks of the hash btree that directories and attributes share: the common header, nodes, and the hash of names.
//!
//! ```text
//! header  0 next 4 previous 8 magic | 12 crc 16 address 24 LSN 32 uuid 48 owner | 56 count 58 level | 64 entries
//! entry   0 greatest hash under the child, 4 fork block of the child
//! ```
//! The tree is keyed by hash, and hashes repeat: names that collide may reach over any number of leaves. Every level
//! is a list, linked both ways by fork block; block 0 of the tree's space is always the root, so 0 means "none".
//!
//! Facts: the XFS Algorithms & Data Structures document, "Directory/Attribute Internal Nodes"; the kernel's
//! `struct xfs_da3_blkinfo` and `xfs_da_hashname`.

use crate::search::partition_point;
use crate::{DiskAddress, Geometry, Verdict, ensure};
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Magic number of a node.
pub const DA_NODE_MAGIC: u16 = 0x3ebe;
/// Size of the header that nodes and leaves share.
pub const DA_INFO_BYTES: usize = 56;
/// Where the entries of a node start.
pub const DA_NODE_HEADER_BYTES: usize = 64;
/// Where the checksum stands.
pub const DA_CRC_OFFSET: usize = 12;
/// Where the LSN stands.
pub const DA_LSN_OFFSET: usize = 24;
/// Magic number of a leaf of attributes, the only kind of block whose header is longer than a node's.
pub const ATTR_LEAF_MAGIC: u16 = 0x3bee;
/// Where the entries of a leaf of attributes start.
pub const ATTR_LEAF_HEADER_BYTES: usize = 80;
/// Most levels above the leaves.
pub const DA_MAX_DEPTH: usize = 5;

/// The header that nodes and leaves share (`struct xfs_da3_blkinfo`).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug)]
#[repr(C)]
pub struct DaInfo {
    /// Fork block of the next block of the level, 0 for none.
    pub next: U32,
    /// Fork block of the previous block of the level, 0 for none.
    pub previous: U32,
    /// Which kind of block this is.
    pub magic: U16,
    /// Unused.
    pub pad: U16,
    /// Checksum.
    pub crc: [u8; 4],
    /// The block's own disk address.
    pub address: U64,
    /// Last change.
    pub lsn: U64,
    /// The filesystem.
    pub uuid: [u8; 16],
    /// The inode.
    pub owner: U64,
}

/// Header of a node (`struct xfs_da3_node_hdr`).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug)]
#[repr(C)]
pub struct DaNodeHeader {
    /// The common part.
    pub info: DaInfo,
    /// Number of entries.
    pub count: U16,
    /// Levels above the leaves, from 1.
    pub level: U16,
    /// Unused.
    pub pad: U32,
}

/// Entry of a node (`struct xfs_da_node_entry`).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DaNodeEntry {
    /// Greatest hash under the child.
    pub hash: U32,
    /// Fork block of the child.
    pub child: U32,
}

impl DaInfo {
    /// The header of a new block.
    pub fn new(geometry: &Geometry, magic: u16, owner: u64, address: DiskAddress) -> Self {
        Self {
            next: U32::ZERO,
            previous: U32::ZERO,
            magic: U16::new(magic),
            pad: U16::ZERO,
            crc: [0; 4],
            address: U64::new(address.0),
            lsn: U64::ZERO,
            uuid: geometry.meta_uuid,
            owner: U64::new(owner),
        }
    }

    /// The header at the front of a block.
    ///
    /// # Panics
    /// If `bytes` is shorter than a header; blocks never are.
    pub fn of(bytes: &[u8]) -> &Self {
        prefix(bytes)
    }

    /// The header at the front of a block, mutable.
    ///
    /// # Panics
    /// If `bytes` is shorter than a header; blocks never are.
    pub fn of_mut(bytes: &mut [u8]) -> &mut Self {
        prefix_mut(bytes)
    }
}

/// The structure at the front of `bytes`.
///
/// # Panics
/// If `bytes` is too short; callers pass blocks or ranges that were checked.
pub fn prefix<T: FromBytes + KnownLayout + Immutable + Unaligned>(bytes: &[u8]) -> &T {
    T::ref_from_prefix(bytes).expect("a block holds its header").0
}

/// The structure at the front of `bytes`, mutable.
///
/// # Panics
/// If `bytes` is too short; callers pass blocks or ranges that were checked.
pub fn prefix_mut<T: FromBytes + IntoBytes + KnownLayout + Unaligned>(bytes: &mut [u8]) -> &mut T {
    T::mut_from_prefix(bytes).expect("a block holds its header").0
}

/// The array of `count` structures at `offset`.
///
/// # Panics
/// If it does not lie within `bytes`; verified counts do.
pub fn array<T: FromBytes + Immutable + Unaligned>(bytes: &[u8], offset: usize, count: usize) -> &[T] {
    <[T]>::ref_from_bytes(&bytes[offset..offset + count * size_of::<T>()]).expect("the slice is a whole array")
}

/// The array of `count` structures at `offset`, mutable.
///
/// # Panics
/// If it does not lie within `bytes`; verified counts do.
pub fn array_mut<T: FromBytes + IntoBytes + Immutable + Unaligned>(
    bytes: &mut [u8],
    offset: usize,
    count: usize,
) -> &mut [T] {
    <[T]>::mut_from_bytes(&mut bytes[offset..offset + count * size_of::<T>()]).expect("the slice is a whole array")
}

/// Entries in a row of [`lower_bound_of_hash`], which compares the first entry of each row before it searches one row.
const ROW: usize = 32;

/// The index of the first of `entries`, which are in order of hash, that is not below `hash`.
pub fn lower_bound_of_hash<T>(entries: &[T], hash: u32, hash_of: impl Fn(&T) -> u32) -> usize {
    partition_point::<ROW, _>(entries, |entry| hash_of(entry) < hash)
}

/// The hash of a name in directories and of an attribute's name.
pub fn hash_name(name: &[u8]) -> u32 {
    let mut words = name.chunks_exact(4);
    let mut hash = 0u32;
    for word in &mut words {
        let mixed = u32::from(word[0]) << 21 ^ u32::from(word[1]) << 14 ^ u32::from(word[2]) << 7 ^ u32::from(word[3]);
        hash = mixed ^ hash.rotate_left(28);
    }
    words.remainder().iter().fold(hash, |hash, &byte| u32::from(byte) ^ hash.rotate_left(7))
}

/// The magic number of a block of the tree, or 0 for one that is too short to have one.
pub fn da_magic(bytes: &[u8]) -> u16 {
    bytes.get(8..10).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]))
}

/// Verifies the header that nodes and leaves share.
///
/// # Errors
/// A corruption of `name`.
pub fn verify_info(geometry: &Geometry, address: DiskAddress, bytes: &[u8], magic: u16, name: &'static str) -> Verdict {
    ensure!(bytes.len() >= 512, name, "whole block", "{} bytes", bytes.len());
    let info = DaInfo::of(bytes);
    ensure!(info.magic.get() == magic, name, "magic number", "{:#06x}", info.magic);
    ensure!(info.uuid == geometry.meta_uuid, name, "uuid");
    ensure!(info.address.get() == address.0, name, "own address", "{}", info.address);
    Ok(())
}

/// Most entries of a node of `block_bytes` bytes.
pub fn node_capacity(block_bytes: usize) -> usize {
    (block_bytes - DA_NODE_HEADER_BYTES) / size_of::<DaNodeEntry>()
}

/// Verifies a node: identity, level, and entries in order of their hashes.
///
/// # Errors
/// A corruption of the "da node".
pub fn verify_node(geometry: &Geometry, address: DiskAddress, bytes: &[u8]) -> Verdict {
    const NAME: &str = "da node";
    verify_info(geometry, address, bytes, DA_NODE_MAGIC, NAME)?;
    let header: &DaNodeHeader = prefix(bytes);
    let (level, count) = (usize::from(header.level.get()), usize::from(header.count.get()));
    ensure!((1..=DA_MAX_DEPTH).contains(&level), NAME, "level", "{level}");
    ensure!((1..=node_capacity(bytes.len())).contains(&count), NAME, "number of entries", "{count}");
    let entries = node_entries(bytes);
    ensure!(entries.is_sorted_by_key(|entry| entry.hash.get()), NAME, "entries in order of hash");
    ensure!(entries.iter().all(|entry| entry.child.get() != 0), NAME, "children have a place");
    Ok(())
}

/// The entries of a verified node.
pub fn node_entries(bytes: &[u8]) -> &[DaNodeEntry] {
    let header: &DaNodeHeader = prefix(bytes);
    array(bytes, DA_NODE_HEADER_BYTES, header.count.get().into())
}

/// The greatest hash of a verified block of the tree, node or leaf; 0 for one without entries. Nodes and leaves of all
/// kinds keep their count at the same offset, and have entries of 8 bytes that start with the hash.
#[inline]
pub fn last_hash(bytes: &[u8]) -> u32 {
    let entries = if da_magic(bytes) == ATTR_LEAF_MAGIC { ATTR_LEAF_HEADER_BYTES } else { DA_NODE_HEADER_BYTES };
    let header: &DaNodeHeader = prefix(bytes);
    match usize::from(header.count.get()) {
        0 => 0,
        count => array::<DaNodeEntry>(bytes, entries, count)[count - 1].hash.get(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_have_the_documents_sizes() {
        assert_eq!(size_of::<DaInfo>(), DA_INFO_BYTES);
        assert_eq!(size_of::<DaNodeHeader>(), DA_NODE_HEADER_BYTES);
    }

    #[test]
    fn hashes_are_xfs_own() {
        assert_eq!(hash_name(b"."), 0x2e);
        assert_eq!(hash_name(b".."), 0x172e);
        // A rotation by 7 for each byte: five bytes put the first one 28 bits up.
        assert_eq!(hash_name(b"a"), 0x61);
        assert_eq!(hash_name(b"abcd"), 0x61 << 21 ^ 0x62 << 14 ^ 0x63 << 7 ^ 0x64);
        assert_eq!(hash_name(b"abcde"), hash_name(b"abcd").rotate_left(7) ^ 0x65);
    }
}
