//! Opens filesystems: what the journal holds is brought home, operations that a crash cut off are finished, and inodes
//! that lost their last name are freed, before anybody sees the filesystem.
//!
//! A mount that only looks does the same in memory: over the image lies a device that keeps changes to itself, and what is
//! mounted is that.

use super::Filesystem;
use crate::env::{Environment, SystemEnvironment};
use crate::error::Result;
use crate::journal::{LogState, RecoveryReport};
use crate::mount::{FoundLog, Mount, MountOptions, Stage};
use std::sync::Arc;
use xfskit_device::{BlockDevice, OverlayDevice};
use xfskit_ondisk::inode::{MODE_DIR, MODE_TYPE};

/// Most memory that a recovery in memory may take, for each device.
const MOST_OVERLAY_BYTES: usize = 1 << 30;

/// Devices that show an image as its recovery leaves it.
pub struct RecoveredDevices {
    /// The image.
    pub device: Arc<dyn BlockDevice>,
    /// Its external log.
    pub log_device: Option<Arc<dyn BlockDevice>>,
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
    let over = |below| Arc::new(OverlayDevice::new(below, MOST_OVERLAY_BYTES)) as Arc<dyn BlockDevice>;
    let (device, log_device) = (over(device), log_device.map(over));
    let (below, log_below) = (Arc::clone(&device), log_device.clone());
    let recovered = Filesystem::over(Mount::open_at(below, log_below, options, env, Stage::Image, Some(log.end()))?)?;
    let report = recovered.mount.recovery.clone();
    recovered.unmount()?;
    Ok(RecoveredDevices { device, log_device, report })
}

impl Filesystem {
    /// Opens the filesystem on `device`.
    ///
    /// # Errors
    /// As [`Mount::open`].
    pub fn open(device: Arc<dyn BlockDevice>, options: MountOptions) -> Result<Self> {
        Self::open_in(device, None, options, Arc::new(SystemEnvironment::default()))
    }

    /// Opens the filesystem on `device` with its log on `log_device`.
    ///
    /// # Errors
    /// As [`Mount::open`].
    pub fn open_with_log(
        device: Arc<dyn BlockDevice>,
        log_device: Arc<dyn BlockDevice>,
        options: MountOptions,
    ) -> Result<Self> {
        Self::open_in(device, Some(log_device), options, Arc::new(SystemEnvironment::default()))
    }

    /// Opens the filesystem in a world of the caller's making.
    ///
    /// # Errors
    /// As [`Mount::open`].
    pub fn open_in(
        device: Arc<dyn BlockDevice>,
        log_device: Option<Arc<dyn BlockDevice>>,
        options: MountOptions,
        env: Arc<dyn Environment>,
    ) -> Result<Self> {
        let looks_only = options.read_only || device.is_read_only();
        if looks_only && !options.no_recovery {
            let log = FoundLog::find(Arc::clone(&device), log_device.clone())?;
            if log.state != LogState::Clean {
                return Self::open_recovered_in_memory(device, log_device, options, env, &log);
            }
            return Self::over(Mount::open_at(device, log_device, options, env, Stage::Image, Some(log.end()))?);
        }
        Self::over(Mount::open_in(device, log_device, options, env)?)
    }

    fn open_recovered_in_memory(
        device: Arc<dyn BlockDevice>,
        log_device: Option<Arc<dyn BlockDevice>>,
        options: MountOptions,
        env: Arc<dyn Environment>,
        log: &FoundLog,
    ) -> Result<Self> {
        let to_write = MountOptions { read_only: false, ..options.clone() };
        let recovered = recover_over(device, log_device, to_write, Arc::clone(&env), log)?;
        let stage = Stage::Recovered(log.state, recovered.report);
        let options = MountOptions { read_only: true, ..options };
        Self::over(Mount::open_at(recovered.device, recovered.log_device, options, env, stage, None)?)
    }

    /// Recovers what a crash left without touching the image, for those who want to look at the devices themselves: as
    /// they are if the log is clean, under their recovery in memory if not.
    ///
    /// # Errors
    /// As [`Mount::open`].
    pub fn recover_in_memory(
        device: Arc<dyn BlockDevice>,
        log_device: Option<Arc<dyn BlockDevice>>,
    ) -> Result<RecoveredDevices> {
        let log = FoundLog::find(Arc::clone(&device), log_device.clone())?;
        if log.state == LogState::Clean {
            return Ok(RecoveredDevices { device, log_device, report: None });
        }
        recover_over(device, log_device, MountOptions::default(), Arc::new(SystemEnvironment::default()), &log)
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
        let fs = Self { mount };
        fs.expect_root()?;
        let recovered = fs.mount.recovered.lock().take();
        if let Some(recovered) = recovered {
            crate::recover::finish_intents(&fs.mount, recovered.intents)?;
            crate::recover::free_cow_leftovers(&fs.mount)?;
        }
        if !fs.mount.options.read_only
            && let Err(error) = fs.clean_orphans()
        {
            // What was freed before the damage showed is brought home, so that the log is clean as it was.
            let _ = fs.mount.unmount_if_changed();
            return Err(error);
        }
        Ok(fs)
    }
}
