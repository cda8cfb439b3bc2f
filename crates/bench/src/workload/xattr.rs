//! xattr: one attribute on each of many files, of all sizes: set, replaced by a value of the same and of another
//! length, read, listed, removed; and one attribute of one file, over and over.
//!
//! Values of up to some hundred bytes lie in the inode, longer ones in a leaf block, those above about three quarters
//! of a block in blocks of their own. Published figures: the cost of logging them by intents.

use super::files::{FilesWithValues, Then, make_dirs};
use super::tables::{beside, counters, find, logging_costs_nothing, matrix};
use crate::case::Case;
use crate::lab::{Lab, Run, Work};
use crate::measure::{Bench, Phase};
use crate::names::file_name;
use crate::report::{Cell, Goal, LineSeries, Plot, Section};
use crate::subject::Target;
use anyhow::Result;
use xfskit_engine::AttrLogging;

const FILES: usize = 100_000;
const NAME: &str = "user.test";
const PUBLISHED_BYTES: usize = 64;
const PUBLISHED_LONG_BYTES: usize = 4 << 10;
const PUBLISHED_THREADS: usize = 16;
const PUBLISHED_GEOMETRY: [(char, &str); 2] = [('l', "size=2000m"), ('d', "agcount=67")];
/// Bytes of the sparse image: an AG is at least as large as the log, which lies in one.
const PUBLISHED_IMAGE_BYTES: u64 = 160 << 30;
const SIZES: [usize; 7] = [16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10];
const QUICK_SIZES: [usize; 4] = [16, 64, 1 << 10, 64 << 10];
/// Maximum bytes of all values of a case, so that long values do not take hours.
const VALUE_BYTES: usize = 512 << 20;
const QUICK_VALUE_BYTES: usize = 128 << 20;
const MAX_THREADS: usize = 16;

struct Xattr {
    each: usize,
    bytes: usize,
    /// How often the attribute of one file is set again.
    over_and_over: usize,
}

impl Work for Xattr {
    fn run<T: Target>(&self, bench: &Bench<'_, T>) -> Result<()> {
        let target = bench.target;
        let files = make_files(bench, self.each)?;
        let values = [vec![7; self.bytes], vec![8; self.bytes], vec![9; self.bytes - self.bytes.div_ceil(4)]];
        let file = |thread: usize, n: usize| &files[thread][n];
        bench.common_phase("set", self.each, |thread, n| target.set_xattr(file(thread, n), NAME, &values[0]))?;
        bench.common_phase("replace, same length", self.each, |thread, n| {
            target.set_xattr(file(thread, n), NAME, &values[1])
        })?;
        bench.common_phase("get", self.each, |thread, n| {
            let length = target.get_xattr(file(thread, n), NAME, &mut vec![0; self.bytes])?;
            anyhow::ensure!(length == self.bytes, "an attribute of {length} bytes was set with {}", self.bytes);
            Ok(())
        })?;
        bench.common_phase("list", self.each, |thread, n| {
            let length = target.list_xattrs(file(thread, n), &mut [0; 256])?;
            anyhow::ensure!(length > NAME.len(), "the list of names does not have the attribute");
            Ok(())
        })?;
        bench.common_phase("replace, other length", self.each, |thread, n| {
            target.set_xattr(file(thread, n), NAME, &values[2])
        })?;
        if self.over_and_over > 0 {
            bench.phase(ONE_FILE, self.over_and_over, |thread, n| {
                target.set_xattr(file(thread, 0), NAME, &values[n & 1])
            })?;
        }
        bench.common_phase("remove", self.each, |thread, n| target.remove_xattr(file(thread, n), NAME))
    }
}

const ONE_FILE: &str = "set, one file over and over";

/// Makes `each` empty files for each thread, in a directory of its own, without measuring.
pub(super) fn make_files<T: Target>(bench: &Bench<'_, T>, each: usize) -> Result<Vec<Vec<T::File>>> {
    let target = bench.target;
    let dirs = make_dirs(bench.target, bench.threads)?;
    let files: Vec<std::sync::Mutex<Vec<T::File>>> = (0..bench.threads).map(|_| Default::default()).collect();
    bench.prepare(each, |thread, n| {
        let name = file_name(thread, n);
        let made = target.create(&dirs[thread], &name)?;
        files[thread].lock().expect("no thread panics with it").push(target.file(&dirs[thread], &name, made));
        Ok(())
    })?;
    Ok(files.into_iter().map(|files| files.into_inner().expect("no thread panics with it")).collect())
}

