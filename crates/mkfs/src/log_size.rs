//! How large the log is and where it lies.
//!
//! The default is 1/2048 of the data, at least 64 MiB, and never less than the kernel's minimum for the geometry; a
//! small image gets just that minimum. The log lies in the middle AG, behind the AG's headers and roots.

use crate::MakeError;
use crate::ag_layout::Ags;
use crate::options::{LogLocation, Options};
use crate::sizes::Sizes;
use xfskit_ondisk::{Geometry, minimum_log_blocks};

const MIB: u64 = 1 << 20;
const MIN_LOG_BLOCKS: u64 = 512;
const MAX_LOG_BLOCKS: u64 = 1 << 20;
/// Just below 2 GiB, at which a signed 32-bit number of bytes overflows.
const MAX_LOG_BYTES: u64 = (2 << 30) - 10 * MIB;
/// The smallest log by default, where the device has room.
const MIN_REALISTIC_LOG_BYTES: u64 = 64 * MIB;
/// Images from 1 GiB get at least this.
const MIN_LOG_BYTES: u64 = 10 * MIB;
const SMALL_IMAGE_BYTES: u64 = 300 * MIB;
/// Blocks of an AG that the free list reserves.
const FREE_LIST_RESERVE: u64 = 4;

/// Size and position of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Log {
    pub blocks: u64,
    /// AG and block in it; `None` for an external log.
    pub start: Option<(u64, u64)>,
}

/// The sizes that limit the log.
pub(crate) struct LogRoom<'a> {
    pub options: &'a Options,
    pub sizes: &'a Sizes,
    pub ags: &'a Ags,
    /// The geometry without the log.
    pub geometry: &'a Geometry,
    /// Blocks at the start of each AG that its headers and roots take.
    pub reserved: u64,
    /// Bytes of the external log's device.
    pub external: Option<u64>,
}

