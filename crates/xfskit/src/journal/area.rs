//! Where the log lies, and its space on the host: a record that meets a full host would stop the filesystem.

use crate::error::{Error, Result};
use std::io::ErrorKind;
use std::sync::Arc;
use xfskit_device::BlockDevice;
use xfskit_ondisk::{BASIC_BLOCK_BYTES, Lsn};

/// Log that a short work needs at least: what may have been in flight before and is cleared, and some records.
const MIN_BYTES: u64 = 2 << 20;

/// How much of the log's space on the host must be there before a filesystem is opened for writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostSpace {
    /// All: the filesystem is to be open for long.
    #[default]
    All,
    /// As much as the host has, at least for a short work. The filesystem shuts down where that ends; what was durable
    /// is in the log then.
    Part,
}

/// Where the log lies.
#[derive(Clone)]
pub struct LogArea {
    /// The device that holds it.
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

    /// Has the host set space aside for the log, which goes on at `head`. Returns how many bytes ahead of it are there,
    /// if not all.
    ///
    /// # Errors
    /// `Io`, which says that the host is full where it is.
    pub fn allocate(&self, head: Lsn, wanted: HostSpace) -> Result<Option<u64>> {
        let error = match self.device.allocate(self.offset, self.bytes()) {
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
        let mib = self.bytes() >> 20;
        let why = if is_full {
            format!("the journal has holes, and the host no space for them: free up to {mib} MiB on the host ({error})")
        } else {
            format!("setting aside {mib} MiB for the journal: {error}")
        };
        Err(Error::Io { offset: self.offset, source: std::io::Error::new(error.kind(), why) })
    }

    /// Sets aside what the next records take.
    fn allocate_ahead(&self, head: Lsn, bytes: u64) -> std::io::Result<()> {
        let start = u64::from(head.block()) * BASIC_BLOCK_BYTES as u64;
        let before_end = bytes.min(self.bytes().saturating_sub(start));
        self.device.allocate(self.offset + start, before_end)?;
        self.device.allocate(self.offset, bytes - before_end)
    }
}
