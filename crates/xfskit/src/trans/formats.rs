//! The forms in which buffers and inodes are logged: which parts, and how recovery knows them.

use bitflags::bitflags;

bitflags! {
    /// Parts of an inode that a log item carries (the kernel's `XFS_ILOG_…`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct InodeFields: u32 {
        /// The core.
        const CORE = 0x001;
        /// Local contents of the data fork.
        const DATA_LOCAL = 0x002;
        /// Extent records of the data fork.
        const DATA_EXTENTS = 0x004;
        /// Btree root of the data fork.
        const DATA_ROOT = 0x008;
        /// The device number.
        const DEV = 0x010;
        /// Local contents of the attr fork.
        const ATTR_LOCAL = 0x040;
        /// Extent records of the attr fork.
        const ATTR_EXTENTS = 0x080;
        /// Btree root of the attr fork.
        const ATTR_ROOT = 0x100;
    }
}

/// Types of logged buffers (the kernel's `enum xfs_blft`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
#[allow(missing_docs)] // Each is named as its structure.
pub enum BlfType {
    Btree = 4,
    Agf = 5,
    Agfl = 6,
    Agi = 7,
    Inodes = 8,
    Symlink = 9,
    DirBlock = 10,
    DirData = 11,
    DirFree = 12,
    DirLeaf1 = 13,
    DirLeafN = 14,
    DaNode = 15,
    AttrLeaf = 16,
    AttrRemote = 17,
    Superblock = 18,
}
