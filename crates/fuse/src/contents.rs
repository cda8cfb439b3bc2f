//! Contents between the kernel's cache and the engine.
//!
//! With the writeback cache the kernel knows size and times of a file before we do: it sends whole pages, in any order, sometime after
//! they were written, and the times by themselves. What it writes for a caller who waits (O_DIRECT) has the times of now.

use fuser::{OpenFlags, WriteFlags};
use xfskit::ondisk::InodeNumber;
use xfskit::{Filesystem, Result};

pub(crate) fn read(fs: &Filesystem, inode: InodeNumber, offset: u64, size: u32) -> Result<Vec<u8>> {
    let mut buffer = vec![0; size as usize];
    let count = fs.read_at(inode, offset, &mut buffer)?;
    buffer.truncate(count);
    Ok(buffer)
}

pub(crate) fn write(
    fs: &Filesystem,
    inode: InodeNumber,
    offset: u64,
    data: &[u8],
    write_flags: WriteFlags,
    flags: OpenFlags,
) -> Result<()> {
    if write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
        return fs.write_keeping_times(inode, offset, data);
    }
    fs.write_at(inode, offset, data)?;
    if flags.0 & rustix::fs::OFlags::DSYNC.bits() as i32 != 0 { fs.fdatasync(inode) } else { Ok(()) }
}
