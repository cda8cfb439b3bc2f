//! Grows a filesystem that is not open: the last AG is filled up, and AGs follow it.
//!
//! ```text
//! open, replay, close          the log is clean, the counters are exact
//! new AGs                      written to their places and flushed; no superblock counts them yet
//! one transaction              the last AG's lengths and free space, the superblock's counts; durable
//! copies of the superblock     flushed
//! close                        the superblock in its place
//! ```
//! Crash behaviour: old up to the transaction, new from then on; `docs/design/grow.md`.

use super::Volume;
use crate::env::{Environment, SystemEnvironment};
use crate::error::{Error, Result};
use crate::journal::LogState;
use crate::mount::{Claim, ClaimFor, Mount, MountOptions, SUPERBLOCK_KIND};
use crate::open::{FoundLog, Stage, read_superblock};
use crate::space::grow;
use crate::trans::{Transaction, reservation_of};
use std::sync::Arc;
use xfskit_device::BlockDevice;
use xfskit_ondisk::superblock::SUPERBLOCK_CRC_OFFSET;
use xfskit_ondisk::{AgNumber, DiskAddress, RawSuperblock, Superblock, set_checksum};
use zerocopy::IntoBytes;

/// Fewest blocks of a last AG; what is left behind the others and has fewer stays outside.
const MIN_AG_BLOCKS: u64 = 64;

/// The size of a filesystem before and after it was grown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Growth {
    /// Size of a block in bytes.
    pub block_bytes: u32,
    /// Blocks before.
    pub old_blocks: u64,
    /// Blocks after.
    pub new_blocks: u64,
    /// AGs before.
    pub old_ags: u32,
    /// AGs after.
    pub new_ags: u32,
}

impl Growth {
    /// What a filesystem becomes that is to have up to `size_bytes` bytes: whole blocks, and no last AG of fewer than
    /// 64 of them. A size for which there is nothing to add leaves it as it is.
    ///
    /// # Errors
    /// `Invalid` for a size that is smaller than the filesystem; `Superblock` for one that the format cannot have, and
    /// for a superblock that makes no sense.
    #[doc(hidden)]
    pub fn plan(superblock: &RawSuperblock, size_bytes: u64) -> Result<Self> {
        let superblock = &sound(superblock)?;
        let (old_blocks, ag_blocks) = (superblock.data_blocks.get(), u64::from(superblock.ag_blocks.get()));
        let room = size_bytes >> superblock.block_log;
        if room < old_blocks {
            return Err(Error::Invalid("a filesystem cannot be made smaller"));
        }
        let rest = room % ag_blocks;
        let is_too_short = rest > 0 && rest < MIN_AG_BLOCKS;
        let new_blocks = (if is_too_short { room - rest } else { room }).max(old_blocks);
        let Ok(new_ags) = u32::try_from(new_blocks.div_ceil(ag_blocks)) else {
            return Err(Error::Invalid("so large a filesystem needs larger AGs"));
        };
        let old_ags = superblock.ag_count.get();
        let growth = Self { block_bytes: superblock.block_size.get(), old_blocks, new_blocks, old_ags, new_ags };
        growth.apply(superblock)?;
        Ok(growth)
    }

    /// Whether there is anything to do.
    pub fn is_nothing(&self) -> bool {
        self.old_blocks == self.new_blocks
    }

    /// Bytes after.
    pub fn size_bytes(&self) -> u64 {
        self.new_blocks * u64::from(self.block_bytes)
    }

    /// The superblock of the grown filesystem, with the counters of the old one.
    fn apply(&self, superblock: &RawSuperblock) -> Result<Superblock> {
        let (data_blocks, ag_count) = (self.new_blocks.into(), self.new_ags.into());
        verified(&RawSuperblock { data_blocks, ag_count, ..superblock.clone() })
    }
}

/// A superblock whose fields agree with each other.
fn verified(raw: &RawSuperblock) -> Result<Superblock> {
    let mut sector = vec![0; usize::from(raw.sector_size.get()).max(size_of::<RawSuperblock>())];
    sector[..size_of::<RawSuperblock>()].copy_from_slice(raw.as_bytes());
    set_checksum(&mut sector[..], SUPERBLOCK_CRC_OFFSET);
    Ok(Superblock::decode(&sector)?)
}

/// The fields of a superblock, if they agree with each other: a caller may have them from anywhere.
fn sound(raw: &RawSuperblock) -> Result<RawSuperblock> {
    Ok(verified(raw)?.raw().clone())
}

impl Volume {
    /// The superblock on a device as it is, before any journal is replayed: for [`Growth::plan`].
    ///
    /// # Errors
    /// `Superblock`, `Io`.
    #[doc(hidden)]
    pub fn superblock_on(device: &dyn BlockDevice) -> Result<RawSuperblock> {
        Ok(read_superblock(device)?.raw().clone())
    }

