//! A phase: threads that do the same thing many times, and what it cost.
//!
//! Each thread has its share of the operations. Where it does not matter which thread does them, a thread that has
//! finished its share takes operations of the others, so that the time is that of the work and not that of the slowest
//! share.
//!
//! Time is wall and CPU time from the moment all threads are ready until the last has ended. The sync that follows, and
//! that makes the counts complete, is timed separately. CPU time is that of this process: it includes an engine in this
//! process and what the kernel does in system calls, but not the kernel's own threads or another server.

use crate::error::BenchError;
use crate::subject::{Counts, Target};
use anyhow::Result;
use nix::sys::resource::{UsageWho, getrusage};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

/// Operations that a thread takes at once. After each such piece it checks whether to stop.
const STRIDE: usize = 128;

/// Receives the progress of a run, and may stop it.
pub trait Watch: Sync {
    /// A part of the run begins that has `operations` operations.
    fn begin(&self, what: &str, operations: u64);
    /// `operations` more operations are done.
    fn advance(&self, operations: u64);
    /// Whether to stop the run.
    fn stopped(&self) -> bool;
}

/// Operations of one kind in a phase that mixes several.
#[derive(Clone, Debug, Serialize)]
pub struct Kind {
    pub name: &'static str,
    pub operations: u64,
    pub mean_seconds: f64,
    pub max_seconds: f64,
}

/// What one phase cost.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Phase {
    pub name: String,
    pub operations: u64,
    pub wall_seconds: f64,
    pub user_seconds: f64,
    pub system_seconds: f64,
    /// The sync after the phase, until everything was durable.
    pub sync_seconds: f64,
    /// `None` if the side does not count them.
    pub transactions: Option<u64>,
    pub log_bytes: Option<u64>,
    pub max_latency_seconds: Option<f64>,
    /// Where operations of several kinds are mixed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<Kind>,
    /// Other counts of the side, without zeros.
    pub counters: BTreeMap<String, u64>,
}

impl Phase {
    pub(crate) fn rate(&self) -> f64 {
        self.operations as f64 / self.wall_seconds.max(1e-9)
    }

    pub(crate) fn micros(&self) -> f64 {
        self.wall_seconds * 1e6 / self.operations.max(1) as f64
    }

    pub(crate) fn cpu_seconds(&self) -> f64 {
        self.user_seconds + self.system_seconds
    }

    pub(crate) fn cpu_micros(&self) -> f64 {
        self.cpu_seconds() * 1e6 / self.operations.max(1) as f64
    }

    pub(crate) fn per_operation(&self, count: Option<u64>) -> Option<f64> {
        Some(count? as f64 / self.operations.max(1) as f64)
    }

    pub(crate) fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }
}

/// Which threads do a share of the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shares {
    /// Its thread alone.
    Fixed,
    /// Its thread, and those that have finished theirs.
    Common,
}

/// The operations that no thread has taken yet.
struct Left {
    /// Operations taken of each share; may exceed the share.
    taken: Vec<AtomicUsize>,
    /// Operations of a share.
    each: usize,
    shares: Shares,
}

impl Left {
    fn new(threads: usize, each: usize, shares: Shares) -> Self {
        Self { taken: (0..threads).map(|_| AtomicUsize::new(0)).collect(), each, shares }
    }

    /// The share and the numbers of the next operations for a thread.
    fn take(&self, thread: usize) -> Option<(usize, Range<usize>)> {
        let threads = self.taken.len();
        let open_to = if self.shares == Shares::Common { threads } else { 1 };
        (thread..thread + open_to).map(|share| share % threads).find_map(|share| {
            let from = self.taken[share].fetch_add(STRIDE, Ordering::Relaxed);
            (from < self.each).then(|| (share, from..self.each.min(from + STRIDE)))
        })
    }
}

/// Runs phases on a target, and records what they cost.
pub(crate) struct Bench<'a, T> {
    pub(crate) target: &'a T,
    pub(crate) threads: usize,
    watch: &'a dyn Watch,
    phases: Mutex<Vec<Phase>>,
}

impl<'a, T: Target> Bench<'a, T> {
    pub(crate) fn new(target: &'a T, threads: usize, watch: &'a dyn Watch) -> Self {
        Self { target, threads, watch, phases: Mutex::default() }
    }

