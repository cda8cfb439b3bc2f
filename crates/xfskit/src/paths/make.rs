//! Making images.

use super::{Error, Filesystem, Result};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use xfskit_device::probe::existing_format;
use xfskit_device::{Access, BlockDevice, FileDevice, OpenError, share_storage};
use xfskit_engine::Volume;
use xfskit_engine::{Claim, ClaimFor, MountOptions};
use xfskit_engine::{Environment, SystemEnvironment};
use xfskit_mkfs::{Extent, MakeError, Options, Size, first_data, make, set_aside, verify};

/// What a file's device says.
const FILE_SECTOR_BYTES: usize = 512;

/// What a new image is to be like: what is not said is as mkfs.xfs 7.2 has it.
///
/// ```
/// use xfskit::MkfsOptions;
///
/// let options = MkfsOptions::new().label("backup")?.block_size(1024)?.option('i', "maxpct=5")?;
/// assert!(MkfsOptions::new().label("longer than twelve bytes").is_err());
/// # Ok::<(), xfskit::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct MkfsOptions {
    options: Options,
    replace: bool,
    environment: Option<Arc<dyn Environment>>,
}

impl fmt::Debug for MkfsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { options, replace, environment: _ } = self;
        f.debug_struct("MkfsOptions").field("options", options).field("replace", replace).finish_non_exhaustive()
    }
}

impl MkfsOptions {
    /// The defaults, and a random UUID.
    pub fn new() -> Self {
        Self::default()
    }

    /// The label.
    ///
    /// # Errors
    /// `Make` for more than 12 bytes.
    pub fn label(mut self, label: &str) -> Result<Self> {
        self.options.set_label(label)?;
        Ok(self)
    }

    /// The UUID. Images are the same byte for byte if the same calls fill them, and the time of day and random numbers
    /// are the same too ([`Self::environment`]).
    #[must_use]
    pub fn uuid(mut self, uuid: [u8; 16]) -> Self {
        self.options.uuid = Some(uuid);
        self
    }

    /// The time of day and the random numbers, for making the image and for the filesystem that is then open. By
    /// default they are those of the system.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use xfskit::{MkfsOptions, device::MemoryDevice, volume::SeededEnvironment};
    /// let image = || -> xfskit::Result<Vec<u8>> {
    ///     let device = Arc::new(MemoryDevice::new(32 << 20));
    ///     let options = MkfsOptions::new().small().uuid([7; 16]).environment(Arc::new(SeededEnvironment::new(1)));
    ///     let fs = xfskit::create_on(device.clone(), &options)?;
    ///     fs.write("/hello", "world")?;
    ///     fs.close()?;
    ///     Ok(device.to_bytes())
    /// };
    /// assert!(image()? == image()?);
    /// # Ok::<(), xfskit::Error>(())
    /// ```
    #[must_use]
    pub fn environment(mut self, environment: Arc<dyn Environment>) -> Self {
        self.environment = Some(environment);
        self
    }

    /// Allows images of less than 300 MiB (314,572,800 bytes), which mkfs.xfs makes only when forced: 16 MiB are
    /// enough, of which 7.3 MB are free.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use xfskit::{MkfsOptions, device::MemoryDevice};
    /// let fs = xfskit::create_on(Arc::new(MemoryDevice::new(16 << 20)), &MkfsOptions::new().small())?;
    /// assert_eq!(fs.info().free_bytes / 100_000, 73);
    /// # Ok::<(), xfskit::Error>(())
    /// ```
    #[must_use]
    pub fn small(mut self) -> Self {
        self.options.allow_small = true;
        self
    }

    /// Bytes of a block: a power of two from 1024 to 65536; 4096 unless said otherwise.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use xfskit::{MkfsOptions, device::MemoryDevice};
    /// let options = MkfsOptions::new().small().block_size(2048)?.inode_size(1024)?.parent_pointers(false);
    /// let fs = xfskit::create_on(Arc::new(MemoryDevice::new(64 << 20)), &options)?;
    /// assert_eq!(fs.info().block_bytes, 2048);
    /// assert!(!fs.info().features.contains(&"parent"));
    /// assert!(MkfsOptions::new().block_size(1000).is_err());
    /// # Ok::<(), xfskit::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Make` for another number.
    pub fn block_size(self, bytes: u32) -> Result<Self> {
        self.option('b', &format!("size={bytes}"))
    }

    /// Bytes of an inode: a power of two from 512 to 2048; 512 unless said otherwise.
    ///
    /// # Errors
    /// `Make` for another number.
    pub fn inode_size(self, bytes: u32) -> Result<Self> {
        self.option('i', &format!("size={bytes}"))
    }

    /// Bytes of the log. Unless said otherwise they follow from the size of the image. Whether they fit it is found out
    /// when it is made.
    #[must_use]
    pub fn log_size(mut self, bytes: u64) -> Self {
        self.options.log_size = Some(Size::Bytes(bytes));
        self
    }

    /// How many allocation groups the image is divided into.
    ///
    /// # Errors
    /// `Make` for 0; whether it fits the image is found out when that is made.
    pub fn ag_count(self, count: u32) -> Result<Self> {
        self.option('d', &format!("agcount={count}"))
    }

    /// Whether inodes know their names, for [`Filesystem::paths_of`]; they do unless said otherwise.
    #[must_use]
    pub fn parent_pointers(mut self, yes: bool) -> Self {
        self.options.parent = yes;
        self
    }

    /// Whether files can share blocks, for [`Filesystem::copy`]; they can unless said otherwise.
    #[must_use]
    pub fn reflink(mut self, yes: bool) -> Self {
        self.options.reflink = yes;
        self
    }

