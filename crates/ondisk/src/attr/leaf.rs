//! Leaves of attributes.
//!
//! ```text
//!  0 da header  56 entries 58 bytes of names and values 60 first of them 62 holes 1, pad 1
//! 64 three free runs (start 2, length 2)  76 pad | 80 entries (hash 4, offset 2, flags 1, pad 1), in order of hash
//! ... free ... names and values, from the end downwards:
//!     local   length of value 2, length of name 1, name, value            rounded up to 4
//!     remote  fork block of value 4, length of value 4, length of name 1, name, rounded up to 4 from 11 + name
//! ```
//! The header lists up to three free runs, not all of them. "Holes" means that compaction may gain space. An empty leaf
//! of 64 KiB, whose first used byte would be 65536, stores 0.
//!
//! The size of a remote entry includes two bytes that are not used: the kernel adds the length of the name to the size
//! of a C structure that is padded to a multiple of 4.
//!
//! Facts: the XFS Algorithms & Data Structures document, "Leaf Attributes"; the kernel's `xfs_attr3_leaf_verify`.

use super::{flags, is_valid_namespace};
use crate::da::{ATTR_LEAF_HEADER_BYTES, DaInfo, array, prefix, verify_info};
use crate::{Corruption, DiskAddress, Geometry, Verdict, ensure};
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use crate::da::ATTR_LEAF_MAGIC;
/// Where the entries start.
pub const LEAF_HEADER_BYTES: usize = ATTR_LEAF_HEADER_BYTES;
/// Size of an entry.
pub const LEAF_ENTRY_BYTES: usize = 8;
const NAME: &str = "attr leaf block";

/// A free run of a leaf.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FreeRun {
    /// Where it starts.
    pub start: U16,
    /// Its length; 0 in an unused slot of the header.
    pub length: U16,
}

/// Header of a leaf (`struct xfs_attr3_leaf_hdr`).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug)]
#[repr(C)]
pub struct LeafHeader {
    /// The part shared with nodes.
    pub info: DaInfo,
    /// Number of entries.
    pub count: U16,
    /// Bytes that names and values take.
    pub used_bytes: U16,
    /// Offset of the first of these bytes; 0 means 65536.
    pub first_used: U16,
    /// Not 0 when compaction may gain space.
    pub holes: u8,
    /// Unused.
    pub pad1: u8,
    /// Some free runs.
    pub free: [FreeRun; 3],
    /// Unused.
    pub pad2: U32,
}

/// Entry of a leaf (`struct xfs_attr_leaf_entry`).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct LeafEntry {
    /// Hash of the attribute.
    pub hash: U32,
    /// Where its name stands.
    pub offset: U16,
    /// Its flags.
    pub flags: u8,
    /// Unused.
    pub pad: u8,
}

/// The value of an attribute in a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafValue<'a> {
    /// The value follows the name.
    Local(&'a [u8]),
    /// The value lies in blocks of its own.
    Remote {
        /// First fork block; 0 while there is none.
        block: u32,
        /// Length of the value in bytes.
        length: u32,
    },
}

/// An attribute of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafAttr<'a> {
    /// Its hash.
    pub hash: u32,
    /// Its flags, name space included.
    pub flags: u8,
    /// The name.
    pub name: &'a [u8],
    /// The value, or where it is.
    pub value: LeafValue<'a>,
    /// Where the name and the value start in the block.
    pub offset: usize,
}

impl LeafAttr<'_> {
    /// Bytes that name and value take.
    pub fn size(&self) -> usize {
        match self.value {
            LeafValue::Local(value) => local_bytes(self.name.len(), value.len()),
            LeafValue::Remote { .. } => remote_bytes(self.name.len()),
        }
    }

    /// The name space.
    pub fn namespace(&self) -> u8 {
        self.flags & flags::NAMESPACE
    }

    /// Whether the attribute is incomplete, and so invisible.
    pub fn is_incomplete(&self) -> bool {
        self.flags & flags::INCOMPLETE != 0
    }
}

/// Bytes that a name and a local value take.
pub fn local_bytes(name_bytes: usize, value_bytes: usize) -> usize {
    (3 + name_bytes + value_bytes).next_multiple_of(4)
}

/// Bytes that a name and the position of a remote value take.
pub fn remote_bytes(name_bytes: usize) -> usize {
    (11 + name_bytes).next_multiple_of(4)
}

/// Whether a value of this size is stored with its name: name and value together take less than three quarters of a
/// block.
pub fn is_local(block_bytes: usize, name_bytes: usize, value_bytes: usize) -> bool {
    local_bytes(name_bytes, value_bytes) < block_bytes / 2 + block_bytes / 4
}

/// The header of a leaf.
pub fn leaf_header(bytes: &[u8]) -> &LeafHeader {
    prefix(bytes)
}

