//! An experiment's frame: sides, cases, rounds.

use crate::BenchError;
use crate::case::Case;
use crate::machine::memory_bytes;
use crate::measure::{Bench, Phase, Watch};
use crate::scratch::Scratch;
use crate::side::{Opened, Side};
use crate::subject::{About, Target};
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use xfskit_engine::MountOptions;

/// The second side.
#[derive(Clone, Debug)]
pub enum Against {
    /// The kernel, on a loop mount of a scratch image.
    Kernel,
    /// A directory.
    Dir(PathBuf),
}

/// The options of the command.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Number of threads, unless the experiment has its own.
    pub threads: Option<usize>,
    /// Files in all.
    pub files: Option<usize>,
    /// Directories; one for each thread if not given.
    pub dirs: Option<usize>,
    /// The cases to measure, by name; all if empty.
    pub cases: Vec<String>,
    /// How often each case is measured; the best counts.
    pub rounds: Option<usize>,
    /// An image, a mount point or a folder; a scratch image if not given.
    pub on: Option<PathBuf>,
    /// The second side.
    pub against: Option<Against>,
    /// The folder of scratch images; in memory if not given.
    pub scratch: Option<PathBuf>,
    /// Few files.
    pub quick: bool,
    /// The published geometry and numbers.
    pub published: bool,
    /// Bytes of a scratch image.
    pub image_bytes: Option<u64>,
    /// Bytes of the engine's cache; a share of the memory if not given.
    pub cache_bytes: Option<usize>,
    /// Options of the engine in all cases, which a case may change.
    pub engine: MountOptions,
    /// Those of them that were given, as they were written; empty if none were.
    pub engine_options: String,
    /// The command line, for the report.
    pub command: String,
    /// The date, for the report.
    pub date: String,
}

/// A workload.
pub(crate) trait Work {
    fn run<T: Target>(&self, bench: &Bench<'_, T>) -> Result<()>;
}

/// A case on a side: the best of its rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    pub case: String,
    pub side: String,
    pub threads: usize,
    pub rounds: usize,
    pub target: About,
    pub phases: Vec<Phase>,
    #[serde(skip)]
    pub(crate) engine: bool,
}

impl Run {
    pub(crate) fn phase(&self, name: &str) -> Option<&Phase> {
        self.phases.iter().find(|phase| phase.name == name)
    }
}

/// Runs cases on sides.
pub(crate) struct Lab<'a> {
    pub(crate) options: Options,
    pub(crate) watch: &'a dyn Watch,
    pub(crate) scratch: Scratch,
    pub(crate) sides: Vec<Side>,
    /// Bytes of the engine's cache, unless the experiment has its own number.
    cache_bytes: usize,
    /// The names of all cases of the experiments so far.
    pub(crate) case_names: RefCell<BTreeSet<String>>,
}

/// Bytes of an image beyond what its files need.
const SPARE_BYTES: u64 = 1 << 30;
/// Bytes of an image for each file: inodes may take only a quarter of it, and a file needs more than its inode.
const BYTES_PER_FILE: u64 = 4096;
/// The engine's cache takes one part in this many of the memory. The kernel's side may use all of it, and scratch
/// images on tmpfs take up to half.
const CACHE_SHARE: u64 = 4;
/// Rounds of cases that are compared closely, over those of others.
const CLOSELY: usize = 5;

/// Bytes of the engine's cache on a machine with `memory_bytes`: a share of them, but no less than the library's
/// default.
fn cache_bytes_of(memory_bytes: u64) -> usize {
    usize::try_from(memory_bytes / CACHE_SHARE).unwrap_or(usize::MAX).max(library_cache_bytes())
}

fn library_cache_bytes() -> usize {
    MountOptions::default().cache_bytes
}

impl<'a> Lab<'a> {
    pub(crate) fn new(options: Options, watch: &'a dyn Watch) -> Result<Self> {
        let positive = |name: &str, number: Option<usize>| {
            ensure!(number != Some(0), BenchError::Usage(format!("--{name} 0: at least 1")));
            Ok(())
        };
        positive("threads", options.threads)?;
        positive("files", options.files)?;
        positive("dirs", options.dirs)?;
        positive("rounds", options.rounds)?;
        if let (Some(files), Some(threads)) = (options.files, options.threads) {
            let message =
                || BenchError::Usage(format!("--files {files}: fewer than one for each of {threads} threads"));
            ensure!(files >= threads, message());
        }
        let mut sides = vec![match &options.on {
            None => Side::scratch(),
            Some(path) => Side::at(path)?,
        }];
        sides.extend(match &options.against {
            None => None,
            Some(Against::Kernel) => Some(Side::kernel()?),
            Some(Against::Dir(path)) => Some(Side::dir(path)?),
        });
        if let Some(path) = options.on.as_ref().filter(|_| !options.engine_options.is_empty() && !sides[0].is_engine())
        {
            let (given, path) = (&options.engine_options, path.display());
            return Err(BenchError::Usage(format!(
                "-o {given}: these are options of the engine in this process, and what is mounted at {path} has its \
                 own: give them to its mount, or leave --on out"
            ))
            .into());
        }
        let cache_bytes = options.cache_bytes.unwrap_or_else(|| cache_bytes_of(memory_bytes()));
        let scratch = match &options.scratch {
            None => Scratch::new()?,
            Some(place) => Scratch::new_in(place)?,
        };
        Ok(Self { options, watch, scratch, sides, cache_bytes, case_names: RefCell::default() })
    }

    pub(crate) fn threads(&self) -> usize {
        self.options.threads.unwrap_or(2)
    }

