//! A part of the experiment trees: `mkfs --from`, `cp` and `check` through a qcow2 image, beside a raw one.
//!
//! Both images are sparse files, made anew in each round outside of the time, and take turns. There are two trees:
//! files of all sizes, and the small files of the experiment, of which there are so many that a check takes a while.

use super::tables::columns;
use super::trees::{COPY_IN, COPY_OUT, FILL, Trees};
use crate::lab::{Run, keep_best};
use crate::report::{Cell, Goal, Section, Table};
use crate::subject::About;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const FILES: usize = 8000;
const FILES_PER_DIR: usize = 50;
const IMAGE_BYTES: u64 = 2 << 30;
const FILL_SMALL: &str = "mkfs --from, small files";
const CHECK: &str = "check, small files";
const WANTED: f64 = 0.7;

/// What the filesystem lies in.
#[derive(Clone, Copy)]
enum Format {
    Raw,
    Qcow2,
}

impl Format {
    fn side(self) -> &'static str {
        match self {
            Self::Raw => "xfskit, raw",
            Self::Qcow2 => "xfskit, qcow2",
        }
    }

    /// The whole disk as an operand. A raw file that is named alone is replaced by a new one; this one is filled where
    /// it is, as the other is, after a look at whether the tree fits.
    fn whole(self, path: &Path) -> PathBuf {
        match self {
            Self::Raw => PathBuf::from(format!("{}#whole", path.display())),
            Self::Qcow2 => path.into(),
        }
    }

    /// Makes an empty disk, in place of an older one.
    fn make(self, path: &Path) -> Result<()> {
        let _ = fs::remove_file(path);
        match self {
            Self::Raw => Ok(fs::File::create(path)?.set_len(IMAGE_BYTES)?),
            Self::Qcow2 => super::trees::run(
                Command::new("qemu-img").args(["create", "-q", "-f", "qcow2"]).arg(path).arg(IMAGE_BYTES.to_string()),
            ),
        }
    }
}

/// Measures, and adds what was found to the section of the experiment.
pub(super) fn measure(trees: &Trees<'_>, section: &mut Section) -> Result<()> {
    if Command::new("qemu-img").arg("--version").output().is_err() {
        section.notes.push("The part through qcow2 is missing: qemu-img is not installed.".into());
        return Ok(());
    }
    let lab = trees.lab;
    let files = lab.files(FILES).min(FILES);
    let tree = lab.scratch.file("mixed");
    let bytes = make_tree(&tree, files)?;
    let mut runs: Vec<Run> = Vec::new();
    for round in 1..=lab.rounds() {
        for format in [Format::Raw, Format::Qcow2] {
            let run = once(trees, &tree, files, format)?;
            match runs.iter_mut().find(|known| known.side == run.side) {
                Some(known) => keep_best(known, run, round),
                None => runs.push(run),
            }
        }
    }
    fs::remove_dir_all(tree)?;
    if let [raw, qcow2] = &runs[..] {
        section.tables.push(table(raw, qcow2, files, bytes));
        section.goals.extend(ratios(raw, qcow2).map(|(phase, _, _, ratio)| {
            Goal::at_least(format!("{phase}, rate through qcow2 over that on a raw image"), WANTED, ratio)
        }));
    }
    section.runs.extend(runs);
    Ok(())
}

fn once(trees: &Trees<'_>, tree: &Path, files: usize, format: Format) -> Result<Run> {
    let (small, image, out) = (&*trees.tree, trees.lab.scratch.file("disk"), trees.lab.scratch.file("out"));
    let inside = |path: &str| PathBuf::from(format!("{}:{path}", image.display()));
    let whole = format.whole(&image);
    format.make(&image)?;
    let filled = trees.timed(FILL, files, || trees.xfskit(&["mkfs", "-q", "--from"], &[tree, &whole]))?;
    format.make(&image)?;
    trees.xfskit(&["mkfs", "-q"], &[&image])?;
    let copied_in = trees.timed(COPY_IN, files, || trees.xfskit(&["cp", "-r"], &[tree, &inside("/")]))?;
    let copied_out = trees.timed(COPY_OUT, files, || trees.xfskit(&["cp", "-r"], &[&inside("/mixed"), &out]))?;
    fs::remove_dir_all(out)?;
    format.make(&image)?;
    let filled_small =
        trees.timed(FILL_SMALL, trees.files, || trees.xfskit(&["mkfs", "-q", "--from"], &[small, &whole]))?;
    let checked = trees.timed(CHECK, trees.files, || trees.xfskit(&["check"], &[&image]))?;
    fs::remove_file(image)?;
    Ok(Run {
        case: "trees in a disk".into(),
        side: format.side().into(),
        threads: 1,
        rounds: 1,
        target: About { how: format.side().into(), ..About::default() },
        phases: vec![filled, copied_in, copied_out, filled_small, checked],
        engine: false,
    })
}

/// Each phase, its seconds on both, and how much of the rate is left through qcow2.
fn ratios<'a>(raw: &'a Run, qcow2: &'a Run) -> impl Iterator<Item = (&'a str, f64, f64, f64)> {
    raw.phases.iter().filter_map(|phase| {
        let (raw, qcow2) = (phase.wall_seconds, qcow2.phase(&phase.name)?.wall_seconds);
        Some((phase.name.as_str(), raw, qcow2, raw / qcow2))
    })
}

fn table(raw: &Run, qcow2: &Run, files: usize, bytes: u64) -> Table {
    let rows = ratios(raw, qcow2).map(|(phase, raw, qcow2, ratio)| {
        vec![Cell::text(phase), Cell::number(raw, 3), Cell::number(qcow2, 3), Cell::ratio(ratio)]
    });
    Table {
        title: format!("Seconds through qcow2, beside a raw image: {files} files of {} MB", bytes / 1_000_000),
        columns: columns(["", "raw", "qcow2", "rate"]),
        rows: rows.collect(),
    }
}

/// Bytes of a file: some are large, and have half of all bytes; most have a few blocks.
fn bytes_of(file: usize) -> usize {
    match file {
        _ if file.is_multiple_of(160) => 4 << 20,
        _ if file.is_multiple_of(8) => 128 << 10,
        _ => file * 37 % (16 << 10) + 1,
    }
}

fn make_tree(root: &Path, files: usize) -> Result<u64> {
    let mut total = 0;
    for file in 0..files {
        let dir = root.join(format!("dir{:03}", file / FILES_PER_DIR));
        fs::create_dir_all(&dir)?;
        let path = dir.join(format!("file{file:05}"));
        let bytes = bytes_of(file);
        fs::write(&path, vec![file as u8 | 1; bytes]).with_context(|| path.display().to_string())?;
        total += bytes as u64;
    }
    Ok(total)
}
