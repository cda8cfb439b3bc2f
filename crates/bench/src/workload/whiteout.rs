//! whiteout: many threads make files with an attribute of 64 KiB each, which is logged by an intent, or not.
//!
//! Published figures: an intent whose done item is in the same checkpoint need not be written to the log, which reduced
//! the log from 2.5 GB/s to 0.22 GB/s.
//!
//! Values that wait for their checkpoint take memory, which the cache option must bound. So the cache has the library's
//! default size here, unless the user sets another: with a quarter of the memory, the bound would never be reached.

use super::tables::{columns, counters, find};
use crate::case::Case;
use crate::lab::{Lab, Run, Work};
use crate::measure::{Bench, Phase};
use crate::names::file_name;
use crate::report::{BarSeries, Cell, Goal, Plot, Section, Table};
use crate::target::Target;
use anyhow::Result;
use xfskit::volume::{AttrLogging, AttrPath};

const FILES: usize = 16_000;
/// With fewer files, the last thread works alone for much of the time.
const QUICK_FILES: usize = 8_000;
const THREADS: usize = 16;
const VALUE_BYTES: usize = 64 << 10;
const PHASE: &str = "create and set";

const NOT_LOGGED: &str = "not logged";
const WHITED_OUT: &str = "logged, whiteouts on";
const LOGGED: &str = "logged, whiteouts off";

#[derive(Clone, Copy)]
struct LongValues {
    each: usize,
}

impl Work for LongValues {
    fn run<T: Target>(&self, bench: &Bench<'_, T>) -> Result<()> {
        let target = bench.target;
        let make = |n: usize| target.make_dir(target.base(), format!("dir{n}").as_bytes());
        let dirs: Vec<T::Dir> = (0..bench.threads).map(make).collect::<Result<_>>()?;
        let value = vec![7; VALUE_BYTES];
        target.sync()?;
        bench.phase(PHASE, self.each, |thread, n| {
            let name = file_name(thread, n);
            let made = target.create(&dirs[thread], &name)?;
            target.set_xattr(&target.file(&dirs[thread], &name, made), "user.test", &value)
        })
    }
}

/// Measures.
pub(super) fn measure(lab: &Lab<'_>) -> Result<Section> {
    let threads = lab.options.threads.unwrap_or(THREADS);
    let work = LongValues { each: (lab.files_or(FILES, QUICK_FILES) / threads).max(1) };
    let files = work.each * threads;
    let case = |name: &str| {
        let mut case = Case { threads, ..lab.case(name, files, VALUE_BYTES) };
        case.mount.cache_bytes = lab.bounded_cache_bytes();
        case
    };
    let always = |case: Case, whiteouts: bool| {
        case.switch(|options| {
            options.attr_logging = AttrLogging::Always;
            options.attr_path = AttrPath::Intents;
            options.whiteouts = whiteouts;
        })
    };
    let cases = [case(NOT_LOGGED), always(case(WHITED_OUT), true), always(case(LOGGED), false)];
    let runs = lab.measure(&cases.map(|case| (case, work)))?;
    let mut section = Section {
        name: "whiteout".into(),
        title: "whiteout: attributes of 64 KiB, logged".into(),
        about: format!(
            "{files} files are made by {threads} threads, each in a directory of its own, and each is given an attribute of 64 KiB. \
             Best of {} rounds.",
            lab.rounds()
        ),
        ..Section::default()
    };
    section.tables.push(table(&runs));
    section.tables.extend(counters(runs.iter()));
    section.goals = goals(lab, &runs);
    section.plots = plots(&runs);
    section.notes.push(
        "The kernel can log attributes only in a build for debugging, so its side is without. Published: logged 9,000 files/s and 2.5 GB/s \
         of log, with whiteouts 36,000 and 0.22, not logged 40,000 to 45,000."
            .into(),
    );
    section.runs = runs;
    Ok(section)
}

fn log_rate(phase: &Phase) -> Option<f64> {
    Some(phase.log_bytes? as f64 / phase.wall_seconds / (1 << 20) as f64)
}

fn table(runs: &[Run]) -> Table {
    let mut rows = Vec::new();
    for run in runs {
        let Some(phase) = run.phase(PHASE) else { continue };
        let not_logged = find(runs, NOT_LOGGED, &run.side).and_then(|run| run.phase(PHASE));
        rows.push(vec![
            Cell::text(format!("{}, {}", run.side, run.case)),
            Cell::number(phase.rate(), 0),
            Cell::ratio(not_logged.map(|other| phase.rate() / other.rate())),
            Cell::number(phase.cpu_micros(), 1),
            Cell::ratio(not_logged.map(|other| phase.cpu_micros() / other.cpu_micros())),
            Cell::number(phase.per_operation(phase.transactions), 2),
            Cell::number(phase.per_operation(phase.log_bytes), 0),
            Cell::number(log_rate(phase), 0),
        ]);
    }
    let names =
        ["", "files per s", "of not logged", "CPU µs", "of not logged", "transactions", "log bytes", "log MiB per s"];
    Table { title: "A file and its attribute".into(), columns: columns(names), rows }
}

fn goals(lab: &Lab<'_>, runs: &[Run]) -> Vec<Goal> {
    let side = &lab.sides[0].name;
    let phase = |case: &str| find(runs, case, side)?.phase(PHASE);
    let mut goals = Vec::new();
    let Some((plain, on)) = phase(NOT_LOGGED).zip(phase(WHITED_OUT)) else { return goals };
    goals.push(Goal::at_least("rate, logged with whiteouts over not logged", 0.97, on.rate() / plain.rate()));
    if let Some((on, off)) = on.log_bytes.zip(phase(LOGGED).and_then(|off| off.log_bytes)) {
        goals.push(Goal::at_most("log bytes, whiteouts on over off", 1.0 / 15.0, on as f64 / off as f64));
    }
    let values = (plain.operations as usize * VALUE_BYTES) as f64;
    for (name, phase, most) in [("not logged", plain, 1.0), ("logged", on, 2.0)] {
        let copied = phase.counter("value_bytes_copied");
        if copied > 0 {
            // Rounded to two decimals, because intents of parent pointers carry values too, of 12 bytes.
            let copies = (copied as f64 / values * 100.0).round() / 100.0;
            goals.push(Goal::at_most(format!("copies of a value, {name}"), most, copies));
        }
        let waiting = phase.counter("value_bytes_waiting_peak");
        if waiting > 0 {
            let what = format!("values that wait in memory, {name}, over the cache option");
            goals.push(Goal::at_most(what, 1.0, waiting as f64 / lab.bounded_cache_bytes() as f64));
        }
    }
    goals
}

fn plots(runs: &[Run]) -> Vec<Plot> {
    let plot = |title: &str, unit: &str, value: &dyn Fn(&Phase) -> Option<f64>| Plot::Bars {
        title: title.into(),
        unit: unit.into(),
        groups: vec![PHASE.into()],
        series: runs
            .iter()
            .map(|run| BarSeries {
                name: format!("{}, {}", run.side, run.case),
                values: vec![run.phase(PHASE).and_then(value)],
            })
            .collect(),
    };
    vec![
        plot("Files per second", "per s", &|phase| Some(phase.rate())),
        plot("Log bytes of a file", "bytes", &|phase| phase.per_operation(phase.log_bytes)),
    ]
}
