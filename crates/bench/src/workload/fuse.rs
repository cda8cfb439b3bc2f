//! fuse: creates, attributes and unlinks through xfskit's FUSE mount, compared with a FUSE server that does nothing;
//! and dbench's mix through the mount, with the absence of attributes remembered or not.
//!
//! The server runs in this process, so its CPU time is in the figures of its side. If FUSE cannot be used, there are no
//! runs.

use super::noxattr::{MIX, Mix, mix_table, throughput};
use super::tables::{beside, costs, find};
use super::xattr::make_files;
use crate::lab::{Lab, Run, Work};
use crate::measure::Bench;
use crate::names::file_name;
use crate::report::{BarSeries, Goal, Plot, Section};
use crate::side::Side;
use crate::subject::{PIECE, Target};
use anyhow::{Result, ensure};
use std::fs::File;

const FILES: usize = 100_000;
const OPERATIONS: usize = 200_000;
const NAME: &str = "user.test";
const WANTED: f64 = 0.9;
const LIST: &str = "list with attributes";
/// Names of threads with these numbers are others than those that are made.
const RENAMED: usize = 100;
const ABSENT: usize = 200;
/// Root makes the kernel forget names and inodes by writing a 2 here.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

const CASE: &str = "parent=1";
const REMEMBERED: &str = "parent pointers only, absence remembered";
const SEARCHED: &str = "parent pointers only, searched each time";

#[derive(Clone, Copy)]
struct Requests {
    each: usize,
}

impl Work for Requests {
    fn run<T: Target>(&self, bench: &Bench<'_, T>) -> Result<()> {
        let target = bench.target;
        let make = |n: usize| target.make_dir(target.base(), format!("made{n}").as_bytes());
        let dirs: Vec<T::Dir> = (0..bench.threads).map(make).collect::<Result<_>>()?;
        bench.phase("create", self.each, |thread, n| {
            target.create(&dirs[thread], &file_name(thread, n))?;
            Ok(())
        })?;
        let files = make_files(bench, self.each)?;
        bench.phase("setxattr", self.each, |thread, n| target.set_xattr(&files[thread][n], NAME, &[7; 64]))?;
        bench.phase("getxattr", self.each, |thread, n| {
            target.get_xattr(&files[thread][n], NAME, &mut [0; 64])?;
            Ok(())
        })?;
        bench.phase("rename", self.each, |thread, n| {
            let (old, new) = (file_name(thread, n), file_name(thread + RENAMED, n));
            target.rename((&dirs[thread], &old), (&dirs[thread], &new))
        })?;
        bench.phase("lookup, absent", self.each, |thread, n| {
            // An error is the answer that is wanted.
            ensure!(target.stat(&dirs[thread], &file_name(thread + ABSENT, n)).is_err(), "a name that was not made");
            Ok(())
        })?;
        bench.phase("unlink", self.each, |thread, n| target.unlink(&dirs[thread], &file_name(thread + RENAMED, n)))?;
        self.list(bench)
    }
}

impl Requests {
    /// Lists a folder of each thread and asks for the attributes of its files, of which the kernel knows nothing.
    fn list<T: Target>(&self, bench: &Bench<'_, T>) -> Result<()> {
        let target = bench.target;
        let make = |n: usize| target.make_dir(target.base(), format!("listed{n}").as_bytes());
        let dirs: Vec<T::Dir> = (0..bench.threads).map(make).collect::<Result<_>>()?;
        bench.prepare(self.each, |thread, n| {
            target.create(&dirs[thread], &file_name(0, n))?;
            Ok(())
        })?;
        if std::fs::write(DROP_CACHES, "2").is_err() {
            return Ok(());
        }
        bench.phase(LIST, 1, |thread, _| {
            let mut listing = target.open_list(&dirs[thread])?;
            let mut seen = 0;
            loop {
                let names = target.next_names(&mut listing, PIECE)?;
                if names.is_empty() {
                    break;
                }
                names.iter().try_for_each(|name| target.stat(&dirs[thread], name))?;
                seen += names.len();
            }
            ensure!(seen == self.each, "a listing of {seen} names");
            Ok(())
        })
    }
}

