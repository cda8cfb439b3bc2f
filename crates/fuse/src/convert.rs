//! Conversions between FUSE's types and the engine's.

use fuser::{Errno, FileAttr, FileType, Generation, INodeNo, TimeOrNow};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use xfskit::ondisk::{InodeNumber, Timestamp};
use xfskit::volume::{self, Error, Permissions, SetTime, Stat};

/// How long the kernel may cache names and attributes: no other program changes them.
pub(crate) const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

pub(crate) fn errno(error: &Error) -> Errno {
    if error.is_damage() {
        tracing::error!(%error, "a request failed");
    }
    Errno::from_i32(error.errno())
}

pub(crate) fn generation(stat: &Stat) -> Generation {
    Generation(stat.generation.into())
}

pub(crate) fn attr(stat: &Stat) -> FileAttr {
    FileAttr {
        ino: INodeNo(stat.inode.0),
        size: stat.size,
        blocks: stat.blocks,
        atime: system_time(stat.atime),
        mtime: system_time(stat.mtime),
        ctime: system_time(stat.ctime),
        crtime: system_time(stat.birth_time),
        kind: kind(stat.file_type),
        perm: stat.permissions.bits(),
        nlink: stat.links,
        uid: stat.uid,
        gid: stat.gid,
        rdev: stat.device,
        blksize: 4096,
        flags: 0,
    }
}

/// Attributes without an inode. With them the kernel caches that a name does not exist, or gets an entry without
/// attributes.
pub(crate) fn no_attr(kind: FileType) -> FileAttr {
    let nothing = Stat {
        inode: InodeNumber(0),
        generation: 0,
        file_type: volume::FileType::File,
        permissions: Permissions::new(0),
        uid: 0,
        gid: 0,
        links: 0,
        size: 0,
        blocks: 0,
        device: 0,
        atime: Timestamp::default(),
        mtime: Timestamp::default(),
        ctime: Timestamp::default(),
        birth_time: Timestamp::default(),
        project: 0,
        is_plain: true,
    };
    FileAttr { kind, ..attr(&nothing) }
}

pub(crate) fn kind(file_type: volume::FileType) -> FileType {
    match file_type {
        volume::FileType::File => FileType::RegularFile,
        volume::FileType::Dir => FileType::Directory,
        volume::FileType::Symlink => FileType::Symlink,
        volume::FileType::CharDevice => FileType::CharDevice,
        volume::FileType::BlockDevice => FileType::BlockDevice,
        volume::FileType::Fifo => FileType::NamedPipe,
        volume::FileType::Socket => FileType::Socket,
    }
}

/// The kind that a directory's entry names, or a regular file's where it names none.
pub(crate) fn kind_of_entry(file_type: Option<volume::FileType>) -> FileType {
    file_type.map_or(FileType::RegularFile, kind)
}

fn system_time(time: Timestamp) -> SystemTime {
    let nanoseconds = Duration::from_nanos(time.nanoseconds.into());
    match u64::try_from(time.seconds) {
        Ok(seconds) => UNIX_EPOCH + Duration::from_secs(seconds) + nanoseconds,
        Err(_) => UNIX_EPOCH - Duration::from_secs(time.seconds.unsigned_abs()) + nanoseconds,
    }
}

/// A time of a request. For times before 1970, fuser subtracts the nanoseconds, which it should add. So this reads
/// seconds and nanoseconds back as fuser has put them in.
pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Timestamp { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            // The smallest number of seconds has no positive counterpart.
            Timestamp { seconds: 0_i64.saturating_sub_unsigned(before.as_secs()), nanoseconds: before.subsec_nanos() }
        }
    }
}

pub(crate) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::To(timestamp(time)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_keep_their_nanoseconds() {
        let time = Timestamp { seconds: -2, nanoseconds: 500_000_000 };
        assert_eq!(system_time(time), UNIX_EPOCH - Duration::from_millis(1500));
        // What fuser makes of -2 seconds and 500,000,000 nanoseconds from the kernel.
        assert_eq!(timestamp(UNIX_EPOCH - Duration::new(2, 500_000_000)), time);
        let first = Timestamp { seconds: i64::MIN, nanoseconds: 0 };
        assert_eq!(timestamp(UNIX_EPOCH - Duration::from_secs(1 << 63)), first);
        let time = Timestamp { seconds: 5, nanoseconds: 7 };
        assert_eq!(timestamp(system_time(time)), time);
    }
}
