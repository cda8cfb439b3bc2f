//! The sizes that do not depend on the device: blocks, sectors, inodes, directory blocks, stripe units.

use crate::MakeError;
use crate::options::{InodeSize, LogLocation, LogStripe, Options, Size, Stripe};

/// Largest log stripe unit in bytes. If that of the data is larger, the default is [`FALLBACK_LOG_STRIPE`].
const MAX_LOG_STRIPE: u64 = 256 * 1024;
const FALLBACK_LOG_STRIPE: u64 = 32 * 1024;

/// The sizes, verified against each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub block: u64,
    pub sector: u64,
    pub log_sector: u64,
    pub inode: u64,
    pub dir_block: u64,
    /// In blocks; 0 for none.
    pub stripe_unit: u64,
    /// In blocks.
    pub stripe_width: u64,
    /// In blocks; 0 for none.
    pub log_stripe_unit: u64,
}

impl Sizes {
    pub(crate) fn new(options: &Options, device_sector: usize) -> Result<Self, MakeError> {
        let block = u64::from(options.block_bytes);
        if !(1024..=65536).contains(&block) || !block.is_power_of_two() {
            return Err(MakeError::value("-b size", block, "expected a power of two from 1024 to 65536"));
        }
        let sector = options.sector_bytes.map_or(device_sector as u64, u64::from);
        if !(512..=32768).contains(&sector) || !sector.is_power_of_two() {
            return Err(MakeError::value("-s size", sector, "expected a power of two from 512 to 32768"));
        }
        if sector > block {
            return Err(MakeError::value(
                "-s size",
                sector,
                format!("a sector cannot be larger than a block ({block})"),
            ));
        }
        if sector < device_sector as u64 {
            return Err(MakeError::value(
                "-s size",
                sector,
                format!("the device has sectors of {device_sector} bytes"),
            ));
        }
        let log_sector = log_sector(options, block, sector)?;
        let mut sizes = Self {
            block,
            sector,
            log_sector,
            inode: inode_bytes(options, block)?,
            dir_block: dir_block_bytes(options, block)?,
            stripe_unit: 0,
            stripe_width: 0,
            log_stripe_unit: 0,
        };
        (sizes.stripe_unit, sizes.stripe_width) = sizes.stripe(options)?;
        sizes.log_stripe_unit = sizes.log_stripe(options)?;
        Ok(sizes)
    }

    /// A size in whole blocks, rounded down.
    pub(crate) fn blocks(&self, option: &str, size: Size) -> Result<u64, MakeError> {
        let bytes = self.bytes(option, size)?;
        if bytes % 512 != 0 {
            return Err(MakeError::value(option, bytes, "expected a multiple of 512"));
        }
        Ok(bytes / self.block)
    }

    fn bytes(&self, option: &str, size: Size) -> Result<u64, MakeError> {
        let too_large = || MakeError::value(option, format!("{size:?}"), "the number is too large");
        size.bytes(self.block, self.sector).filter(|&bytes| bytes < 1 << 63).ok_or_else(too_large)
    }

    fn stripe(&self, options: &Options) -> Result<(u64, u64), MakeError> {
        let (unit, width) = match options.stripe {
            Stripe::Default | Stripe::None => return Ok((0, 0)),
            Stripe::Sectors { unit, width } => (unit.saturating_mul(512), width.saturating_mul(512)),
            Stripe::Units { unit, width } => {
                let unit = self.bytes("-d su", unit)?;
                (unit, unit.saturating_mul(width))
            }
        };
        let fail = |why: String| Err(MakeError::conflict("-d sunit,swidth or su,sw", why));
        if unit == 0 && width == 0 {
            return Ok((0, 0));
        }
        if unit == 0 || width == 0 {
            return fail("stripe unit and stripe width are needed both".into());
        }
        if width >= 1 << 31 {
            return fail(format!("the stripe width ({width} bytes) is too large"));
        }
        if unit > width || width % unit != 0 {
            return fail(format!("the stripe width ({width}) must be a multiple of the unit ({unit})"));
        }
        if unit % self.block != 0 || unit % self.sector != 0 {
            return fail(format!("the stripe unit ({unit}) must be a multiple of the block size ({})", self.block));
        }
        Ok((unit / self.block, width / self.block))
    }

    fn log_stripe(&self, options: &Options) -> Result<u64, MakeError> {
        let external = options.log_place == LogLocation::External;
        let (option, bytes) = match options.log_stripe {
            LogStripe::Sectors(sectors) => ("-l sunit", sectors * 512),
            LogStripe::Size(size) => ("-l su", self.bytes("-l su", size)?),
            LogStripe::Default if external || self.stripe_unit == 0 => {
                ("", if self.log_sector > 512 { self.block } else { 0 })
            }
            LogStripe::Default => ("", self.stripe_unit * self.block),
        };
        if options.log_stripe != LogStripe::Default && bytes > MAX_LOG_STRIPE {
            return Err(MakeError::value(option, bytes, "the largest log stripe unit is 256 KiB"));
        }
        if bytes % self.block != 0 {
            let why = format!("expected a multiple of the block size ({})", self.block);
            return Err(MakeError::value(option, bytes, why));
        }
        Ok(if bytes > MAX_LOG_STRIPE { FALLBACK_LOG_STRIPE } else { bytes } / self.block)
    }
}

fn log_sector(options: &Options, block: u64, sector: u64) -> Result<u64, MakeError> {
    let external = options.log_place == LogLocation::External;
    let log_sector = match options.log_sector_bytes {
        Some(bytes) => u64::from(bytes),
        None if external => 512,
        None => sector,
    };
    if !external && log_sector != sector {
        let why = "an internal log has the sectors of the data (-s size)";
        return Err(MakeError::value("-l sectsize", log_sector, why));
    }
    if !log_sector.is_power_of_two() || !(512..=32768).contains(&log_sector) || log_sector > block {
        let why = format!("expected a power of two from 512 to 32768, and at most the block size ({block})");
        return Err(MakeError::value("-l sectsize", log_sector, why));
    }
    Ok(log_sector)
}

fn inode_bytes(options: &Options, block: u64) -> Result<u64, MakeError> {
    let (option, bytes) = match options.inode_size {
        InodeSize::Default => return Ok(512),
        InodeSize::Bytes(bytes) => ("-i size", u64::from(bytes)),
        InodeSize::PerBlock(count) => ("-i perblock", block / u64::from(count.max(1))),
    };
    let largest = (block / 2).min(2048);
    if !bytes.is_power_of_two() || !(512..=largest).contains(&bytes) {
        let why = format!("inodes with checksums have 512 to {largest} bytes where blocks have {block}");
        return Err(MakeError::value(option, bytes, why));
    }
    Ok(bytes)
}

fn dir_block_bytes(options: &Options, block: u64) -> Result<u64, MakeError> {
    let Some(bytes) = options.dir_block_bytes.map(u64::from) else { return Ok(block.max(4096)) };
    if !bytes.is_power_of_two() || !(block..=65536).contains(&bytes) {
        let why = format!("expected a power of two from the block size ({block}) to 65536");
        return Err(MakeError::value("-n size", bytes, why));
    }
    Ok(bytes)
}
