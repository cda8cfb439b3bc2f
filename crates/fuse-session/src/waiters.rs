//! Threads for requests that wait.
//!
//! ```text
//! submitted ─ a thread is idle ────────────▶ it takes the job
//!           ─ fewer than the most allowed ─▶ a new thread takes it
//!           ─ else ────────────────────────▶ the job waits for the next thread that is done
//! ```
//! There are as many threads as jobs, so that all wait at the same time, and none for another one. A thread that has
//! had nothing to do for some seconds ends, but the last one, which is started with the mount: later the system may
//! have no threads left.
//!
//! Locking: one mutex, which no job runs under.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The most threads. The kernel sends a program's fsync one by one, so this is for that many threads of programs.
const MOST: usize = 256;
const PATIENCE: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
    has_ended: bool,
}

#[derive(Default)]
struct Pool {
    state: Mutex<State>,
    wake: Condvar,
}

/// The threads. Dropping it ends them when the jobs are done.
pub(crate) struct Waiters(Arc<Pool>);

impl Waiters {
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start() -> io::Result<Self> {
        let pool = Arc::new(Pool::default());
        pool.state.lock().threads = 1;
        Pool::spawn(&pool)?;
        Ok(Self(pool))
    }

    /// Whether a further job would be done at once.
    pub(crate) fn have_room(&self) -> bool {
        let state = self.0.state.lock();
        state.idle > state.jobs.len() || state.threads < MOST
    }

    /// Lets a thread do a job.
    pub(crate) fn submit(&self, job: Job) {
        let mut state = self.0.state.lock();
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() {
            drop(state);
            self.0.wake.notify_one();
        } else if state.threads < MOST {
            state.threads += 1;
            drop(state);
            // Without a new thread the job waits for one that is there.
            if Pool::spawn(&self.0).is_err() {
                self.0.state.lock().threads -= 1;
            }
        }
    }
}

impl Drop for Waiters {
    fn drop(&mut self) {
        self.0.state.lock().has_ended = true;
        self.0.wake.notify_all();
    }
}

impl Pool {
    fn spawn(pool: &Arc<Self>) -> io::Result<()> {
        let pool = Arc::clone(pool);
        std::thread::Builder::new().name("fuse-wait".into()).spawn(move || pool.work()).map(drop)
    }

    fn work(&self) {
        /// A job that panics ends its thread; the pool must know.
        struct Gone<'a>(&'a Pool);
        impl Drop for Gone<'_> {
            fn drop(&mut self) {
                self.0.state.lock().threads -= 1;
            }
        }
        let _gone = Gone(self);
        while let Some(job) = self.next() {
            job();
        }
    }

    /// The next job; `None` when this thread is not needed any more.
    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.has_ended {
                return None;
            }
            state.idle += 1;
            let has_timed_out = self.wake.wait_for(&mut state, PATIENCE).timed_out();
            state.idle -= 1;
            if has_timed_out && state.jobs.is_empty() && state.threads > 1 {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn all_jobs_run_at_the_same_time() {
        let waiters = Waiters::start().unwrap();
        // Each job waits for all others: with one thread fewer, none would end.
        let barrier = Arc::new(Barrier::new(41));
        for _ in 0..40 {
            let barrier = Arc::clone(&barrier);
            waiters.submit(Box::new(move || {
                barrier.wait();
            }));
        }
        barrier.wait();
    }

    #[test]
    fn a_job_that_panics_takes_no_other_with_it() {
        let waiters = Waiters::start().unwrap();
        waiters.submit(Box::new(|| std::panic::resume_unwind(Box::new("on purpose"))));
        let barrier = Arc::new(Barrier::new(2));
        let theirs = Arc::clone(&barrier);
        waiters.submit(Box::new(move || {
            theirs.wait();
        }));
        barrier.wait();
    }
}