    /// Whether the owner of each block is recorded, for repairs; it is unless said otherwise.
    #[must_use]
    pub fn reverse_map(mut self, yes: bool) -> Self {
        self.options.rmapbt = yes;
        self
    }

    /// All other options, as mkfs.xfs takes them in a list behind a letter: `option('i', "maxpct=5,sparse=0")`. An
    /// image with an external log is for `xfskit_mkfs::make`.
    ///
    /// # Errors
    /// `Make`.
    pub fn option(mut self, section: char, list: &str) -> Result<Self> {
        self.options.apply(section, list)?;
        Ok(self)
    }

    /// Overwrites what the file or device holds. Without this, only a new file, an empty one and a device of zeros
    /// are taken. What is open is never overwritten.
    #[must_use]
    pub fn replace(mut self) -> Self {
        self.replace = true;
        self
    }

    /// The options, with a UUID.
    fn complete(&self) -> Options {
        let mut options = self.options.clone();
        options.uuid.get_or_insert_with(|| *uuid::Uuid::new_v4().as_bytes());
        options
    }

    fn environment_or_system(&self) -> Arc<dyn Environment> {
        self.environment.clone().unwrap_or_else(|| Arc::new(SystemEnvironment))
    }
}

/// Makes an image file of `size_bytes` at `path`, or takes over an existing file that is empty, and opens it. A file of
/// nothing but zeros, that is not larger than the image is to be, counts as empty.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("disk.img");
/// use xfskit::MkfsOptions;
///
/// let fs = xfskit::create(&path, 64 << 20, &MkfsOptions::new().small())?;
/// fs.write("/hello", "world")?;
/// fs.close()?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// `HoldsData` for a file that is not empty, unless [`MkfsOptions::replace`] was called; `Open` for one that is in
/// use or is no regular file; `Make` for options or a size that do not fit, before anything is changed. A file that
/// was made for a failed call goes away again.
pub fn create(path: impl AsRef<Path>, size_bytes: u64, options: &MkfsOptions) -> Result<Filesystem> {
    let path = path.as_ref();
    let made = options.complete();
    let io_error = |source| Error::Open(OpenError::Io { path: path.into(), source });
    verify(&made, size_bytes, FILE_SECTOR_BYTES, None)?;
    if path.symlink_metadata().is_ok() {
        let mut device = FileDevice::open(path, Access::Write)?;
        if !device.metadata().map_err(io_error)?.is_file() {
            let what = "a block device, which has its own size, for create_on";
            return Err(OpenError::NotAnImage { path: path.into(), what }.into());
        }
        if !options.replace {
            expect_empty(&device, path, Extent::File)?;
            if device.size_bytes() > size_bytes {
                let what = format!("{} bytes, which is more than the image is to have", device.size_bytes());
                return Err(Error::HoldsData { path: path.into(), what });
            }
        }
        device.make_zeros_after(size_bytes, |device| set_aside(device, None, &made))?;
        return claim_and_make(Arc::new(device), &made, options.environment_or_system());
    }
    let device = FileDevice::create_new(path, size_bytes)?;
    let own = device.metadata().map_err(io_error)?;
    let result = claim_and_make(Arc::new(device), &made, options.environment_or_system());
    if result.is_err() && path.symlink_metadata().is_ok_and(|now| share_storage(&now, &own)) {
        // The file did not exist before; the error that counts is the first one.
        let _ = std::fs::remove_file(path);
    }
    result
}

/// Makes an image that fills a device of the caller's, and opens it.
///
/// # Errors
/// As [`create`]; `Image` with `DeviceInUse` for a device that this process has a filesystem open on, or its log, even
/// with [`MkfsOptions::replace`]. The device is not touched then.
pub fn create_on(device: Arc<dyn BlockDevice>, options: &MkfsOptions) -> Result<Filesystem> {
    let made = options.complete();
    let claim = claim(&device)?;
    verify(&made, device.size_bytes(), device.hints().sector_bytes, None)?;
    if !options.replace {
        expect_empty(&*device, Path::new("the device"), Extent::Disk)?;
    }
    make_and_open(device, claim, &made, options.environment_or_system())
}

/// Takes the device for the new filesystem. No other filesystem may have it, or it would go on with its own image in
/// memory.
fn claim(device: &Arc<dyn BlockDevice>) -> Result<Claim> {
    Claim::take(device, ClaimFor::Writing).map_err(|source| Error::Image { verb: "make", source })
}

fn claim_and_make(
    device: Arc<dyn BlockDevice>,
    options: &Options,
    environment: Arc<dyn Environment>,
) -> Result<Filesystem> {
    let claim = claim(&device)?;
    make_and_open(device, claim, options, environment)
}

/// Makes an image on a device that the claim is on, and opens it under the claim.
fn make_and_open(
    device: Arc<dyn BlockDevice>,
    claim: Claim,
    options: &Options,
    environment: Arc<dyn Environment>,
) -> Result<Filesystem> {
    make(&*device, None, options, environment.now())?;
    let volume = Volume::open_claimed(device, None, MountOptions::default(), environment, vec![claim]);
    Ok(Filesystem::new(volume.map_err(|source| Error::Image { verb: "open", source })?))
}

fn expect_empty(device: &dyn BlockDevice, path: &Path, extent: Extent) -> Result<()> {
    let holds = |what: String| Err(Error::HoldsData { path: path.into(), what });
    if let Some(what) = existing_format(device).map_err(MakeError::Io)? {
        return holds(what.to_string());
    }
    match first_data(device, extent).map_err(MakeError::Io)? {
        Some(offset) => holds(format!("data of an unknown kind (byte {offset} is not zero)")),
        None => Ok(()),
    }
}
