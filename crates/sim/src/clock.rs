//! The clock of a run. It stands still during an operation, and every operation has a time of its own: so the model
//! knows each time that the filesystem notes, however often that looks at the clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use xfskit::env::{Environment, SeededEnvironment};
use xfskit_ondisk::Timestamp;

/// January 2026.
const FIRST_SECOND: i64 = 1_767_225_600;
/// Nanoseconds that tell times apart besides their seconds.
const NANOSECONDS_A_STEP: i64 = 7_919_003;

/// The time of day.
#[derive(Debug)]
pub struct Clock(AtomicI64);

impl Clock {
    /// A clock before the first operation of the first run.
    pub fn new() -> Self {
        Self(AtomicI64::new(FIRST_SECOND))
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        let seconds = self.0.load(Ordering::Relaxed);
        Timestamp { seconds, nanoseconds: (seconds * NANOSECONDS_A_STEP).rem_euclid(1_000_000_000) as u32 }
    }

    /// The next operation begins; its time.
    pub fn step(&self) -> Timestamp {
        self.0.fetch_add(1, Ordering::Relaxed);
        self.now()
    }

    /// Goes on behind a time.
    pub fn advance(&self, behind: Timestamp) {
        self.0.fetch_max(behind.seconds + 1, Ordering::Relaxed);
    }
}

/// The world of a run: its clock, and the randomness of a seed.
#[derive(Debug)]
pub struct World {
    clock: Arc<Clock>,
    randomness: SeededEnvironment,
}

impl World {
    /// The world of `seed`.
    pub fn new(seed: u64, clock: &Arc<Clock>) -> Self {
        Self { clock: Arc::clone(clock), randomness: SeededEnvironment::new(seed) }
    }
}

impl Environment for World {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn random(&self) -> u64 {
        self.randomness.random()
    }
}
