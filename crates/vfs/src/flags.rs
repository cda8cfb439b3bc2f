//! What Linux's `FS_IOC_FSSETXATTR` sets of an inode.

/// Flags of an inode that callers set, in the bits of Linux's `FS_XFLAG_*`. A filesystem may store those up to
/// `FILESTREAM` in the same bits.
pub mod xflags {
    /// The contents lie on the realtime device.
    pub const REALTIME: u32 = 1 << 0;
    /// Blocks are preallocated; cannot be set.
    pub const PREALLOC: u32 = 1 << 1;
    /// What a flag of `inode::flags` may be, the two above apart.
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
/// # fn keep_to_project(fs: &xfskit_engine::Volume, dir: xfskit_ondisk::InodeNumber) -> xfskit_engine::Result<()> {
/// let mut flags = fs.flags(dir)?;
/// flags.project = 7;
/// flags.xflags |= u32::from(xfskit_ondisk::inode::flags::PROJINHERIT);
/// fs.set_flags(dir, &flags, &xfskit_engine::Caller::root())?;
/// # Ok(()) }
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
