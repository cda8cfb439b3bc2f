//! fsync: writers that make each 4 KiB durable, in blocks that their files have or behind their ends, and what an fsync
//! costs: flushes of the device, and how often threads share them.
//!
//! | side | device flushes are counted by |
//! |---|---|
//! | in this process | the engine |
//! | xfskit over FUSE, a server of its own | the server (`user.xfskit.stats`, as `xfskit stats` shows it) |
//! | the kernel's loop mount | the block layer, of the loop device (`/sys/block/loopN/stat`) |
//!
//! Each writer has a file, open all the time. Nothing but writes and fsyncs is timed.

use super::tables::columns;
use crate::BenchError;
use crate::lab::{Lab, Run, keep_best};
use crate::loop_mount::{LoopMount, obstacle};
use crate::machine::mount_point;
use crate::measure::Phase;
use crate::report::{Cell, Goal, Section, Table};
use crate::scratch::IMAGE;
use crate::served_mount::ServedMount;
use crate::subject::{About, server_counts};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use xfskit_device::{Access, FileDevice};
use xfskit_engine::{Caller, MountOptions, NewFile, Volume};
use xfskit_ondisk::InodeNumber;

const WRITERS: [usize; 3] = [1, 8, 64];
/// Fsyncs of a phase of one writer.
const FSYNCS: usize = 2560;
const QUICK_FSYNCS: usize = 640;
/// How many times as many they are, by all writers together, where there are as many writers or more.
const MOST_TIMES: usize = 8;
const BLOCK: usize = 4096;
/// Blocks of a file that is overwritten.
const BLOCKS: usize = 16;
const IMAGE_BYTES: u64 = 1 << 30;

const OURS: &str = "xfskit, in this process";
const SERVED: &str = "xfskit over FUSE";
const KERNEL: &str = "kernel, loop mount";
const SIDES: [&str; 3] = [OURS, SERVED, KERNEL];
const OVERWRITE: &str = "overwrite";
const APPEND: &str = "append";

const FLUSHES: &str = "device_flushes";
const FORCES: &str = "log_forces";
const SHARED: &str = "log_forces_shared";

/// The files of a side, and what it counts.
enum Side {
    InProcess { filesystem: Volume, files: Vec<InodeNumber> },
    Server { dir: PathBuf, files: Vec<fs::File> },
    Kernel { device: String, files: Vec<fs::File> },
}

impl Side {
    fn write(&self, writer: usize, offset: u64, data: &[u8]) -> Result<()> {
        match self {
            Self::InProcess { filesystem, files } => Ok(filesystem.write_at(files[writer], offset, data)?),
            Self::Server { files, .. } | Self::Kernel { files, .. } => Ok(files[writer].write_all_at(data, offset)?),
        }
    }

    fn fsync(&self, writer: usize) -> Result<()> {
        match self {
            Self::InProcess { filesystem, files } => Ok(filesystem.fsync(files[writer])?),
            Self::Server { files, .. } | Self::Kernel { files, .. } => Ok(files[writer].sync_all()?),
        }
    }

    /// What was counted so far, by name.
    fn counts(&self) -> Result<BTreeMap<String, u64>> {
        match self {
            Self::InProcess { filesystem, .. } => {
                let list = filesystem.counters().list();
                Ok(list.into_iter().map(|(name, count)| (name.to_owned(), count)).collect())
            }
            Self::Server { dir, .. } => Ok(server_counts(dir)?.others),
            Self::Kernel { device, .. } => kernel_counts(device),
        }
    }
}

/// Flushes of a loop device, and forces of the log of the filesystem on it.
fn kernel_counts(device: &str) -> Result<BTreeMap<String, u64>> {
    let number = |path: String, line: &str, word: usize| -> Result<u64> {
        let text = fs::read_to_string(&path).with_context(|| path.clone())?;
        let line = text.lines().find_map(|text| text.strip_prefix(line)).unwrap_or_default();
        let number = line.split_whitespace().nth(word).and_then(|word| word.parse().ok());
        number.with_context(|| format!("{path}: a number that is not there"))
    };
    Ok(BTreeMap::from([
        (FLUSHES.into(), number(format!("/sys/block/{device}/stat"), "", 15)?),
        (FORCES.into(), number(format!("/sys/fs/xfs/{device}/stats/stats"), "log ", 3)?),
    ]))
}