/// The entries of a verified leaf.
pub fn leaf_entries(bytes: &[u8]) -> &[LeafEntry] {
    array(bytes, LEAF_HEADER_BYTES, leaf_header(bytes).count.get().into())
}

/// Where names and values start.
pub fn first_used(bytes: &[u8]) -> usize {
    match leaf_header(bytes).first_used.get() {
        0 => 65536,
        offset => offset.into(),
    }
}

/// The attribute at position `index`.
///
/// # Errors
/// A corruption when name or value reach beyond the block; in a verified leaf they never do.
pub fn attr_at(bytes: &[u8], index: usize) -> Verdict<LeafAttr<'_>> {
    let entry = leaf_entries(bytes).get(index);
    let attr = entry.and_then(|entry| decode(bytes, entry));
    attr.ok_or_else(|| {
        Corruption::new(NAME, "name and value lie within the block").found(format_args!("entry {index}"))
    })
}

/// All attributes in order of hash.
pub fn attrs(bytes: &[u8]) -> impl Iterator<Item = Verdict<LeafAttr<'_>>> {
    (0..leaf_entries(bytes).len()).map(|index| attr_at(bytes, index))
}

fn decode<'a>(bytes: &'a [u8], entry: &LeafEntry) -> Option<LeafAttr<'a>> {
    let offset = usize::from(entry.offset.get());
    let stored = bytes.get(offset..)?;
    let (name, value) = if entry.flags & flags::LOCAL != 0 {
        let &[high, low, name_bytes] = stored.first_chunk()?;
        let value_bytes = usize::from(u16::from_be_bytes([high, low]));
        let (name, rest) = stored.get(3..)?.split_at_checked(name_bytes.into())?;
        (name, LeafValue::Local(rest.get(..value_bytes)?))
    } else {
        let (block, rest) = stored.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (&name_bytes, rest) = rest.split_first()?;
        let value = LeafValue::Remote { block: u32::from_be_bytes(*block), length: u32::from_be_bytes(*length) };
        (rest.get(..name_bytes.into())?, value)
    };
    let attr = LeafAttr { hash: entry.hash.get(), flags: entry.flags, name, value, offset };
    (attr.offset + attr.size() <= bytes.len()).then_some(attr)
}

/// Verifies a leaf: identity, entries in order, names and values within the block and no more of them than fit.
///
/// # Errors
/// A corruption of the "attr leaf block".
pub fn verify_leaf(geometry: &Geometry, address: DiskAddress, bytes: &[u8]) -> Verdict {
    verify_info(geometry, address, bytes, ATTR_LEAF_MAGIC, NAME)?;
    ensure!(bytes.len() == geometry.block_bytes(), NAME, "whole block", "{} bytes", bytes.len());
    let header = leaf_header(bytes);
    let count = usize::from(header.count.get());
    let table_end = LEAF_HEADER_BYTES + count * LEAF_ENTRY_BYTES;
    let first = first_used(bytes);
    ensure!((table_end..=bytes.len()).contains(&first), NAME, "first used byte", "{first}, {count} entries");
    let entries = leaf_entries(bytes);
    ensure!(entries.is_sorted_by_key(|entry| entry.hash.get()), NAME, "entries in order of hash");
    let mut used = 0;
    for attr in attrs(bytes) {
        let attr = attr?;
        ensure!(attr.offset >= first, NAME, "names behind the first used byte", "{} before {first}", attr.offset);
        ensure!(!attr.name.is_empty(), NAME, "names are not empty");
        ensure!(is_valid_namespace(attr.flags), NAME, "name space", "flags {:#x}", attr.flags);
        if let LeafValue::Remote { block, length } = attr.value {
            ensure!(block != 0 || attr.is_incomplete(), NAME, "remote values have a place");
            ensure!(length as usize <= super::MAX_VALUE_BYTES, NAME, "length of a value", "{length}");
        }
        used += attr.size();
    }
    ensure!(table_end + used <= bytes.len(), NAME, "names and values do not overlap", "{used} bytes of them");
    for run in &header.free {
        let (start, length) = (usize::from(run.start.get()), usize::from(run.length.get()));
        let inside = start % 4 == 0 && length % 4 == 0 && start + length <= bytes.len();
        ensure!(inside, NAME, "free runs lie within the block", "{length} at {start}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_and_the_odd_rules_of_sizes() {
        assert_eq!(size_of::<LeafHeader>(), LEAF_HEADER_BYTES);
        assert_eq!(size_of::<LeafEntry>(), LEAF_ENTRY_BYTES);
        assert_eq!(local_bytes(5, 4), 12);
        assert_eq!(local_bytes(5, 5), 16);
        assert_eq!(remote_bytes(1), 12);
        assert_eq!(remote_bytes(2), 16);
        assert!(is_local(4096, 5, 3060) && !is_local(4096, 5, 3064));
    }
}
