//! Everything that the engine takes from outside besides its devices: the clock and randomness.
//!
//! A simulator replaces both, and then a run is a function of its seed.

use crate::sync::{Padded, THREAD_SLOTS, thread_slot};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use xfskit_ondisk::Timestamp;

/// Where the engine takes the time of day and random numbers from.
pub trait Environment: Send + Sync {
    /// The time of day.
    fn now(&self) -> Timestamp;

    /// A number that is hard to predict; for inode generations.
    fn random(&self) -> u64;
}

/// The system's clock, and numbers that are hard to predict.
#[derive(Debug)]
pub struct SystemEnvironment {
    /// One for each thread slot, far apart.
    seeds: [Padded<AtomicU64>; THREAD_SLOTS],
}

impl Default for SystemEnvironment {
    fn default() -> Self {
        let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64);
        Self { seeds: std::array::from_fn(|slot| Padded(AtomicU64::new(mix(nanoseconds.wrapping_add(slot as u64))))) }
    }
}

impl Environment for SystemEnvironment {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() }
    }

    fn random(&self) -> u64 {
        mix(self.seeds[thread_slot()].fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed))
    }
}

/// The finishing step of splitmix64: spreads a counter over all 64 bits.
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// An environment that a seed decides: the clock ticks a microsecond with every look.
#[derive(Debug)]
pub struct SeededEnvironment {
    state: AtomicU64,
    ticks: AtomicU64,
}

impl SeededEnvironment {
    /// The environment of `seed`, whose clock starts in January 2026.
    pub fn new(seed: u64) -> Self {
        Self { state: AtomicU64::new(seed), ticks: AtomicU64::new(1_767_225_600_000_000) }
    }
}

impl Environment for SeededEnvironment {
    fn now(&self) -> Timestamp {
        let microseconds = self.ticks.fetch_add(1, Ordering::Relaxed);
        Timestamp { seconds: (microseconds / 1_000_000) as i64, nanoseconds: (microseconds % 1_000_000) as u32 * 1000 }
    }

    fn random(&self) -> u64 {
        mix(self.state.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed))
    }
}
