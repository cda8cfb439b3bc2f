//! Contents between the kernel's cache and the engine.
//!
//! With the writeback cache the kernel knows size and times of a file before the server does: it sends whole pages, in
//! any order, some time after they were written, and the times separately. Data that it writes while the program waits
//! (O_DIRECT) gets the current time.

use rustix::fs::OFlags;
use xfskit_engine::{Error, Fallocate, Result, Seek, Volume};
use xfskit_fuse_session::WriteFlags;
use xfskit_fuse_session::request::{Copy, Write};
use xfskit_ondisk::InodeNumber;

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

/// Which side sets the times of a file that is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeKeeper {
    /// The kernel, which sends them after the contents.
    Kernel,
    /// The engine, which sets the current time.
    Engine,
}

/// Writes, and returns how many bytes: fewer where an error stops it, which the program meets when it writes the rest.
pub(crate) fn write(fs: &Volume, inode: InodeNumber, write: &Write<'_>, keeper: TimeKeeper) -> Result<usize> {
    let Write { offset, data, .. } = *write;
    let written = match keeper {
        TimeKeeper::Kernel => return fs.write_keeping_times(inode, offset, data).map(|()| data.len()),
        // No program waits for these, and the kernel would take fewer for all.
        TimeKeeper::Engine if write.flags.contains(WriteFlags::CACHE) => {
            fs.write_at(inode, offset, data).map(|()| data.len())
        }
        TimeKeeper::Engine => fs.write_some_at(inode, offset, data),
    };
    // The server hears of no close, and this may be the last that the program writes.
    fs.bring_out_if_cut(inode);
    let written = written?;
    if is_durable(write.open_flags) {
        fs.fdatasync(inode)?;
    }
    Ok(written)
}

/// How much of a copy one request does.
pub(crate) fn most_of_copy(fs: &Volume, copy: &Copy) -> u64 {
    let block_bytes = u64::from(fs.statfs().block_bytes);
    let is_whole = |offset: u64| offset.is_multiple_of(block_bytes);
    if !(fs.shares_blocks() && is_whole(copy.from_offset) && is_whole(copy.to_offset)) {
        return copy.length.min(MAX_COPIED_BYTES);
    }
    // Of a range that ends within a block only that last part is copied.
    copy.length.min(MAX_SHARED_BYTES)
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

pub(crate) fn seek(fs: &Volume, inode: InodeNumber, offset: i64, whence: u32) -> Result<u64> {
    let what = match whence {
        SEEK_DATA => Seek::Data,
        SEEK_HOLE => Seek::Hole,
        _ => return Err(Error::Invalid("only data and holes are looked for")),
    };
    let offset = u64::try_from(offset).map_err(|_| Error::NoMoreData)?;
    fs.seek(inode, offset, what)
}
