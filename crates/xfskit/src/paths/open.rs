//! Opening and closing images.

use super::{Error, Filesystem, Result};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xfskit_device::{Access, BlockDevice, FileDevice};
use xfskit_engine::HostSpace;
use xfskit_engine::Volume;
use xfskit_engine::{AttrLogging, Discard, MountOptions};
use xfskit_engine::{Environment, SystemEnvironment};

/// How to open an image: what is not said is as for [`Filesystem::open`].
///
/// ```no_run
/// use xfskit::Filesystem;
///
/// let fs = Filesystem::options().read_only(true).open("disk.img")?;
/// # Ok::<(), xfskit::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct OpenOptions {
    mount: MountOptions,
    log_device: Option<PathBuf>,
    environment: Option<Arc<dyn Environment>>,
}

impl OpenOptions {
    /// Whether nothing is to be written, not even a recovery: a journal that a crash left dirty is then replayed in
    /// memory, which takes up to 1 GiB. Readers share the image's lock.
    #[must_use]
    pub fn read_only(mut self, yes: bool) -> Self {
        self.mount.read_only = yes;
        self
    }

    /// Whether a dirty journal is looked past, which implies [`read_only`](Self::read_only): what only the journal
    /// holds is missing, and the image may contradict itself. For journals that cannot be replayed.
    #[must_use]
    pub fn no_recovery(mut self, yes: bool) -> Self {
        self.mount.no_recovery = yes;
        self
    }

    /// Bytes of metadata to keep in memory; 256 MiB unless said otherwise.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: usize) -> Self {
        self.mount.cache_bytes = bytes;
        self
    }

    /// Whether changes of names and attributes are durable when their call returns. Contents are durable after a sync
    /// in any case.
    #[must_use]
    pub fn sync_names(mut self, yes: bool) -> Self {
        self.mount.wsync = yes;
        self
    }

    /// The device of an external log. An image whose log is inside is refused with it.
    #[must_use]
    pub fn log_device(mut self, path: impl AsRef<Path>) -> Self {
        self.log_device = Some(path.as_ref().into());
        self
    }

    /// When changes of attributes are logged by intents.
    #[must_use]
    pub fn attr_logging(mut self, logging: AttrLogging) -> Self {
        self.mount.attr_logging = logging;
        self
    }

    /// The space that the host must have for the journal.
    #[must_use]
    pub fn host_space(mut self, space: HostSpace) -> Self {
        self.mount.host_space = space;
        self
    }

    /// Whether what is freed goes back to the host when that is durable: when a sync returns, and when the image is
    /// closed.
    #[must_use]
    pub fn discard(mut self, discard: Discard) -> Self {
        self.mount.discard = discard;
        self
    }

    /// Where the time of day and random numbers are taken from; a
    /// [`SeededEnvironment`](crate::volume::SeededEnvironment) makes the same calls give the same image.
    #[must_use]
    pub fn environment(mut self, environment: Arc<dyn Environment>) -> Self {
        self.environment = Some(environment);
        self
    }

    /// Opens the image file or block device at `path`. Its lock is held until the filesystem is closed.
    ///
    /// # Errors
    /// `Open` when there is no such image or another program has it; else as [`Self::open_device`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Filesystem> {
        let device = Arc::new(FileDevice::open(path, self.access())?);
        self.open_device(device)
    }

    /// Opens an image on a device of the caller's, such as a [`MemoryDevice`](crate::device::MemoryDevice). What may be
    /// changed is decided here and not by the device: one that cannot be written, as a
    /// [`FileDevice`](crate::device::FileDevice) that was opened for reading, gives a filesystem that is read-only.
    ///
    /// # Errors
    /// `Image`, by its [`cause`](Error::cause): `Superblock`, `Unsupported`, `Corrupt` or `Io` as the image is;
    /// `DeviceInUse` when this process has another filesystem open on it, of which one writes; `NoLogDevice`. `Open` of
    /// the log's device.
    pub fn open_device(&self, device: Arc<dyn BlockDevice>) -> Result<Filesystem> {
        let log_device = match &self.log_device {
            Some(path) => Some(Arc::new(FileDevice::open(path, self.access())?) as Arc<dyn BlockDevice>),
            None => None,
        };
        let environment = self.environment.clone().unwrap_or_else(|| Arc::new(SystemEnvironment));
        let options = MountOptions { read_only: self.is_read_only(), ..self.mount.clone() };
        let volume = Volume::open_in(device, log_device, options, environment);
        let volume = volume.map_err(|source| Error::Image { verb: "open", source })?;
        Ok(Filesystem::new(volume))
    }

    fn is_read_only(&self) -> bool {
        self.mount.read_only || self.mount.no_recovery
    }

    fn access(&self) -> Access {
        if self.is_read_only() { Access::Read } else { Access::Write }
    }
}

