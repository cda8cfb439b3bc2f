//! What is known of an inode and of the filesystem as a whole.

use crate::{FileType, InodeNumber, Permissions, Timestamp};

/// The attributes of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Inode number.
    pub inode: InodeNumber,
    /// Generation: another inode may later have the same number, but not this too.
    pub generation: u32,
    /// What kind of file it is.
    pub file_type: FileType,
    /// Who may use it.
    pub permissions: Permissions,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Links.
    pub links: u32,
    /// Size in bytes.
    pub size: u64,
    /// Space taken, in 512-byte blocks.
    pub blocks: u64,
    /// Device number of a device node, in Linux's encoding.
    pub device: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// When it was made.
    pub birth_time: Timestamp,
    /// Project.
    pub project: u32,
    /// It has no flags (as chattr sets them), no hints for its extents and no project: owner, permissions, times and
    /// extended attributes are all its attributes.
    pub is_plain: bool,
}

impl Stat {
    /// Type and permissions in one number, as stat(2) gives them.
    pub const fn mode(&self) -> u16 {
        self.file_type.mode_bits() | self.permissions.bits()
    }
}

/// The filesystem in figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsStat {
    /// Size of a block in bytes.
    pub block_bytes: u32,
    /// Blocks, the log's not counted.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Inodes that exist or could.
    pub inodes: u64,
    /// Of those, free ones.
    pub free_inodes: u64,
}
