//! trees: the command copies small files with an attribute each into an image and out of it, compared with `mkfs.xfs
//! -p`, and with `cp -a` on the kernel's loop mount; and files of all sizes through qcow2, compared with a raw image.

use super::tables::columns;
use crate::BenchError;
use crate::lab::{Lab, Run, keep_best};
use crate::loop_mount::{LoopMount, obstacle};
use crate::measure::Phase;
use crate::report::{Cell, Section, Table};
use crate::subject::About;
use anyhow::{Context, Result, ensure};
use rustix::fs::XattrFlags;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const FILES: usize = 100_000;
const FILES_PER_DIR: usize = 100;
const IMAGE_BYTES: u64 = 4 << 30;
/// Where `scripts/reference` installs the tools by default.
const REFERENCE: &str = "/opt/xfs-reference";

pub(super) const FILL: &str = "mkfs --from";
pub(super) const COPY_IN: &str = "cp -r in";
pub(super) const COPY_OUT: &str = "cp -r out";
const OURS: &str = "xfskit";
const THEIRS: &str = "the kernel and xfsprogs";

/// Measures, and lets `more` measure with the same trees.
pub(super) fn measure(lab: &Lab<'_>, more: impl FnOnce(&Trees<'_>, &mut Section) -> Result<()>) -> Result<Section> {
    let files = lab.files(FILES);
    let tree = lab.scratch.file("tree");
    make_tree(&tree, files)?;
    let trees = Trees { xfskit: std::env::current_exe()?, mkfs: mkfs_xfs(), tree: tree.clone(), files, lab };
    let mut runs: Vec<Run> = Vec::new();
    for round in 1..=lab.rounds() {
        for (side, phases) in [(OURS, trees.ours()), (THEIRS, trees.theirs())] {
            let target = About { how: side.into(), ..About::default() };
            let run = Run {
                case: "a tree".into(),
                side: side.into(),
                threads: 1,
                rounds: 1,
                target,
                phases: phases?,
                engine: false,
            };
            match runs.iter_mut().find(|known| known.side == run.side) {
                Some(known) => keep_best(known, run, round),
                None => runs.push(run),
            }
        }
    }
    let mut section = Section {
        name: "trees".into(),
        title: "trees: into an image and out of it".into(),
        about: format!("{files} files of up to 1000 bytes with an attribute each. Best of {} rounds.", lab.rounds()),
        ..Section::default()
    };
    section.tables.push(table(&runs));
    section.notes.extend(obstacle().map(|why| format!("The kernel's side is missing: {why}.")));
    if trees.mkfs.is_none() {
        section.notes.push("mkfs.xfs with -p is missing: scripts/reference installs it.".into());
    }
    section.runs = runs;
    more(&trees, &mut section)?;
    fs::remove_dir_all(tree)?;
    Ok(section)
}

fn table(runs: &[Run]) -> Table {
    let seconds = |side: &str, phase: &str| {
        let run = runs.iter().find(|run| run.side == side)?;
        Some(run.phase(phase)?.wall_seconds)
    };
    let row = |(phase, reference): (&str, &str)| {
        let (ours, theirs) = (seconds(OURS, phase), seconds(THEIRS, phase));
        vec![
            Cell::text(format!("{phase}, beside {reference}")),
            Cell::number(ours, 2),
            Cell::number(theirs, 2),
            Cell::ratio(theirs.zip(ours).map(|(theirs, ours)| theirs / ours)),
        ]
    };
    let lines = [(FILL, "mkfs.xfs -p"), (COPY_IN, "a loop mount and cp -a"), (COPY_OUT, "a loop mount and cp -a")];
    Table {
        title: "Seconds".into(),
        columns: columns(["", "xfskit", "the other", "ratio"]),
        rows: lines.map(row).to_vec(),
    }
}

pub(super) struct Trees<'a> {
    xfskit: PathBuf,
    /// The command that runs mkfs.xfs, if one is installed that can fill an image.
    mkfs: Option<Vec<String>>,
    /// Small files.
    pub(super) tree: PathBuf,
    pub(super) files: usize,
    pub(super) lab: &'a Lab<'a>,
}

