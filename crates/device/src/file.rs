//! An image file or a block device.
//!
//! An image is locked while it is open ([`crate::locks`]), and refused for writing while the kernel or another program
//! uses it ([`crate::holders`]). For a loop device, the file below it is locked too. Real block devices are opened with
//! `O_EXCL`, which the kernel refuses for a device that is mounted.

use crate::holders::{self, Holder};
use crate::locks::{LockFor, Locks, Refusal, is_locked_here};
use crate::loop_device::FileId;
use crate::sysfs::Sysfs;
use crate::{BlockDevice, Hints};
use rustix::fs::{FallocateFlags, OFlags};
use std::fmt;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long to wait for a loop device that is about to be detached: the kernel detaches it from its file a moment after
/// the unmount.
const LEAVING: Duration = Duration::from_secs(3);
const LEAVING_PAUSE: Duration = Duration::from_millis(10);

/// The sector of a file: a host's filesystem writes no less at once.
const FILE_SECTOR_BYTES: usize = 512;

/// What a device is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading, with a shared lock.
    Read,
    /// Reading and writing, with an exclusive lock.
    Write,
    /// Reading without a lock: the contents may change meanwhile.
    ReadUnlocked,
    /// As [`Self::Write`], for a program that another one calls to format a block device. By the rule of systemd and
    /// udev (systemd.io, "Locking Block Device Access") it is the caller that holds the lock then, so a lock on the
    /// whole device or on the file below it is no refusal where only processes that this one descends from have it
    /// open.
    WriteForCaller,
}

impl Access {
    fn writes(self) -> bool {
        matches!(self, Self::Write | Self::WriteForCaller)
    }
}

/// Why an image could not be opened. The message says the system's error, and [`source`](std::error::Error::source)
/// does not return it again.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No file of that name.
    #[error("{}: no such image", Shown(.0))]
    Missing(PathBuf),
    /// The folder of a file that was to be made does not exist.
    #[error("{}: there is no folder {} to make it in", Shown(.0), Shown(.0.parent().unwrap_or(.0)))]
    NoFolder(PathBuf),
    /// A folder, socket or the like.
    #[error("{}: {what} is neither an image file nor a block device", Shown(.path))]
    NotAnImage {
        /// The path.
        path: PathBuf,
        /// What it is instead.
        what: &'static str,
    },
    /// Another program, the kernel or this program uses it.
    #[error("{0}")]
    Busy(InUse),
    /// A block device that takes no writes.
    #[error(
        "{}: the block device is read-only: open it for reading only (mount with -o ro), or make it writable \
         (blockdev --setrw)",
        Shown(.0)
    )]
    ReadOnlyDevice(PathBuf),
    /// Anything else.
    #[error("{}: {source}", Shown(.path))]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's error.
        r#source: io::Error,
    },
}

/// An image that another program, the kernel or this program uses.
#[derive(Debug)]
pub struct InUse {
    path: PathBuf,
    holders: Vec<Holder>,
}

impl InUse {
    /// An image with these users, for who needs it for itself.
    pub fn by(path: &Path, holders: Vec<Holder>) -> Self {
        Self { path: path.into(), holders }
    }

    /// The users of the image, as far as this process can see them.
    pub fn holders(&self) -> &[Holder] {
        &self.holders
    }
}

impl fmt::Display for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = Shown(&self.path);
        if self.holders.iter().all(Holder::is_this_program) {
            return write!(f, "{path}: the image is in use by this program itself; close it first");
        }
        write!(f, "{path}: the image is in use by {}; close it there first", Names(&self.holders))
    }
}

/// A path in a message: in quotes where it would be lost otherwise.
struct Shown<'a>(&'a Path);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.as_os_str().as_encoded_bytes();
        if bytes.is_empty() || bytes.contains(&b' ') {
            write!(f, "{:?}", self.0)
        } else {
            write!(f, "{}", self.0.display())
        }
    }
}

/// Holders of an image in one line.
pub struct Names<'a>(pub &'a [Holder]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, holder) in self.0.iter().enumerate() {
            write!(f, "{}{holder}", if n > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

/// A file or block device that contains an image.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    size_bytes: u64,
    sector_bytes: usize,
    access: Access,
    holders: Vec<Holder>,
    /// The locks of the image, and those of the files below a loop device.
    _locks: Vec<Locks>,
}

impl FileDevice {
    /// Opens an existing image.
    ///
    /// # Errors
    /// [`OpenError`]: each says what a person can do about it.
    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let metadata = std::fs::metadata(path).map_err(|source| failure(path, source))?;
        check_kind(path, &metadata)?;
        let write = access.writes();
        if write && holders::is_read_only(&metadata) {
            return Err(OpenError::ReadOnlyDevice(path.into()));
        }
        let exclusive = if metadata.file_type().is_block_device() && write { OFlags::EXCL } else { OFlags::empty() };
        // Non-blocking, because by now the name may be that of a pipe.
        let flags = (exclusive | OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
        let file = match OpenOptions::new().read(true).write(write).custom_flags(flags).open(path) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => return Err(busy(path, &metadata, None)),
            other => other.map_err(|source| failure(path, source))?,
        };
        check_kind(path, &file.metadata().map_err(|source| failure(path, source))?)?;
        Self::from_file(path, file, access)
    }

