//! An ext4 image mounted by fuse2fs: the other filesystem of the kernel that a FUSE server can write.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(10);

/// A mount; unmounted when it is dropped.
pub(crate) struct Ext4Mount {
    dir: PathBuf,
    is_mounted: bool,
}

/// Why this machine cannot mount ext4 images by FUSE, if it cannot.
pub(crate) fn ext4_obstacle() -> Option<&'static str> {
    let has = |program: &str| Command::new(program).arg("-V").output().is_ok();
    if !has("mkfs.ext4") || !has("fuse2fs") {
        return Some("mkfs.ext4 or fuse2fs is not installed (Debian's packages are called e2fsprogs and fuse2fs)");
    }
    std::fs::File::open("/dev/fuse").is_err().then_some("/dev/fuse cannot be used")
}

impl Ext4Mount {
    /// Makes a filesystem in an image file that is there, and mounts it.
    pub(crate) fn make(image: &Path, dir: &Path) -> Result<Self> {
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(image))?;
        Self::mount(image, dir)
    }

    /// Mounts an image.
    pub(crate) fn mount(image: &Path, dir: &Path) -> Result<Self> {
        std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        run(Command::new("fuse2fs").args([image, dir]).args(["-o", "fakeroot"]))?;
        Ok(Self { dir: dir.into(), is_mounted: true })
    }

    /// Unmounts, and waits until the server has closed the image.
    pub(crate) fn unmount(mut self, image: &Path) -> Result<()> {
        run(Command::new("fusermount3").arg("-u").arg(&self.dir))?;
        self.is_mounted = false;
        let begun = Instant::now();
        while is_open(image) {
            ensure!(begun.elapsed() < PATIENCE, "fuse2fs has {} open after {PATIENCE:?}", image.display());
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

impl Drop for Ext4Mount {
    fn drop(&mut self) {
        if self.is_mounted {
            // Another error is reported already.
            let _ = Command::new("fusermount3").args(["-u", "-z"]).arg(&self.dir).output();
        }
    }
}

/// Whether a process has a file open, as far as this one may see.
fn is_open(file: &Path) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    let folders = processes.flatten().filter_map(|process| std::fs::read_dir(process.path().join("fd")).ok());
    let mut files = folders.flatten().flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok());
    files.any(|open| open == file)
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
