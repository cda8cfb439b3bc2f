//! How long the program waits for an image that is in use.

use crate::interrupt;
use crate::output::error::{CommandError, Result};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// The pause between two attempts.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The time of `--wait`, or a longer one where a command knows of a program that is about to let go of the image.
pub struct Wait(Cell<Duration>);

impl Wait {
    /// Waits so long.
    pub fn new(time: Duration) -> Self {
        Self(Cell::new(time))
    }

    /// From now on the program waits at least this long.
    pub fn at_least(&self, time: Duration) {
        self.0.set(self.0.get().max(time));
    }

    /// How long the program waits.
    pub fn time(&self) -> Duration {
        self.0.get()
    }

    /// Opens something again and again, while `is_busy` says of the error that it is in use.
    ///
    /// # Errors
    /// Those of `open`; [`Interrupted`](interrupt::Interrupted) by a signal during the wait.
    pub fn retry_while<T, E>(&self, is_busy: impl Fn(&E) -> bool, open: impl Fn() -> Result<T, E>) -> Result<T>
    where
        CommandError: From<E>,
    {
        let began = Instant::now();
        loop {
            match open() {
                Err(error) if is_busy(&error) && began.elapsed() < self.time() => {
                    interrupt::check()?;
                    std::thread::sleep(LOOK_EVERY);
                }
                opened => return Ok(opened?),
            }
        }
    }
}
