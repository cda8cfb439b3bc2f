//! Where the log lies, and its space on the host: a record that meets a full host would stop the filesystem.

use crate::error::{Error, Result};
use std::io::ErrorKind;
use std::sync::Arc;
use xfskit_device::BlockDevice;
use xfskit_ondisk::{BASIC_BLOCK_BYTES, Lsn};

/// Bytes of log that a short task needs at least: the sectors that are cleared because writes to them may have been in
/// flight, and some records.
const MIN_BYTES: u64 = 2 << 20;

/// How much of the log's space on the host must be there before a filesystem is opened for writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostSpace {
    /// All: the filesystem is to be open for long.
    #[default]
    All,
    /// As much as the host has, at least enough for a short task. The filesystem shuts down where the space ends;
    /// durable changes are then in the log.
    Part,
    /// As little as recovery needs, and nothing if the log is clean: for a task that changes nothing but gives space
    /// back. A file whose journal was never written does not grow by that.
    Least,
}

/// Where the log lies.
#[derive(Clone)]
pub struct LogArea {
    /// The device that contains it.
    pub device: Arc<dyn BlockDevice>,
    /// Where it starts on that device, in bytes.
    pub offset: u64,
    /// Its size in basic blocks.
    pub basic_blocks: u32,
}

impl LogArea {
    fn bytes(&self) -> u64 {
        u64::from(self.basic_blocks) * BASIC_BLOCK_BYTES as u64
    }

    /// Makes the host reserve space for the log, whose next record is at `head`. Returns how many bytes from `head` on
    /// are reserved, `None` for all.
    ///
    /// # Errors
    /// `Io`, which says so when the host is full.
    pub fn allocate(&self, head: Lsn, wanted: HostSpace) -> Result<Option<u64>> {
        let asked = match wanted {
            HostSpace::All | HostSpace::Part => self.device.allocate(self.offset, self.bytes()),
            HostSpace::Least => self.allocate_ahead(head, MIN_BYTES.min(self.bytes())),
        };
        let error = match asked {
            Ok(()) => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                tracing::warn!(
                    "the host sets no space aside for the journal: the filesystem stops when the host is full"
                );
                return Ok(None);
            }
            Err(error) => error,
        };
        let is_full = matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
        if wanted == HostSpace::Part && is_full {
            let halves = std::iter::successors(Some(self.bytes() / 2), |bytes| Some(bytes / 2));
            for bytes in halves.take_while(|bytes| *bytes >= MIN_BYTES) {
                if self.allocate_ahead(head, bytes).is_ok() {
                    return Ok(Some(bytes));
                }
            }
        }
        let bytes = if wanted == HostSpace::Least { MIN_BYTES } else { self.bytes() };
        let mib = bytes >> 20;
        let why = if is_full {
            format!("the journal has holes, and the host no space for them: free up to {mib} MiB on the host ({error})")
        } else {
            format!("setting aside {mib} MiB for the journal: {error}")
        };
        Err(Error::Io { offset: self.offset, source: std::io::Error::new(error.kind(), why) })
    }

    /// Reserves `bytes` bytes of the log from `head` on.
    fn allocate_ahead(&self, head: Lsn, bytes: u64) -> std::io::Result<()> {
        let start = u64::from(head.block()) * BASIC_BLOCK_BYTES as u64;
        let before_end = bytes.min(self.bytes().saturating_sub(start));
        self.device.allocate(self.offset + start, before_end)?;
        self.device.allocate(self.offset, bytes - before_end)
    }
}
