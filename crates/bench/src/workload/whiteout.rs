//! whiteout: many threads make files with an attribute each, of 64 bytes to 64 KiB, which is logged by intents, or not.
//!
//! Published figures: an intent whose done item is in the same checkpoint need not be written to the log, which reduced
//! the log from 2.5 GB/s to 0.22 GB/s.
//!
//! "Logged" is what a caller gets who asks for it: an update that one transaction makes needs no intent. "By intents"
//! is how the kernel logged attributes: each update has an intent, and is made by a transaction of its own.
//!
//! Values that wait for their checkpoint take memory, which the cache option must bound. So the cache has the library's
//! default size here, unless the user sets another: with a quarter of the memory, the bound would never be reached.

use super::files::{CREATE_AND_SET, FilesWithValues, Then};
use super::tables::{columns, counters, find, logging_costs_nothing};
use super::xattr::published;
use crate::case::Case;
use crate::lab::{Lab, Run};
use crate::measure::Phase;
use crate::report::{Cell, Goal, LineSeries, Plot, Section, Table};
use crate::side::Side;
use anyhow::Result;
use xfskit_engine::{AttrLogging, AttrPath};

/// Bytes of all values of a case, and files at most.
const VALUE_BYTES: usize = 1 << 30;
const QUICK_VALUE_BYTES: usize = 512 << 20;
const FILES: usize = 64_000;
/// With fewer files, the last thread works alone for much of the time.
const QUICK_FILES: usize = 32_000;
const THREADS: usize = 16;
/// The length whose figures were published, and the others.
const PUBLISHED_BYTES: usize = 64 << 10;
const SIZES: [usize; 6] = [64, 256, 1 << 10, 4 << 10, 16 << 10, PUBLISHED_BYTES];
const QUICK_SIZES: [usize; 3] = [64, 4 << 10, PUBLISHED_BYTES];

const NOT_LOGGED: &str = "not logged";
const LOGGED: &str = "logged";
const WHITED_OUT: &str = "by intents, whiteouts on";
const ALL_INTENTS_LOGGED: &str = "by intents, whiteouts off";

/// The name of a case.
fn name_of(bytes: usize, how: &str) -> String {
    format!("{bytes} bytes, {how}")
}

/// Measures.
pub(super) fn measure(lab: &Lab<'_>) -> Result<Section> {
    let threads = lab.options.threads.unwrap_or(THREADS);
    let mut runs = Vec::new();
    let sizes = if lab.options.quick { &QUICK_SIZES[..] } else { &SIZES };
    for &bytes in sizes {
        runs.extend(lab.measure(&cases(lab, bytes, threads))?);
    }
    let mut section = Section {
        name: "whiteout".into(),
        title: "whiteout: attributes of all sizes, logged".into(),
        about: format!(
            "Up to {} files are made by {threads} threads, each in a directory of its own, and each is given an \
             attribute. Best of {} rounds.",
            lab.files_or(FILES, QUICK_FILES),
            lab.rounds()
        ),
        ..Section::default()
    };
    section.tables.push(table(&runs));
    section.tables.extend(counters(runs.iter().filter(|run| run.case.starts_with(&name_of(PUBLISHED_BYTES, "")))));
    section.goals = sizes.iter().flat_map(|&bytes| goals(lab, &runs, bytes)).collect();
    section.plots = plots(&runs, &lab.sides);
    section.notes.push(
        "The kernel can log attributes only in a build for debugging, so its side is without. Published, 64 KiB: \
         logged 9,000 files/s and 2.5 GB/s of log, with whiteouts 36,000 and 0.22, not logged 40,000 to 45,000; 4 \
         KiB: logged 50,000 files/s and over 1 GB/s of log."
            .into(),
    );
    section.runs = runs;
    Ok(section)
}

