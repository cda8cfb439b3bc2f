//! Conversions between FUSE's types and the filesystem's.

use std::time::Duration;
use xfskit_fuse_session::abi::{ROOT, RawAttr, RawStatx, RawSxTime};
use xfskit_fuse_session::{Attr, Entry, Errno, NewTime, Time, request};
use xfskit_vfs::{Caller, Error, FileType, InodeNumber, NewFile, Permissions, SetAttr, SetTime, Stat, Timestamp};

/// How long the kernel may cache names and attributes: no other program changes them.
pub(crate) const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// The block size that programs are advised to use.
const BLOCK_BYTES: u32 = 4096;
/// What `statx` answers: everything that `stat` does, and the time of birth.
const STATX_BASIC_STATS: u32 = 0x07ff;
const STATX_BTIME: u32 = 0x0800;

pub(crate) fn errno(error: &Error) -> Errno {
    if error.is_damage() {
        tracing::error!(%error, "a request failed");
    }
    Errno::from_raw_os_error(error.errno())
}

pub(crate) fn raw_attr(stat: &Stat) -> RawAttr {
    RawAttr {
        ino: stat.inode.0,
        size: stat.size,
        blocks: stat.blocks,
        atime: stat.atime.seconds,
        mtime: stat.mtime.seconds,
        ctime: stat.ctime.seconds,
        atimensec: stat.atime.nanoseconds,
        mtimensec: stat.mtime.nanoseconds,
        ctimensec: stat.ctime.nanoseconds,
        mode: stat.mode().into(),
        nlink: stat.links,
        uid: stat.uid,
        gid: stat.gid,
        rdev: stat.device,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

/// Attributes that the kernel caches until it changes them.
pub(crate) fn attr(stat: &Stat) -> Attr {
    Attr { valid: FOREVER, attr: raw_attr(stat) }
}

/// An entry that the kernel caches until it sends a forget.
pub(crate) fn entry(stat: &Stat) -> Entry {
    Entry {
        node: stat.inode.0,
        generation: stat.generation.into(),
        name_valid: FOREVER,
        attr_valid: FOREVER,
        attr: raw_attr(stat),
    }
}

/// The entry of the root, for a file handle of it. It has FUSE's number of the root, and so have the attributes in it:
/// the kernel must ask for them again, since they must show the inode number.
pub(crate) fn entry_of_root(stat: &Stat) -> Entry {
    Entry {
        node: ROOT,
        generation: 0,
        name_valid: Duration::ZERO,
        attr_valid: Duration::ZERO,
        attr: RawAttr { ino: ROOT, ..raw_attr(stat) },
    }
}

/// An entry without an inode: the kernel caches that the name does not exist.
pub(crate) fn absent() -> Entry {
    Entry { node: 0, generation: 0, name_valid: FOREVER, attr_valid: FOREVER, attr: RawAttr::default() }
}

/// The attributes of an inode as `statx` shows them, its time of birth with them.
pub(crate) fn statx(stat: &Stat) -> RawStatx {
    let time = |time: Timestamp| RawSxTime { seconds: time.seconds, nanoseconds: time.nanoseconds, reserved: 0 };
    let attr = raw_attr(stat);
    let (major, minor) = device_parts(attr.rdev);
    RawStatx {
        mask: STATX_BASIC_STATS | STATX_BTIME,
        blksize: attr.blksize,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        mode: attr.mode as u16,
        ino: attr.ino,
        size: attr.size,
        blocks: attr.blocks,
        atime: time(stat.atime),
        btime: time(stat.birth_time),
        ctime: time(stat.ctime),
        mtime: time(stat.mtime),
        rdev_major: major,
        rdev_minor: minor,
        ..RawStatx::default()
    }
}

/// The major and the minor number of a device. In Linux's encoding twenty bits of the minor number lie on both sides of
/// twelve of the major.
fn device_parts(device: u32) -> (u32, u32) {
    (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xf_ff00)
}

/// What a request wants to make.
///
/// # Errors
/// `EINVAL` for a type that does not exist.
pub(crate) fn new_file(new: &request::NewNode<'_>) -> Result<NewFile<'static>, Errno> {
    let made = NewFile::of_mode(new.mode as u16).ok_or(Errno::INVAL)?;
    let device = if made.file_type.is_device() { new.device } else { 0 };
    Ok(NewFile { umask: new.umask as u16, device, ..made })
}

/// A request's change of attributes.
pub(crate) fn set_attr(change: &request::SetAttr) -> SetAttr {
    SetAttr {
        permissions: change.mode.map(|mode| Permissions::new(mode as u16)),
        uid: change.uid,
        gid: change.gid,
        atime: change.atime.map(set_time),
        mtime: change.mtime.map(set_time),
        ctime: change.ctime.map(timestamp),
        size: change.size,
    }
}

/// The mode, of which only the type is known, of an entry of a directory.
pub(crate) fn mode_of_entry(file_type: Option<FileType>) -> u32 {
    file_type.unwrap_or(FileType::File).mode_bits().into()
}

/// The inode of a node: FUSE's number of the root is 1, which is never the number of another inode.
pub(crate) fn inode(node: u64, root: InodeNumber) -> InodeNumber {
    if node == ROOT { root } else { InodeNumber(node) }
}

/// The owner of what a request makes or changes, with the groups that matter.
pub(crate) fn caller(requester: &xfskit_fuse_session::Requester, groups: Vec<u32>) -> Caller {
    Caller { uid: requester.uid, gid: requester.gid, groups }
}

fn timestamp(time: Time) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

fn set_time(time: NewTime) -> SetTime {
    match time {
        NewTime::Now => SetTime::Now,
        NewTime::At(time) => SetTime::To(timestamp(time)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_those_of_the_system() {
        for (major, minor) in [(8, 1), (259, 70_000), (4095, 1_048_575)] {
            let device = rustix::fs::makedev(major, minor) as u32;
            assert_eq!(device_parts(device), (major, minor));
        }
    }
}
