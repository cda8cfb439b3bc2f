//! Metadata of files, and times to set.

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use xfskit_engine::{FileType, Permissions, SetTime, Stat};
use xfskit_ondisk::Timestamp;

/// The unit in which space is counted on disk.
const SECTOR_BYTES: u64 = 512;

/// The metadata of a file: type, size, permissions, owner, times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata(Stat);

impl Metadata {
    pub(super) fn new(stat: Stat) -> Self {
        Self(stat)
    }

    /// What kind of file it is.
    pub fn file_type(&self) -> FileType {
        self.0.file_type
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }

    /// Size of the contents in bytes; of a symbolic link, the length of its target.
    #[allow(clippy::len_without_is_empty)] // As std's.
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// Bytes of the image that the file takes: holes take none, and blocks that files share count for each.
    pub fn allocated_bytes(&self) -> u64 {
        self.0.blocks * SECTOR_BYTES
    }

    /// Who may read, write and execute it.
    pub fn permissions(&self) -> Permissions {
        self.0.permissions
    }

    /// The user that owns it.
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// Its group.
    pub fn gid(&self) -> u32 {
        self.0.gid
    }

    /// How many names it has; of a directory, two and one for each subdirectory.
    pub fn nlink(&self) -> u32 {
        self.0.links
    }

    /// The inode's number.
    pub fn inode(&self) -> u64 {
        self.0.inode.0
    }

    /// The inode's generation: a later file may have the same number, but not this too.
    pub fn generation(&self) -> u32 {
        self.0.generation
    }

    /// Major and minor number of a device; `None` for every other file.
    pub fn device(&self) -> Option<(u32, u32)> {
        let number = self.0.device;
        self.file_type().is_device().then_some((number >> 8 & 0xfff, number & 0xff | number >> 12 & 0xf_ff00))
    }

    /// When it was read last, as far as that was recorded: reading by this library leaves the time alone.
    pub fn accessed(&self) -> SystemTime {
        to_system(self.0.atime)
    }

    /// When its contents were changed last.
    pub fn modified(&self) -> SystemTime {
        to_system(self.0.mtime)
    }

    /// When anything of it was changed last, owner, permissions and names included.
    pub fn changed(&self) -> SystemTime {
        to_system(self.0.ctime)
    }

    /// When it was made.
    pub fn created(&self) -> SystemTime {
        to_system(self.0.birth_time)
    }
}

/// Times to set; what is not named stays.
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
/// use xfskit::Times;
///
/// let times = Times::new().modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    accessed: Option<SystemTime>,
    modified: Option<SystemTime>,
}

impl Times {
    /// Nothing is to be set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The time of the last access. The nearest one that XFS can store is taken: years 1901 to 2486.
    #[must_use]
    pub fn accessed(self, time: SystemTime) -> Self {
        Self { accessed: Some(time), ..self }
    }

    /// The time of the last change of the contents. The nearest one that XFS can store is taken: years 1901 to 2486.
    #[must_use]
    pub fn modified(self, time: SystemTime) -> Self {
        Self { modified: Some(time), ..self }
    }

    /// What the engine sets: the access time, then the modification time.
    pub(super) fn to_set(self) -> [Option<SetTime>; 2] {
        [self.accessed, self.modified].map(|time| time.map(|time| SetTime::To(to_timestamp(time))))
    }
}

fn to_system(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    // Every second that can be on disk fits.
    let base = if time.seconds < 0 { UNIX_EPOCH.checked_sub(seconds) } else { UNIX_EPOCH.checked_add(seconds) };
    base.and_then(|base| base.checked_add(Duration::from_nanos(time.nanoseconds.into()))).unwrap_or(UNIX_EPOCH)
}

fn to_timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => {
            let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
            Timestamp { seconds, nanoseconds: since.subsec_nanos() }
        }
        Err(before) => {
            let before = before.duration();
            let seconds = i64::try_from(before.as_secs()).map_or(i64::MIN, |seconds| -seconds);
            match before.subsec_nanos() {
                0 => Timestamp { seconds, nanoseconds: 0 },
                nanoseconds => {
                    Timestamp { seconds: seconds.saturating_sub(1), nanoseconds: 1_000_000_000 - nanoseconds }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_go_there_and_back() {
        for (seconds, nanoseconds) in [(0, 0), (5, 7), (-1, 0), (-1, 999_999_999), (-2_147_483_648, 1)] {
            let time = Timestamp { seconds, nanoseconds };
            assert_eq!(to_timestamp(to_system(time)), time);
        }
    }
}