/// Measures.
pub(super) fn measure(lab: &Lab<'_>) -> Result<Section> {
    let mut section = Section {
        name: "xattr".into(),
        title: "xattr: attributes of all sizes".into(),
        about: format!(
            "One attribute on each of up to {} files (fewer where their values would take more than {} MiB), {} \
             threads, each in a directory of its own. Best of {} rounds, and of five times as many of the engine's, \
             which differ by little.",
            lab.options.files.unwrap_or(FILES),
            value_bytes(lab) >> 20,
            lab.threads(),
            lab.rounds()
        ),
        ..Section::default()
    };
    let sides: Vec<String> = lab.sides.iter().map(|side| side.name.clone()).collect();
    let runs = if lab.options.published { as_published(lab)? } else { sizes(lab)? };
    if let [first, second] = &sides[..] {
        for run in runs.iter().filter(|run| run.side == *first) {
            section.tables.extend(find(&runs, &run.case, second).map(|theirs| beside(&run.case, run, theirs)));
        }
    }
    section.tables.push(matrix("µs of an operation", runs.iter(), |phase| Cell::number(phase.micros(), 2)));
    section.tables.push(matrix("CPU µs of an operation", runs.iter(), |phase| Cell::number(phase.cpu_micros(), 2)));
    let transactions = |phase: &Phase| Cell::number(phase.per_operation(phase.transactions), 3);
    section.tables.push(matrix("Transactions of an operation", runs.iter(), transactions));
    let log_bytes = |phase: &Phase| Cell::number(phase.per_operation(phase.log_bytes), 1);
    section.tables.push(matrix("Log bytes of an operation", runs.iter(), log_bytes));
    section.tables.extend(counters(runs.iter().filter(|run| run.case.ends_with("never"))));
    section.goals = goals(&runs, &sides);
    section.runs = runs;
    if lab.options.published {
        section.about = format!("The published geometry, {}. {}", "-l size=2000m -d agcount=67", section.about);
    } else {
        section.plots = size_plots(&section.runs, &sides);
        let runs = threads(lab)?;
        section
            .tables
            .push(matrix("Operations per second, by threads", runs.iter(), |phase| Cell::number(phase.rate(), 0)));
        section.plots.push(thread_plot(&runs, &sides));
        section.runs.extend(runs);
    }
    Ok(section)
}

fn value_bytes(lab: &Lab<'_>) -> usize {
    if lab.options.quick { QUICK_VALUE_BYTES } else { VALUE_BYTES }
}

fn case(lab: &Lab<'_>, name: String, bytes: usize) -> (Case, usize) {
    let files = lab.options.files.unwrap_or(FILES).min(value_bytes(lab) / bytes).max(lab.threads());
    (lab.case(name, files, bytes), files)
}

const LOGGING: [(&str, AttrLogging); 2] = [("never", AttrLogging::Never), ("always", AttrLogging::Always)];

fn size_name(bytes: usize, logging: &str) -> String {
    format!("{bytes} bytes, logged {logging}")
}

fn logged(case: Case, logging: AttrLogging) -> Case {
    if logging == AttrLogging::Never { case } else { case.switch(|options| options.attr_logging = logging) }
}

fn sizes(lab: &Lab<'_>) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    for &bytes in if lab.options.quick { &QUICK_SIZES[..] } else { &SIZES } {
        let cases = LOGGING.map(|(name, logging)| {
            let (case, files) = case(lab, size_name(bytes, name), bytes);
            let each = files / case.threads;
            let over_and_over = if bytes == PUBLISHED_BYTES { each } else { 0 };
            (logged(case, logging), Xattr { each, bytes, over_and_over })
        });
        runs.extend(lab.measure_closely(&cases)?);
    }
    Ok(runs)
}

/// A case on an image of the published geometry.
pub(super) fn published(lab: &Lab<'_>, case: Case) -> Case {
    let image_bytes = lab.options.image_bytes.unwrap_or(PUBLISHED_IMAGE_BYTES);
    Case { image_bytes, ..case.mkfs(&PUBLISHED_GEOMETRY) }
}