    /// Number of files: the option, else `full`, or a tenth of it for a quick run; at least one for each thread.
    pub(crate) fn files(&self, full: usize) -> usize {
        self.files_or(full, full / 10)
    }

    /// As [`Self::files`], where a tenth would be too few.
    pub(crate) fn files_or(&self, full: usize, quick: usize) -> usize {
        let default = if self.options.quick { quick } else { full };
        self.options.files.unwrap_or(default).max(self.threads())
    }

    pub(crate) fn rounds(&self) -> usize {
        self.options.rounds.unwrap_or(if self.options.quick { 2 } else { 3 })
    }

    /// Bytes of the cache for an experiment that tests whether the engine's memory stays within it: the option, else
    /// the library's default.
    pub(crate) fn bounded_cache_bytes(&self) -> usize {
        self.options.cache_bytes.unwrap_or_else(library_cache_bytes)
    }

    /// A case with the defaults of all options but the cache, for an image of `files` files with `bytes` of values
    /// each.
    pub(crate) fn case(&self, name: impl Into<String>, files: usize, bytes: usize) -> Case {
        let needed = files as u64 * (BYTES_PER_FILE + 2 * bytes as u64) + SPARE_BYTES;
        Case {
            name: name.into(),
            threads: self.threads(),
            mkfs: Vec::new(),
            image_bytes: self.options.image_bytes.unwrap_or(needed.next_multiple_of(1 << 30)),
            log_device_bytes: None,
            mount: MountOptions { cache_bytes: self.cache_bytes, ..self.options.engine.clone() },
            parent: None,
            switched: false,
        }
    }

    /// Measures cases on every side that can do them, in turns.
    pub(crate) fn measure<W: Work>(&self, cases: &[(Case, W)]) -> Result<Vec<Run>> {
        self.measure_on(&self.sides, cases)
    }

    /// As [`Self::measure`], on these sides instead of the command's.
    pub(crate) fn measure_on<W: Work>(&self, sides: &[Side], cases: &[(Case, W)]) -> Result<Vec<Run>> {
        self.case_names.borrow_mut().extend(cases.iter().map(|(case, _)| case.name.clone()));
        let mut runs = Vec::new();
        for round in 1..=self.rounds() {
            self.turn(sides, cases.iter(), round, &mut runs)?;
        }
        Ok(runs)
    }

    /// As [`Self::measure`], for cases of the engine that are compared with each other and differ by a few percent: it
    /// measures each several times more, in either order. The best of two short phases differ by a third on a virtual
    /// machine, those of ten by little.
    pub(crate) fn measure_closely<W: Work>(&self, cases: &[(Case, W)]) -> Result<Vec<Run>> {
        let mut runs = self.measure(cases)?;
        let engines: Vec<Side> = self.sides.iter().filter(|side| side.is_engine()).cloned().collect();
        for round in self.rounds() + 1..=self.rounds() * CLOSELY {
            if round % 2 == 0 {
                self.turn(&engines, cases.iter().rev(), round, &mut runs)?;
            } else {
                self.turn(&engines, cases.iter(), round, &mut runs)?;
            }
        }
        Ok(runs)
    }

    /// Measures each case once on every side that can do it.
    fn turn<'c, W: Work + 'c>(
        &self,
        sides: &[Side],
        cases: impl Iterator<Item = &'c (Case, W)>,
        round: usize,
        runs: &mut Vec<Run>,
    ) -> Result<()> {
        let wanted = |case: &Case| self.options.cases.is_empty() || self.options.cases.contains(&case.name);
        for (case, work) in cases.filter(|(case, _)| wanted(case)) {
            for side in sides.iter().filter(|side| side.can(case)) {
                let run = self.once(case, side, work)?;
                match runs.iter_mut().find(|known| known.side == run.side && known.case == run.case) {
                    None => runs.push(run),
                    Some(known) => keep_best(known, run, round),
                }
            }
        }
        Ok(())
    }

    fn once(&self, case: &Case, side: &Side, work: &impl Work) -> Result<Run> {
        let measured = || -> Result<Run> {
            let opened = side.open(case, &self.scratch)?;
            let result = match &opened {
                Opened::Engine(engine) => self.run(case, engine, work),
                Opened::Path(target, _) => self.run(case, target, work),
            };
            let closed = side.close(opened);
            let (target, phases) = result?;
            closed?;
            Ok(Run {
                case: case.name.clone(),
                side: side.name.clone(),
                threads: case.threads,
                rounds: 1,
                target,
                phases,
                engine: side.is_engine(),
            })
        };
        measured().with_context(|| format!("{}, {}", side.name, case.name))
    }

    fn run<T: Target>(&self, case: &Case, target: &T, work: &impl Work) -> Result<(About, Vec<Phase>)> {
        let bench = Bench::new(target, case.threads, self.watch);
        work.run(&bench)?;
        Ok((target.about(), bench.into_phases()))
    }
}

/// Keeps the faster one of each phase.
pub(crate) fn keep_best(known: &mut Run, run: Run, rounds: usize) {
    known.rounds = rounds;
    for (best, phase) in known.phases.iter_mut().zip(run.phases) {
        if phase.wall_seconds < best.wall_seconds {
            *best = phase;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_a_share_of_the_memory_but_never_less_than_the_default() {
        assert_eq!(cache_bytes_of(24 << 30), 6 << 30);
        assert_eq!(cache_bytes_of(512 << 20), 256 << 20);
        assert_eq!(cache_bytes_of(0), MountOptions::default().cache_bytes);
        assert!(memory_bytes() > 0);
    }
}
