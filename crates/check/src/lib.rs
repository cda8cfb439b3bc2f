//! Verifies a whole XFS image without changing it.
//!
//! An independent judge: it rests on the on-disk structures and their stateless verifiers, and uses neither the
//! engine's trees nor its cache. `docs/design/check.md` says what each pass proves.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let device = std::sync::Arc::new(xfskit_device::MemoryDevice::new(64 << 20));
//! # let options = xfskit_mkfs::Options { allow_small: true, uuid: Some([7; 16]), ..Default::default() };
//! # xfskit_mkfs::make(&*device, None, &options, xfskit_ondisk::Timestamp::default())?;
//! let report = xfskit_check::check(device, None, &xfskit_check::CheckOptions::default(), &xfskit_check::Quiet)?;
//! for fault in &report.faults {
//!     println!("{fault}: {}", fault.consequence);
//! }
//! assert!(report.is_clean());
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod ag;
mod attr;
mod context;
mod da;
mod dir;
mod fork;
mod inode;
mod inodes;
mod join;
mod log;
mod names;
mod passes;
mod report;
mod superblock;
mod symlink;
mod table;
mod tree;
mod usage;

pub use report::{Consequence, Fault, LogCondition, Owner, Report, Summary};

use std::sync::Arc;
use xfskit_device::BlockDevice;
use xfskit_ondisk::SuperblockError;

/// How to check.
#[derive(Clone, Copy, Debug)]
pub struct CheckOptions {
    /// Number of threads. A small image is checked by one; where requests to the device take long, there are as many
    /// as it has requests at once ([`Hints::queue_depth`](xfskit_device::Hints::queue_depth)).
    pub threads: usize,
    /// Maximum number of faults in the report; the rest are only counted.
    pub most_faults: usize,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self { threads: std::thread::available_parallelism().map_or(1, Into::into), most_faults: 1000 }
    }
}

/// Receives the progress of a check. Several threads call it.
pub trait Progress: Sync {
    /// A pass of `steps` steps begins.
    fn begin(&self, pass: &'static str, steps: u64);
    /// One more step is done.
    fn step(&self);
}

/// Ignores the progress.
#[derive(Clone, Copy, Debug)]
pub struct Quiet;

impl Progress for Quiet {
    fn begin(&self, _: &'static str, _: u64) {}
    fn step(&self) {}
}

/// Why an image could not be checked at all.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// It is no XFS image, or one with features that are not supported.
    #[error(transparent)]
    Superblock(#[from] SuperblockError),
    /// The first sector cannot be read.
    #[error("the superblock cannot be read: {0}")]
    Io(std::io::Error),
    /// The log lies on a device of its own, which was not given.
    #[error("the image has an external journal, and its device was not given")]
    NoLogDevice,
}

impl From<std::io::Error> for CheckError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

/// Checks the image on `device`, whose external log, if it has one, is `log_device`. Nothing is written.
///
/// Damage is no error but part of the report, that of the superblock included.
///
/// # Errors
/// [`CheckError`] if nothing can be checked.
pub fn check(
    device: Arc<dyn BlockDevice>,
    log_device: Option<Arc<dyn BlockDevice>>,
    options: &CheckOptions,
    progress: &dyn Progress,
) -> Result<Report, CheckError> {
    passes::run(&*device, log_device.as_deref(), options, progress)
}
