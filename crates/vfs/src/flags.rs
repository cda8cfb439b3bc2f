//! What Linux's `FS_IOC_FSSETXATTR` sets of an inode.

/// Flags of an inode that callers set, in the bits of Linux's `FS_XFLAG_*`. A filesystem may store those up to
/// `FILESTREAM` in the same bits.
pub mod xflags {
    /// The contents lie on the realtime device.
    pub const REALTIME: u32 = 1 << 0;
    /// Blocks are preallocated; cannot be set.
    pub const PREALLOC: u32 = 1 << 1;
    /// Nothing of the file may change.
    pub const IMMUTABLE: u32 = 1 << 3;
    /// What the file holds is only added to.
    pub const APPEND: u32 = 1 << 4;
    /// What is made in a directory lies on the realtime device.
    pub const RTINHERIT: u32 = 1 << 8;
    /// What is made in a directory has its project, and no other may enter.
    pub const PROJINHERIT: u32 = 1 << 9;
    /// No symbolic links can be made in a directory.
    pub const NOSYMLINKS: u32 = 1 << 10;
    /// A file is allocated in units of its extent size.
    pub const EXTSIZE: u32 = 1 << 11;
    /// Files that are made in a directory have its extent size.
    pub const EXTSZINHERIT: u32 = 1 << 12;
    /// The flags that are stored in one field of an inode of XFS, the first two apart.
    pub const OF_DISK: u32 = 0x7ff8;
    /// Direct access.
    pub const DAX: u32 = 1 << 15;
    /// Copies on write are allocated in units of their extent size.
    pub const COWEXTSIZE: u32 = 1 << 16;
    /// The inode has attributes; cannot be set.
    pub const HASATTR: u32 = 1 << 31;
}

/// Flags, project and hints of an inode.
///
/// ```
/// use xfskit_vfs::{Caller, InodeNumber, Result, Volume, xflags};
///
/// fn keep_to_project(volume: &dyn Volume, dir: InodeNumber) -> Result<()> {
///     let mut flags = volume.flags(dir)?;
///     flags.project = 7;
///     flags.xflags |= xflags::PROJINHERIT;
///     volume.set_flags(dir, &flags, &Caller::root())
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The flags, in the bits of [`xflags`].
    pub xflags: u32,
    /// The project.
    pub project: u32,
    /// In which units the file is to be allocated, or the files made in a directory; 0 for any. A multiple of a block.
    pub extent_size_bytes: u32,
    /// The same for copies of shared blocks.
    pub cow_extent_size_bytes: u32,
}
