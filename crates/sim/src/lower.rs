//! What lies between the device of a run and the disk: a format, or a protocol.

use crate::events::Event;
use std::io;

/// Storage below the device of a run, which gets every write and every flush.
pub trait Lower: Send + Sync {
    /// Writes.
    ///
    /// # Errors
    /// Any; the run's device then fails too.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Makes what was written durable.
    ///
    /// # Errors
    /// Any; the run's device then fails too.
    fn flush(&self) -> io::Result<()>;

    /// Gets a mark of the run, between the writes.
    fn mark(&self, event: &Event);
}
