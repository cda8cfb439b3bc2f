//! Extended attributes: name spaces, flags, and the record of a parent pointer.
//!
//! ```text
//! form       the attr fork contains
//! shortform  names and values, in the inode
//! leaf       one block: entries in order of hash, names and values from the end           (0x3bee)
//! node       a btree of such leaves (see [`crate::da`])
//! remote     a value of its own, in blocks of the attr fork behind the leaves             (XARM)
//! ```
//! An attribute is identified by name space and name; a parent pointer by name and value.
//!
//! Facts: the XFS Algorithms & Data Structures document, "Extended Attributes"; the kernel's `xfs_da_format.h` and
//! `xfs_parent.c`.

pub mod leaf;
pub mod remote;
pub mod shortform;

use crate::da::hash_name;

/// Longest name in bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// Longest value in bytes.
pub const MAX_VALUE_BYTES: usize = 65536;

/// Flags of an entry.
pub mod flags {
    /// The value follows the name.
    pub const LOCAL: u8 = 1 << 0;
    /// `trusted.` and ACLs.
    pub const ROOT: u8 = 1 << 1;
    /// `security.`.
    pub const SECURE: u8 = 1 << 2;
    /// A parent pointer.
    pub const PARENT: u8 = 1 << 3;
    /// The attribute is being written or removed: it is invisible.
    pub const INCOMPLETE: u8 = 1 << 7;
    /// The flags that name a name space; none of them for `user.`, and never two.
    pub const NAMESPACE: u8 = ROOT | SECURE | PARENT;
}

/// Size of a parent pointer's value in bytes.
pub const PARENT_RECORD_BYTES: usize = 12;

/// The value of a parent pointer; its name is that of the directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParentRecord {
    /// The directory.
    pub inode: u64,
    /// The generation of the directory's inode.
    pub generation: u32,
}

impl ParentRecord {
    /// Decodes a value of the right size.
    pub fn decode(value: &[u8]) -> Option<Self> {
        let (inode, generation) = value.split_at_checked(8)?;
        Some(Self {
            inode: u64::from_be_bytes(inode.try_into().ok()?),
            generation: u32::from_be_bytes(generation.try_into().ok()?),
        })
    }

    /// The value.
    pub fn encode(self) -> [u8; PARENT_RECORD_BYTES] {
        let mut value = [0; PARENT_RECORD_BYTES];
        value[..8].copy_from_slice(&self.inode.to_be_bytes());
        value[8..].copy_from_slice(&self.generation.to_be_bytes());
        value
    }
}

/// The hash of an attribute. Those of parent pointers mix in the directory's number, because the same name may stand
/// in many directories.
pub fn hash_attr(namespace: u8, name: &[u8], value: &[u8]) -> u32 {
    let hash = hash_name(name);
    if namespace & flags::PARENT == 0 {
        return hash;
    }
    let inode = ParentRecord::decode(value).map_or(0, |record| record.inode);
    hash ^ (inode >> 32) as u32 ^ inode as u32
}

/// Whether flags name at most one name space.
pub fn is_valid_namespace(flags: u8) -> bool {
    (flags & flags::NAMESPACE).count_ones() <= 1
}
