//! programs: what people run on a mount, beside the kernel's loop mount and fuse2fs on ext4: archives, copies,
//! searches, git, a compiler, a database, dbench; and how many requests a file costs.
//!
//! | side | |
//! |---|---|
//! | xfskit | the command's mount, with a server process of its own, which counts requests |
//! | the kernel | its loop mount of an XFS image |
//! | fuse2fs | an ext4 image; in the first round only, for it takes long |

mod list;
mod tree;

use super::dbench;
use super::tables::columns;
use crate::BenchError;
use crate::ext4_mount::{Ext4Mount, ext4_obstacle};
use crate::lab::{Lab, Run, keep_best};
use crate::loop_mount::{LoopMount, obstacle};
use crate::measure::Phase;
use crate::report::{Cell, Goal, Section, Table};
use crate::scratch::IMAGE;
use crate::served_mount::ServedMount;
use crate::subject::{About, server_requests};
use anyhow::{Context, Result, ensure};
use list::{Cache, Ground, PROGRAMS, Program};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;
use tree::Sources;

const FILES: usize = 80_000;
/// Four copies of the tree, and what a database and a compiler need.
const BYTES_PER_FILE: u64 = 64 << 10;
const SPARE_BYTES: u64 = 2 << 30;
/// The file of the ext4 image; fuse2fs and the others do not share one.
const EXT4_IMAGE: &str = "ext4";
const DBENCH_CLIENTS: [usize; 2] = [1, 16];
const DBENCH_SECONDS: u64 = 10;
const QUICK_DBENCH_SECONDS: u64 = 3;

const OURS: &str = "xfskit";
const KERNEL: &str = "kernel, loop mount";
const FUSE2FS: &str = "fuse2fs, ext4";
const SIDES: [&str; 3] = [OURS, KERNEL, FUSE2FS];

enum Mount {
    Ours(ServedMount),
    Kernel(LoopMount),
    Ext4(Ext4Mount),
}

impl Mount {
    fn new(side: &str, image: &Path, dir: &Path) -> Result<Self> {
        match side {
            OURS => Ok(Self::Ours(ServedMount::new(image, dir, &[])?)),
            KERNEL => Ok(Self::Kernel(LoopMount::new(image, None, dir)?)),
            _ => Ok(Self::Ext4(Ext4Mount::mount(image, dir)?)),
        }
    }

    fn unmount(self, image: &Path) -> Result<()> {
        match self {
            Self::Ours(mount) => mount.unmount(),
            Self::Kernel(mount) => mount.unmount(),
            Self::Ext4(mount) => mount.unmount(image),
        }
    }
}

/// Measures.
pub(crate) fn measure(lab: &Lab<'_>) -> Result<Section> {
    let files = lab.files(FILES);
    let folder = lab.scratch.file("sources");
    fs::create_dir(&folder)?;
    lab.watch.begin("making a tree", 1);
    let sources = Sources::make(&folder, files)?;
    let skipped: Vec<(&str, String)> = SIDES.iter().filter_map(|side| Some((*side, why_skipped(side)?))).collect();
    let mut runs: Vec<Run> = Vec::new();
    for round in 1..=lab.rounds() {
        for side in SIDES {
            let is_skipped = skipped.iter().any(|(skipped, _)| *skipped == side);
            if is_skipped || side == FUSE2FS && round > 1 {
                continue;
            }
            let run = one(lab, side, &sources).with_context(|| side.to_owned())?;
            match runs.iter_mut().find(|known| known.side == run.side) {
                Some(known) => keep_best(known, run, round),
                None => runs.push(run),
            }
        }
    }
    fs::remove_dir_all(folder)?;
    let mut section = Section {
        name: "programs".into(),
        title: "programs: what people run on a mount".into(),
        about: format!(
            "A tree of {files} files of 500 bytes to 64 KB is unpacked, searched, copied, cloned and removed; the \
             image is in {}. Best of {} rounds, fuse2fs's of one.",
            lab.scratch.place(),
            lab.rounds()
        ),
        ..Section::default()
    };
    section.tables.push(times(&runs));
    section.tables.extend(requests(&runs));
    section.goals = goals(&runs);
    section.notes.extend(skipped.iter().map(|(side, why)| format!("{side}: skipped, {why}.")));
    let missing = PROGRAMS.iter().filter(|program| !program.is_there());
    section.notes.extend(missing.map(|program| format!("{}: not run, it is not installed.", program.name)));
    section.runs = runs;
    Ok(section)
}

/// Why this machine cannot measure a side, if it cannot.
fn why_skipped(side: &str) -> Option<String> {
    match side {
        OURS => fs::File::open("/dev/fuse").err().map(|error| format!("/dev/fuse cannot be used: {error}")),
        KERNEL => obstacle().map(Into::into),
        _ => ext4_obstacle().map(Into::into),
    }
}

fn one(lab: &Lab<'_>, side: &'static str, sources: &Sources) -> Result<Run> {
    let bytes = lab.options.image_bytes.unwrap_or(sources.files as u64 * BYTES_PER_FILE + SPARE_BYTES);
    let dir = lab.scratch.file("mount");
    let image = match side {
        FUSE2FS => {
            let image = lab.scratch.file_of(EXT4_IMAGE, bytes)?;
            Ext4Mount::make(&image, &dir)?.unmount(&image)?;
            image
        }
        _ => lab.scratch.make_image(IMAGE, bytes)?,
    };
    let mut mount = Mount::new(side, &image, &dir)?;
    let mut phases = Vec::new();
    for program in PROGRAMS.iter().filter(|program| program.is_there()) {
        if program.cache == Cache::Cold {
            mount.unmount(&image)?;
            mount = Mount::new(side, &image, &dir)?;
        }
        ensure!(!lab.watch.stopped(), BenchError::Interrupted);
        phases.push(phase(lab, side, program, &Ground { mount: &dir, sources })?);
    }
    phases.extend(dbenches(lab, &dir)?);
    mount.unmount(&image)?;
    let target = About { how: side.into(), ..About::default() };
    Ok(Run { case: "programs".into(), side: side.into(), threads: 1, rounds: 1, target, phases, engine: false })
}

