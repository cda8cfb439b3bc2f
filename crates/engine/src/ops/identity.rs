//! What a filesystem is called: its label and its UUID.
//!
//! The label is changed like everything else, by a transaction. The UUID is not in any log item: the records of the log
//! carry it themselves, so it changes while the log is empty, as the last thing before the filesystem is closed.
//!
//! Crash behaviour: `docs/design/identity.md`.

use super::Volume;
use crate::env::Environment;
use crate::error::{Error, Result};
use crate::mount::{Mount, SUPERBLOCK_KIND};
use crate::open::Identity;
use crate::trans::reservation_of;
use std::mem::offset_of;
use std::sync::Arc;
use xfskit_ondisk::{DiskAddress, RawSuperblock};

/// Bytes of a label.
pub(crate) const LABEL_BYTES: usize = 12;

/// Which UUID a filesystem gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewUuid {
    /// A random one.
    Random,
    /// Zeros. The kernel mounts such a filesystem only with `nouuid`.
    Nil,
    /// The one that it was made with, which its metadata carries.
    Restored,
    /// This one.
    Given([u8; 16]),
}

impl Volume {
    /// The label; empty if there is none.
    pub fn label(&self) -> Vec<u8> {
        let label = self.mount.superblock().label;
        label.split(|&byte| byte == 0).next().unwrap_or_default().to_vec()
    }

    /// Sets the label, durably, in the superblock and its copies. An empty one takes it away.
    ///
    /// # Errors
    /// `Invalid` for a label of more than 12 bytes or with a zero byte; `ReadOnly`, `Io`, `Shutdown`.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        if label.len() > LABEL_BYTES || label.contains(&0) {
            return Err(Error::Invalid("a label has at most 12 bytes, and no zero byte"));
        }
        let mut padded = [0; LABEL_BYTES];
        padded[..label.len()].copy_from_slice(label);
        self.mount.set_label(padded)
    }

    /// Gives the filesystem another UUID and closes it; returns the UUID. Its metadata keeps the one that it was made
    /// with, and the superblock says so: no block but the superblocks and the end of the log is written.
    ///
    /// The filesystem has its old UUID or the new one, wherever this is cut off. Others who know it by the old one, as
    /// an fstab, do not find it any more.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use xfskit_device::MemoryDevice;
    /// use xfskit_engine::{MountOptions, NewUuid, Volume};
    ///
    /// let device = Arc::new(MemoryDevice::new(32 << 20));
    /// xfskit::create_on(device.clone(), &xfskit::MkfsOptions::new().small().uuid([7; 16]))?.close()?;
    /// let copy = Arc::new(MemoryDevice::from_bytes(device.to_bytes()));
    ///
    /// let volume = Volume::open(copy.clone(), MountOptions::default())?;
    /// volume.set_label(b"copy")?;
    /// let uuid = volume.set_uuid(NewUuid::Random)?;
    ///
    /// let volume = Volume::open(copy, MountOptions::default())?;
    /// assert_eq!((volume.superblock().uuid, volume.label()), (uuid, b"copy".to_vec()));
    /// assert_eq!(volume.set_uuid(NewUuid::Restored)?, [7; 16]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `ReadOnly`; as [`Self::unmount`].
    pub fn set_uuid(self, uuid: NewUuid) -> Result<[u8; 16]> {
        if self.mount.options.read_only {
            return Err(Error::ReadOnly);
        }
        let old = Identity::of(&self.mount.superblock());
        let new = match uuid {
            NewUuid::Random => random_uuid(&*self.mount.env),
            NewUuid::Nil => [0; 16],
            NewUuid::Restored => old.meta_uuid,
            NewUuid::Given(uuid) => uuid,
        };
        self.close_with(|mount| mount.unmount_as(Identity { uuid: new, ..old }))?;
        Ok(new)
    }
}

/// A random UUID of version 4 (RFC 9562).
fn random_uuid(env: &dyn Environment) -> [u8; 16] {
    let bits = u128::from(env.random()) << 64 | u128::from(env.random());
    let (version, variant) = (0xf << 76, 0x3 << 62);
    (bits & !(version | variant) | 4 << 76 | 2 << 62).to_be_bytes()
}

impl Volume {
    /// Writes the superblock into all AGs but the first, whose copies then agree with it. That is needed where another
    /// program was cut off while it changed size, label or UUID, and the kernel has recovered the image: its recovery
    /// leaves the copies as they are. Opening an image that was not recovered yet does the same by itself.
    ///
    /// # Errors
    /// `ReadOnly`, `Io`.
    pub fn write_superblock_copies(&self) -> Result<()> {
        if self.mount.options.read_only {
            return Err(Error::ReadOnly);
        }
        self.sync()?;
        self.mount.write_superblock_copies()
    }
}

impl Mount {
    fn set_label(self: &Arc<Self>, label: [u8; LABEL_BYTES]) -> Result<()> {
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        let mut tx = self.transaction(reservation_of(self.reservations.sb))?;
        tx.set_sync();
        let id = tx.read(DiskAddress(0), self.geometry.sector_bytes(), &SUPERBLOCK_KIND)?;
        let at = offset_of!(RawSuperblock, label);
        tx.edit(id, at..at + LABEL_BYTES).copy_from_slice(&label);
        // Under the lock of the superblock's buffer: of two changes at once, the last one that is logged counts.
        self.superblock.lock().label = label;
        tx.commit()?;
        self.write_superblock_copies()
    }
}
