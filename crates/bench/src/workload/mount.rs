//! mount: how long a question for attributes takes while another program reads a large file, beside the kernel's loop
//! mount; and how much memory a server uses when very many files have been used.
//!
//! The image is mounted anew before each phase, so each name is looked up, and nothing of the file is in memory.

use super::tables::columns;
use crate::BenchError;
use crate::lab::{Lab, Run, keep_best};
use crate::loop_mount::{LoopMount, obstacle};
use crate::measure::Phase;
use crate::names::mix;
use crate::report::{Cell, Goal, Section, Table};
use crate::scratch::IMAGE;
use crate::served_mount::ServedMount;
use crate::subject::About;
use anyhow::{Context, Result, ensure};
use rustix::fs::{Advice, XattrFlags};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const FILES: usize = 50_000;
const FILES_PER_DIR: usize = 500;
const LARGE_BYTES: u64 = 1 << 30;
const REQUEST: usize = 1 << 20;
/// Files that are used for the figure of memory, and how often each.
const MANY: usize = 1_000_000;
const TIMES: usize = 3;
const IMAGE_BYTES: u64 = 8 << 30;

/// What a mount's server may use beside its cache.
const SPARE_MEMORY: u64 = 256 << 20;

const OURS: &str = "xfskit";
const KERNEL: &str = "kernel, loop mount";
const ALONE: &str = "stat, alone";
const BESIDE: &str = "stat beside a read";

/// Times that operations took.
struct Latencies(Vec<Duration>);

impl Latencies {
    fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// The time within which this share of the operations was done.
    fn within(&self, share: f64) -> Duration {
        let place = ((self.0.len() as f64 * share) as usize).min(self.0.len().saturating_sub(1));
        self.0.get(place).copied().unwrap_or_default()
    }
}

/// What one phase has shown, on one side, in one round.
struct Observed {
    side: &'static str,
    phase: &'static str,
    half_micros: f64,
    most_micros: f64,
    longest_micros: f64,
    read_mib_per_second: Option<f64>,
}

enum Mount {
    Ours(ServedMount),
    Kernel(LoopMount),
}

impl Mount {
    fn new(side: &str, image: &Path, dir: &Path) -> Result<Self> {
        match side {
            OURS => Ok(Self::Ours(ServedMount::new(image, dir, &[])?)),
            _ => Ok(Self::Kernel(LoopMount::new(image, None, dir)?)),
        }
    }

    fn unmount(self) -> Result<()> {
        match self {
            Self::Ours(mount) => mount.unmount(),
            Self::Kernel(mount) => mount.unmount(),
        }
    }
}

/// Measures.
pub(super) fn measure(lab: &Lab<'_>) -> Result<Section> {
    let mut section = Section {
        name: "mount".into(),
        title: "mount: waiting beside a reader, and memory".into(),
        ..Section::default()
    };
    if let Err(error) = fs::File::open("/dev/fuse") {
        section.about = format!("Nothing was measured: /dev/fuse cannot be used: {error}.");
        return Ok(section);
    }
    let files = lab.files(FILES);
    let mut sides = vec![OURS];
    match obstacle() {
        None => sides.push(KERNEL),
        Some(why) => section.notes.push(format!("The kernel's side is missing: {why}.")),
    }
    let (mut observed, mut runs): (Vec<Observed>, Vec<Run>) = Default::default();
    for round in 1..=lab.rounds() {
        for side in &sides {
            let run = waiting(lab, side, files, &mut observed)?;
            match runs.iter_mut().find(|known| known.side == run.side) {
                Some(known) => keep_best(known, run, round),
                None => runs.push(run),
            }
        }
    }
    section.about = format!(
        "One program asks for the attributes of {files} files, in no order, of which the kernel knows none; another \
         one reads a file of {} MiB from beginning to end, again and again. Of {} rounds the one with the shortest \
         99th percentile. Then files are made, given an attribute, looked up again and removed, {TIMES} times.",
        LARGE_BYTES >> 20,
        lab.rounds()
    );
    section.tables.push(table(&observed));
    section.goals.extend(goal(&observed));
    let (memory, run) = memory(lab)?;
    section.tables.push(memory.table());
    section.goals.push(memory.goal());
    runs.push(run);
    section.runs = runs;
    Ok(section)
}

