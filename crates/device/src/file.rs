//! An image file or a block device.
//!
//! Images are locked while they are open for writing (an exclusive `flock`; a shared one for reading), so that two
//! programs never write to one image. Real block devices are opened with `O_EXCL`, which a mounted one refuses.

use crate::BlockDevice;
use rustix::fs::{FallocateFlags, FlockOperation, OFlags};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What a device is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading, with a shared lock.
    Read,
    /// Reading and writing, with an exclusive lock.
    Write,
    /// Reading without a lock: what is read may change meanwhile.
    ReadUnlocked,
}

/// Why an image could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No file of that name.
    #[error("{0}: no such image")]
    Missing(PathBuf),
    /// A folder, socket or the like.
    #[error("{path}: {what} is neither an image file nor a block device")]
    NotAnImage {
        /// The path.
        path: PathBuf,
        /// What it is instead.
        what: &'static str,
    },
    /// Somebody else has it open.
    #[error("{0}: the image is in use by another program (mounted, or being written); close it there first")]
    Busy(PathBuf),
    /// Anything else.
    #[error("{path}: {source}")]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// A file or block device that holds an image.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    size_bytes: u64,
    read_only: bool,
}

impl FileDevice {
    /// Opens an existing image.
    ///
    /// # Errors
    /// [`OpenError`]: each says what a person can do about it.
    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let io_error = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => OpenError::Missing(path.into()),
            io::ErrorKind::ResourceBusy => OpenError::Busy(path.into()),
            _ => OpenError::Io { path: path.into(), source },
        };
        let kind = std::fs::metadata(path).map_err(io_error)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            let what = if kind.is_dir() { "a folder" } else { "a special file" };
            return Err(OpenError::NotAnImage { path: path.into(), what });
        }
        let write = access == Access::Write;
        let exclusive = if kind.is_block_device() && write { OFlags::EXCL.bits() as i32 } else { 0 };
        let file = OpenOptions::new().read(true).write(write).custom_flags(exclusive).open(path).map_err(io_error)?;
        Self::from_file(file, access).map_err(io_error)
    }

    /// Creates an image file of `size_bytes` zeros, or takes over an existing file and gives it that size.
    ///
    /// # Errors
    /// [`OpenError`], `Busy` for an image that is in use.
    pub fn create(path: impl AsRef<Path>, size_bytes: u64) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let io_error = |source: io::Error| match source.kind() {
            io::ErrorKind::ResourceBusy => OpenError::Busy(path.into()),
            _ => OpenError::Io { path: path.into(), source },
        };
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(io_error)?;
        let mut device = Self::from_file(file, Access::Write).map_err(io_error)?;
        device.file.set_len(0).and_then(|()| device.file.set_len(size_bytes)).map_err(io_error)?;
        device.size_bytes = size_bytes;
        Ok(device)
    }

    /// What the system says of the open file, whatever its name is by now.
    ///
    /// # Errors
    /// As `fstat`.
    pub fn metadata(&self) -> io::Result<std::fs::Metadata> {
        self.file.metadata()
    }

    fn from_file(file: File, access: Access) -> io::Result<Self> {
        let operation = match access {
            Access::Read => Some(FlockOperation::NonBlockingLockShared),
            Access::Write => Some(FlockOperation::NonBlockingLockExclusive),
            Access::ReadUnlocked => None,
        };
        if let Some(operation) = operation {
            rustix::fs::flock(&file, operation).map_err(|error| match error {
                rustix::io::Errno::WOULDBLOCK => io::Error::from(io::ErrorKind::ResourceBusy),
                other => other.into(),
            })?;
        }
        let size_bytes = io::Seek::seek(&mut &file, io::SeekFrom::End(0))?;
        Ok(Self { file, size_bytes, read_only: access != Access::Write })
    }
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        // A process that another thread is just starting may share the open file for a moment, and closing would not
        // unlock it then. A failure leaves it to the close.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

impl BlockDevice for FileDevice {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.read_only {
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

    fn may_hold_data(&self, offset: u64, length: u64) -> bool {
        match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(offset)) {
            Ok(data) => data < offset.saturating_add(length),
            // Nothing but a hole up to the end. Other errors come from what knows of no holes.
            Err(error) => error != rustix::io::Errno::NXIO,
        }
    }

    fn is_read_only(&self) -> bool {
        self.read_only
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