    /// An existing image that another process has opened for this one, with the rights that `access` needs. `path` is
    /// its name in messages.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn over(path: impl AsRef<Path>, file: File, access: Access) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let metadata = file.metadata().map_err(|source| failure(path, source))?;
        check_kind(path, &metadata)?;
        if access.writes() && holders::is_read_only(&metadata) {
            return Err(OpenError::ReadOnlyDevice(path.into()));
        }
        Self::from_file(path, file, access)
    }

    /// Creates an image file of `size_bytes` zeros, or takes over an existing file and gives it that size.
    ///
    /// # Errors
    /// [`OpenError`], `Busy` for an image that is in use.
    pub fn create(path: impl AsRef<Path>, size_bytes: u64) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let io_error = |source| failure(path, source);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|source| creation_failure(path, source))?;
        let mut device = Self::from_file(path, file, Access::Write)?;
        device.make_zeros(size_bytes).map_err(io_error)?;
        Ok(device)
    }

    /// Creates an image file of `size_bytes` zeros under a name that does not exist.
    ///
    /// # Errors
    /// [`OpenError`]; a file that cannot get its size is removed.
    pub fn create_new(path: impl AsRef<Path>, size_bytes: u64) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let made = OpenOptions::new().read(true).write(true).create_new(true).open(path);
        let file = made.map_err(|source| creation_failure(path, source))?;
        let own = file.metadata().map_err(|source| failure(path, source))?;
        let device = Self::from_file(path, file, Access::Write).and_then(|mut device| {
            device.make_zeros(size_bytes).map_err(|source| failure(path, source))?;
            Ok(device)
        });
        if device.is_err() && std::fs::symlink_metadata(path).is_ok_and(|now| holders::share_storage(&now, &own)) {
            // The first error is the one to report.
            let _ = std::fs::remove_file(path);
        }
        device
    }

    /// Makes the file longer; what it gets reads as zeros and takes no space of the host yet.
    ///
    /// # Errors
    /// Those of the system; `Unsupported` for a block device, whose size is what it is.
    ///
    /// # Panics
    /// If the file is longer than that.
    pub fn extend(&mut self, size_bytes: u64) -> io::Result<()> {
        assert!(size_bytes >= self.size_bytes, "a file is only made longer");
        if self.file.metadata()?.file_type().is_block_device() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "a block device cannot be made longer"));
        }
        self.file.set_len(size_bytes)?;
        self.size_bytes = size_bytes;
        Ok(())
    }

    /// Makes the file `size_bytes` zeros. If the host cannot have a file of that size, the contents stay as they are.
    ///
    /// # Errors
    /// Those of the system.
    pub fn make_zeros(&mut self, size_bytes: u64) -> io::Result<()> {
        if size_bytes > self.size_bytes {
            self.file.set_len(size_bytes)?;
        }
        self.file.set_len(0)?;
        self.file.set_len(size_bytes)?;
        self.size_bytes = size_bytes;
        Ok(())
    }

    /// As [`Self::make_zeros`], but calls `look` first, which sees the device with the new size. If `look` fails, the
    /// file keeps its size and its contents.
    ///
    /// # Errors
    /// Those of `look` and of the system.
    pub fn make_zeros_after<E: From<io::Error>>(
        &mut self,
        size_bytes: u64,
        look: impl FnOnce(&Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let old_bytes = self.size_bytes;
        if size_bytes > old_bytes {
            self.file.set_len(size_bytes)?;
        }
        self.size_bytes = size_bytes;
        if let Err(error) = look(self) {
            self.size_bytes = old_bytes;
            if size_bytes > old_bytes {
                self.file.set_len(old_bytes)?;
            }
            return Err(error);
        }
        Ok(self.make_zeros(size_bytes)?)
    }

    /// Looks once more whether the kernel uses the image: the kernel does not respect the locks.
    ///
    /// # Errors
    /// `Busy`, `Io`.
    pub fn verify_unused(&self, path: &Path) -> Result<(), OpenError> {
        let metadata = self.file.metadata().map_err(|source| failure(path, source))?;
        let holders = holders::of_kernel(&metadata, false);
        if holders.is_empty() { Ok(()) } else { Err(OpenError::Busy(InUse { path: path.into(), holders })) }
    }

    /// The metadata of the open file, which may have lost its name.
    ///
    /// # Errors
    /// As `fstat`.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }

    /// Another handle of the same open file, which the locks of this device cover, for a format whose file grows. The
    /// locks end with this device.
    ///
    /// # Errors
    /// As `dup`.
    pub fn try_clone_file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Where the last data ends in a file that may have grown since it was opened, from `start` on; `start` if there is
    /// none behind it.
    ///
    /// # Errors
    /// Those of the system, also for a filesystem that does not know holes.
    pub fn data_end(&self, start: u64) -> io::Result<u64> {
        let mut end = start;
        loop {
            let data = match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(end)) {
                Ok(data) => data,
                Err(rustix::io::Errno::NXIO) => return Ok(end),
                Err(error) => return Err(error.into()),
            };
            end = rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Hole(data))?;
        }
    }

    /// Refuses an image that another program may change while it is read here: the parts of a virtual disk's file
    /// refer to each other, so that one read while it changes makes no sense.
    ///
    /// # Errors
    /// `Busy`.
    pub fn verify_alone(&self, path: &Path) -> Result<(), OpenError> {
        if self.holders.is_empty() {
            return Ok(());
        }
        Err(OpenError::Busy(InUse { path: path.into(), holders: self.holders.clone() }))
    }

    /// Those who may change the image while it is read here. Empty for an image that is open for writing.
    pub fn holders(&self) -> &[Holder] {
        &self.holders
    }

    fn from_file(path: &Path, file: File, access: Access) -> Result<Self, OpenError> {
        let io_error = |source| failure(path, source);
        let size_bytes = io::Seek::seek(&mut &file, io::SeekFrom::End(0)).map_err(io_error)?;
        let metadata = file.metadata().map_err(io_error)?;
        let is_device = metadata.file_type().is_block_device();
        let sector_bytes = if is_device { Sysfs::of_system().sector_bytes(metadata.rdev()) } else { None };
        let sector_bytes = sector_bytes.unwrap_or(FILE_SECTOR_BYTES);
        let mut device = Self { file, size_bytes, sector_bytes, access, holders: Vec::new(), _locks: Vec::new() };
        if access == Access::ReadUnlocked {
            return Ok(device);
        }
        let found = lock(path, &device.file, &metadata, access)?;
        device.add(found);
        for below in holders::files_below(&metadata) {
            // A file without a path in this mount namespace cannot be locked.
            let nonblock = OFlags::NONBLOCK.bits() as i32;
            let Ok(file) = OpenOptions::new().read(true).custom_flags(nonblock).open(&below.path) else { continue };
            let metadata = file.metadata().map_err(io_error)?;
            // By now the name may be that of another file.
            if !below.id().is_some_and(|id| id.is_same(&FileId::of(&metadata))) {
                continue;
            }
            let (holders, locks) = lock_alone(path, &file, &metadata, access)?;
            device.add((holders, locks));
        }
        Ok(device)
    }

    /// The holes of a range, whether storage is allocated for them or not.
    fn holes(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        let mut holes = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let data = match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(at)) {
                Ok(data) => data.min(range.end),
                Err(rustix::io::Errno::NXIO) => range.end,
                Err(error) => return Err(error.into()),
            };
            if data > at {
                holes.push(at..data);
            }
            if data == range.end {
                break;
            }
            at = rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Hole(data))?;
        }
        Ok(holes)
    }

    fn add(&mut self, (holders, locks): (Vec<Holder>, Option<Locks>)) {
        self.holders.extend(holders);
        self._locks.extend(locks);
    }
}

