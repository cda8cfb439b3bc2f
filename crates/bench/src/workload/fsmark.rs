//! fsmark: empty files with names of 40 bytes in a few directories, then their removal as `rm -r` does it: each
//! directory is listed piece by piece, and the names of a piece are removed, in the order of the listing, before the
//! next is read. So a thread stores no more than one piece, however many files there are.
//!
//! Published figures: the cost of parent pointers if each change of one uses an attribute intent, and if the shortform
//! is changed in the same transaction. "By intents" is the side before: each change of a parent pointer is logged by an
//! intent, and made by a transaction of its own.

use super::files::make_dirs;
use super::tables::{beside, columns, costs, counters, find, more};
use crate::case::Case;
use crate::ceiling::gains_of_two_threads;
use crate::lab::{Lab, Run, Work};
use crate::measure::{Bench, Phase};
use crate::names::file_name;
use crate::report::{BarSeries, Cell, Goal, Plot, Section, Table};
use crate::subject::{PIECE, Target};
use anyhow::{Context, Result};
use std::sync::Mutex;
use xfskit_engine::AttrPath;

const FILES: usize = 1_000_000;
const PUBLISHED_THREADS: usize = 40;
const PUBLISHED_FILES: usize = 32_000_000;
/// Bytes of the sparse image.
const PUBLISHED_IMAGE_BYTES: u64 = 64 << 30;
/// As published: 40 AGs, sectors of 4 KiB, a log of 1 GiB on a device of its own.
const PUBLISHED_GEOMETRY: [(char, &str); 3] = [('d', "agcount=40"), ('s', "size=4096"), ('l', "size=1g")];
const PUBLISHED_LOG_BYTES: u64 = 1 << 30;

const WITH: &str = "parent=1";
const WITHOUT: &str = "parent=0";
const SLOW: &str = "parent=1, fast path off";
const BY_INTENTS: &str = "parent=1, by intents";
const ALL_INTENTS_LOGGED: &str = "parent=1, by intents, whiteouts off";
const ALONE: &str = "parent=1, one thread";

#[derive(Clone, Copy)]
pub(super) struct FsMark {
    /// Parts of the work, the same number for each thread; a thread with several does them in turns.
    pub(super) parts: usize,
    /// Files of each part.
    pub(super) each: usize,
    /// Directories of each part.
    pub(super) dirs: usize,
}

/// The directory of a part that is being emptied, and the names of the last piece that are still to be removed.
struct Emptied<L> {
    place: usize,
    listing: L,
    names: std::vec::IntoIter<Vec<u8>>,
}

impl<L> Emptied<L> {
    /// The next name to remove.
    fn next<T: Target<Listing = L>>(&mut self, target: &T) -> Result<Vec<u8>> {
        if self.names.len() == 0 {
            self.names = target.next_names(&mut self.listing, PIECE)?.into_iter();
        }
        self.names.next().context("a directory lists fewer names than it was given")
    }
}

impl FsMark {
    /// The index of the directory that contains the nth file of a part.
    fn dir_of(&self, n: usize) -> usize {
        n * self.dirs / self.each
    }

    /// Does `work(part, n)` for each part and each n below `each`.
    fn phase<T: Target>(
        &self,
        bench: &Bench<'_, T>,
        name: &str,
        work: impl Fn(usize, usize) -> Result<()> + Sync,
    ) -> Result<()> {
        let turns = self.parts / bench.threads;
        assert_eq!(turns * bench.threads, self.parts, "every thread has as many parts");
        bench.phase(name, turns * self.each, |thread, n| work(thread * turns + n % turns, n / turns))
    }
}

impl Work for FsMark {
    fn run<T: Target>(&self, bench: &Bench<'_, T>) -> Result<()> {
        let target = bench.target;
        let dirs = make_dirs(target, self.parts * self.dirs)?;
        target.sync()?;
        let dir = |part: usize, place: usize| &dirs[part * self.dirs + place];
        self.phase(bench, "create", |part, n| {
            target.create(dir(part, self.dir_of(n)), &file_name(part, n))?;
            Ok(())
        })?;
        let emptied: Vec<Mutex<Option<Emptied<T::Listing>>>> = (0..self.parts).map(|_| Mutex::default()).collect();
        self.phase(bench, "remove", |part, n| {
            let mut emptied = emptied[part].lock().expect("no thread panics with it");
            let place = self.dir_of(n);
            let current = match emptied.take() {
                Some(current) if current.place == place => current,
                _ => {
                    let listing = target.open_list(dir(part, place))?;
                    Emptied { place, listing, names: Vec::new().into_iter() }
                }
            };
            let name = emptied.insert(current).next(target)?;
            target.unlink(dir(part, place), &name)
        })
    }
}