/// Measures.
pub(super) fn measure(lab: &Lab<'_>) -> Result<Section> {
    let fsyncs = if lab.options.quick { QUICK_FSYNCS } else { FSYNCS };
    let counts: Vec<usize> = lab.options.threads.map_or(WRITERS.to_vec(), |threads| vec![threads]);
    let skipped: Vec<(&str, String)> = SIDES.iter().filter_map(|side| Some((*side, why_skipped(side)?))).collect();
    let mut runs: Vec<Run> = Vec::new();
    for round in 1..=lab.rounds() {
        for (writers, side) in counts.iter().flat_map(|writers| SIDES.map(|side| (*writers, side))) {
            let case = format!("{writers} writer{}", if writers == 1 { "" } else { "s" });
            lab.case_names.borrow_mut().insert(case.clone());
            let wanted = lab.options.cases.is_empty() || lab.options.cases.contains(&case);
            if !wanted || skipped.iter().any(|(skipped, _)| *skipped == side) {
                continue;
            }
            ensure!(!lab.watch.stopped(), BenchError::Interrupted);
            let run = one(lab, side, (&case, writers), fsyncs).with_context(|| format!("{side}, {case}"))?;
            match runs.iter_mut().find(|known| known.side == run.side && known.case == run.case) {
                Some(known) => keep_best(known, run, round),
                None => runs.push(run),
            }
        }
    }
    let mut section = Section {
        name: "fsync".into(),
        title: "fsync: what it costs to make 4 KiB durable".into(),
        about: format!(
            "Each writer writes 4 KiB to a file of its own and calls fsync, {fsyncs} times if there is one, and {} \
             times in all if there are {MOST_TIMES} or more: in blocks that the file has, and behind its end. The \
             images are in {}. Best of {} rounds.",
            fsyncs * MOST_TIMES,
            lab.scratch.place(),
            lab.rounds()
        ),
        ..Section::default()
    };
    section.tables.push(table(&runs));
    section.goals = goals(&runs);
    section.notes.extend(skipped.iter().map(|(side, why)| format!("{side}: skipped, {why}.")));
    section.runs = runs;
    Ok(section)
}

/// Why this machine cannot measure a side, if it cannot.
fn why_skipped(side: &str) -> Option<String> {
    match side {
        SERVED => fs::File::open("/dev/fuse").err().map(|error| format!("/dev/fuse cannot be used: {error}")),
        KERNEL => obstacle().map(Into::into),
        _ => None,
    }
}

fn one(lab: &Lab<'_>, side: &'static str, (case, writers): (&str, usize), fsyncs: usize) -> Result<Run> {
    let image = lab.scratch.make_image(IMAGE, lab.options.image_bytes.unwrap_or(IMAGE_BYTES))?;
    let dir = lab.scratch.file("mount");
    let each = (fsyncs * writers.min(MOST_TIMES) / writers).max(1);
    let phases = |side: &Side| phases(lab, side, writers, each);
    let phases = match side {
        OURS => {
            let device = Arc::new(FileDevice::open(&image, Access::Write)?);
            let filesystem = Volume::open(device, MountOptions::default())?;
            let (root, new) = (filesystem.root(), NewFile::file(0o644));
            let make = |n| filesystem.create(root, format!("file{n}").as_bytes(), &new, &Caller::root());
            let files = (0..writers).map(|n| Ok(make(n)?.inode)).collect::<Result<_>>()?;
            let side = Side::InProcess { filesystem, files };
            let phases = phases(&side);
            if let Side::InProcess { filesystem, .. } = side {
                filesystem.unmount()?;
            }
            phases?
        }
        SERVED => {
            let server = ServedMount::new(&image, &dir, &[])?;
            let phases = make_files(&dir, writers).and_then(|files| phases(&Side::Server { dir, files }));
            server.unmount()?;
            phases?
        }
        _ => {
            let mount = LoopMount::new(&image, None, &dir)?;
            let source = mount_point(&dir).context("the loop mount is not there")?.source;
            let device = source.trim_start_matches("/dev/").to_owned();
            let phases = make_files(&dir, writers).and_then(|files| phases(&Side::Kernel { device, files }));
            mount.unmount()?;
            phases?
        }
    };
    let target = About { how: side.into(), ..About::default() };
    Ok(Run { case: case.into(), side: side.into(), threads: writers, rounds: 1, target, phases, engine: side == OURS })
}

fn make_files(dir: &Path, writers: usize) -> Result<Vec<fs::File>> {
    let make = |n| fs::File::create_new(dir.join(format!("file{n}")));
    Ok((0..writers).map(make).collect::<std::io::Result<_>>()?)
}