    /// Grows the filesystem on `device`, which is not open, to `size_bytes`, or as near to it as its blocks and AGs
    /// allow. A dirty log is replayed first. What is to be had must be there: a file is made longer before.
    ///
    /// The filesystem has its old size or the new one, wherever this is cut off; recovery, ours or the kernel's, goes
    /// on from there.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use xfskit_device::MemoryDevice;
    /// use xfskit_engine::{MountOptions, Volume};
    ///
    /// let device = Arc::new(MemoryDevice::new(96 << 20));
    /// let options = xfskit::MkfsOptions::new().small().option('d', "size=32m")?;
    /// xfskit::create_on(device.clone(), &options)?.close()?;
    ///
    /// let growth = Volume::grow(device.clone(), None, MountOptions::default(), 96 << 20)?;
    /// assert_eq!((growth.size_bytes(), growth.old_ags < growth.new_ags), (96 << 20, true));
    /// let volume = Volume::open(device, MountOptions::default())?;
    /// assert!(volume.statfs().free_blocks * 4096 > 80 << 20);
    /// # volume.unmount()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::open`]; `Invalid` for a size that is smaller than the filesystem or larger than the device; `Io`,
    /// also where the host has no space for the headers of the new AGs.
    pub fn grow(
        device: Arc<dyn BlockDevice>,
        log_device: Option<Arc<dyn BlockDevice>>,
        options: MountOptions,
        size_bytes: u64,
    ) -> Result<Growth> {
        Self::grow_in(device, log_device, options, Arc::new(SystemEnvironment), size_bytes)
    }

    /// As [`Self::grow`], with the caller's own clock and random numbers.
    ///
    /// # Errors
    /// As [`Self::grow`].
    pub fn grow_in(
        device: Arc<dyn BlockDevice>,
        log_device: Option<Arc<dyn BlockDevice>>,
        options: MountOptions,
        env: Arc<dyn Environment>,
        size_bytes: u64,
    ) -> Result<Growth> {
        if size_bytes > device.size_bytes() {
            return Err(Error::Invalid("the device is smaller than that"));
        }
        // What the log may contain of a size is replayed below; a size that makes no sense is refused before that.
        let found = FoundLog::find(Arc::clone(&device), log_device.clone())?;
        Growth::plan(found.superblock(), size_bytes)?;
        let volume = Self::open_in(Arc::clone(&device), log_device.clone(), options.clone(), Arc::clone(&env))?;
        if volume.mount.options.read_only {
            return Err(Error::ReadOnly);
        }
        // The kernel may have recovered a growth that was cut off before the copies of the superblock were written.
        volume.mount.mend_superblock_copies()?;
        let growth = Growth::plan(&volume.superblock(), size_bytes);
        volume.unmount()?;
        let growth = growth?;
        if !growth.is_nothing() {
            let claims = Claim::take_all(&device, log_device.as_ref(), ClaimFor::Writing)?;
            let found = FoundLog::find(Arc::clone(&device), log_device.clone())?;
            if found.state != LogState::Clean {
                return Err(Error::Invalid("another program writes to the image"));
            }
            // Between the two claims another thread of this program may have grown it.
            if Growth::plan(found.superblock(), size_bytes)? != growth {
                return Err(Error::Invalid("another thread has changed the size of the image"));
            }
            let stage = Stage::Growing(growth.apply(found.superblock())?);
            let end = Some(found.end());
            let mount = Mount::open_at(device, log_device, options, env, stage, end, claims)?;
            mount.enlarge(&growth, found.superblock())?;
        }
        Ok(growth)
    }
}

impl Mount {
    /// Makes the filesystem on the device what this mount already takes it for, and closes it.
    fn enlarge(self: &Arc<Self>, growth: &Growth, old: &RawSuperblock) -> Result<()> {
        let new_ags = growth.old_ags..growth.new_ags;
        let free_blocks = grow::write_new_ags(&*self.device, &self.geometry, old, new_ags)?;
        let mut tx = self.transaction(reservation_of(self.reservations.growdata))?;
        tx.set_sync();
        let result = self.enlarge_in(&mut tx, growth, free_blocks);
        tx.finish(result)?;
        // The growth is durable; a copy that cannot be written must not leave the log dirty.
        let written = self.write_superblock_copies();
        self.unmount()?;
        written
    }

    fn enlarge_in(self: &Arc<Self>, tx: &mut Transaction, growth: &Growth, free_blocks: u64) -> Result<()> {
        // Recovery takes the new size from the superblock before it checks what else the transaction logs.
        let id = tx.read(DiskAddress(0), self.geometry.sector_bytes(), &SUPERBLOCK_KIND)?;
        let (number, ag_blocks) = (AgNumber(growth.old_ags - 1), u64::from(self.geometry.ag_blocks));
        let old_length = (growth.old_blocks - u64::from(number.0) * ag_blocks) as u32;
        let added = self.geometry.blocks_in_ag(number) - old_length;
        let raw = self.superblock();
        let on_device = tx.get_as::<RawSuperblock>(id, 0);
        let (crc, lsn) = (on_device.crc, on_device.lsn);
        let all_free = raw.free_blocks.get() + free_blocks + u64::from(added);
        *tx.edit_as::<RawSuperblock>(id, 0) = RawSuperblock { crc, lsn, free_blocks: all_free.into(), ..raw };
        if added > 0 {
            grow::extend_ag(tx, number, old_length)?;
        }
        tx.free_blocks(free_blocks);
        Ok(())
    }
}
