//! What a mount counts. Reading them costs nothing; they are exact when nothing is running.

use crate::sync::{Padded, THREAD_SLOTS, thread_slot};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// All counters as the threads of one slot count them: few cache lines, which no other slot touches.
type Part = Padded<[AtomicU64; COUNTERS]>;

/// One counter, in parts that threads count each for itself.
#[derive(Debug)]
pub struct Counter {
    parts: Arc<[Part]>,
    index: usize,
}

impl Counter {
    /// Counts one.
    pub(crate) fn increment(&self) {
        self.add(1);
    }

    /// Counts `n`.
    pub(crate) fn add(&self, n: u64) {
        self.parts[thread_slot()][self.index].fetch_add(n, Ordering::Relaxed);
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.parts.iter().map(|part| part[self.index].load(Ordering::Relaxed)).sum()
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        const COUNTERS: usize = [$(stringify!($name)),+].len();

        /// The counters of an open image.
        #[derive(Debug)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[$doc])* pub $name: Counter,)+
        }

        impl Default for Counters {
            fn default() -> Self {
                let part = |_| Padded(std::array::from_fn(|_| AtomicU64::new(0)));
                let parts: Arc<[Part]> = (0..THREAD_SLOTS).map(part).collect();
                let mut count = 0;
                let mut next = || {
                    count += 1;
                    Counter { parts: Arc::clone(&parts), index: count - 1 }
                };
                Self { $($name: next(),)+ }
            }
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
    /// Of those, the ones that shared a flush that another thread had begun.
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
    /// Flushes of the devices.
    device_flushes,
    /// Flushes that a caller needed and did not do, since another thread's covered what was written.
    device_flushes_shared,
    /// Time that transactions held AG headers, where lock times are counted.
    ag_lock_nanoseconds,
    /// Time that transactions held inodes, where lock times are counted.
    inode_lock_nanoseconds,
}