/// The cases of one length.
fn cases(lab: &Lab<'_>, bytes: usize, threads: usize) -> [(Case, FilesWithValues); 4] {
    let value_bytes = if lab.options.quick { QUICK_VALUE_BYTES } else { VALUE_BYTES };
    let each = (lab.files_or(FILES, QUICK_FILES).min(value_bytes / bytes) / threads).max(1);
    let case = |how: &str| {
        let mut case = Case { threads, ..lab.case(name_of(bytes, how), each * threads, bytes) };
        case.mount.cache_bytes = lab.bounded_cache_bytes();
        if lab.options.published { published(lab, case) } else { case }
    };
    let logged = |how: &str, path: AttrPath, whiteouts: bool| {
        case(how).switch(|options| {
            options.attr_logging = AttrLogging::Always;
            options.attr_path = path;
            options.whiteouts = whiteouts;
        })
    };
    let cases = [
        case(NOT_LOGGED),
        logged(LOGGED, AttrPath::Fast, true),
        logged(WHITED_OUT, AttrPath::Intents, true),
        logged(ALL_INTENTS_LOGGED, AttrPath::Intents, false),
    ];
    cases.map(|case| (case, FilesWithValues { each, bytes, then: Then::Nothing }))
}

fn log_rate(phase: &Phase) -> Option<f64> {
    Some(phase.log_bytes? as f64 / phase.wall_seconds / (1 << 20) as f64)
}

fn table(runs: &[Run]) -> Table {
    let mut rows = Vec::new();
    for run in runs {
        let Some(phase) = run.phase(CREATE_AND_SET) else { continue };
        let bytes = run.case.split(' ').next().and_then(|bytes| bytes.parse().ok()).unwrap_or_default();
        let not_logged = find(runs, &name_of(bytes, NOT_LOGGED), &run.side).and_then(|run| run.phase(CREATE_AND_SET));
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

fn goals(lab: &Lab<'_>, runs: &[Run], bytes: usize) -> Vec<Goal> {
    let side = &lab.sides[0].name;
    let phase = |how: &str| find(runs, &name_of(bytes, how), side)?.phase(CREATE_AND_SET);
    let mut goals = Vec::new();
    let Some(plain) = phase(NOT_LOGGED) else { return goals };
    if let Some(logged) = phase(LOGGED) {
        goals.extend(logging_costs_nothing(&format!("{bytes} bytes:"), logged, plain));
    }
    if bytes == PUBLISHED_BYTES {
        goals.extend(published_goals(lab, plain, phase(WHITED_OUT), phase(ALL_INTENTS_LOGGED)));
    }
    goals
}

/// The goals at the published length.
fn published_goals(lab: &Lab<'_>, plain: &Phase, on: Option<&Phase>, off: Option<&Phase>) -> Vec<Goal> {
    let mut goals = Vec::new();
    let Some(on) = on else { return goals };
    goals.push(Goal::at_least("rate, by intents with whiteouts over not logged", 0.97, on.rate() / plain.rate()));
    if let Some((on, off)) = on.log_bytes.zip(off.and_then(|off| off.log_bytes)) {
        goals.push(Goal::at_most("log bytes, whiteouts on over off", 1.0 / 15.0, on as f64 / off as f64));
    }
    let values = (plain.operations as usize * PUBLISHED_BYTES) as f64;
    for (name, phase, most) in [("not logged", plain, 1.0), ("by intents", on, 2.0)] {
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

fn plots(runs: &[Run], sides: &[Side]) -> Vec<Plot> {
    let line = |side: &str, how: &str, value: fn(&Phase) -> Option<f64>| {
        let point = |&bytes: &usize| {
            let phase = find(runs, &name_of(bytes, how), side)?.phase(CREATE_AND_SET)?;
            Some((bytes as f64, value(phase)?))
        };
        LineSeries { name: format!("{side}, {how}"), points: SIZES.iter().filter_map(point).collect() }
    };
    let plot = |title: &str, unit: &str, value: fn(&Phase) -> Option<f64>| {
        let all = [NOT_LOGGED, LOGGED, WHITED_OUT, ALL_INTENTS_LOGGED];
        let lines = sides.iter().flat_map(|side| all.map(|how| line(&side.name, how, value)));
        Plot::Lines {
            title: title.into(),
            x: "bytes".into(),
            y: unit.into(),
            series: lines.filter(|line| !line.points.is_empty()).collect(),
        }
    };
    vec![
        plot("Files per second", "per s", |phase| Some(phase.rate())),
        plot("Log bytes of a file", "bytes", |phase| phase.per_operation(phase.log_bytes)),
    ]
}