/// Both phases. The files have blocks before the first, and all is durable.
fn phases(lab: &Lab<'_>, side: &Side, writers: usize, each: usize) -> Result<Vec<Phase>> {
    for writer in 0..writers {
        side.write(writer, 0, &[1; BLOCKS * BLOCK])?;
        side.fsync(writer)?;
    }
    let place = |block: usize| (block * BLOCK) as u64;
    let overwrite = |n: usize| place(n % BLOCKS);
    let append = |n: usize| place(BLOCKS + n);
    Ok(vec![
        phase(lab, side, (OVERWRITE, writers, each), &overwrite)?,
        phase(lab, side, (APPEND, writers, each), &append)?,
    ])
}

fn phase(
    lab: &Lab<'_>,
    side: &Side,
    (name, writers, each): (&str, usize, usize),
    offset: &(dyn Fn(usize) -> u64 + Sync),
) -> Result<Phase> {
    let operations = (writers * each) as u64;
    lab.watch.begin(name, operations);
    let before = side.counts()?;
    let ready = Barrier::new(writers);
    let write = |writer: usize| -> Result<(Instant, Instant)> {
        ready.wait();
        let start = Instant::now();
        for n in 0..each {
            ensure!(!lab.watch.stopped(), BenchError::Interrupted);
            side.write(writer, offset(n), &[n as u8; BLOCK])?;
            side.fsync(writer)?;
            lab.watch.advance(1);
        }
        Ok((start, Instant::now()))
    };
    let times = std::thread::scope(|scope| {
        let write = &write;
        let threads: Vec<_> = (0..writers).map(|writer| scope.spawn(move || write(writer))).collect();
        let results = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        results
            .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect::<Result<Vec<_>>>()
    })?;
    let after = side.counts()?;
    let (first, last) = (times.iter().map(|(start, _)| *start).min(), times.iter().map(|(_, end)| *end).max());
    let wall = first.zip(last).map_or(Duration::ZERO, |(first, last)| last - first);
    let change = |(name, count): (String, u64)| {
        let count = count.saturating_sub(before.get(&name).copied().unwrap_or(0));
        (count > 0).then_some((name, count))
    };
    Ok(Phase {
        name: name.into(),
        operations,
        wall_seconds: wall.as_secs_f64(),
        counters: after.into_iter().filter_map(change).collect(),
        ..Phase::default()
    })
}

fn table(runs: &[Run]) -> Table {
    let mut rows = Vec::new();
    for name in [OVERWRITE, APPEND] {
        for (run, phase) in runs.iter().filter_map(|run| Some((run, run.phase(name)?))) {
            let kernel = runs.iter().find(|other| other.side == KERNEL && other.case == run.case);
            let rate_there = kernel.and_then(|kernel| kernel.phase(name)).map(Phase::rate);
            let forces = phase.counter(FORCES).max(1) as f64;
            let shared = (run.side != KERNEL).then(|| 100.0 * phase.counter(SHARED) as f64 / forces);
            rows.push(vec![
                Cell::text(format!("{name}, {}: {}", run.case, run.side)),
                Cell::number(phase.rate(), 0),
                Cell::ratio(rate_there.map(|there| phase.rate() / there)),
                Cell::number(phase.per_operation(Some(phase.counter(FLUSHES))), 2),
                Cell::number(phase.per_operation(Some(phase.counter(FORCES))), 2),
                Cell::number(shared, 0),
            ]);
        }
    }
    let names = ["", "fsyncs per s", "over the kernel's", "device flushes", "log forces", "of these shared, %"];
    Table { title: "An fsync after each 4 KiB; counts for each fsync".into(), columns: columns(names), rows }
}

/// A mount is to be as fast as the kernel's.
fn goals(runs: &[Run]) -> Vec<Goal> {
    let rate = |run: &Run, name: &str| run.phase(name).map(Phase::rate);
    let of = |run: &Run, name: &str| {
        let kernel = runs.iter().find(|other| other.side == KERNEL && other.case == run.case)?;
        let what = format!("{name}, {}, rate through the mount over the kernel's", run.case);
        Some(Goal::at_least(what, 1.0, rate(run, name)? / rate(kernel, name)?))
    };
    let served = || runs.iter().filter(|run| run.side == SERVED);
    [OVERWRITE, APPEND].iter().flat_map(|name| served().filter_map(|run| of(run, name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_numbers_are_found_where_there_is_a_loop_device() {
        assert!(kernel_counts("no such device").is_err());
    }
}
