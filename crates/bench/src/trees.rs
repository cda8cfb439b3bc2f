//! A tree of small files on its way into an image and out of it: the command beside `mkfs.xfs -p`, and beside `cp -a` on the
//! kernel's loop mount. Of each the best of some rounds counts, taken in turns.

use anyhow::{Context, Result, ensure};
use rustix::fs::XattrFlags;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const FILES_PER_DIR: usize = 100;

/// What is compared.
struct Line {
    name: &'static str,
    reference: &'static str,
    ours: Duration,
    theirs: Duration,
}

/// Runs all comparisons and prints them.
pub(crate) fn measure(files: usize, image_mib: u64, rounds: usize) -> Result<()> {
    let scratch = xfskit_testkit::scratch();
    let tree = scratch.file("tree");
    make_tree(&tree, files)?;
    let bench = Bench { xfskit: find_xfskit()?, tree, dir: scratch.path().into(), image_mib };
    let mut lines = [("mkfs --from", "mkfs.xfs -p"), ("cp -r in", "mount, cp -a"), ("cp -r out", "mount, cp -a")]
        .map(|(name, reference)| Line { name, reference, ours: Duration::MAX, theirs: Duration::MAX });
    for _ in 0..rounds {
        for (line, (ours, theirs)) in lines.iter_mut().zip([bench.fill()?, bench.copy_in()?, bench.copy_out()?]) {
            (line.ours, line.theirs) = (line.ours.min(ours), line.theirs.min(theirs));
        }
    }
    println!("a tree of {files} files with an attribute each, image of {image_mib} MiB; best of {rounds}");
    for Line { name, reference, ours, theirs } in lines {
        let (ours, theirs) = (ours.as_secs_f64(), theirs.as_secs_f64());
        println!("{name:12} {ours:6.2} s   {reference:13} {theirs:6.2} s   {:5.2}x as fast", theirs / ours);
    }
    Ok(())
}

struct Bench {
    xfskit: PathBuf,
    tree: PathBuf,
    dir: PathBuf,
    image_mib: u64,
}

impl Bench {
    /// An image made of the tree.
    fn fill(&self) -> Result<(Duration, Duration)> {
        let (ours, theirs) = (self.dir.join("ours.img"), self.empty("theirs.img")?);
        let size = format!("{}M", self.image_mib);
        let our_time = timed(|| self.xfskit(&["mkfs", "--size", &size, "-q", "--from"], &[&self.tree, &ours]))?;
        let reference =
            xfskit_testkit::reference().context("the reference tools are missing: run scripts/reference")?;
        let tree = self.tree.to_str().context("the path is not text")?;
        let arguments = ["-q", "-p", tree, theirs.to_str().context("the path is not text")?];
        let their_time = timed(|| {
            reference.tool_output("mkfs.xfs", arguments);
            Ok(())
        })?;
        fs::remove_file(ours)?;
        fs::remove_file(theirs)?;
        Ok((our_time, their_time))
    }

    /// The tree into a fresh image.
    fn copy_in(&self) -> Result<(Duration, Duration)> {
        let (ours, theirs) = (self.made("ours.img")?, self.made("theirs.img")?);
        let into = PathBuf::from(format!("{}:/", ours.display()));
        let our_time = timed(|| self.xfskit(&["cp", "-r"], &[&self.tree, &into]))?;
        let their_time = timed(|| {
            let mount =
                xfskit_testkit::kernel_mount(&theirs).context("the kernel's mount is what this is held against")?;
            run(Command::new("cp").arg("-a").arg(&self.tree).arg(mount.path()))?;
            mount.unmount();
            Ok(())
        })?;
        fs::remove_file(theirs)?;
        Ok((our_time, their_time))
    }

    /// The tree out of the image that the way in has left.
    fn copy_out(&self) -> Result<(Duration, Duration)> {
        let image = self.dir.join("ours.img");
        let (ours, theirs) = (self.dir.join("ours"), self.dir.join("theirs"));
        let from = PathBuf::from(format!("{}:/tree", image.display()));
        let our_time = timed(|| self.xfskit(&["cp", "-r"], &[&from, &ours]))?;
        let their_time = timed(|| {
            let mount =
                xfskit_testkit::kernel_mount(&image).context("the kernel's mount is what this is held against")?;
            run(Command::new("cp").arg("-a").arg(mount.path().join("tree")).arg(&theirs))?;
            mount.unmount();
            Ok(())
        })?;
        fs::remove_dir_all(ours)?;
        fs::remove_dir_all(theirs)?;
        fs::remove_file(image)?;
        Ok((our_time, their_time))
    }

    fn xfskit(&self, arguments: &[&str], paths: &[&Path]) -> Result<()> {
        run(Command::new(&self.xfskit).args(arguments).args(paths))
    }

    fn empty(&self, name: &str) -> Result<PathBuf> {
        let path = self.dir.join(name);
        fs::File::create(&path)?.set_len(self.image_mib << 20)?;
        Ok(path)
    }

    fn made(&self, name: &str) -> Result<PathBuf> {
        let path = self.empty(name)?;
        self.xfskit(&["mkfs", "-q"], &[&path])?;
        Ok(path)
    }
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// The command, built beside this program.
fn find_xfskit() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("xfskit");
    ensure!(path.exists(), "{}: build it first: cargo build --release -p xfskit-cli", path.display());
    Ok(path)
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
