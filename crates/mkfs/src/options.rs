//! The options for a new image: those of mkfs.xfs, by section, with the same defaults.
//!
//! `None` means that the caller gave no value, which differs from giving the default: an explicit number is refused
//! where it does not fit, a default is adjusted.

use crate::MakeError;
use std::path::PathBuf;

/// A size as a person writes it. Blocks and sectors are converted when their sizes are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Bytes.
    Bytes(u64),
    /// Filesystem blocks (suffix `b`).
    Blocks(u64),
    /// Sectors (suffix `s`).
    Sectors(u64),
}

impl Size {
    /// The size in bytes, `None` if that does not fit 64 bits.
    pub fn bytes(self, block_bytes: u64, sector_bytes: u64) -> Option<u64> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Blocks(blocks) => blocks.checked_mul(block_bytes),
            Self::Sectors(sectors) => sectors.checked_mul(sector_bytes),
        }
    }
}

/// How the device is divided into AGs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgLayout {
    /// As mkfs.xfs does for one disk, or for several if a stripe unit is given.
    #[default]
    Default,
    /// This many AGs.
    Count(u32),
    /// AGs of this size.
    Size(Size),
}

/// The stripe of the storage below, for the data and the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stripe {
    /// No option was given.
    #[default]
    Default,
    /// No alignment (`noalign`).
    None,
    /// Unit and width in 512-byte sectors (`sunit`, `swidth`).
    Sectors {
        /// The unit.
        unit: u64,
        /// The width.
        width: u64,
    },
    /// The unit as a size and the width as a number of units (`su`, `sw`).
    Units {
        /// The unit.
        unit: Size,
        /// Units in the width.
        width: u64,
    },
}

/// The log stripe unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogStripe {
    /// That of the data, where it fits.
    #[default]
    Default,
    /// In 512-byte sectors (`sunit`).
    Sectors(u64),
    /// As a size (`su`).
    Size(Size),
}

/// The size of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InodeSize {
    /// 512 bytes.
    #[default]
    Default,
    /// Bytes (`size`).
    Bytes(u32),
    /// This many inodes in a block (`perblock`).
    PerBlock(u32),
}

/// Where the log lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogLocation {
    /// In the middle AG.
    #[default]
    Default,
    /// In this AG (`agnum`).
    Ag(u32),
    /// On a device of its own (`logdev`), which is given to [`make`](crate::make).
    External,
}

/// The property that determines what xfs_scrub's background service does with the image (`-m autofsck`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Autofsck {
    /// Nothing.
    None,
    /// Check only.
    Check,
    /// Check, and optimize what is not damaged.
    Optimize,
    /// Check and repair.
    Repair,
}

impl Autofsck {
    /// The value of the property.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Check => "check",
            Self::Optimize => "optimize",
            Self::Repair => "repair",
        }
    }
}

/// All options for a new image. [`Options::default`] is what mkfs.xfs uses without options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `-b size`: bytes of a block, a power of two from 1024 to 65536.
    pub block_bytes: u32,
    /// `-s size`: bytes of a sector, a power of two from 512 to 32768. `None`: as the device reports.
    pub sector_bytes: Option<u32>,
    /// `-d size`: the size of the data section, if it is not the whole device.
    pub data_size: Option<Size>,
    /// `-d agcount` or `-d agsize`.
    pub ag_layout: AgLayout,
    /// `-d sunit,swidth`, `-d su,sw` or `-d noalign`.
    pub stripe: Stripe,
    /// `-i size` or `-i perblock`.
    pub inode_size: InodeSize,
    /// `-i maxpct`: percent of the space that inodes may take.
    pub inode_max_percent: Option<u8>,
    /// `-i sparse`.
    pub sparse_inodes: bool,
    /// `-i nrext64`.
    pub large_extent_counts: bool,
    /// `-i exchange`.
    pub exchange_range: bool,
    /// `-l size`.
    pub log_size: Option<Size>,
    /// `-l agnum`, `-l logdev`, `-l internal`.
    pub log_place: LogLocation,
    /// `-l logdev`: the path of the device, which the caller opens.
    pub log_device: Option<PathBuf>,
    /// `-l su` or `-l sunit`.
    pub log_stripe: LogStripe,
    /// `-l sectsize`.
    pub log_sector_bytes: Option<u32>,
    /// `-L`: at most 12 bytes.
    pub label: String,
    /// `-m uuid`. If the user gave none, the caller sets one. A UUID of zeros is allowed.
    pub uuid: Option<[u8; 16]>,
    /// `-m finobt`.
    pub finobt: bool,
    /// `-m inobtcount`. `None`: with the finobt.
    pub inobt_counts: Option<bool>,
    /// `-m rmapbt`.
    pub rmapbt: bool,
    /// `-m reflink`.
    pub reflink: bool,
    /// `-m bigtime`.
    pub bigtime: bool,
    /// `-m autofsck`. `None`: `repair` for an image with all features that repair needs, which are rmapbt and parent.
    pub autofsck: Option<Autofsck>,
    /// `-n size`: bytes of a directory block.
    pub dir_block_bytes: Option<u32>,
    /// `-n parent`.
    pub parent: bool,
    /// `-r extsize`: without a realtime section only the default is taken, a block or 4096 bytes, whichever is more.
    pub realtime_extent: Option<Size>,
    /// Allow what mkfs.xfs makes only with `--unsupported`: less than 300 MB, one AG, a log of less than 64 MB.
    pub allow_small: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            block_bytes: 4096,
            sector_bytes: None,
            data_size: None,
            ag_layout: AgLayout::Default,
            stripe: Stripe::Default,
            inode_size: InodeSize::Default,
            inode_max_percent: None,
            sparse_inodes: true,
            large_extent_counts: true,
            exchange_range: true,
            log_size: None,
            log_place: LogLocation::Default,
            log_device: None,
            log_stripe: LogStripe::Default,
            log_sector_bytes: None,
            label: String::new(),
            uuid: None,
            finobt: true,
            inobt_counts: None,
            rmapbt: true,
            reflink: true,
            bigtime: true,
            autofsck: None,
            dir_block_bytes: None,
            parent: true,
            realtime_extent: None,
            allow_small: false,
        }
    }
}

impl Options {
    /// The size of the data section in bytes (`-d size`), if it was given.
    pub fn data_bytes(&self) -> Option<u64> {
        let sector_bytes = self.sector_bytes.map_or(512, u64::from);
        self.data_size?.bytes(self.block_bytes.into(), sector_bytes)
    }

    /// Sets the label (`-L`).
    ///
    /// # Errors
    /// [`MakeError::Value`] for more than 12 bytes.
    pub fn set_label(&mut self, label: &str) -> Result<(), MakeError> {
        if label.len() > 12 {
            return Err(MakeError::value("-L", label, "a label has at most 12 bytes"));
        }
        self.label = label.to_owned();
        Ok(())
    }
}
