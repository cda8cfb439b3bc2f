//! Hash index blocks of a directory.
//!
//! ```text
//!  0 da header  56 entries 58 stale ones 60 pad | 64 entries (hash 4, data pointer 4), in order of hash
//! leaf form: ... | largest unused length of every data block, 2 bytes each | number of data blocks 4
//! ```
//! Removed entries stay as stale ones with their hash, and are reused. `0x3df1` is the one block of the leaf form,
//! `0x3dff` a leaf of the node form's btree.
//!
//! Facts: the XFS Algorithms & Data Structures document, "Leaf Directories"; the kernel's `xfs_dir3_leaf_check_int`.

use super::{DirLayout, STALE_POINTER};
use crate::da::{DaInfo, array, prefix, verify_info};
use crate::{DiskAddress, Geometry, Verdict, ensure};
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Magic number of the leaf form's only index block.
pub const DIR_LEAF1_MAGIC: u16 = 0x3df1;
/// Magic number of a leaf of the node form.
pub const DIR_LEAFN_MAGIC: u16 = 0x3dff;
/// Where the entries start.
pub const LEAF_HEADER_BYTES: usize = 64;
/// Size of the count at the end of the leaf form's block.
pub const LEAF_TAIL_BYTES: usize = 4;

/// Header of an index block (`struct xfs_dir3_leaf_hdr`).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug)]
#[repr(C)]
pub struct LeafHeader {
    /// The part shared with nodes.
    pub info: DaInfo,
    /// Number of entries, stale ones included.
    pub count: U16,
    /// Stale ones among them.
    pub stale: U16,
    /// Unused.
    pub pad: U32,
}

/// Entry of a hash index (`struct xfs_dir2_leaf_entry`).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct IndexEntry {
    /// Hash of the name.
    pub hash: U32,
    /// Data pointer of the entry, or [`STALE_POINTER`].
    pub pointer: U32,
}

impl IndexEntry {
    /// An entry.
    #[inline]
    pub fn new(hash: u32, pointer: u32) -> Self {
        Self { hash: U32::new(hash), pointer: U32::new(pointer) }
    }

    /// Whether the entry was removed.
    #[inline]
    pub fn is_stale(&self) -> bool {
        self.pointer.get() == STALE_POINTER
    }
}

/// The header of an index block.
#[inline]
pub fn leaf_header(bytes: &[u8]) -> &LeafHeader {
    prefix(bytes)
}

/// The entries of a verified index block, stale ones included.
#[inline]
pub fn leaf_entries(bytes: &[u8]) -> &[IndexEntry] {
    array(bytes, LEAF_HEADER_BYTES, leaf_header(bytes).count.get().into())
}

/// The largest unused length of every data block, from the end of the leaf form's block.
#[inline]
pub fn leaf_bests(bytes: &[u8]) -> &[U16] {
    let tail = bytes.len() - LEAF_TAIL_BYTES;
    let count = u32::from_be_bytes([bytes[tail], bytes[tail + 1], bytes[tail + 2], bytes[tail + 3]]) as usize;
    array(bytes, tail - 2 * count, count)
}

fn verify_entries(bytes: &[u8], name: &'static str) -> Verdict {
    let header = leaf_header(bytes);
    let room = (bytes.len() - LEAF_HEADER_BYTES) / size_of::<IndexEntry>();
    ensure!(usize::from(header.count.get()) <= room, name, "number of entries", "{}", header.count);
    let entries = leaf_entries(bytes);
    ensure!(entries.is_sorted_by_key(|entry| entry.hash.get()), name, "entries in order of hash");
    let stale = entries.iter().filter(|entry| entry.is_stale()).count();
    ensure!(stale == usize::from(header.stale.get()), name, "number of stale entries", "{stale}");
    Ok(())
}

/// Verifies the index block of the leaf form.
///
/// # Errors
/// A corruption of the "directory leaf block".
pub fn verify_leaf1(geometry: &Geometry, address: DiskAddress, bytes: &[u8]) -> Verdict {
    const NAME: &str = "directory leaf block";
    verify_info(geometry, address, bytes, DIR_LEAF1_MAGIC, NAME)?;
    ensure!(bytes.len() == geometry.dir_block_bytes(), NAME, "whole block", "{} bytes", bytes.len());
    verify_entries(bytes, NAME)?;
    let tail = bytes.len() - LEAF_TAIL_BYTES;
    let blocks = u32::from_be_bytes([bytes[tail], bytes[tail + 1], bytes[tail + 2], bytes[tail + 3]]);
    let end = LEAF_HEADER_BYTES + size_of_val(leaf_entries(bytes));
    let fits = (blocks as usize).checked_mul(2).and_then(|size| tail.checked_sub(size)).is_some_and(|at| at >= end);
    ensure!(fits, NAME, "free index and entries do not overlap", "{blocks} data blocks");
    let layout = DirLayout::new(geometry);
    let known = |pointer: u32| layout.split_pointer(pointer).0 < blocks;
    ensure!(
        leaf_entries(bytes).iter().all(|entry| known(entry.pointer.get())),
        NAME,
        "entries point at data blocks that exist"
    );
    Ok(())
}

/// Verifies a leaf of the node form's hash index.
///
/// # Errors
/// A corruption of the "directory leafn block".
pub fn verify_leafn(geometry: &Geometry, address: DiskAddress, bytes: &[u8]) -> Verdict {
    const NAME: &str = "directory leafn block";
    verify_info(geometry, address, bytes, DIR_LEAFN_MAGIC, NAME)?;
    ensure!(bytes.len() == geometry.dir_block_bytes(), NAME, "whole block", "{} bytes", bytes.len());
    verify_entries(bytes, NAME)
}