fn path_of(dir: &Path, n: usize) -> PathBuf {
    dir.join(format!("dir{:04}", n / FILES_PER_DIR)).join(format!("file{n:07}"))
}

fn make_files(lab: &Lab<'_>, dir: &Path, files: usize) -> Result<()> {
    for n in 0..files {
        let path = path_of(dir, n);
        if n % FILES_PER_DIR == 0 {
            ensure!(!lab.watch.stopped(), BenchError::Interrupted);
            fs::create_dir_all(path.parent().context("a file has a folder")?)?;
        }
        fs::File::create_new(&path)?;
    }
    Ok(())
}

fn waiting(lab: &Lab<'_>, side: &'static str, files: usize, observed: &mut Vec<Observed>) -> Result<Run> {
    let image = lab.scratch.make_image(IMAGE, lab.options.image_bytes.unwrap_or(IMAGE_BYTES))?;
    let dir = lab.scratch.file("mount");
    let mount = Mount::new(side, &image, &dir)?;
    let made = make_files(lab, &dir, files).and_then(|()| make_large(&dir.join("large")));
    mount.unmount()?;
    made?;
    let mut phases = Vec::new();
    for phase in [ALONE, BESIDE] {
        lab.watch.begin(phase, files as u64);
        let mount = Mount::new(side, &image, &dir)?;
        let outcome = stats(&dir, files, phase == BESIDE);
        mount.unmount()?;
        let (latencies, read_mib_per_second, wall) = outcome?;
        ensure!(!lab.watch.stopped(), BenchError::Interrupted);
        let micros = |share: f64| latencies.within(share).as_secs_f64() * 1e6;
        let now = Observed {
            side,
            phase,
            half_micros: micros(0.5),
            most_micros: micros(0.99),
            longest_micros: micros(1.0),
            read_mib_per_second,
        };
        match observed.iter_mut().find(|known| known.side == side && known.phase == phase) {
            Some(known) if known.most_micros <= now.most_micros => {}
            Some(known) => *known = now,
            None => observed.push(now),
        }
        phases.push(Phase {
            name: phase.into(),
            operations: files as u64,
            wall_seconds: wall.as_secs_f64(),
            max_latency_seconds: Some(latencies.within(1.0).as_secs_f64()),
            ..Phase::default()
        });
    }
    let target = About { how: side.into(), ..About::default() };
    Ok(Run { case: "waiting".into(), side: side.into(), threads: 1, rounds: 1, target, phases, engine: false })
}

fn make_large(path: &Path) -> Result<()> {
    let file = fs::File::create_new(path)?;
    let piece = vec![7; REQUEST];
    for offset in (0..LARGE_BYTES).step_by(REQUEST) {
        file.write_all_at(&piece, offset)?;
    }
    Ok(file.sync_all()?)
}

/// Asks for attributes, while another thread reads if `beside`: the times, how fast that one read, and how long it
/// took.
fn stats(dir: &Path, files: usize, beside: bool) -> Result<(Latencies, Option<f64>, Duration)> {
    let is_over = AtomicBool::new(!beside);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_again_and_again(&dir.join("large"), &is_over));
        let begun = Instant::now();
        let asked = (|| {
            let mut times = Vec::with_capacity(files);
            for n in 0..files {
                let path = path_of(dir, mix(n as u64) as usize % files);
                let begun = Instant::now();
                fs::symlink_metadata(&path)?;
                times.push(begun.elapsed());
            }
            anyhow::Ok(times)
        })();
        let wall = begun.elapsed();
        is_over.store(true, Ordering::Relaxed);
        let read = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((Latencies::new(asked?), beside.then_some(read), wall))
    })
}

/// MiB in a second.
fn read_again_and_again(path: &Path, is_over: &AtomicBool) -> Result<f64> {
    let file = fs::File::open(path)?;
    let (mut buffer, mut bytes, begun) = (vec![0; REQUEST], 0, Instant::now());
    while !is_over.load(Ordering::Relaxed) {
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
        for offset in (0..LARGE_BYTES).step_by(REQUEST) {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            file.read_exact_at(&mut buffer, offset)?;
            bytes += REQUEST;
        }
    }
    Ok(bytes as f64 / (1 << 20) as f64 / begun.elapsed().as_secs_f64().max(1e-9))
}