impl LogRoom<'_> {
    pub(crate) fn choose(&self) -> Result<Log, MakeError> {
        let asked = self.options.log_size.map(|size| self.sizes.blocks("-l size", size)).transpose()?;
        let mut min = minimum_log_blocks(self.geometry).max(MIN_LOG_BLOCKS);
        if asked.is_none() && self.ags.data_blocks >= (1 << 30) / self.sizes.block {
            min = min.max(MIN_LOG_BYTES / self.sizes.block);
        }
        let log = match self.external {
            Some(bytes) => self.external(asked, bytes, min)?,
            None => self.internal(asked, min)?,
        };
        self.check(log.blocks, min)?;
        Ok(log)
    }

    fn external(&self, asked: Option<u64>, bytes: u64, min: u64) -> Result<Log, MakeError> {
        let room = bytes / self.sizes.block;
        let blocks = asked.unwrap_or(room);
        if blocks > room {
            return Err(MakeError::value(
                "-l size",
                format!("{blocks}b"),
                format!("the log's device has {room} blocks"),
            ));
        }
        if blocks < min {
            return Err(MakeError::Size(format!("the log's device has {blocks} blocks; the log needs at least {min}")));
        }
        Ok(Log { blocks: self.align(blocks, MAX_LOG_BLOCKS, self.sizes.log_stripe_unit)?, start: None })
    }

    fn internal(&self, asked: Option<u64>, min: u64) -> Result<Log, MakeError> {
        let mut max = self.ags.blocks.saturating_sub(self.unusable() + 1);
        if max < min {
            let why = format!("the device is too small: its log needs {min} blocks and an AG has room for {max}");
            return Err(MakeError::Size(why));
        }
        let mut blocks = match asked {
            Some(blocks) if blocks > max => return Err(self.too_large(blocks, max)),
            Some(blocks) => blocks,
            None => self.default_blocks(min, max),
        };
        let ag = match self.options.log_place {
            LogLocation::Ag(ag) if u64::from(ag) >= self.ags.count => {
                return Err(MakeError::value("-l agnum", ag, format!("there are {} AGs", self.ags.count)));
            }
            LogLocation::Ag(ag) => ag.into(),
            LogLocation::Default | LogLocation::External => self.ags.count / 2,
        };
        if ag == 0 {
            // The first chunk of inodes must fit the same AG, aligned, whatever the free list takes.
            let chunk = 64 * self.sizes.inode / self.sizes.block;
            max = max.saturating_sub((4 * chunk).max(2 * self.sizes.stripe_unit));
            if asked.is_some() && blocks > max {
                return Err(self.too_large(blocks, max));
            }
            blocks = blocks.min(max);
        }
        self.check(blocks, min)?;
        let unit = if self.sizes.log_stripe_unit != 0 { self.sizes.log_stripe_unit } else { self.sizes.stripe_unit };
        let length = self.ag_blocks(ag);
        let first = (ag << self.geometry.ag_block_bits) + self.reserved;
        let start = if unit == 0 { first } else { first.next_multiple_of(unit) };
        let start = start - (ag << self.geometry.ag_block_bits);
        blocks = self.align(blocks, max, unit)?;
        if start + blocks > length && blocks > unit {
            blocks -= unit;
        }
        if start + blocks > length {
            return Err(self.too_large(blocks, length - start.min(length)));
        }
        Ok(Log { blocks, start: Some((ag, start)) })
    }

    fn ag_blocks(&self, ag: u64) -> u64 {
        if ag + 1 < self.ags.count { self.ags.blocks } else { self.ags.data_blocks - ag * self.ags.blocks }
    }

    /// Blocks of an AG that files can never use: headers, roots and the free list's reserve.
    fn unusable(&self) -> u64 {
        let geometry = self.geometry;
        let optional = [geometry.has_finobt(), geometry.has_rmap(), geometry.has_reflink()];
        let roots = 3 + optional.into_iter().filter(|&yes| yes).count() as u64;
        (4 * self.sizes.sector).div_ceil(self.sizes.block) + FREE_LIST_RESERVE + roots
    }

    fn default_blocks(&self, min: u64, max: u64) -> u64 {
        let data_blocks = self.ags.data_blocks;
        let blocks = if data_blocks < SMALL_IMAGE_BYTES / self.sizes.block {
            min
        } else {
            (data_blocks / 2048).max(MIN_REALISTIC_LOG_BYTES / self.sizes.block)
        };
        blocks.max(min).min(max).min(MAX_LOG_BLOCKS).min(MAX_LOG_BYTES / self.sizes.block)
    }

    /// Makes the size a multiple of the stripe unit: rounded up, or down if that exceeds `max`.
    fn align(&self, blocks: u64, max: u64, unit: u64) -> Result<u64, MakeError> {
        if unit == 0 || blocks.is_multiple_of(unit) {
            return Ok(blocks);
        }
        if self.options.log_size.is_some() {
            let why = format!("expected a multiple of the log stripe unit ({unit} blocks)");
            return Err(MakeError::value("-l size", format!("{blocks}b"), why));
        }
        let up = blocks.next_multiple_of(unit);
        let too_large = up > MAX_LOG_BLOCKS || up * self.sizes.block > MAX_LOG_BYTES || up > max;
        Ok(if too_large { blocks / unit * unit } else { up })
    }

    fn too_large(&self, blocks: u64, max: u64) -> MakeError {
        MakeError::value("-l size", format!("{blocks}b"), format!("an AG has room for a log of {max} blocks"))
    }

    fn check(&self, blocks: u64, min: u64) -> Result<(), MakeError> {
        let fail = |why: String| match self.options.log_size {
            Some(_) => Err(MakeError::value("-l size", format!("{blocks}b"), why)),
            None => Err(MakeError::Size(format!("the log would have {blocks} blocks: {why}"))),
        };
        if blocks < min {
            return fail(format!("this geometry needs at least {min}"));
        }
        if blocks > MAX_LOG_BLOCKS || blocks * self.sizes.block > MAX_LOG_BYTES {
            return fail(format!("a log has at most {MAX_LOG_BLOCKS} blocks and {MAX_LOG_BYTES} bytes"));
        }
        if !self.options.allow_small && blocks * self.sizes.block < MIN_REALISTIC_LOG_BYTES {
            return fail("at least 64 MiB are needed, in one AG where the log is internal (-d agcount, agsize)".into());
        }
        Ok(())
    }
}
