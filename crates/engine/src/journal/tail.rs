//! The tail of the log: the AIL, and how it moves by write-back.
//!
//! | a block that the device refuses | what follows |
//! |---|---|
//! | log space is left | it stays in the AIL, durable in the log; each push tries it again |
//! | none is left before it | a new chain gets the device's error; one that has begun shuts the filesystem down |
//! | the unmount | shuts down: the log stays dirty, and recovery tries again |
//!
//! Invariants: the tail is the oldest LSN of the AIL, and with an empty AIL the head; an item leaves the AIL only when
//! its copy in the log is also in place on the device, or when the object was freed.
//!
//! Locking: write-back tries the locks of buffers and inodes and never waits for one.

use super::ail::Ail;
use crate::counters::Counters;
use crate::error::Error;
use crate::item::LogItem;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use xfskit_ondisk::Lsn;

/// The result of a write-back.
#[derive(Debug, Default)]
pub struct WrittenBack {
    /// Items that left the AIL.
    pub left: usize,
    /// The first error. An item that met an I/O error is still in the AIL. After any other error the rest was not
    /// tried.
    pub failed: Option<Error>,
}

/// Writes objects back to their places on the device so that the tail of the log can move. The journal knows nothing of
/// buffers and inodes; the implementation does.
pub trait WriteBack: Send + Sync {
    /// Writes back what it can of `items`, each with the address of its block. Where the device refuses a block, the
    /// others are written all the same.
    fn write_back(&self, ail: &Ail, items: Vec<(u64, Arc<dyn LogItem>)>) -> WrittenBack;

    /// Drops objects whose freeing is durable from memory, unless they are in use again.
    fn drop_freed(&self, freed: Vec<Arc<dyn LogItem>>);
}

/// The items that hold the tail, and the means to write them back.
pub(super) struct Tail {
    ail: Ail,
    counters: Arc<Counters>,
    write_back: Mutex<Option<Arc<dyn WriteBack>>>,
    /// The last write-back met a block that the device refuses, and warned of it.
    fails: AtomicBool,
}

impl Tail {
    /// An empty AIL, without code that writes back.
    pub(super) fn new(counters: Arc<Counters>) -> Self {
        Self { ail: Ail::new(), counters, write_back: Mutex::new(None), fails: AtomicBool::new(false) }
    }

    /// The list of items that wait for write-back.
    pub(super) fn ail(&self) -> &Ail {
        &self.ail
    }

    /// The oldest LSN that the log is needed from.
    pub(super) fn lsn(&self) -> Option<Lsn> {
        self.ail.tail()
    }

    /// Sets the code that writes objects back.
    pub(super) fn set_write_back(&self, write_back: Arc<dyn WriteBack>) {
        *self.write_back.lock() = Some(write_back);
    }

    /// Writes back everything in the AIL up to `target`; `None` when there was nothing to write back.
    pub(super) fn write_back(&self, target: Lsn) -> Option<WrittenBack> {
        let items = self.ail.ready_up_to(target);
        if items.is_empty() {
            return None;
        }
        self.counters.tail_pushes.increment();
        let write_back = self.write_back.lock().clone()?;
        let done = write_back.write_back(&self.ail, items);
        match &done.failed {
            None => self.fails.store(false, Ordering::Relaxed),
            Some(error @ Error::Io { .. }) => {
                if !self.fails.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "metadata cannot be written to its place: it stays in the journal for now");
                }
            }
            Some(_) => {}
        }
        Some(done)
    }

    /// The freeing of these objects is durable.
    pub(super) fn drop_freed(&self, freed: Vec<Arc<dyn LogItem>>) {
        if freed.is_empty() {
            return;
        }
        let write_back = self.write_back.lock().clone();
        if let Some(write_back) = write_back {
            write_back.drop_freed(freed);
        }
    }
}
