//! Units of address and size.
//!
//! Every number that stands for a position or an amount on disk has a type of its own. No two of them convert into each
//! other without the [`Geometry`](crate::Geometry): a block of an allocation group and a block of the filesystem look
//! alike and are not.

use crate::InodeNumber;
use core::fmt;

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $int);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

unit! {
    /// Number of an allocation group (AG), from 0.
    AgNumber(u32)
}
unit! {
    /// A filesystem block counted from the start of its allocation group (the kernel's `xfs_agblock_t`).
    AgBlock(u32)
}
unit! {
    /// A filesystem block as stored in long pointers: the AG number above, the AG block below (`xfs_fsblock_t`).
    /// These are sparse: the block after the last one of an AG is not the first one of the next.
    FsBlock(u64)
}
unit! {
    /// A filesystem block counted from the start of a file's fork (`xfs_fileoff_t`).
    FileBlock(u64)
}
unit! {
    /// An inode number within its allocation group (`xfs_agino_t`).
    AgInode(u32)
}
unit! {
    /// A log sequence number: the log's cycle above, the basic block in the log below (`xfs_lsn_t`).
    Lsn(u64)
}

/// Size of a basic block, the unit of [`DiskAddress`](crate::DiskAddress) and of the log, in bytes.
pub const BASIC_BLOCK_BYTES: usize = 512;

/// The AG block pointer that means "none".
pub const NULL_AG_BLOCK: AgBlock = AgBlock(u32::MAX);
/// The filesystem block pointer that means "none".
pub const NULL_FS_BLOCK: FsBlock = FsBlock(u64::MAX);
/// The AG inode number that means "none", the end of an unlinked list.
pub const NULL_AG_INODE: AgInode = AgInode(u32::MAX);
/// The inode number that means "none".
pub const NULL_INODE: InodeNumber = InodeNumber(u64::MAX);

impl Lsn {
    /// The LSN at basic block `block` of cycle `cycle`.
    pub const fn new(cycle: u32, block: u32) -> Self {
        Self((cycle as u64) << 32 | block as u64)
    }

    /// Number of the pass over the log, counted from 1.
    pub const fn cycle(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The basic block within the log.
    pub const fn block(self) -> u32 {
        self.0 as u32
    }
}

impl AgBlock {
    /// The block `count` blocks further on in the same AG.
    pub const fn add(self, count: u32) -> Self {
        Self(self.0 + count)
    }
}

impl FileBlock {
    /// The block `count` blocks further on in the same fork.
    pub const fn add(self, count: u64) -> Self {
        Self(self.0 + count)
    }
}
