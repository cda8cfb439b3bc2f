//! noxattr: the mix of operations of dbench's clients on files that have no attributes, or only parent pointers, with
//! their absence remembered or searched for again each time.
//!
//! Every open and every write asks for the file's ACL or capabilities: on a mount the kernel's VFS does, in this
//! process the workload. Published figure: to skip the search when an inode is logged made dbench 11 % faster.

use super::dbench;
use super::tables::{columns, counters, find, matrix, more};
use super::xattr::make_files;
use crate::lab::{Lab, Run, Work};
use crate::measure::{Bench, Kind, Phase};
use crate::names::{NAME_BYTES, file_name, mix};
use crate::report::{BarSeries, Cell, Plot, Section, Table};
use crate::subject::Target;
use anyhow::Result;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const OPERATIONS: usize = 400_000;
const THREADS: usize = 8;
const PUBLISHED_THREADS: usize = 40;
/// Maximum number of files of a client.
const SLOTS: usize = 200;
const FILE_BYTES: u64 = 256 << 10;
const MAX_BYTES: usize = 64 << 10;
const PAGE: usize = 4096;

pub(super) const MIX: &str = "dbench's mix";
const ASK: &str = "an absent attribute asked for";

/// The counts of the clients in the published run, in thousands.
const WEIGHTS: [(Operation, &str, u64); 10] = [
    (Operation::Create, "create", 1163),
    (Operation::Open, "open", 4598),
    (Operation::Rename, "rename", 244),
    (Operation::Unlink, "unlink", 1163),
    (Operation::Stat, "stat", 6137),
    (Operation::StatFs, "statfs", 957),
    (Operation::Find, "find", 2019),
    (Operation::Write, "write", 2875),
    (Operation::Read, "read", 9030),
    (Operation::Flush, "flush", 404),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Create,
    Open,
    Rename,
    Unlink,
    Stat,
    StatFs,
    Find,
    Write,
    Read,
    Flush,
}

/// The mix.
#[derive(Clone, Copy)]
pub(super) struct Mix {
    pub(super) each: usize,
    /// Ask for absent attributes, too.
    pub(super) ask: bool,
}

/// A thread's directory: each slot is a file or free; a file has a new name each time.
struct Client<T: Target> {
    dir: T::Dir,
    files: Vec<Option<(T::File, [u8; NAME_BYTES])>>,
    names: usize,
    bytes: u64,
    tally: [(u64, Duration, Duration); WEIGHTS.len()],
}

impl<T: Target> Client<T> {
    fn new(target: &T, thread: usize) -> Result<Self> {
        let dir = target.make_dir(target.base(), format!("client{thread}").as_bytes())?;
        let mut files = Vec::new();
        files.resize_with(SLOTS, || None);
        let mut client = Self { dir, files, names: 0, bytes: 0, tally: Default::default() };
        for slot in (0..SLOTS).step_by(2) {
            client.create(target, thread, slot)?;
        }
        Ok(client)
    }

    fn create(&mut self, target: &T, thread: usize, slot: usize) -> Result<()> {
        self.names += 1;
        let name = file_name(thread, self.names);
        let made = target.create(&self.dir, &name)?;
        self.files[slot] = Some((target.file(&self.dir, &name, made), name));
        Ok(())
    }

    /// Does one operation on a slot: one with a file, or a free one for a create.
    fn step(&mut self, target: &T, thread: usize, chance: u64) -> Result<()> {
        let total: u64 = WEIGHTS.iter().map(|(_, _, weight)| weight).sum();
        let mut left = chance % total;
        let pick = WEIGHTS.iter().position(|(_, _, weight)| {
            let hit = left < *weight;
            left = left.saturating_sub(*weight);
            hit
        });
        let mut pick = pick.unwrap_or(0);
        let wants_free = WEIGHTS[pick].0 == Operation::Create;
        let start = (chance >> 20) as usize % SLOTS;
        let found = (0..SLOTS).map(|n| (start + n) % SLOTS).find(|&slot| self.files[slot].is_none() == wants_free);
        let slot = found.unwrap_or_else(|| {
            // All slots are taken, or all are free.
            pick = if wants_free { 3 } else { 0 };
            start
        });
        let begin = Instant::now();
        self.act(target, thread, WEIGHTS[pick].0, slot, chance)?;
        let took = begin.elapsed();
        let (count, sum, most) = &mut self.tally[pick];
        *count += 1;
        *sum += took;
        *most = took.max(*most);
        Ok(())
    }

