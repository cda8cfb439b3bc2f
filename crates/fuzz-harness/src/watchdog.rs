//! Ends the process when a step of a test takes too long, because a thread that hangs cannot be ended in another way.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum duration of a step. It is long, because machines that run tests may be busy.
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

    /// Begins the next step.
    pub fn step(&self, name: impl Into<String>) {
        let mut step = self.step.lock().unwrap_or_else(PoisonError::into_inner);
        *step = WatchedStep { name: name.into(), since: Instant::now() };
    }
}

/// The maximum of memory, in bytes, that this process has had mapped; 0 if the system does not report it.
pub fn peak_memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) * 1024
}
