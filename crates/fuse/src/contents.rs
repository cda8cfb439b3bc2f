//! Contents between the kernel's cache and the filesystem.
//!
//! With the writeback cache the kernel knows size and times of a file before the server does: it sends whole pages, in
//! any order, some time after they were written, and the times separately. Data that it writes while the program waits
//! (O_DIRECT) gets the current time.

use rustix::fs::OFlags;
use xfskit_fuse_session::WriteFlags;
use xfskit_fuse_session::request::{Copy, Write};
use xfskit_vfs::{Error, Fallocate, Handle, Handles, InodeNumber, Mtime, Result, Seek, SyncKind, Volume};

/// Most bytes of one copy that shares blocks: the reply's count has 32 bits.
const MAX_SHARED_BYTES: u64 = 1 << 30;
/// Most bytes that one request copies: the thread answers nothing else meanwhile. The kernel tells the program how many
/// were copied, and it asks for the rest.
const MAX_COPIED_BYTES: u64 = 8 << 20;

const KEEP_SIZE: i32 = 0x01;
const PUNCH_HOLE: i32 = 0x02;
const COLLAPSE_RANGE: i32 = 0x08;
const ZERO_RANGE: i32 = 0x10;
const INSERT_RANGE: i32 = 0x20;
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// Writes, and returns how many bytes: fewer where an error stops it, which the program meets when it writes the rest.
///
/// # Errors
/// As [`Handle::write`].
pub(crate) fn write<V: Handles>(fs: &V, file: &V::Inode<'_>, write: &Write<'_>, mtime: Mtime) -> Result<usize> {
    let mut written = 0;
    loop {
        // The server hears of no close, and this may be the last that the program writes.
        let part = match file.write(write.offset + written as u64, &write.data[written..], mtime) {
            Ok(part) if !part.was_truncated => part,
            part => {
                file.flush_truncated();
                part?
            }
        };
        written += part.bytes;
        // No program waits for what the cache writes, and the kernel would take fewer for all.
        if written >= write.data.len() || !write.flags.contains(WriteFlags::CACHE) {
            break;
        }
    }
    if mtime == Mtime::Update && is_durable(write.open_flags) {
        fs.await_durable(file.begin_fsync(SyncKind::Data)?.point)?;
    }
    Ok(written)
}

/// How much of a copy one request does.
pub(crate) fn most_of_copy(fs: &impl Volume, copy: &Copy) -> u64 {
    let limits = fs.limits();
    let block_bytes = u64::from(limits.block_bytes);
    let is_whole = |offset: u64| offset.is_multiple_of(block_bytes);
    if !(limits.reflink && is_whole(copy.from_offset) && is_whole(copy.to_offset)) {
        return copy.length.min(MAX_COPIED_BYTES);
    }
    // Of a range that ends within a block only that last part is copied.
    copy.length.min(MAX_SHARED_BYTES)
}

/// Whether a program writes by `O_DIRECT`, and not the kernel what it has in its cache.
pub(crate) fn goes_around_cache(write: &Write<'_>) -> bool {
    let is_by_program = write.flags.contains(WriteFlags::LOCK_OWNER) && !write.flags.contains(WriteFlags::CACHE);
    is_by_program && is_direct(write.open_flags)
}

/// Whether a file was opened for I/O that bypasses the kernel's cache.
pub(crate) fn is_direct(open_flags: u32) -> bool {
    OFlags::from_bits_retain(open_flags).contains(OFlags::DIRECT)
}

/// Whether a file was opened for writes that are durable when they return.
pub(crate) fn is_durable(open_flags: u32) -> bool {
    OFlags::from_bits_retain(open_flags).contains(OFlags::DSYNC)
}

/// The operation that a mode of `fallocate(2)` requests.
pub(crate) fn fallocate_mode(mode: i32) -> Result<Fallocate> {
    const PUNCH_KEEPING_SIZE: i32 = PUNCH_HOLE | KEEP_SIZE;
    const ZERO_KEEPING_SIZE: i32 = ZERO_RANGE | KEEP_SIZE;
    Ok(match mode {
        0 => Fallocate::Allocate,
        KEEP_SIZE => Fallocate::AllocateKeepSize,
        PUNCH_KEEPING_SIZE => Fallocate::PunchHole,
        ZERO_RANGE => Fallocate::ZeroRange,
        ZERO_KEEPING_SIZE => Fallocate::ZeroRangeKeepSize,
        COLLAPSE_RANGE => Fallocate::CollapseRange,
        INSERT_RANGE => Fallocate::InsertRange,
        _ => return Err(Error::NotSupported("this mode of fallocate")),
    })
}

pub(crate) fn seek(fs: &impl Volume, inode: InodeNumber, offset: i64, whence: u32) -> Result<u64> {
    let what = match whence {
        SEEK_DATA => Seek::Data,
        SEEK_HOLE => Seek::Hole,
        _ => return Err(Error::Invalid("only data and holes are looked for")),
    };
    let offset = u64::try_from(offset).map_err(|_| Error::NoMoreData)?;
    fs.seek(inode, offset, what)
}
