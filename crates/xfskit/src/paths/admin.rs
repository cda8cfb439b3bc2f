//! What an image needs once it exists: a larger size, another label or UUID, free space that goes back to the host.

use super::{Error, Filesystem, Result};
use std::path::Path;
use std::sync::Arc;
use xfskit_device::{Access, FileDevice, OpenError};
use xfskit_engine::HostSpace;
use xfskit_engine::MountOptions;
use xfskit_engine::{Growth, NewUuid, TrimBy, Trimmed, Volume};

/// Grows the image file at `path`, which is not open, to `size_bytes`, or as near to it as its blocks and AGs allow.
/// The file is made longer if it is shorter than that. A journal that a crash left dirty is replayed first.
///
/// The image has its old size or the new one, wherever this is cut off. A block device is grown by
/// [`Volume::grow`], up to the size that it has.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("disk.img");
/// xfskit::create(&path, 64 << 20, &xfskit::MkfsOptions::new().small())?.close()?;
/// xfskit::grow(&path, 96 << 20)?;
///
/// let fs = xfskit::Filesystem::open(&path)?;
/// assert!(fs.info().free_bytes > 80 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// `Open` for a file that is in use, is no regular file or cannot be made longer; `Image`: `Invalid` for a size that is
/// smaller than the filesystem, and as [`Volume::grow`]. A file that was made longer for a failed call stays so.
pub fn grow(path: impl AsRef<Path>, size_bytes: u64) -> Result<Growth> {
    let path = path.as_ref();
    let mut device = FileDevice::open(path, Access::Write)?;
    let image = |source| Error::Image { verb: "grow", source };
    Growth::plan(&Volume::superblock_on(&device).map_err(image)?, size_bytes).map_err(image)?;
    if device_is_shorter(&device, size_bytes) {
        device.extend(size_bytes).map_err(|source| Error::Open(OpenError::Io { path: path.into(), source }))?;
    }
    let options = MountOptions { host_space: HostSpace::Part, ..MountOptions::default() };
    Volume::grow(Arc::new(device), None, options, size_bytes).map_err(image)
}

fn device_is_shorter(device: &FileDevice, size_bytes: u64) -> bool {
    xfskit_device::BlockDevice::size_bytes(device) < size_bytes
}

impl Filesystem {
    /// Sets the label, durably; an empty one takes it away. [`Info::label`](crate::Info::label) shows it.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("disk.img");
    /// let fs = xfskit::create(&path, 64 << 20, &xfskit::MkfsOptions::new().small())?;
    /// fs.set_label("data")?;
    /// assert_eq!(fs.info().label, "data");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Image`: `Invalid` for a label of more than 12 bytes or with a zero byte; `ReadOnly`, `Io`, `Shutdown`.
    pub fn set_label(&self, label: impl AsRef<[u8]>) -> Result<()> {
        self.volume().set_label(label.as_ref()).map_err(|source| Error::Image { verb: "label", source })
    }

    /// Gives the image another UUID and closes it; returns the UUID. A copy of an image is mounted by the kernel beside
    /// its original only when the two differ.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("disk.img");
    /// use xfskit::volume::NewUuid;
    ///
    /// let fs = xfskit::create(&path, 64 << 20, &xfskit::MkfsOptions::new().small())?;
    /// let uuid = fs.set_uuid(NewUuid::Random)?;
    /// assert_eq!(xfskit::Filesystem::open(&path)?.info().uuid, uuid);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InUse`, and the UUID stays, while something else is open; `Image`: `ReadOnly`; as [`Self::close`].
    pub fn set_uuid(self, uuid: NewUuid) -> Result<[u8; 16]> {
        self.into_volume()?.set_uuid(uuid).map_err(|source| Error::Image { verb: "change the UUID of", source })
    }

    /// Gives all free space back to the host: holes are punched into an image file. Everything done so far is made
    /// durable first. [`OpenOptions::discard`](crate::OpenOptions::discard) does so with what is freed, by itself.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("disk.img");
    /// let fs = xfskit::create(&path, 64 << 20, &xfskit::MkfsOptions::new().small())?;
    /// assert!(fs.trim()?.bytes > 32 << 20);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Image`: `ReadOnly`; as [`Self::sync`]; `Corrupt`, `Io`.
    pub fn trim(&self) -> Result<Trimmed> {
        self.volume().trim(0, TrimBy::Discard).map_err(|source| Error::Image { verb: "trim", source })
    }
}
