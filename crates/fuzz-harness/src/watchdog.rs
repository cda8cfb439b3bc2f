//! Ends the process when one step of a test takes too long: a thread that hangs cannot be ended otherwise.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest that one step may take. Generous: machines that run tests are busy.
const LIMIT: Duration = Duration::from_secs(60);

struct WatchedStep {
    name: String,
    since: Instant,
}

/// Watches over the steps of one test. Dropping it ends the watch.
pub struct Watchdog {
    step: Arc<Mutex<WatchedStep>>,
}

impl Default for Watchdog {
    fn default() -> Self {
        Self::new()
    }
}

impl Watchdog {
    /// Begins to watch.
    pub fn new() -> Self {
        let step = Arc::new(Mutex::new(WatchedStep { name: "start".into(), since: Instant::now() }));
        let watched = Arc::downgrade(&step);
        std::thread::spawn(move || {
            while let Some(step) = watched.upgrade() {
                {
                    let step = step.lock().unwrap_or_else(PoisonError::into_inner);
                    if step.since.elapsed() > LIMIT {
                        eprintln!("hangs: {}", step.name);
                        std::process::abort();
                    }
                }
                drop(step);
                std::thread::sleep(Duration::from_millis(500));
            }
        });
        Self { step }
    }

    /// The next step begins.
    pub fn step(&self, name: impl Into<String>) {
        let mut step = self.step.lock().unwrap_or_else(PoisonError::into_inner);
        *step = WatchedStep { name: name.into(), since: Instant::now() };
    }
}

/// The most memory that this process has ever had mapped; 0 where the system does not say.
pub fn peak_memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) * 1024
}
