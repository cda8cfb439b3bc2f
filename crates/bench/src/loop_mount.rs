//! An image mounted by this machine's kernel.

use crate::BenchError;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const DETACH_SECONDS: u64 = 10;

/// A mounted image; unmounted when it is dropped.
#[derive(Debug)]
pub(crate) struct LoopMount {
    dir: PathBuf,
    image: PathBuf,
    mounted: bool,
    /// Detached after the mount is gone.
    _log: Option<LoopDevice>,
}

/// A loop device of the journal; detached when it is dropped.
#[derive(Debug)]
struct LoopDevice(String);

impl LoopDevice {
    fn new(file: &Path) -> Result<Self> {
        let output = Command::new("losetup").args(["-f", "--show"]).arg(file).output().context("losetup")?;
        let message = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), BenchError::NoKernel(message.trim().to_owned()));
        Ok(Self(String::from_utf8_lossy(&output.stdout).trim().to_owned()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // If it is in use, the kernel detaches it later.
        let _ = Command::new("losetup").arg("-d").arg(&self.0).output();
    }
}

/// Why this machine cannot mount XFS images, if it cannot.
pub(crate) fn obstacle() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("a loop mount needs root");
    }
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let module = || Command::new("modprobe").arg("xfs").output().is_ok_and(|output| output.status.success());
    if !known.contains("\txfs\n") && !module() {
        return Some("this machine's kernel has no XFS");
    }
    (!Path::new("/dev/loop-control").exists()).then_some("this machine has no loop devices")
}

impl LoopMount {
    pub(crate) fn new(image: &Path, log: Option<&Path>, dir: &Path) -> Result<Self> {
        if let Some(why) = obstacle() {
            return Err(BenchError::NoKernel(why.into()).into());
        }
        std::fs::create_dir_all(dir)?;
        let mut command = Command::new("mount");
        let log = log.map(LoopDevice::new).transpose()?;
        let log_option = log.as_ref().map_or_else(String::new, |LoopDevice(device)| format!(",logdev={device}"));
        command.args(["-i", "-t", "xfs", "-o", &format!("loop,nouuid{log_option}")]).arg(image).arg(dir);
        let output = command.output().context("mount")?;
        let message = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), BenchError::NoKernel(message.trim().to_owned()));
        Ok(Self { dir: dir.into(), image: image.into(), mounted: true, _log: log })
    }

    /// Unmounts, and waits until the loop device has released the image.
    pub(crate) fn unmount(mut self) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(DETACH_SECONDS);
        loop {
            let output = Command::new("umount").arg(&self.dir).output().context("umount")?;
            if output.status.success() {
                break;
            }
            let message = String::from_utf8_lossy(&output.stderr);
            ensure!(message.contains("busy") && Instant::now() < end, "umount: {}", message.trim());
            std::thread::sleep(Duration::from_millis(10));
        }
        self.mounted = false;
        while Instant::now() < end {
            let output = Command::new("losetup").arg("-j").arg(&self.image).output();
            if output.map_or(true, |output| output.stdout.is_empty()) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        anyhow::bail!("{} is still attached to a loop device", self.image.display())
    }
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        if self.mounted {
            // Another error is reported already. The kernel removes the mount when no process uses it any more.
            let _ = Command::new("umount").arg("-l").arg(&self.dir).output();
        }
    }
}
