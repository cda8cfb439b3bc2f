//! The data device as the journal sees it: writes since the last flush are not durable.
//!
//! Invariant: the flag is set before the item or value that was written leaves its list. So a checkpoint whose tail
//! relies on the write finds the flag set, and flushes.

use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use xfskit_device::BlockDevice;

/// The data device, and whether it has to be flushed.
pub(super) struct DataDevice {
    device: Arc<dyn BlockDevice>,
    counters: Arc<Counters>,
    /// Something was written since the last flush.
    unflushed: Arc<AtomicBool>,
}

impl DataDevice {
    /// A device to which nothing was written.
    pub(super) fn new(device: Arc<dyn BlockDevice>, counters: Arc<Counters>) -> Self {
        Self { device, counters, unflushed: Arc::new(AtomicBool::new(false)) }
    }

    /// A flag to set whenever something is written to the device.
    pub(super) fn unflushed_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.unflushed)
    }

    /// Writes `bytes` at `offset`.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.device.write(offset, bytes).map_err(|source| Error::Io { offset, source })?;
        self.unflushed.store(true, Ordering::Release);
        Ok(())
    }

    /// Flushes the device, if anything was written to it since the last flush. `FlushFailed`: it may have lost what
    /// was written, and a later flush that succeeds would not say so.
    pub(super) fn flush_written(&self) -> std::result::Result<(), FlushFailed> {
        if !self.unflushed.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        self.counters.device_flushes.increment();
        self.device.flush().map_err(FlushFailed)
    }
}

/// The device did not flush: nothing can be called durable any more.
#[derive(Debug)]
pub(super) struct FlushFailed(pub std::io::Error);