    fn act(&mut self, target: &T, thread: usize, what: Operation, slot: usize, chance: u64) -> Result<()> {
        if what == Operation::Create {
            return self.create(target, thread, slot);
        }
        let Some((file, name)) = self.files[slot].clone() else { return Ok(()) };
        let bytes = PAGE + (chance >> 30) as usize % (MAX_BYTES / PAGE) * PAGE;
        let offset = (chance >> 40) % ((FILE_BYTES - bytes as u64) / PAGE as u64) * PAGE as u64;
        match what {
            Operation::Create => {}
            Operation::Open => {
                target.stat(&self.dir, &name)?;
                target.ask_permission(&file)?;
            }
            Operation::Rename => {
                self.names += 1;
                let new = file_name(thread, self.names);
                target.rename((&self.dir, &name), (&self.dir, &new))?;
                self.files[slot] = Some((target.renamed(&self.dir, &new, file), new));
            }
            Operation::Unlink => {
                target.unlink(&self.dir, &name)?;
                self.files[slot] = None;
            }
            Operation::Stat => target.stat(&self.dir, &name)?,
            Operation::StatFs => target.statfs()?,
            Operation::Find => drop(target.list(&self.dir)?),
            Operation::Write => {
                target.ask_permission(&file)?;
                target.write(&file, offset, &[7; MAX_BYTES][..bytes])?;
                self.bytes += bytes as u64;
            }
            Operation::Read => {
                target.read(&file, offset, &mut [0; MAX_BYTES][..bytes])?;
                self.bytes += bytes as u64;
            }
            Operation::Flush => target.fsync(&file)?,
        }
        Ok(())
    }
}

impl Work for Mix {
    fn run<T: Target>(&self, bench: &Bench<'_, T>) -> Result<()> {
        let target = bench.target;
        let clients: Vec<Mutex<Client<T>>> =
            (0..bench.threads).map(|thread| Client::new(target, thread).map(Mutex::new)).collect::<Result<_>>()?;
        target.sync()?;
        bench.phase(MIX, self.each, |thread, n| {
            let mut client = clients[thread].lock().expect("no thread panics with it");
            client.step(target, thread, mix((thread as u64) << 40 ^ n as u64))
        })?;
        let tallies: Vec<_> =
            clients.into_iter().map(|client| client.into_inner().expect("no thread panics with it")).collect();
        bench.amend(|phase| {
            phase.kinds = kinds(&tallies);
            phase.max_latency_seconds = phase.kinds.iter().map(|kind| kind.max_seconds).reduce(f64::max);
            phase.counters.insert("content_bytes".into(), tallies.iter().map(|client| client.bytes).sum());
        });
        if !self.ask {
            return Ok(());
        }
        let files = make_files(bench, SLOTS)?;
        bench.phase(ASK, self.each, |thread, n| target.ask_absent(&files[thread][n % SLOTS], "user.absent"))
    }
}