/// Measures.
pub(super) fn measure(lab: &Lab<'_>) -> Result<Section> {
    let mut section = Section {
        name: "fuse".into(),
        title: "fuse: how close a mount comes to what FUSE allows".into(),
        ..Section::default()
    };
    if let Err(error) = File::open("/dev/fuse") {
        section.about = format!("Nothing was measured: /dev/fuse cannot be used: {error}.");
        return Ok(section);
    }
    let work = Requests { each: lab.files(FILES) / lab.threads() };
    let files = work.each * lab.threads();
    section.about = format!(
        "{files} files are made, as many are given an attribute of 64 bytes, which is read again, the first are \
         renamed, as many absent names are looked up, the first are removed, and a folder with as many is listed, by \
         {} threads in directories of their own; kernel, FUSE library, options and threads of the server are the same \
         on both sides. Best of {} rounds.",
        lab.threads(),
        lab.rounds()
    );
    let sides = [Side::fuse(), Side::null(work.each)];
    let mut runs = lab.measure_on(&sides, &[(lab.case(CASE, 2 * files, 0).parent(true), work)])?;
    if let Some((ours, theirs)) = find(&runs, CASE, &sides[0].name).zip(find(&runs, CASE, &sides[1].name)) {
        section.tables.push(beside("Side by side", ours, theirs));
        section.goals = goals(ours, theirs);
        section.plots.push(plot(&[ours, theirs]));
    }
    section.tables.push(costs("What a request costs", &runs));
    let mixed = mixed(lab)?;
    section.tables.push(mix_table(&mixed));
    section.notes.extend(gained(&mixed));
    runs.extend(mixed);
    section.runs = runs;
    Ok(section)
}

fn goals(ours: &Run, theirs: &Run) -> Vec<Goal> {
    let goal = |phase: &crate::measure::Phase| {
        let measured = phase.rate() / theirs.phase(&phase.name)?.rate();
        Some(Goal::at_least(format!("{}, rate over that of a server that does nothing", phase.name), WANTED, measured))
    };
    ours.phases.iter().filter_map(goal).collect()
}

fn plot(runs: &[&Run]) -> Plot {
    let series = |run: &&Run| BarSeries {
        name: run.side.clone(),
        values: run.phases.iter().map(|phase| Some(phase.rate())).collect(),
    };
    Plot::Bars {
        title: "Requests per second".into(),
        unit: "per s".into(),
        groups: runs[0].phases.iter().map(|phase| phase.name.clone()).collect(),
        series: runs.iter().map(series).collect(),
    }
}

/// dbench's mix through the mount.
fn mixed(lab: &Lab<'_>) -> Result<Vec<Run>> {
    let threads = lab.options.threads.unwrap_or(4);
    let work = Mix { each: (lab.files(OPERATIONS) / threads).max(1), ask: false };
    let case = |name: &str| crate::case::Case { threads, ..lab.case(name, 100_000, 0).parent(true) };
    let cases = [case(REMEMBERED), case(SEARCHED).switch(|options| options.known_absent = false)];
    lab.measure_on(&[Side::fuse()], &cases.map(|case| (case, work)))
}

fn gained(runs: &[Run]) -> Option<String> {
    let phase = |case: &str| runs.iter().find(|run| run.case == case)?.phase(MIX);
    let (fast, slow) = (phase(REMEMBERED)?, phase(SEARCHED)?);
    let milliseconds = |seconds: Option<f64>| seconds.unwrap_or(0.0) * 1e3;
    Some(format!(
        "Remembering that an attribute is absent: {:.2} times the throughput of dbench's mix through the mount, \
         longest latency {:.1} ms against {:.1} ms. The search that is spared is one of a few bytes in an inode that \
         is in memory; a request through FUSE costs some hundred times as much.",
        throughput(fast) / throughput(slow),
        milliseconds(fast.max_latency_seconds),
        milliseconds(slow.max_latency_seconds)
    ))
}