/// Measures.
pub(super) fn measure(lab: &Lab<'_>) -> Result<Section> {
    let published = lab.options.published;
    let threads = lab.options.threads.unwrap_or(if published { PUBLISHED_THREADS } else { 2 });
    let files = lab.files(FILES).max(threads);
    let each = files / threads;
    let work = FsMark { parts: threads, each, dirs: (lab.options.dirs.unwrap_or(threads) / threads).clamp(1, each) };
    let case = |name: &str| {
        let mut case = Case { threads, ..lab.case(name, files, 0) };
        if published {
            case = case.mkfs(&PUBLISHED_GEOMETRY);
            case.log_device_bytes = Some(PUBLISHED_LOG_BYTES);
            case.image_bytes = lab.options.image_bytes.unwrap_or(case.image_bytes.max(PUBLISHED_IMAGE_BYTES));
        }
        case
    };
    let mut cases = vec![
        case(WITHOUT).parent(false),
        case(WITH).parent(true),
        case(SLOW).parent(true).switch(|options| options.attr_path = AttrPath::General),
        case(BY_INTENTS).parent(true).switch(|options| options.attr_path = AttrPath::Intents),
        case(ALL_INTENTS_LOGGED).parent(true).switch(|options| {
            options.attr_path = AttrPath::Intents;
            options.whiteouts = false;
        }),
    ];
    if threads > 1 {
        // The same files in the same directories, so that the log's work is the same.
        cases.push(Case { threads: 1, ..case(ALONE).parent(true) });
    }
    let cases: Vec<_> = cases.into_iter().map(|case| (case, work)).collect();
    Ok(section(lab, lab.measure(&cases)?, each, threads, work.dirs))
}

fn section(lab: &Lab<'_>, runs: Vec<Run>, each: usize, threads: usize, dirs: usize) -> Section {
    let sides: Vec<&str> = lab.sides.iter().map(|side| side.name.as_str()).collect();
    let mut section = Section {
        name: "fsmark".into(),
        title: "fsmark: empty files, and what parent pointers cost".into(),
        about: format!(
            "{} empty files with names of 40 bytes in {} directories, {threads} threads; then each directory is listed \
             piece by piece and its files are removed. Best of {} rounds.",
            each * threads,
            dirs * threads,
            lab.rounds()
        ),
        ..Section::default()
    };
    section.tables.push(costs("What an operation costs", &runs));
    if let [first, second] = sides[..] {
        for case in [WITH, WITHOUT] {
            if let (Some(ours), Some(theirs)) = (find(&runs, case, first), find(&runs, case, second)) {
                section.tables.push(beside(&format!("{case}, side by side"), ours, theirs));
            }
        }
    }
    section.tables.push(overhead(&runs, &sides));
    section.tables.extend(counters(runs.iter()));
    section.goals = goals(&runs, &sides);
    section.plots = plots(&runs, &sides);
    section.notes.extend(ceiling(&runs));
    if lab.options.published && each * threads < PUBLISHED_FILES {
        section.notes.push(format!(
            "Published: 32 million files; here {}. --files {PUBLISHED_FILES} makes as many.",
            each * threads
        ));
    }
    section.runs = runs;
    section
}

/// What parent pointers add to the cost, beside the published figures of the kernel.
fn overhead(runs: &[Run], sides: &[&str]) -> Table {
    let mut rows = Vec::new();
    for side in sides {
        for case in [WITH, SLOW, BY_INTENTS, ALL_INTENTS_LOGGED] {
            let label = case.strip_prefix(WITH).unwrap_or(case);
            let Some((without, with)) = find(runs, WITHOUT, side).zip(find(runs, case, side)) else { continue };
            for (before, after) in without.phases.iter().zip(&with.phases) {
                rows.push(overhead_row(format!("{side}{label}: {}", before.name), before, after));
            }
        }
    }
    for (what, wall, cpu) in [
        ("published, by intents: create", 9.0, 28.0),
        ("published, by intents: remove", 22.0, 56.0),
        ("published, one transaction: create", 5.0, 8.0),
        ("published, one transaction: remove", 9.0, 19.0),
    ] {
        let mut row = vec![Cell::text(what), Cell::percent(wall), Cell::percent(cpu)];
        row.resize(5, Cell::default());
        rows.push(row);
    }
    Table {
        title: "What parent pointers add (published: system time, 32 million files, 40 threads)".into(),
        columns: columns(["", "wall", "CPU", "transactions", "log bytes"]),
        rows,
    }
}

fn overhead_row(what: String, without: &Phase, with: &Phase) -> Vec<Cell> {
    let counted = |with: Option<u64>, without: Option<u64>| Some(more(with? as f64, without? as f64));
    vec![
        Cell::text(what),
        Cell::percent(more(with.wall_seconds, without.wall_seconds)),
        Cell::percent(more(with.cpu_seconds(), without.cpu_seconds())),
        Cell::percent(counted(with.transactions, without.transactions)),
        Cell::percent(counted(with.log_bytes, without.log_bytes)),
    ]
}