/// As published: files are made and given their attribute in one phase, of 64 bytes and of 4 KiB.
fn as_published(lab: &Lab<'_>) -> Result<Vec<Run>> {
    let threads = lab.options.threads.unwrap_or(PUBLISHED_THREADS);
    let mut runs = Vec::new();
    for bytes in [PUBLISHED_BYTES, PUBLISHED_LONG_BYTES] {
        let cases = LOGGING.map(|(name, logging)| {
            let (case, files) = case(lab, size_name(bytes, name), bytes);
            let case = Case { threads, ..logged(published(lab, case), logging) };
            (case, FilesWithValues { each: (files / threads).max(1), bytes, then: Then::Unlink })
        });
        runs.extend(lab.measure(&cases)?);
    }
    Ok(runs)
}

fn threads(lab: &Lab<'_>) -> Result<Vec<Run>> {
    let counts = std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|&count| count <= MAX_THREADS);
    let cases = counts.map(|count| {
        let (case, files) = case(lab, thread_name(count), PUBLISHED_BYTES);
        let each = (files / count).max(1);
        (Case { threads: count, ..case }, Xattr { each, bytes: PUBLISHED_BYTES, over_and_over: each })
    });
    lab.measure(&cases.collect::<Vec<_>>())
}

fn thread_name(threads: usize) -> String {
    format!("{PUBLISHED_BYTES} bytes, {threads} threads")
}

fn thread_plot(runs: &[Run], sides: &[String]) -> Plot {
    let line = |side: &String| LineSeries {
        name: format!("{side}, set"),
        points: runs
            .iter()
            .filter(|run| run.side == *side)
            .filter_map(|run| Some((run.threads as f64, run.phase("set")?.rate())))
            .collect(),
    };
    Plot::Lines {
        title: "Set, 64 bytes, by threads".into(),
        x: "threads".into(),
        y: "per s".into(),
        series: sides.iter().map(line).collect(),
    }
}

fn size_plots(runs: &[Run], sides: &[String]) -> Vec<Plot> {
    let line = |side: &str, logging: &str, phase: &str| {
        let point = |&bytes: &usize| {
            let run = find(runs, &size_name(bytes, logging), side)?;
            Some((bytes as f64, run.phase(phase)?.micros()))
        };
        LineSeries { name: format!("{side}, logged {logging}"), points: SIZES.iter().filter_map(point).collect() }
    };
    let plot = |phase: &str| {
        let lines = sides.iter().flat_map(|side| LOGGING.map(|(logging, _)| line(side, logging, phase)));
        Plot::Lines {
            title: format!("{phase}, by bytes of the value"),
            x: "bytes".into(),
            y: "µs".into(),
            series: lines.filter(|line| !line.points.is_empty()).collect(),
        }
    };
    ["set", "replace, same length", "get", "remove"].map(plot).to_vec()
}

/// What logging costs: `always` over `never`, at each length.
fn goals_of_logging(runs: &[Run], side: &str) -> Vec<Goal> {
    let mut goals = Vec::new();
    for bytes in SIZES {
        let find = |logging| find(runs, &size_name(bytes, logging), side).filter(|run| run.engine);
        let Some((never, always)) = find("never").zip(find("always")) else { continue };
        for phase in ["set", "replace, same length", "replace, other length", "remove"] {
            let Some((never, always)) = never.phase(phase).zip(always.phase(phase)) else { continue };
            goals.extend(logging_costs_nothing(&format!("{bytes} bytes: {phase},"), always, never));
        }
    }
    goals
}

fn goals(runs: &[Run], sides: &[String]) -> Vec<Goal> {
    let mut goals = goals_of_logging(runs, &sides[0]);
    goals.extend(goals_against(runs, sides));
    goals
}

/// The goals beside the second side.
fn goals_against(runs: &[Run], sides: &[String]) -> Vec<Goal> {
    let case = size_name(PUBLISHED_BYTES, "never");
    let [first, second] = sides else { return Vec::new() };
    let Some((ours, theirs)) = find(runs, &case, first).filter(|run| run.engine).zip(find(runs, &case, second)) else {
        return Vec::new();
    };
    let wanted =
        [("set", 4.0), ("replace, same length", 4.0), ("remove", 4.0), (ONE_FILE, 3.0), ("get", 6.0), ("list", 6.0)];
    let goal = |(phase, ratio): (&str, f64)| {
        let measured = ours.phase(phase)?.rate() / theirs.phase(phase)?.rate();
        Some(Goal::at_least(format!("64 bytes: {phase}, rate against {second}"), ratio, measured))
    };
    wanted.into_iter().filter_map(goal).collect()
}
