//! The clock of a run. It stands still during an operation, and each operation has a time of its own. So the model
//! knows every timestamp that the filesystem records, however often the filesystem reads the clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use xfskit_engine::env::{Environment, SeededEnvironment};
use xfskit_ondisk::Timestamp;

/// January 2026.
const FIRST_SECOND: i64 = 1_767_225_600;
/// The nanoseconds of a time are its seconds times this, modulo a second, so that they differ between times too.
const NANOSECONDS_A_STEP: i64 = 7_919_003;

/// The time of day.
#[derive(Debug)]
pub struct Clock(AtomicI64);

impl Clock {
    /// A clock that stands before the first operation.
    pub fn new() -> Self {
        Self(AtomicI64::new(FIRST_SECOND))
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        let seconds = self.0.load(Ordering::Relaxed);
        Timestamp { seconds, nanoseconds: (seconds * NANOSECONDS_A_STEP).rem_euclid(1_000_000_000) as u32 }
    }

    /// Moves to the time of the next operation and returns it.
    pub fn step(&self) -> Timestamp {
        self.0.fetch_add(1, Ordering::Relaxed);
        self.now()
    }

    /// Moves past a time, if the clock is not past it yet.
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