fn goals(runs: &[Run], sides: &[&str]) -> Vec<Goal> {
    let mut goals = Vec::new();
    let ours = |case: &str| find(runs, case, sides[0]).filter(|run| run.engine);
    let Some(with) = ours(WITH) else { return goals };
    let wanted = [("create", 3.0, 1.04), ("remove", 4.0, 1.06)];
    for (phase, ratio, cpu) in wanted {
        let Some(mine) = with.phase(phase) else { continue };
        if let Some(theirs) = sides.get(1).and_then(|side| find(runs, WITH, side)?.phase(phase)) {
            goals.push(Goal::at_least(
                format!("{phase}, rate against {}", sides[1]),
                ratio,
                mine.rate() / theirs.rate(),
            ));
        }
        let Some(without) = ours(WITHOUT).and_then(|run| run.phase(phase)) else { continue };
        let ratio = mine.cpu_seconds() / without.cpu_seconds();
        goals.push(Goal::at_most(format!("{phase}, CPU of parent=1 over parent=0"), cpu, ratio));
        if let (Some(with), Some(without), "create") = (mine.log_bytes, without.log_bytes, phase) {
            let ratio = with as f64 / without as f64;
            goals.push(Goal::at_most("create, log bytes of parent=1 over parent=0", 1.15, ratio));
        }
    }
    if let (Some(one), Some(two), 2) =
        (ours(ALONE).and_then(|run| run.phase("create")), with.phase("create"), with.threads)
    {
        goals.push(Goal::at_least("create, rate of two threads over one", 1.8, two.rate() / one.rate()));
    }
    goals
}

/// If one thread was measured alone: the gain of two threads that the machine allows, which bounds what the goal can
/// reach.
fn ceiling(runs: &[Run]) -> Option<String> {
    runs.iter().find(|run| run.case == ALONE)?;
    let gains = gains_of_two_threads();
    Some(format!(
        "Two threads that share nothing gain {:.2} times on this machine where they compute in registers, and {:.2} \
         times where they copy memory that no cache holds.",
        gains.computing, gains.copying
    ))
}

fn plots(runs: &[Run], sides: &[&str]) -> Vec<Plot> {
    let cases = [WITHOUT, WITH, BY_INTENTS];
    let groups = ["create", "remove"];
    let mut rates = Vec::new();
    let mut cpu = Vec::new();
    for side in sides {
        for case in cases {
            let Some(run) = find(runs, case, side) else { continue };
            let bars = |value: &dyn Fn(&Phase) -> f64| BarSeries {
                name: format!("{side}, {case}"),
                values: groups.iter().map(|name| run.phase(name).map(value)).collect(),
            };
            rates.push(bars(&Phase::rate));
            cpu.push(bars(&Phase::cpu_micros));
        }
    }
    let plot = |title: &str, unit: &str, series: Vec<BarSeries>| Plot::Bars {
        title: title.into(),
        unit: unit.into(),
        groups: groups.map(String::from).to_vec(),
        series,
    };
    vec![plot("Files per second", "per s", rates), plot("CPU time of an operation", "µs", cpu)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Watch;
    use crate::subject::PathTarget;
    use std::path::Path;

    struct NoWatch;

    impl Watch for NoWatch {
        fn begin(&self, _: &str, _: u64) {}
        fn advance(&self, _: u64) {}
        fn stopped(&self) -> bool {
            false
        }
    }

    fn count(path: &Path) -> usize {
        path.read_dir().unwrap().count()
    }

    #[test]
    fn directories_of_several_pieces_are_emptied_by_as_many_threads_as_parts_and_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let work = FsMark { parts: 2, each: 2 * PIECE + 3, dirs: 2 };
        for threads in [2, 1] {
            let target = PathTarget::open(dir.path(), "folder").unwrap();
            let bench = Bench::new(&target, threads, &NoWatch);
            work.run(&bench).unwrap();
            let operations: Vec<u64> = bench.into_phases().iter().map(|phase| phase.operations).collect();
            assert_eq!(operations, [2 * work.each as u64; 2]);
            let dirs: Vec<_> = target.folder().read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
            assert_eq!(dirs.len(), 4);
            assert!(dirs.iter().all(|dir| count(dir) == 0), "{dirs:?}");
            target.close(true).unwrap();
        }
        assert_eq!(count(dir.path()), 0);
    }

    #[test]
    fn a_directory_that_lists_fewer_names_than_it_was_given_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let target = PathTarget::open(dir.path(), "folder").unwrap();
        target.make_dir(target.base(), b"one").unwrap();
        let listing = target.open_list(target.base()).unwrap();
        let mut emptied = Emptied { place: 0, listing, names: Vec::new().into_iter() };
        emptied.next(&target).unwrap();
        let error = emptied.next(&target).unwrap_err().to_string();
        assert_eq!(error, "a directory lists fewer names than it was given");
    }
}