fn table(observed: &[Observed]) -> Table {
    let row = |observed: &Observed| {
        vec![
            Cell::text(format!("{}: {}", observed.phase, observed.side)),
            Cell::number(observed.half_micros, 1),
            Cell::number(observed.most_micros, 1),
            Cell::number(observed.longest_micros, 0),
            Cell::number(observed.read_mib_per_second, 0),
        ]
    };
    let columns = columns(["", "half within µs", "99 of 100 within µs", "longest µs", "read, MiB per s"]);
    Table {
        title: "How long a question for attributes takes".into(),
        columns,
        rows: observed.iter().map(row).collect(),
    }
}

fn goal(observed: &[Observed]) -> Option<Goal> {
    let find = |side: &str| observed.iter().find(|one| one.side == side && one.phase == BESIDE);
    let (ours, theirs) = (find(OURS)?, find(KERNEL)?);
    let what = "stat beside a read, 99th percentile over the kernel's";
    Some(Goal::at_most(what, 2.0, ours.most_micros / theirs.most_micros))
}

/// What a server has used.
struct Memory {
    files: usize,
    most_bytes: u64,
    cache_bytes: u64,
}

impl Memory {
    fn table(&self) -> Table {
        let mib = |bytes: u64| Cell::number((bytes >> 20) as f64, 0);
        Table {
            title: format!("Memory of the server, {} files made, used and removed {TIMES} times", self.files),
            columns: columns(["", "most, MiB", "its cache, MiB"]),
            rows: vec![vec![Cell::text(OURS), mib(self.most_bytes), mib(self.cache_bytes)]],
        }
    }

    fn goal(&self) -> Goal {
        let what = "memory of the server over its cache and 256 MiB";
        Goal::at_most(what, 1.0, self.most_bytes as f64 / (self.cache_bytes + SPARE_MEMORY) as f64)
    }
}

fn memory(lab: &Lab<'_>) -> Result<(Memory, Run)> {
    let files = lab.files(MANY);
    let image = lab.scratch.make_image(IMAGE, lab.options.image_bytes.unwrap_or(IMAGE_BYTES))?;
    let dir = lab.scratch.file("mount");
    let cache_bytes = xfskit_engine::MountOptions::default().cache_bytes as u64;
    let mount = ServedMount::new(&image, &dir, &[])?;
    let mut phases = Vec::new();
    for _ in 0..TIMES {
        lab.watch.begin("memory", files as u64);
        let begun = Instant::now();
        make_files(lab, &dir, files)?;
        for n in 0..files {
            rustix::fs::setxattr(path_of(&dir, n), "user.test", &[7; 64], XattrFlags::empty())?;
        }
        for n in 0..files {
            fs::symlink_metadata(path_of(&dir, mix(n as u64) as usize % files))?;
        }
        for n in 0..files.div_ceil(FILES_PER_DIR) {
            ensure!(!lab.watch.stopped(), BenchError::Interrupted);
            fs::remove_dir_all(path_of(&dir, n * FILES_PER_DIR).parent().context("a file has a folder")?)?;
        }
        let wall_seconds = begun.elapsed().as_secs_f64();
        phases.push(Phase { name: "memory".into(), operations: files as u64, wall_seconds, ..Phase::default() });
        lab.watch.advance(files as u64);
    }
    let most_bytes = mount.most_memory_bytes().context("the memory of the server")?;
    mount.unmount()?;
    let target = About { how: OURS.into(), ..About::default() };
    let run = Run { case: "memory".into(), side: OURS.into(), threads: 1, rounds: 1, target, phases, engine: false };
    Ok((Memory { files, most_bytes, cache_bytes }, run))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_time_within_which_that_share_was_done() {
        let times = Latencies::new((1..=100).rev().map(Duration::from_micros).collect());
        assert_eq!(times.within(0.5), Duration::from_micros(51));
        assert_eq!(times.within(0.99), Duration::from_micros(100));
        assert_eq!(Latencies::new(Vec::new()).within(0.99), Duration::ZERO);
    }
}