fn failure(path: &Path, source: io::Error) -> OpenError {
    match source.kind() {
        io::ErrorKind::NotFound => OpenError::Missing(path.into()),
        _ => OpenError::Io { path: path.into(), source },
    }
}

fn creation_failure(path: &Path, source: io::Error) -> OpenError {
    match source.kind() {
        io::ErrorKind::NotFound => OpenError::NoFolder(path.into()),
        _ => failure(path, source),
    }
}

fn check_kind(path: &Path, metadata: &Metadata) -> Result<(), OpenError> {
    let kind = metadata.file_type();
    if kind.is_file() || kind.is_block_device() {
        return Ok(());
    }
    let what = if kind.is_dir() { "a folder" } else { "a special file" };
    Err(OpenError::NotAnImage { path: path.into(), what })
}

/// The error for an image that the kernel uses, or that a program has locked as the file `locked`.
fn busy(path: &Path, kernel: &Metadata, locked: Option<&Metadata>) -> OpenError {
    let mut holders = holders::of_kernel(kernel, false);
    if is_locked_here(locked.unwrap_or(kernel)) {
        holders.push(Holder::this_program());
    } else if locked.is_some() || holders.is_empty() {
        holders.extend(holders::of_programs(locked.unwrap_or(kernel)));
    }
    OpenError::Busy(InUse { path: path.into(), holders })
}

