//! What an open image is, what opening found of it, and what is used of memory and log.

use super::Volume;
use crate::counters::Counters;
use crate::error::Result;
use crate::journal::{LogState, RecoveryReport};
use crate::mount::MountOptions;
use xfskit_ondisk::{Geometry, RawSuperblock};

/// Memory and log in use, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// Bytes of metadata and contents in memory.
    pub buffer_bytes: usize,
    /// Inodes in memory.
    pub inodes: usize,
    /// Bytes of the log in use, what running transactions have reserved included.
    pub log_used_bytes: u64,
    /// Size of the log in bytes.
    pub log_bytes: u64,
}

impl Volume {
    /// Shapes and sizes: of blocks, AGs and inodes, and the features that the image has.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # let device = Arc::new(xfskit_device::MemoryDevice::new(32 << 20));
    /// # let fs = xfskit::create_on(device, &xfskit::MkfsOptions::new().small())?;
    /// let volume = fs.volume();
    /// assert_eq!(volume.geometry().block_bytes(), 4096);
    /// assert!(volume.geometry().has_parent() && volume.recovery_report().is_none());
    /// # Ok::<(), xfskit::Error>(())
    /// ```
    #[doc(hidden)]
    pub fn geometry(&self) -> &Geometry {
        &self.mount.geometry
    }

    /// Why the filesystem is shut down, if it is: nothing can be changed any more, and what was not durable is lost.
    pub fn shutdown_reason(&self) -> Option<String> {
        self.mount.journal.check().err().map(|error| error.to_string())
    }

    /// How many requests at a time a program that reads much should have on their way, each from a thread of its own:
    /// more than one where the device's requests take long, as across a network
    /// ([`Hints::queue_depth`](xfskit_device::Hints::queue_depth)).
    pub fn queue_depth(&self) -> usize {
        self.mount.device.hints().queue_depth
    }

    /// The options as they are in force: [`read_only`](MountOptions::read_only) also where the device takes no writes.
    pub fn options(&self) -> &MountOptions {
        &self.mount.options
    }

    /// The fields of the superblock as they are in memory now, counts of free blocks and inodes included.
    #[doc(hidden)]
    pub fn superblock(&self) -> RawSuperblock {
        self.mount.superblock()
    }

    /// What opening found of the log, before it replayed anything.
    pub fn log_state(&self) -> LogState {
        self.mount.log_state
    }

    /// What opening replayed, on the device or in memory; `None` where there was nothing to replay.
    pub fn recovery_report(&self) -> Option<&RecoveryReport> {
        self.mount.recovery.as_ref()
    }

    /// Bytes of the journal that the host has space for; `None` if it has space for all. The filesystem shuts down
    /// where they end, see [`HostSpace::Part`](crate::HostSpace::Part).
    pub fn journal_room_bytes(&self) -> Option<u64> {
        self.mount.journal_room_bytes
    }

    /// What was counted since the image was opened. The counts are exact while no call runs.
    pub fn counters(&self) -> &Counters {
        &self.mount.counters
    }

    /// Memory and log in use.
    pub fn usage(&self) -> Usage {
        let (log_used_bytes, log_bytes) = self.mount.journal.usage();
        Usage {
            buffer_bytes: self.mount.cache.used_bytes(),
            inodes: self.mount.inodes.len(),
            log_used_bytes,
            log_bytes,
        }
    }

    /// As [`Self::unmount`]; but where the log was clean and nothing has changed, the image stays as it is, byte for
    /// byte.
    ///
    /// # Errors
    /// As [`Self::unmount`].
    pub fn unmount_if_changed(self) -> Result<()> {
        if self.mount.options.read_only {
            return Ok(());
        }
        // Contents and times that wait in memory are changes, too: they are committed before the question is asked.
        let is_committed = self.write_out_all().and(self.free_all_waiting()).is_ok();
        let is_durable = self.mount.journal.is_flushed();
        if is_committed && is_durable && !self.mount.has_changed() { Ok(()) } else { self.unmount() }
    }
}