fn kinds<T: Target>(clients: &[Client<T>]) -> Vec<Kind> {
    let kind = |(place, (_, name, _)): (usize, &(Operation, &'static str, u64))| {
        let tallies = || clients.iter().map(move |client| client.tally[place]);
        let operations: u64 = tallies().map(|(count, _, _)| count).sum();
        let sum: Duration = tallies().map(|(_, sum, _)| sum).sum();
        Kind {
            name,
            operations,
            mean_seconds: sum.as_secs_f64() / operations.max(1) as f64,
            max_seconds: tallies().map(|(_, _, most)| most).max().unwrap_or_default().as_secs_f64(),
        }
    };
    WEIGHTS.iter().enumerate().map(kind).collect()
}

const WITHOUT: &str = "no attributes, absence remembered";
const WITHOUT_SLOW: &str = "no attributes, searched each time";
const WITH: &str = "parent pointers only, absence remembered";
const WITH_SLOW: &str = "parent pointers only, searched each time";

/// Measures.
pub(super) fn measure(lab: &Lab<'_>) -> Result<Section> {
    let default = if lab.options.published { PUBLISHED_THREADS } else { THREADS };
    let threads = lab.options.threads.unwrap_or(default);
    let operations = lab.files(OPERATIONS);
    let work = Mix { each: (operations / threads).max(1), ask: true };
    let case = |name: &str| crate::case::Case { threads, ..lab.case(name, threads * SLOTS, FILE_BYTES as usize) };
    let cases = [
        case(WITHOUT).parent(false),
        case(WITHOUT_SLOW).parent(false).switch(|options| options.known_absent = false),
        case(WITH).parent(true),
        case(WITH_SLOW).parent(true).switch(|options| options.known_absent = false),
    ];
    let runs = lab.measure(&cases.map(|case| (case, work)))?;
    let mut section = Section {
        name: "noxattr".into(),
        title: "noxattr: dbench's mix on files without attributes".into(),
        about: format!(
            "{} operations by {threads} clients in directories of their own, in the proportions that dbench's clients \
             had: create, open, rename, unlink, stat, statfs, find, write, read and fsync. Best of {} rounds.",
            work.each * threads,
            lab.rounds()
        ),
        ..Section::default()
    };
    section.tables.push(mix_table(&runs));
    section.tables.push(matrix("µs of an operation", runs.iter(), |phase| Cell::number(phase.micros(), 2)));
    section.tables.push(kind_table("Mean µs by operation", &runs, |kind| kind.mean_seconds * 1e6));
    section.tables.push(kind_table("Longest µs by operation", &runs, |kind| kind.max_seconds * 1e6));
    section.tables.extend(counters(runs.iter()));
    section.plots.push(plot(&runs));
    section.notes.push(
        "Published, of btrfs logging inodes with 40 clients: 908 MB/s became 1,012 (+10.8 %), the longest latency \
         359.5 ms became 331.0."
            .into(),
    );
    section.runs = runs;
    dbench::measure(lab, &mut section)?;
    Ok(section)
}

/// MiB of contents in a second.
pub(super) fn throughput(phase: &Phase) -> f64 {
    phase.counter("content_bytes") as f64 / phase.wall_seconds / (1 << 20) as f64
}

pub(super) fn mix_table(runs: &[Run]) -> Table {
    let mut rows = Vec::new();
    for run in runs {
        let Some(phase) = run.phase(MIX) else { continue };
        let slow = [(WITHOUT, WITHOUT_SLOW), (WITH, WITH_SLOW)].into_iter().find(|(_, slow)| *slow == run.case);
        let fast = slow.and_then(|(fast, _)| find(runs, fast, &run.side)?.phase(MIX));
        rows.push(vec![
            Cell::text(format!("{}, {}", run.side, run.case)),
            Cell::number(throughput(phase), 0),
            Cell::number(phase.rate(), 0),
            Cell::number(phase.cpu_micros(), 2),
            Cell::number(phase.max_latency_seconds.map(|most| most * 1e3), 2),
            Cell::percent(fast.map(|fast| more(throughput(fast), throughput(phase)))),
        ]);
    }
    Table {
        title: MIX.into(),
        columns: columns(["", "MiB per s", "operations per s", "CPU µs", "longest ms", "gained by remembering"]),
        rows,
    }
}

fn kind_table(title: &str, runs: &[Run], value: impl Fn(&Kind) -> f64) -> Table {
    let row = |run: &Run| {
        let phase = run.phase(MIX)?;
        let mut row = vec![Cell::text(format!("{}, {}", run.side, run.case))];
        row.extend(phase.kinds.iter().map(|kind| Cell::number(value(kind), 1)));
        Some(row)
    };
    let names = std::iter::once("").chain(WEIGHTS.iter().map(|(_, name, _)| *name)).map(String::from).collect();
    Table { title: title.into(), columns: names, rows: runs.iter().filter_map(row).collect() }
}

fn plot(runs: &[Run]) -> Plot {
    let series = |run: &Run| BarSeries {
        name: format!("{}, {}", run.side, run.case),
        values: vec![run.phase(MIX).map(throughput)],
    };
    Plot::Bars {
        title: "Contents written and read".into(),
        unit: "MiB/s".into(),
        groups: vec![MIX.into()],
        series: runs.iter().map(series).collect(),
    }
}
