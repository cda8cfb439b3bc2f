//! What a mount counts. Reading them costs nothing; they are exact when nothing is running.

use crate::sync::thread_slot;
use std::sync::atomic::{AtomicU64, Ordering};

/// Parts of a counter; a multiple of them are the slots of threads.
const PARTS: usize = 8;

/// One counter, in parts that threads count each for itself.
#[derive(Debug, Default)]
pub struct Counter([Part; PARTS]);

/// A part on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Part(AtomicU64);

impl Counter {
    /// Counts one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Counts `n`.
    pub fn add(&self, n: u64) {
        self.0[thread_slot() % PARTS].0.fetch_add(n, Ordering::Relaxed);
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.0.iter().map(|part| part.0.load(Ordering::Relaxed)).sum()
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// The counters of a mount.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: Counter,)+
        }

        impl Counters {
            /// Every counter with its name, in a fixed order.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get()),)+]
            }
        }
    };
}

counters! {
    /// Transactions committed with a change, each link of a chain counted.
    transactions,
    /// Transactions that changed nothing.
    empty_transactions,
    /// Bytes written to the log, record headers and padding included.
    log_bytes,
    /// Records written to the log.
    log_records,
    /// Times a caller waited for the log to be durable.
    log_forces,
    /// Of those, the ones that shared a flush somebody else had begun.
    log_forces_shared,
    /// Checkpoints written.
    checkpoints,
    /// Items committed into a checkpoint that held them already.
    items_relogged,
    /// Items committed into a checkpoint for the first time.
    items_logged,
    /// Intents that reached the log.
    intents_logged,
    /// Intents whose done item came in the same checkpoint: neither reached the log.
    intents_whited_out,
    /// Intents that were logged again because their chain had to wait for log space.
    intents_relogged,
    /// Attribute updates that took one transaction, in shortform.
    attr_fast_path,
    /// Of those, replaced in place.
    attr_in_place,
    /// Updates that fell through to the deferred path because shortform had no room.
    attr_fell_no_room,
    /// Updates that fell through because the fork was not in shortform.
    attr_fell_not_shortform,
    /// Updates that fell through because the value is too large to be local.
    attr_fell_remote_value,
    /// Updates that fell through because an option forbids the fast path.
    attr_fell_disabled,
    /// Searches for an attribute that the inode was known not to have.
    attr_searches_skipped,
    /// Searches for an attribute that were made.
    attr_searches,
    /// Bytes of values copied on their way to blocks of their own: into those blocks, into an intent, into log records.
    value_bytes_copied,
    /// The most bytes of such blocks that waited for their checkpoint at a time.
    value_bytes_waiting_peak,
    /// Metadata buffers found in the cache.
    buffer_hits,
    /// Metadata buffers read from the device.
    buffer_misses,
    /// Inodes found in the cache.
    inode_hits,
    /// Inodes read from the device.
    inode_misses,
    /// Times write-back was asked to move the tail of the log.
    tail_pushes,
    /// Metadata blocks written back.
    blocks_written_back,
    /// Flushes of the device.
    device_flushes,
    /// Time that transactions held AG headers, where lock times are counted.
    ag_lock_nanoseconds,
    /// Time that transactions held inodes, where lock times are counted.
    inode_lock_nanoseconds,
}