impl Trees<'_> {
    fn ours(&self) -> Result<Vec<Phase>> {
        let files = self.files;
        let (image, out) = (self.lab.scratch.file("image"), self.lab.scratch.file("out"));
        let _ = fs::remove_file(&image);
        let inside = |path: &str| PathBuf::from(format!("{}:{path}", image.display()));
        let size = IMAGE_BYTES.to_string();
        let filled =
            self.timed(FILL, files, || self.xfskit(&["mkfs", "--size", &size, "-q", "--from"], &[&self.tree, &image]))?;
        self.lab.scratch.make_image("image", IMAGE_BYTES)?;
        let copied_in = self.timed(COPY_IN, files, || self.xfskit(&["cp", "-r"], &[&self.tree, &inside("/")]))?;
        let copied_out = self.timed(COPY_OUT, files, || self.xfskit(&["cp", "-r"], &[&inside("/tree"), &out]))?;
        fs::remove_dir_all(out)?;
        Ok(vec![filled, copied_in, copied_out])
    }

    fn theirs(&self) -> Result<Vec<Phase>> {
        let files = self.files;
        let (image, out) = (self.lab.scratch.file("image"), self.lab.scratch.file("out"));
        let mut phases = Vec::new();
        if let Some([program, arguments @ ..]) = self.mkfs.as_deref() {
            fs::File::create(&image)?.set_len(IMAGE_BYTES)?;
            phases.push(self.timed(FILL, files, || {
                let mut command = Command::new(program);
                run(command.args(arguments).args(["-q", "-p"]).arg(&self.tree).arg(&image))
            })?);
        }
        if obstacle().is_none() {
            self.lab.scratch.make_image("image", IMAGE_BYTES)?;
            let dir = self.lab.scratch.file("mount");
            phases.push(self.timed(COPY_IN, files, || copy_on_mount(&image, &dir, &self.tree, &dir))?);
            let from = dir.join("tree");
            phases.push(self.timed(COPY_OUT, files, || copy_on_mount(&image, &dir, &from, &out))?);
            fs::remove_dir_all(out)?;
        }
        Ok(phases)
    }

    pub(super) fn timed(&self, name: &str, files: usize, work: impl FnOnce() -> Result<()>) -> Result<Phase> {
        ensure!(!self.lab.watch.stopped(), BenchError::Interrupted);
        self.lab.watch.begin(name, 1);
        let start = Instant::now();
        work()?;
        let wall_seconds = start.elapsed().as_secs_f64();
        self.lab.watch.advance(1);
        Ok(Phase { name: name.into(), operations: files as u64, wall_seconds, ..Phase::default() })
    }

    pub(super) fn xfskit(&self, arguments: &[&str], paths: &[&Path]) -> Result<()> {
        run(Command::new(&self.xfskit).args(arguments).args(paths))
    }
}

/// Mounts, copies, and unmounts, which makes the copy durable.
fn copy_on_mount(image: &Path, dir: &Path, from: &Path, to: &Path) -> Result<()> {
    let mount = LoopMount::new(image, None, dir)?;
    let copied = run(Command::new("cp").arg("-a").arg(from).arg(to));
    mount.unmount()?;
    copied
}

pub(super) fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// mkfs.xfs of the reference tools; one that fills images from folders is rarely found elsewhere.
fn mkfs_xfs() -> Option<Vec<String>> {
    let root = std::env::var("XFS_REFERENCE").unwrap_or_else(|_| REFERENCE.into());
    let there = Path::new(&root).join("usr/sbin/mkfs.xfs").exists() && rustix::process::geteuid().is_root();
    there.then(|| vec!["chroot".into(), root, "mkfs.xfs".into()])
}

fn make_tree(root: &Path, files: usize) -> Result<()> {
    for dir in 0..files.div_ceil(FILES_PER_DIR) {
        let dir_path = root.join(format!("dir{:03}/sub{:03}", dir / 100, dir % 100));
        fs::create_dir_all(&dir_path)?;
        for file in 0..FILES_PER_DIR.min(files - dir * FILES_PER_DIR) {
            let path = dir_path.join(format!("file{file:03}"));
            fs::write(&path, vec![file as u8; 100 + dir * file % 900])?;
            rustix::fs::setxattr(&path, "user.test", &[7; 32], XattrFlags::empty())?;
        }
    }
    Ok(())
}
