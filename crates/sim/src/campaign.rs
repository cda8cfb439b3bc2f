//! Many runs at once: every workload with one seed after the other, on several threads, until the time or the states
//! are used up.

use crate::events::Event;
use crate::explore::{Plan, Tally, explore};
use crate::faults::{explore_bad_places, explore_failing, explore_lies, explore_tags};
use crate::recording::{RunOptions, record};
use crate::workload::Workload;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What to explore.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The workloads.
    pub workloads: Vec<&'static Workload>,
    /// The seed of the first run.
    pub first_seed: u64,
    /// Runs of each workload; each has a seed of its own.
    pub runs: u64,
    /// What is explored of each run.
    pub plan: Plan,
    /// Threads.
    pub threads: usize,
    /// Time after which no further state is begun.
    pub limit: Option<Duration>,
    /// States after which no further run is begun.
    pub most_states: u64,
    /// Failures after which the campaign ends.
    pub most_failures: usize,
}

/// A run in which something was found wrong.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The workload.
    pub workload: &'static str,
    /// The run's seed.
    pub seed: u64,
    /// The options of the command that name the wrong state; empty if the run itself failed.
    pub options: String,
    /// What is wrong.
    pub fault: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workload, seed, options, fault } = self;
        write!(f, "{fault}\n  replay: xfskit crash-test --workload {workload} --seed {seed} {options}")
    }
}

/// The result of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// By workload.
    pub tallies: BTreeMap<&'static str, Tally>,
    /// Runs that were explored.
    pub runs: u64,
    /// What was found wrong.
    pub findings: Vec<Finding>,
    /// How long it took.
    pub elapsed: Duration,
}

impl Summary {
    /// All states.
    pub fn states(&self) -> u64 {
        self.tallies.values().map(|tally| tally.states).sum()
    }
}

impl Campaign {
    /// Explores. `progress` is called with the states so far.
    pub fn run(&self, progress: &(dyn Fn(u64) + Sync)) -> Summary {
        let start = Instant::now();
        let summary = Mutex::new(Summary::default());
        let next = AtomicU64::new(0);
        let states = AtomicU64::new(0);
        let all = self.runs.saturating_mul(self.workloads.len() as u64);
        std::thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let late = self.limit.is_some_and(|limit| start.elapsed() >= limit);
                        let enough = states.load(Ordering::Relaxed) >= self.most_states;
                        if number >= all || late || enough || self.has_enough(&summary) {
                            return;
                        }
                        let workload = self.workloads[number as usize % self.workloads.len()];
                        let seed = self.first_seed + number / self.workloads.len() as u64;
                        let mut seen = 0;
                        let (tally, finding) = self.explore_run(workload, seed, start, &mut |tally| {
                            let so_far = states.fetch_add(tally.states - seen, Ordering::Relaxed) + tally.states - seen;
                            seen = tally.states;
                            progress(so_far);
                        });
                        let mut summary = summary.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                        summary.runs += 1;
                        *summary.tallies.entry(workload.name).or_default() += tally;
                        summary.findings.extend(finding);
                    }
                });
            }
        });
        let mut summary = summary.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        summary.elapsed = start.elapsed();
        summary
    }

    fn has_enough(&self, summary: &Mutex<Summary>) -> bool {
        let summary = summary.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        summary.findings.len() >= self.most_failures.max(1)
    }

    fn explore_run(
        &self,
        workload: &'static Workload,
        seed: u64,
        start: Instant,
        note: &mut dyn FnMut(&Tally),
    ) -> (Tally, Option<Finding>) {
        let in_time = || self.limit.is_none_or(|limit| start.elapsed() < limit);
        let mut tally = Tally::default();
        let finding = |options, fault| Some(Finding { workload: workload.name, seed, options, fault });
        let recording = match record(workload, seed, RunOptions::default()) {
            Ok((recording, _)) => recording,
            Err(fault) => return (tally, finding(String::new(), fault)),
        };
        let plan = &Plan { states: (self.plan.states / workload.share).max(1), ..self.plan };
        let mut outcome = explore(&recording, plan, seed, &mut tally, |tally| {
            note(tally);
            in_time()
        });
        if in_time() {
            outcome = outcome.and_then(|()| explore_lies(&recording, seed, plan.lies, &mut tally));
        }
        if in_time() {
            let operations = recording.events.iter().filter(|e| matches!(e, Event::Write(..) | Event::Flush)).count();
            let times = plan.failing_runs;
            outcome = outcome.and_then(|()| explore_failing(workload, seed, operations as u64, times, &mut tally));
        }
        if in_time() {
            outcome = outcome.and_then(|()| explore_tags(workload, seed, plan.failing_runs, &mut tally));
        }
        if in_time() {
            let times = plan.bad_places;
            outcome = outcome.and_then(|()| explore_bad_places(workload, seed, &recording, times, &mut tally));
        }
        note(&tally);
        (tally, outcome.err().and_then(|failure| finding(failure.options(), failure.fault)))
    }
}