/// What an image is, and how full. It is a picture of the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// The label; empty if there is none.
    pub label: String,
    /// The UUID.
    pub uuid: [u8; 16],
    /// Size of a block in bytes.
    pub block_bytes: u32,
    /// Bytes for files and metadata; an internal log is not counted.
    pub size_bytes: u64,
    /// Of those, free ones.
    pub free_bytes: u64,
    /// Inodes that exist or could.
    pub inodes: u64,
    /// Of those, free ones.
    pub free_inodes: u64,
    /// Optional features that the image has, by the names that mkfs.xfs gives them, as `reflink` and `parent`.
    pub features: Vec<&'static str>,
    /// Nothing can be written.
    pub read_only: bool,
    /// What opening replayed from a dirty journal, in words, and what of the journal was no whole record; `None` where
    /// the journal was clean and whole.
    pub recovery: Option<String>,
}

impl Filesystem {
    /// Opens the image at `path` to read and write. A journal that a crash left dirty is replayed first.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().open(path)
    }

    /// Ways to open an image.
    pub fn options() -> OpenOptions {
        OpenOptions::default()
    }

    /// Makes everything done so far durable.
    ///
    /// # Errors
    /// `Image`: `Io`, `Shutdown`; `NoSpace` or `Corrupt` of a file that could not be written out and goes on waiting.
    pub fn sync(&self) -> Result<()> {
        self.volume().sync().map_err(|source| Error::Image { verb: "sync", source })
    }

    /// Writes everything out and closes the journal, so that whatever opens the image next has nothing to recover.
    ///
    /// As unmounting, it is refused while something is open: a clone, a [`File`](crate::File), a
    /// [`ReadDir`](crate::ReadDir) or a [`Walk`](crate::Walk). It does not wait for them. This handle goes in any case,
    /// and the image stays open for the others until the last one is closed or dropped. Of clones that are closed at
    /// the same time, one closes the image.
    ///
    /// ```
    /// # let device = std::sync::Arc::new(xfskit::device::MemoryDevice::new(32 << 20));
    /// # let fs = xfskit::create_on(device, &xfskit::MkfsOptions::new().small())?;
    /// let other = fs.clone();
    /// assert!(matches!(fs.close(), Err(xfskit::Error::InUse)));
    /// other.write("/file", "the image is still open")?;
    /// other.close()?;
    /// # Ok::<(), xfskit::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InUse`; `Image`: as [`Self::sync`]; what could not be written out is lost. The image is in good order or can be
    /// recovered.
    pub fn close(self) -> Result<()> {
        self.into_volume()?.unmount().map_err(|source| Error::Image { verb: "close", source })
    }

    /// What the image is, and how full.
    pub fn info(&self) -> Info {
        let volume = self.volume();
        let (geometry, stat, raw) = (volume.geometry(), volume.statfs(), volume.superblock());
        let features = [
            ("finobt", geometry.has_finobt()),
            ("inobtcount", geometry.has_inode_btree_counts()),
            ("rmapbt", geometry.has_rmap()),
            ("reflink", geometry.has_reflink()),
            ("sparse", geometry.has_sparse_inodes()),
            ("bigtime", geometry.has_bigtime()),
            ("nrext64", geometry.has_large_extent_counts()),
            ("exchange", geometry.has_exchange()),
            ("parent", geometry.has_parent()),
        ];
        let label = raw.label.split(|&byte| byte == 0).next().unwrap_or_default();
        Info {
            label: String::from_utf8_lossy(label).into_owned(),
            uuid: geometry.uuid,
            block_bytes: stat.block_bytes,
            size_bytes: stat.blocks * u64::from(stat.block_bytes),
            free_bytes: stat.free_blocks * u64::from(stat.block_bytes),
            inodes: stat.inodes,
            free_inodes: stat.free_inodes,
            features: features.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect(),
            read_only: volume.options().read_only,
            recovery: volume.recovery_report().map(ToString::to_string),
        }
    }
}

impl fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mount, log_device, environment: _ } = self;
        f.debug_struct("OpenOptions").field("mount", mount).field("log_device", log_device).finish_non_exhaustive()
    }
}

impl fmt::Debug for Filesystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filesystem").field("info", &self.info()).finish_non_exhaustive()
    }
}
