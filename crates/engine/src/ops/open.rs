//! Opens filesystems: what the journal holds is written in place, operations that a crash cut off are finished, and
//! inodes that lost their last name are freed, before a caller sees the filesystem.
//!
//! A mount that only looks does the same in memory: over the image lies a device that keeps changes to itself, and what
//! is mounted is that.

use super::Volume;
use crate::env::{Environment, SystemEnvironment};
use crate::error::{Error, Result};
use crate::journal::{LogState, RecoveryReport};
use crate::mount::{Claim, ClaimFor, Mount, MountOptions};
use crate::open::{FoundLog, Stage};
use std::sync::Arc;
use xfskit_device::{BlockDevice, OverlayDevice};
use xfskit_ondisk::inode::{MODE_DIR, MODE_TYPE};

/// Most memory that a recovery in memory may take, for each device.
const MAX_OVERLAY_BYTES: usize = 1 << 30;

/// Devices that show an image as its recovery leaves it.
#[non_exhaustive]
pub struct RecoveredDevices {
    /// The image.
    pub device: Arc<dyn BlockDevice>,
    /// Its external log.
    pub log_device: Option<Arc<dyn BlockDevice>>,
    /// What its log was.
    pub log_state: LogState,
    /// What recovery did, if there was anything to do.
    pub report: Option<RecoveryReport>,
}

/// Recovers over the devices, in memory.
fn recover_over(
    device: Arc<dyn BlockDevice>,
    log_device: Option<Arc<dyn BlockDevice>>,
    options: MountOptions,
    env: Arc<dyn Environment>,
    log: &FoundLog,
) -> Result<RecoveredDevices> {
    let over = |below| Arc::new(OverlayDevice::new(below, MAX_OVERLAY_BYTES)) as Arc<dyn BlockDevice>;
    let (device, log_device) = (over(device), log_device.map(over));
    let (below, log_below) = (Arc::clone(&device), log_device.clone());
    // No other mount can have the devices in memory.
    let mount = Mount::open_at(below, log_below, options, env, Stage::Image, Some(log.end()), Vec::new())?;
    let recovered = Volume::over(mount)?;
    let (report, mount) = (recovered.mount.recovery.clone(), Arc::clone(&recovered.mount));
    match recovered.unmount() {
        Ok(()) => {}
        // An inode that there is no space to free: its image would keep a dirty log, and be read without it. Who opens
        // what is in memory to write looks for inodes without a name, whatever the log says.
        Err(Error::NoSpace) => mount.unmount()?,
        Err(error) => return Err(error),
    }
    Ok(RecoveredDevices { device, log_device, log_state: log.state, report })
}

impl Volume {
    /// Opens the filesystem on `device`.
    ///
    /// To write, the device is written at once: a dirty log, as a crash leaves it, is replayed, operations that the
    /// crash cut off are finished, and inodes without a name are freed. Of a clean log, sectors that a power cut left
    /// behind its end are cleared, and the host sets space aside for it.
    ///
    /// A device that this process has another filesystem open on is refused: for any filesystem while that one writes,
    /// and for one that is to write while that one reads. It is known by its
    /// [`Hints::identity`](xfskit_device::Hints::identity); that of an image file is refused by its lock.
    ///
    /// With [`read_only`](MountOptions::read_only), or on a device that takes no writes, nothing is ever written. A
    /// dirty log is replayed in memory, which takes up to 1 GiB for the changed blocks of each device.
    ///
    /// With [`no_recovery`](MountOptions::no_recovery) as well, a dirty log is not replayed: the filesystem is shown as
    /// it is on the device, without what only the log holds, and may contradict itself.
    ///
    /// A log that cannot be replayed is an error, unless `no_recovery` is given: to look at such an image all the same,
    /// open it once more with that. A program that must not change the device opens it for reading: that is the
    /// only way to be sure.
    ///
    /// What was opened to write is closed by [`unmount`](Self::unmount). A `Volume` that is dropped leaves its log
    /// dirty.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use xfskit_device::MemoryDevice;
    /// use xfskit_engine::{Caller, Volume, MountOptions, NewFile};
    /// # use xfskit_mkfs::{Options, make};
    ///
    /// let device = Arc::new(MemoryDevice::new(32 << 20));
    /// # let options = Options { uuid: Some([7; 16]), allow_small: true, ..Options::default() };
    /// # make(&device, None, &options, Default::default()).unwrap();
    /// let fs = Volume::open(device.clone(), MountOptions::default())?;
    /// fs.create(fs.root(), b"file", &NewFile::file(0o644), &Caller::root())?;
    /// fs.sync()?;
    /// drop(fs);
    /// let crashed = device.to_bytes();
    ///
    /// let fs = Volume::open(device.clone(), MountOptions::read_only())?;
    /// assert!(fs.lookup(fs.root(), b"file").is_ok());
    /// drop(fs);
    /// assert!(device.to_bytes() == crashed);
    ///
    /// let fs = Volume::open(device.clone(), MountOptions { no_recovery: true, ..MountOptions::read_only() })?;
    /// assert!(fs.lookup(fs.root(), b"file").is_err());
    /// drop(fs);
    ///
    /// let fs = Volume::open(device.clone(), MountOptions::default())?;
    /// assert!(device.to_bytes() != crashed);
    /// fs.unmount()?;
    /// # Ok::<(), xfskit_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Superblock`, `Unsupported`, `Corrupt` as the image is; `NoLogDevice`; `DeviceInUse`; `Io`, also where the host
    /// has no space for the log.
    pub fn open(device: Arc<dyn BlockDevice>, options: MountOptions) -> Result<Self> {
        Self::open_in(device, None, options, Arc::new(SystemEnvironment))
    }

