//! The programs: what each does on a mount, and what it needs.

use super::tree::{Sources, has, run};
use anyhow::{Context, Result, ensure};
use rustix::fs::{Mode, OFlags};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Commits of all connections to the database.
const COMMITS: usize = 200;
const CONNECTIONS: usize = 8;

/// Whether what the kernel and the server keep in memory is dropped before a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cache {
    Warm,
    /// The image is mounted anew.
    Cold,
}

/// A program on a mount.
pub(super) struct Program {
    pub(super) name: &'static str,
    /// Commands without which it is left out.
    pub(super) needs: &'static [&'static str],
    pub(super) cache: Cache,
    /// Does it; the number of files or commits.
    pub(super) work: fn(&Ground<'_>) -> Result<usize>,
    /// The rate over the kernel's that is wanted.
    pub(super) wanted: f64,
    /// Requests for each file that are allowed.
    pub(super) requests: Option<f64>,
}

impl Program {
    pub(super) fn is_there(&self) -> bool {
        self.needs.iter().all(|program| has(program))
    }
}

/// Where a program works.
pub(super) struct Ground<'a> {
    pub(super) mount: &'a Path,
    pub(super) sources: &'a Sources,
}

impl Ground<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.mount.join(name)
    }
}

const fn program(name: &'static str, wanted: f64, work: fn(&Ground<'_>) -> Result<usize>) -> Program {
    Program { name, needs: &[], cache: Cache::Warm, work, wanted, requests: None }
}

/// In the order in which they run: later ones use what earlier ones have made. What a first walk reads, and what it
/// makes the kernel doubt, is known from the third walk on: only then a tree is warm.
pub(super) const PROGRAMS: [Program; 20] = [
    Program { requests: Some(5.0), ..program("tar x, sync", 0.9, untar) },
    program("find by size, first walk", 0.5, find),
    program("du, second walk", 0.5, du),
    program("find by size", 0.9, find),
    program("du", 0.9, du),
    program("grep -r", 0.5, grep),
    Program { requests: Some(6.0), ..program("cp -a, sync", 0.6, copy) },
    Program { needs: &["rsync"], ..program("rsync -aHAX, sync", 0.6, rsync) },
    Program { needs: &["git"], requests: Some(5.0), ..program("git clone", 0.6, clone) },
    Program { needs: &["git"], ..program("git status", 0.5, status) },
    Program { needs: &["git"], ..program("git status, again", 0.5, status) },
    Program { needs: &["cargo"], ..program("cargo build", 0.6, build) },
    Program { needs: &["sqlite3"], ..program("sqlite, 1 connection", 0.5, commit_alone) },
    Program { needs: &["sqlite3"], ..program("sqlite, 8 connections", 0.5, commit_together) },
    Program { cache: Cache::Cold, ..program("find by size, cold", 0.5, find) },
    Program { cache: Cache::Cold, ..program("du, cold", 0.5, du) },
    Program { cache: Cache::Cold, ..program("grep -r, cold", 0.5, grep) },
    Program { needs: &["git"], cache: Cache::Cold, ..program("git status, cold", 0.5, status) },
    Program { requests: Some(2.5), ..program("rm -rf, sync", 1.2, remove) },
    Program { requests: Some(2.5), ..program("rm -rf of the copy, cold, sync", 1.2, remove_copy) }.cold(),
];

impl Program {
    const fn cold(self) -> Self {
        Self { cache: Cache::Cold, ..self }
    }
}

fn untar(ground: &Ground<'_>) -> Result<usize> {
    run(Command::new("tar").arg("-xf").arg(&ground.sources.archive).arg("-C").arg(ground.mount))?;
    sync(ground)
}

fn find(ground: &Ground<'_>) -> Result<usize> {
    run(Command::new("find").arg(ground.path("tree")).args(["-size", "+1000k"]))?;
    Ok(ground.sources.files)
}

fn du(ground: &Ground<'_>) -> Result<usize> {
    run(Command::new("du").arg("-s").arg(ground.path("tree")))?;
    Ok(ground.sources.files)
}

/// Looks for a word that is in no file, so that all are read.
fn grep(ground: &Ground<'_>) -> Result<usize> {
    let status = Command::new("grep").args(["-rqF", "a word that is in no file"]).arg(ground.path("tree")).status()?;
    ensure!(status.code() == Some(1), "grep: {status}");
    Ok(ground.sources.files)
}

fn copy(ground: &Ground<'_>) -> Result<usize> {
    run(Command::new("cp").arg("-a").args([ground.path("tree"), ground.path("copy")]))?;
    sync(ground)
}

fn rsync(ground: &Ground<'_>) -> Result<usize> {
    run(Command::new("rsync").arg("-aHAX").args([&ground.sources.tree, &ground.path("synced")]))?;
    sync(ground)
}

fn clone(ground: &Ground<'_>) -> Result<usize> {
    let repository = ground.sources.repository.as_ref().context("a repository")?;
    run(Command::new("git").args(["clone", "-q", "--no-hardlinks"]).args([repository, &ground.path("clone")]))?;
    Ok(ground.sources.files)
}

fn status(ground: &Ground<'_>) -> Result<usize> {
    run(Command::new("git").arg("-C").arg(ground.path("clone")).args(["status", "--porcelain"]))?;
    Ok(ground.sources.files)
}

fn build(ground: &Ground<'_>) -> Result<usize> {
    let package = ground.path("package");
    run(Command::new("cp").arg("-r").args([&ground.sources.package, &package]))?;
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "-q", "--offline"]).current_dir(&package);
    run(cargo.env_remove("RUSTFLAGS").env("CARGO_TARGET_DIR", package.join("target")))?;
    Ok(1)
}

fn commit_alone(ground: &Ground<'_>) -> Result<usize> {
    commits(&ground.path("alone.db"), 1)
}

fn commit_together(ground: &Ground<'_>) -> Result<usize> {
    commits(&ground.path("together.db"), CONNECTIONS)
}

/// Inserts rows, each in a transaction of its own that is durable when it ends.
fn commits(database: &Path, connections: usize) -> Result<usize> {
    run(Command::new("sqlite3").arg(database).arg("create table list (value text)"))?;
    let insert = |_| -> Result<_> {
        let mut command = Command::new("sqlite3");
        command.args(["-cmd", ".timeout 60000"]).arg(database).stdin(Stdio::piped());
        let mut child = command.spawn().context("sqlite3")?;
        let mut input = child.stdin.take().context("it reads commands")?;
        for n in 0..COMMITS / connections {
            writeln!(input, "insert into list values ('row {n}');")?;
        }
        Ok(child)
    };
    let children = (0..connections).map(insert).collect::<Result<Vec<_>>>()?;
    for mut child in children {
        let status = child.wait()?;
        ensure!(status.success(), "sqlite3: {status}");
    }
    Ok(COMMITS)
}

fn remove(ground: &Ground<'_>) -> Result<usize> {
    run(Command::new("rm").arg("-rf").arg(ground.path("tree")))?;
    sync(ground)
}

fn remove_copy(ground: &Ground<'_>) -> Result<usize> {
    run(Command::new("rm").arg("-rf").arg(ground.path("copy")))?;
    sync(ground)
}

/// Makes all durable; the number of files of the tree. The kernel does not pass a syncfs on to a FUSE server, but it
/// passes on an fsync of a directory.
fn sync(ground: &Ground<'_>) -> Result<usize> {
    let root = rustix::fs::open(ground.mount, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::fs::syncfs(&root)?;
    // fuse2fs has no fsync of directories.
    let _ = rustix::fs::fsync(&root);
    Ok(ground.sources.files)
}
