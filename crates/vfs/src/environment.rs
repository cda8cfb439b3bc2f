//! Everything that a filesystem takes from outside besides its devices: the clock and randomness.
//!
//! A simulator replaces both, and then a run is a function of its seed.

use crate::Timestamp;
use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where a filesystem takes the time of day and random numbers from.
pub trait Environment: Send + Sync {
    /// The time of day.
    fn now(&self) -> Timestamp;

    /// A number that is hard to predict; for inode generations.
    fn random(&self) -> u64;
}

/// The system's clock, and numbers that are hard to predict.
#[derive(Debug, Default)]
pub struct SystemEnvironment;

thread_local! {
    /// Each thread counts for itself, from a place that the system's randomness decides.
    static SEED: Cell<u64> = Cell::new(RandomState::new().build_hasher().finish());
}

impl Environment for SystemEnvironment {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp { seconds: since.as_secs() as i64, nanoseconds: since.subsec_nanos() }
    }

    fn random(&self) -> u64 {
        // The count of a process goes on in those that it forks: the time tells them apart.
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        mix(SEED.replace(SEED.get().wrapping_add(STEP)) ^ mix(time))
    }
}

/// What splitmix64 counts by.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finishing step of splitmix64: spreads a counter over all 64 bits.
pub fn mix(mut z: u64) -> u64 {
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
        mix(self.state.fetch_add(STEP, Ordering::Relaxed))
    }
}