    /// Opens the filesystem on `device` with its log on `log_device`.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with_log(
        device: Arc<dyn BlockDevice>,
        log_device: Arc<dyn BlockDevice>,
        options: MountOptions,
    ) -> Result<Self> {
        Self::open_in(device, Some(log_device), options, Arc::new(SystemEnvironment))
    }

    /// Opens the filesystem with the caller's own clock and random numbers, and a log device if it has one.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_in(
        device: Arc<dyn BlockDevice>,
        log_device: Option<Arc<dyn BlockDevice>>,
        options: MountOptions,
        env: Arc<dyn Environment>,
    ) -> Result<Self> {
        let what_for = ClaimFor::mount(options.read_only || options.no_recovery || device.hints().read_only);
        let claims = Claim::take_all(&device, log_device.as_ref(), what_for)?;
        Self::open_claimed(device, log_device, options, env, claims)
    }

    /// Opens the filesystem on devices that the caller has claimed for it.
    #[doc(hidden)]
    pub fn open_claimed(
        device: Arc<dyn BlockDevice>,
        log_device: Option<Arc<dyn BlockDevice>>,
        options: MountOptions,
        env: Arc<dyn Environment>,
        claims: Vec<Claim>,
    ) -> Result<Self> {
        // An image whose log is not replayed must not be written.
        let options = MountOptions { read_only: options.read_only || options.no_recovery, ..options };
        let looks_only = options.read_only || device.hints().read_only;
        let mut log_end = None;
        if looks_only && !options.no_recovery {
            let log = FoundLog::find(Arc::clone(&device), log_device.clone())?;
            if log.state != LogState::Clean {
                return Self::open_recovered_in_memory(device, log_device, options, env, &log, claims);
            }
            log_end = Some(log.end());
        }
        Self::over(Mount::open_at(device, log_device, options, env, Stage::Image, log_end, claims)?)
    }

    fn open_recovered_in_memory(
        device: Arc<dyn BlockDevice>,
        log_device: Option<Arc<dyn BlockDevice>>,
        options: MountOptions,
        env: Arc<dyn Environment>,
        log: &FoundLog,
        claims: Vec<Claim>,
    ) -> Result<Self> {
        let to_write = MountOptions { read_only: false, ..options.clone() };
        let recovered = recover_over(device, log_device, to_write, Arc::clone(&env), log)?;
        let stage = Stage::Recovered(log.state, recovered.report);
        let options = MountOptions { read_only: true, ..options };
        Self::over(Mount::open_at(recovered.device, recovered.log_device, options, env, stage, None, claims)?)
    }

    /// Recovers what a crash left without touching the image, for a program that reads the devices themselves: it gets
    /// them as they are if the log is clean, and under their recovery in memory if not, or if records that are not
    /// whole lie behind its end.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn recover_in_memory(
        device: Arc<dyn BlockDevice>,
        log_device: Option<Arc<dyn BlockDevice>>,
    ) -> Result<RecoveredDevices> {
        // A filesystem that writes now would show blocks of different times.
        let _claims = Claim::take_all(&device, log_device.as_ref(), ClaimFor::Reading)?;
        let log = FoundLog::find(Arc::clone(&device), log_device.clone())?;
        if !log.is_to_be_recovered() {
            return Ok(RecoveredDevices { device, log_device, log_state: log.state, report: None });
        }
        recover_over(device, log_device, MountOptions::default(), Arc::new(SystemEnvironment), &log)
    }

    /// Reads the root directory's inode: without it no path leads anywhere, and a mount that succeeds would hide that.
    fn expect_root(&self) -> Result<()> {
        let number = self.mount.geometry.root_inode;
        let root = self.mount.inode(number)?;
        let mode = root.state_lock().read().core.mode;
        ensure_on_disk!(mode & MODE_TYPE == MODE_DIR, "root inode", "is a directory", "mode {mode:o}");
        Ok(())
    }

    fn over(mount: Arc<Mount>) -> Result<Self> {
        let fs = Self { mount, put_off: Default::default(), waiting: Default::default() };
        fs.expect_root()?;
        let recovered = fs.mount.recovered.lock().take();
        if let Some(recovered) = recovered {
            crate::finish::finish_intents(&fs.mount, recovered.intents)?;
            crate::finish::free_cow_leftovers(&fs.mount)?;
        }
        if !fs.mount.options.read_only
            && let Err(error) = fs.clean_orphans()
        {
            // What was freed before the damage showed is written back, so that the log is clean as it was.
            let _ = fs.mount.unmount_if_changed();
            return Err(error);
        }
        Ok(fs)
    }
}
