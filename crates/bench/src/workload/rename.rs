//! rename: every file gets a new name of the same length, one of another length, and moves to another directory.
//!
//! With parent pointers each rename also replaces an attribute: in place if the lengths are equal and the attributes
//! lie in the inode, otherwise by removing one and adding one. Attributes that do not fit the inode lie in a block of
//! their own.

use super::files::make_dirs;
use super::tables::{beside, costs, counters, find, more};
use crate::case::Case;
use crate::lab::{Lab, Run, Work};
use crate::measure::Bench;
use crate::names::file_name;
use crate::report::{BarSeries, Cell, Plot, Section, Table};
use crate::subject::Target;
use anyhow::Result;
use xfskit_engine::AttrPath;

const FILES: usize = 200_000;
/// An attribute of this size does not fit the inode beside the others.
const OUTGROWN_BYTES: usize = 600;
const OTHER_LENGTH: usize = 24;

const WITHOUT: &str = "parent=0";
const WITH: &str = "parent=1, in the inode";
const SLOW: &str = "parent=1, in the inode, fast path off";
const OUTGROWN: &str = "parent=1, in a block";

const PHASES: [&str; 3] = ["equal length", "other length", "other directory"];

struct Rename {
    each: usize,
    outgrown: bool,
}

impl Work for Rename {
    fn run<T: Target>(&self, bench: &Bench<'_, T>) -> Result<()> {
        let target = bench.target;
        let dirs = make_dirs(target, 2 * bench.threads)?;
        let value = vec![7; OUTGROWN_BYTES];
        bench.prepare(self.each, |thread, n| {
            let (dir, name) = (&dirs[2 * thread], file_name(thread, n));
            let made = target.create(dir, &name)?;
            if self.outgrown {
                target.set_xattr(&target.file(dir, &name, made), "user.long", &value)?;
            }
            Ok(())
        })?;
        // A thread number that no thread has makes names that no file has.
        let other = |thread: usize, n: usize| file_name(thread + 128, n);
        bench.phase(PHASES[0], self.each, |thread, n| {
            let dir = &dirs[2 * thread];
            target.rename((dir, &file_name(thread, n)), (dir, &other(thread, n)))
        })?;
        let short = |thread: usize, n: usize| -> [u8; OTHER_LENGTH] {
            let name = other(thread, n);
            std::array::from_fn(|place| name[name.len() - OTHER_LENGTH + place])
        };
        bench.phase(PHASES[1], self.each, |thread, n| {
            let dir = &dirs[2 * thread];
            target.rename((dir, &other(thread, n)), (dir, &short(thread, n)))
        })?;
        bench.phase(PHASES[2], self.each, |thread, n| {
            let name = short(thread, n);
            target.rename((&dirs[2 * thread], &name), (&dirs[2 * thread + 1], &name))
        })
    }
}

/// Measures.
pub(super) fn measure(lab: &Lab<'_>) -> Result<Section> {
    let files = lab.files(FILES);
    let each = files / lab.threads();
    let case = |name: &str, bytes: usize| lab.case(name, files, bytes);
    let work = |outgrown| Rename { each, outgrown };
    let cases: [(Case, Rename); 4] = [
        (case(WITHOUT, 0).parent(false), work(false)),
        (case(WITH, 0).parent(true), work(false)),
        (case(SLOW, 0).parent(true).switch(|options| options.attr_path = AttrPath::General), work(false)),
        (case(OUTGROWN, 2 * 4096).parent(true), work(true)),
    ];
    let runs = lab.measure(&cases)?;
    let sides: Vec<&str> = lab.sides.iter().map(|side| side.name.as_str()).collect();
    let mut section = Section {
        name: "rename".into(),
        title: "rename: new names, and the parent pointers that follow".into(),
        about: format!(
            "{} files are renamed three times by {} threads, each in a directory of its own: to a name of the same 40 \
             bytes, to one of {OTHER_LENGTH}, and into another directory. Best of {} rounds.",
            each * lab.threads(),
            lab.threads(),
            lab.rounds()
        ),
        ..Section::default()
    };
    if let [first, second] = sides[..] {
        for case in [WITHOUT, WITH, OUTGROWN] {
            let pair = find(&runs, case, first).zip(find(&runs, case, second));
            section.tables.extend(pair.map(|(ours, theirs)| beside(case, ours, theirs)));
        }
    }
    section.tables.push(costs("What a rename costs", &runs));
    section.tables.push(added(&runs, &sides));
    section.tables.extend(counters(runs.iter()));
    section.plots.push(plot(&runs));
    section.runs = runs;
    Ok(section)
}

/// What the parent pointer adds to a rename.
fn added(runs: &[Run], sides: &[&str]) -> Table {
    let mut rows = Vec::new();
    for side in sides {
        for case in [WITH, SLOW, OUTGROWN] {
            let Some((without, with)) = find(runs, WITHOUT, side).zip(find(runs, case, side)) else { continue };
            let mut row = vec![Cell::text(format!("{side}, {case}"))];
            row.extend(PHASES.map(|phase| {
                let pair = without.phase(phase).zip(with.phase(phase));
                Cell::percent(pair.map(|(without, with)| more(with.cpu_seconds(), without.cpu_seconds())))
            }));
            rows.push(row);
        }
    }
    let names = std::iter::once("").chain(PHASES).map(String::from).collect();
    Table { title: "CPU that a parent pointer adds".into(), columns: names, rows }
}

fn plot(runs: &[Run]) -> Plot {
    let series = |run: &Run| BarSeries {
        name: format!("{}, {}", run.side, run.case),
        values: run.phases.iter().map(|phase| Some(phase.rate())).collect(),
    };
    Plot::Bars {
        title: "Renames per second".into(),
        unit: "per s".into(),
        groups: PHASES.map(String::from).to_vec(),
        series: runs.iter().map(series).collect(),
    }
}