fn phase(lab: &Lab<'_>, side: &str, program: &Program, ground: &Ground<'_>) -> Result<Phase> {
    lab.watch.begin(program.name, 1);
    let counts = || if side == OURS { server_requests(ground.mount) } else { Ok(BTreeMap::new()) };
    let before = counts()?;
    let start = Instant::now();
    let files = (program.work)(ground).with_context(|| program.name)?;
    let wall_seconds = start.elapsed().as_secs_f64();
    let counted = counts()?.into_iter().filter_map(|(name, count)| {
        let count = count - before.get(&name).copied().unwrap_or(0);
        (count > 0).then_some((name, count))
    });
    let counters = counted.collect();
    lab.watch.advance(1);
    Ok(Phase { name: program.name.into(), operations: files as u64, wall_seconds, counters, ..Phase::default() })
}

/// dbench with one client and with many. Its rate stands for a time: that of as many MB as it moves in a second.
fn dbenches(lab: &Lab<'_>, dir: &Path) -> Result<Vec<Phase>> {
    if !dbench::is_installed() {
        return Ok(Vec::new());
    }
    let seconds = if lab.options.quick { QUICK_DBENCH_SECONDS } else { DBENCH_SECONDS };
    let run = |clients: usize| -> Result<Phase> {
        let folder = dir.join(format!("dbench{clients}"));
        fs::create_dir(&folder)?;
        let moved = dbench::run(lab, &folder, clients, seconds)?.megabytes_per_second;
        let name = format!("dbench, {clients} client{}, 1000 MB", if clients == 1 { "" } else { "s" });
        Ok(Phase { name, operations: 1000, wall_seconds: 1000.0 / moved.max(1e-9), ..Phase::default() })
    };
    DBENCH_CLIENTS.into_iter().map(run).collect()
}

fn find<'a>(runs: &'a [Run], side: &str) -> Option<&'a Run> {
    runs.iter().find(|run| run.side == side)
}

/// Seconds of each program, and how many times as fast as the others xfskit is.
fn times(runs: &[Run]) -> Table {
    let names = runs.first().into_iter().flat_map(|run| &run.phases).map(|phase| phase.name.as_str());
    let seconds = |side: &str, name: &str| Some(find(runs, side)?.phase(name)?.wall_seconds);
    let row = |name: &str| {
        let [ours, kernel, ext4] = SIDES.map(|side| seconds(side, name));
        let over = |theirs: Option<f64>| theirs.zip(ours).map(|(theirs, ours)| theirs / ours);
        vec![
            Cell::text(name),
            Cell::number(ours, 2),
            Cell::number(kernel, 2),
            Cell::ratio(over(kernel)),
            Cell::number(ext4, 2),
            Cell::ratio(over(ext4)),
        ]
    };
    let columns = columns(["", OURS, KERNEL, "over the kernel's", FUSE2FS, "over fuse2fs's"]);
    Table { title: "Seconds, and rates of xfskit over others'".into(), columns, rows: names.map(row).collect() }
}

/// Requests that a file cost the server, and the most frequent kinds.
fn requests(runs: &[Run]) -> Option<Table> {
    const KINDS: usize = 6;
    let phases = &find(runs, OURS)?.phases;
    let row = |phase: &Phase| {
        let mut kinds: Vec<(&String, &u64)> = phase.counters.iter().collect();
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let each = |count: u64| count as f64 / phase.operations.max(1) as f64;
        let frequent = kinds.iter().take(KINDS).filter(|(_, count)| each(**count) >= 0.05);
        let list: Vec<String> = frequent.map(|(name, count)| format!("{name} {:.1}", each(**count))).collect();
        let all = each(phase.counters.values().sum());
        vec![Cell::text(&phase.name), Cell::number(all, 2), Cell::text(list.join(", "))]
    };
    let rows: Vec<_> = phases.iter().filter(|phase| !phase.counters.is_empty()).map(row).collect();
    let columns = columns(["", "requests for each file or commit", "of these"]);
    (!rows.is_empty()).then(|| Table { title: "What the server was asked".into(), columns, rows })
}

fn goals(runs: &[Run]) -> Vec<Goal> {
    let mut goals = Vec::new();
    let Some(ours) = find(runs, OURS) else { return goals };
    let rate_over = |side: &str, phase: &Phase| Some(phase.rate() / find(runs, side)?.phase(&phase.name)?.rate());
    for phase in &ours.phases {
        let program = PROGRAMS.iter().find(|program| program.name == phase.name);
        let wanted = program.map_or(0.5, |program| program.wanted);
        if let Some(over) = rate_over(KERNEL, phase) {
            goals.push(Goal::at_least(format!("{}, rate over the kernel's", phase.name), wanted, over));
        }
        if let Some(over) = rate_over(FUSE2FS, phase) {
            goals.push(Goal::at_least(format!("{}, rate over fuse2fs's", phase.name), 1.0, over));
        }
        if let Some(most) = program.and_then(|program| program.requests) {
            let each = phase.counters.values().sum::<u64>() as f64 / phase.operations.max(1) as f64;
            goals.push(Goal::at_most(format!("{}, requests for each file", phase.name), most, each));
        }
    }
    goals
}
