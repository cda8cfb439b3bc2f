//! The data device as the journal sees it: writes since the last flush are not durable, and threads share flushes.
//!
//! ```text
//! ordered writes   metadata written back, values, contents of new blocks:  durable before a record that relies on them
//! in place         contents of blocks that their file has already:         durable before an fsync is answered
//!
//! flush 7          ├──────────┤                  one at a time; those that have begun and ended are counted
//! flush 8                      ├──────────┤
//! a caller             ▲ comes while 7 runs: 8 covers what it wrote, whichever thread does it
//! ```
//! Invariants
//! - A flag is set after its write and before anything relies on the write: before the item or value that was written
//!   leaves its list, before the transaction commits. So a checkpoint that relies on the write finds the flag set, and
//!   flushes.
//! - Both flags are cleared when a flush begins. A caller that finds one cleared relies on that only when no flush
//!   runs.
//! - After a flush that failed, every later one fails: what was written may be lost, and a flush that succeeds would
//!   not say so.
//!
//! Locking: the mutex is held only to look and to wait, and no other lock is taken below it.
//!
//! Crash behaviour: what was written before the last flush that ended without an error began is durable. Of later
//! writes, each sector is old or new.

use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use xfskit_device::BlockDevice;

/// A thread that waits looks again after this time, even if no thread has notified it.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// The data device, and whether it has to be flushed.
pub(super) struct DataDevice {
    device: Arc<dyn BlockDevice>,
    counters: Arc<Counters>,
    /// Something was written since the last flush that a record of the log may rely on.
    ordered: Arc<AtomicBool>,
    /// Contents were written in place since the last flush.
    in_place: AtomicBool,
    flushes: Mutex<Flushes>,
    ended: Condvar,
}

/// Flushes are numbered from 1 in the order in which they begin.
#[derive(Debug, Default)]
struct Flushes {
    begun: u64,
    ended: u64,
    /// The flush that failed.
    failed: Option<(io::ErrorKind, String)>,
}

/// A moment: a flush that begins later covers what was written before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlushPoint(
    /// Flushes that had begun by then.
    pub u64,
);

/// Which writes make a flush necessary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlushFor {
    /// Those that a record of the log relies on.
    Ordered,
    /// Those, and contents that were written in place.
    AllWrites,
    /// Records of the log, which set no flag.
    Records,
}

/// The device did not flush: nothing can be called durable any more.
#[derive(Debug)]
pub(super) struct FlushFailed(pub io::Error);

/// A flush that runs. It ends when this is dropped, also by a panic of the device.
struct Running<'a> {
    device: &'a DataDevice,
    failed: Option<(io::ErrorKind, String)>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut flushes = self.device.flushes.lock();
        flushes.ended += 1;
        flushes.failed = self.failed.take();
        drop(flushes);
        self.device.ended.notify_all();
    }
}

impl DataDevice {
    /// A device to which nothing was written.
    pub(super) fn new(device: Arc<dyn BlockDevice>, counters: Arc<Counters>) -> Self {
        let (ordered, in_place, flushes, ended) = Default::default();
        Self { device, counters, ordered, in_place, flushes, ended }
    }

    /// Whether `other` is this device.
    pub(super) fn is(&self, other: &Arc<dyn BlockDevice>) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.device), Arc::as_ptr(other))
    }

    /// A flag to set whenever something is written to the device that a record of the log may rely on.
    pub(super) fn ordered_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.ordered)
    }

    /// Contents were written in place.
    pub(super) fn note_in_place(&self) {
        self.in_place.store(true, Ordering::Release);
    }

    /// What was written in place so far is durable before the records of every transaction that commits later.
    pub(super) fn order_in_place(&self) {
        // If a flush that runs has cleared the flag, the checkpoint waits for its end.
        if self.in_place.load(Ordering::Acquire) {
            self.ordered.store(true, Ordering::Release);
        }
    }

    /// Writes `bytes` at `offset`; a record of the log may rely on it.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.device.write(offset, bytes).map_err(|source| Error::Io { offset, source })?;
        self.ordered.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether everything that was written is durable.
    pub(super) fn is_flushed(&self) -> bool {
        let flushes = self.flushes.lock();
        flushes.failed.is_none() && flushes.begun == flushes.ended && !self.is_needed(FlushFor::AllWrites)
    }

    /// Now.
    pub(super) fn now(&self) -> FlushPoint {
        FlushPoint(self.flushes.lock().begun)
    }

    /// Whether a flush that began after `since` has ended without an error.
    pub(super) fn has_flushed(&self, since: FlushPoint) -> bool {
        let flushes = self.flushes.lock();
        flushes.failed.is_none() && flushes.ended > since.0
    }

    fn is_needed(&self, what: FlushFor) -> bool {
        let is_ordered = self.ordered.load(Ordering::Acquire);
        match what {
            FlushFor::Ordered => is_ordered,
            FlushFor::AllWrites => is_ordered || self.in_place.load(Ordering::Acquire),
            FlushFor::Records => true,
        }
    }

    /// Makes durable what was written before `since`, as far as it is `what`: by a flush of another thread that began
    /// later, or by one of its own. `FlushFailed`: it may be lost.
    pub(super) fn flush(&self, since: FlushPoint, what: FlushFor) -> std::result::Result<(), FlushFailed> {
        let mut flushes = self.flushes.lock();
        loop {
            if let Some((kind, text)) = &flushes.failed {
                return Err(FlushFailed(io::Error::new(*kind, text.clone())));
            }
            if flushes.ended > since.0 {
                self.counters.device_flushes_shared.increment();
                return Ok(());
            }
            if flushes.begun == flushes.ended {
                break;
            }
            self.ended.wait_for(&mut flushes, LOOK_AGAIN_AFTER);
        }
        if !self.is_needed(what) {
            return Ok(());
        }
        flushes.begun += 1;
        drop(flushes);
        // A write whose flag is set before this is done, and the flush covers it.
        self.ordered.swap(false, Ordering::AcqRel);
        self.in_place.swap(false, Ordering::AcqRel);
        self.counters.device_flushes.increment();
        let mut running = Running { device: self, failed: Some((io::ErrorKind::Other, "a flush panicked".into())) };
        let result = self.device.flush();
        running.failed = result.as_ref().err().map(|error| (error.kind(), error.to_string()));
        drop(running);
        result.map_err(FlushFailed)
    }

    /// Makes the records durable that were written to the log, which lies on `log`.
    pub(super) fn flush_log(&self, log: &Arc<dyn BlockDevice>) -> std::result::Result<(), FlushFailed> {
        if self.is(log) {
            return self.flush(self.now(), FlushFor::Records);
        }
        self.counters.device_flushes.increment();
        log.flush().map_err(FlushFailed)
    }
}