type Found = (Vec<Holder>, Option<Locks>);

/// Locks an image and looks for its users. Any user is an error for a writer.
fn lock(path: &Path, file: &File, metadata: &Metadata, access: Access) -> Result<Found, OpenError> {
    let (mut holders, locks) = lock_alone(path, file, metadata, access)?;
    if access == Access::Read {
        holders.extend(holders::of_kernel(metadata, true));
        return Ok((holders, locks));
    }
    let end = Instant::now() + LEAVING;
    loop {
        let found = holders::of_kernel(metadata, false);
        if found.is_empty() {
            break;
        }
        if Instant::now() > end || !found.iter().all(Holder::is_leaving) {
            return Err(OpenError::Busy(InUse { path: path.into(), holders: found }));
        }
        std::thread::sleep(LEAVING_PAUSE);
    }
    Ok((holders, locks))
}

/// Locks an image or a file below it. A reader may share the image with a virtual machine, which is reported as a
/// holder.
fn lock_alone(path: &Path, file: &File, metadata: &Metadata, access: Access) -> Result<Found, OpenError> {
    let what_for = if access.writes() { LockFor::Writing } else { LockFor::Reading };
    match Locks::take(file, what_for).map_err(|source| failure(path, source))? {
        Ok(locks) => Ok((Vec::new(), Some(locks))),
        Err(Refusal::Bytes) if access == Access::Read => Ok((holders::of_programs(metadata), None)),
        Err(Refusal::Flock) if access == Access::WriteForCaller && holders::are_callers(metadata) => {
            Ok((Vec::new(), None))
        }
        Err(_) => Err(busy(path, metadata, Some(metadata))),
    }
}

impl BlockDevice for FileDevice {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn hints(&self) -> Hints {
        Hints { sector_bytes: self.sector_bytes, read_only: !self.access.writes(), ..Hints::of(self) }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if !self.access.writes() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the image was opened for reading only"));
        }
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > self.size_bytes) {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a write past the end of the image"));
        }
        self.file.write_all_at(data, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, flags, offset, length) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NODEV) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        let end = offset.saturating_add(length);
        // Mostly all of it is there, and one call tells.
        let is_hole_behind = |hole: u64| hole >= end;
        if length == 0 || rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Hole(offset)).is_ok_and(is_hole_behind) {
            return Ok(());
        }
        // A block device has all of its space, as far as this process can know.
        if self.file.metadata()?.file_type().is_block_device() {
            return Ok(());
        }
        let holes = self.holes(offset..end)?;
        for (done, hole) in holes.iter().enumerate() {
            let length = hole.end - hole.start;
            if let Err(error) = rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, hole.start, length) {
                // When the host runs out of space, it keeps what it has allocated so far and would stay full.
                for hole in &holes[..=done] {
                    self.discard(hole.start, hole.end - hole.start)?;
                }
                return Err(error.into());
            }
        }
        Ok(())
    }

    fn may_hold_data(&self, offset: u64, length: u64) -> bool {
        match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(offset)) {
            Ok(data) => data < offset.saturating_add(length),
            // No data up to the end of the file. Other errors are those of files that do not support the search for
            // data.
            Err(error) => error != rustix::io::Errno::NXIO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_writer_is_told_that_the_image_is_busy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.img");
        let first = FileDevice::create(&path, 4096).unwrap();
        assert!(matches!(FileDevice::open(&path, Access::Write), Err(OpenError::Busy(_))));
        assert!(matches!(FileDevice::open(&path, Access::Read), Err(OpenError::Busy(_))));
        drop(first);
        assert!(FileDevice::open(&path, Access::Read).is_ok());
    }

    #[test]
    fn a_new_image_holds_nothing_until_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let device = FileDevice::create(dir.path().join("a.img"), 1 << 20).unwrap();
        assert!(!device.may_hold_data(0, 1 << 20));
        device.write(65536, &[1; 512]).unwrap();
        assert!(device.may_hold_data(0, 1 << 20) && device.may_hold_data(65536, 512));
    }

    #[test]
    fn a_missing_image_and_a_folder_have_errors_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(FileDevice::open(dir.path().join("none"), Access::Read), Err(OpenError::Missing(_))));
        assert!(matches!(FileDevice::open(dir.path(), Access::Read), Err(OpenError::NotAnImage { .. })));
    }
}