    pub(crate) fn into_phases(self) -> Vec<Phase> {
        self.phases.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Measures `work(thread, n)` for each thread and each n below `each`.
    pub(crate) fn phase(
        &self,
        name: &str,
        each: usize,
        work: impl Fn(usize, usize) -> Result<()> + Sync,
    ) -> Result<()> {
        self.measure(name, each, Shares::Fixed, &work)
    }

    /// As [`Self::phase`], but another thread may do the rest of a share.
    pub(crate) fn common_phase(
        &self,
        name: &str,
        each: usize,
        work: impl Fn(usize, usize) -> Result<()> + Sync,
    ) -> Result<()> {
        self.measure(name, each, Shares::Common, &work)
    }

    fn measure(
        &self,
        name: &str,
        each: usize,
        shares: Shares,
        work: &(impl Fn(usize, usize) -> Result<()> + Sync),
    ) -> Result<()> {
        self.watch.begin(name, (each * self.threads) as u64);
        let before = self.target.counts()?;
        let (elapsed, user, system) = self.in_threads(each, shares, work)?;
        let synced = Instant::now();
        self.target.sync()?;
        let sync_seconds = synced.elapsed().as_secs_f64();
        let counts = self.target.counts()?.since(&before);
        self.keep(Phase {
            name: name.into(),
            operations: (each * self.threads) as u64,
            wall_seconds: elapsed.as_secs_f64(),
            user_seconds: user,
            system_seconds: system,
            sync_seconds,
            transactions: counts.transactions,
            log_bytes: counts.log_bytes,
            max_latency_seconds: None,
            kinds: Vec::new(),
            counters: counts.others,
        });
        Ok(())
    }

    /// Changes the phase that was measured last.
    pub(crate) fn amend(&self, change: impl FnOnce(&mut Phase)) {
        let mut phases = self.phases.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        change(phases.last_mut().expect("a phase was measured"));
    }

    fn keep(&self, phase: Phase) {
        self.phases.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(phase);
    }

    /// As [`Self::phase`], without measuring.
    pub(crate) fn prepare(&self, each: usize, work: impl Fn(usize, usize) -> Result<()> + Sync) -> Result<()> {
        self.watch.begin("preparing", (each * self.threads) as u64);
        self.in_threads(each, Shares::Fixed, &work)?;
        self.target.sync()
    }

    fn in_threads(
        &self,
        each: usize,
        shares: Shares,
        work: &(impl Fn(usize, usize) -> Result<()> + Sync),
    ) -> Result<(Duration, f64, f64)> {
        let (failed, ready) = (AtomicBool::new(false), Barrier::new(self.threads + 1));
        let left = Left::new(self.threads, each, shares);
        let run = |thread: usize| -> Result<(Instant, Instant)> {
            ready.wait();
            let start = Instant::now();
            while let Some((share, piece)) = left.take(thread) {
                let count = piece.len() as u64;
                for n in piece {
                    if let Err(error) = work(share, n) {
                        failed.store(true, Ordering::Relaxed);
                        return Err(error);
                    }
                }
                self.watch.advance(count);
                if self.watch.stopped() || failed.load(Ordering::Relaxed) {
                    return Err(BenchError::Interrupted.into());
                }
            }
            Ok((start, Instant::now()))
        };
        std::thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> = (0..self.threads).map(|thread| scope.spawn(move || run(thread))).collect();
            let cpu = cpu_seconds()?;
            ready.wait();
            let results: Vec<_> = threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            let after = cpu_seconds()?;
            // The threads read the clock themselves: with more threads than processors, this one may be woken late.
            let mut span: Option<(Instant, Instant)> = None;
            let mut interrupted = Ok(());
            for result in results {
                match result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
                    Ok((start, end)) => {
                        let (first, last) = span.unwrap_or((start, end));
                        span = Some((first.min(start), last.max(end)));
                    }
                    // A thread may have stopped only because another one failed, whose error is then returned.
                    Err(error) if error.is::<BenchError>() => interrupted = Err(error),
                    Err(error) => return Err(error),
                }
            }
            interrupted?;
            let elapsed = span.map_or(Duration::ZERO, |(first, last)| last - first);
            Ok((elapsed, after.0 - cpu.0, after.1 - cpu.1))
        })
    }
}

/// User and system time of this process.
fn cpu_seconds() -> Result<(f64, f64)> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok((seconds(usage.user_time()), seconds(usage.system_time())))
}

impl Counts {
    fn since(&self, before: &Self) -> Self {
        let less = |after: Option<u64>, before: Option<u64>| Some(after?.saturating_sub(before?));
        let others = self.others.iter().filter_map(|(name, &count)| {
            // A peak is not a sum, so the value before the phase is not subtracted.
            let peak = name.ends_with("_peak");
            let change = if peak { count } else { count - before.others.get(name).copied().unwrap_or(0).min(count) };
            (change > 0).then(|| (name.clone(), change))
        });
        Self {
            transactions: less(self.transactions, before.transactions),
            log_bytes: less(self.log_bytes, before.log_bytes),
            others: others.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_taken_once() {
        let fixed = Left::new(2, 200, Shares::Fixed);
        assert_eq!(fixed.take(1), Some((1, 0..128)));
        assert_eq!(fixed.take(1), Some((1, 128..200)));
        assert_eq!(fixed.take(1), None);
        let common = Left::new(2, 200, Shares::Common);
        assert_eq!(common.take(0), Some((0, 0..128)));
        assert_eq!(common.take(1), Some((1, 0..128)));
        assert_eq!(common.take(1), Some((1, 128..200)));
        assert_eq!(common.take(1), Some((0, 128..200)));
        assert_eq!((common.take(0), common.take(1)), (None, None));
    }
}
