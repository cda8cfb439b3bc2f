//! Gives free space back to the host.

use super::Volume;
use crate::error::{Error, Result};
use crate::mount::Discard;
use crate::space::trim::{self, GivenBack, Trim};
use std::ops::Range;
use xfskit_ondisk::AgNumber;

pub use crate::space::trim::TrimBy;

/// What a trim gave back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trimmed {
    /// Extents of free blocks.
    pub extents: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Volume {
    /// Tells the device that the free extents of at least `min_bytes` bytes are not needed, or overwrites them with
    /// zeros. Everything done so far is made durable first. Other threads may go on; what they free meanwhile, and the
    /// blocks that they are writing to, are left out.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # let device = Arc::new(xfskit_device::MemoryDevice::new(64 << 20));
    /// # let fs = xfskit::create_on(device, &xfskit::MkfsOptions::new().small())?;
    /// # let volume = fs.volume();
    /// use xfskit_engine::TrimBy;
    ///
    /// let trimmed = volume.trim(0, TrimBy::Discard)?;
    /// assert!(trimmed.bytes > 32 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `ReadOnly`; as [`Self::sync`]; `Corrupt`, `Io`: a part was given back then.
    pub fn trim(&self, min_bytes: u64, by: TrimBy) -> Result<Trimmed> {
        self.trim_within(0..u64::MAX, min_bytes, by)
    }

    /// As [`Self::trim`], of these bytes of the device alone, as far as whole blocks lie there.
    ///
    /// # Errors
    /// As [`Self::trim`]; `Invalid` for a range that begins behind the end or is shorter than a block, and for extents
    /// that are longer than an AG.
    pub fn trim_within(&self, bytes: Range<u64>, min_bytes: u64, by: TrimBy) -> Result<Trimmed> {
        if self.mount.options.read_only {
            return Err(Error::ReadOnly);
        }
        let geometry = &self.mount.geometry;
        let block_bytes = 1 << geometry.block_log;
        // As the kernel's `xfs_ioc_trim`.
        if bytes.start.div_ceil(block_bytes) >= geometry.data_blocks {
            return Err(Error::Invalid("there is nothing behind the end of the filesystem"));
        }
        if bytes.end.saturating_sub(bytes.start) < block_bytes {
            return Err(Error::Invalid("a range of less than a block"));
        }
        if min_bytes > u64::from(geometry.ag_blocks) * block_bytes {
            return Err(Error::Invalid("no extent is that long"));
        }
        self.sync()?;
        let min_blocks = u32::try_from(min_bytes.div_ceil(1 << geometry.block_log)).unwrap_or(u32::MAX).max(1);
        let mut all = GivenBack::default();
        let blocks = bytes.start.div_ceil(block_bytes)..bytes.end / block_bytes;
        for ag in (0..geometry.ag_count).map(AgNumber) {
            let first = u64::from(ag.0) * u64::from(geometry.ag_blocks);
            let of_ag = |block: u64| u32::try_from(block.saturating_sub(first)).unwrap_or(u32::MAX);
            let start = of_ag(blocks.start).max(geometry.ag_header_blocks());
            let end = of_ag(blocks.end).min(geometry.blocks_in_ag(ag));
            let within = start..end.max(start);
            all += trim::trim_ag(&self.mount, ag, &Trim { within, min_blocks, by })?;
        }
        if by == TrimBy::Zeros {
            self.mount.journal.note_in_place();
            self.mount.journal.flush_contents()?;
        }
        Ok(Trimmed { extents: all.extents, bytes: all.blocks << geometry.block_log })
    }

    /// Gives back what was freed, if the mount is to, before the filesystem is closed.
    pub(super) fn discard_before_close(&self) -> Result<()> {
        match self.mount.options.discard {
            Discard::Nothing => Ok(()),
            Discard::Freed => self.and_discard(|| self.mount.sync()),
        }
    }

    /// Makes everything durable by `make_durable`, and then gives back what was freed before, if the mount is to. That
    /// the device takes none of it is no error of the caller's: the blocks are free all the same.
    pub(super) fn and_discard<T>(&self, make_durable: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.mount.options.discard == Discard::Nothing {
            return make_durable();
        }
        let freed = trim::take_freed(&self.mount);
        let result = make_durable()?;
        if let Err(error) = trim::give_back_freed(&self.mount, &freed) {
            tracing::warn!(%error, "what was freed could not be given back to the host: 'xfskit admin trim' does");
        }
        Ok(result)
    }
}
