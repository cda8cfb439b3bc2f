//! An image mounted by this machine's kernel.

use crate::{Scratch, TreeEntry, scratch, skip, tree};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const DETACH_SECONDS: u64 = 10;

/// A mounted image; unmounted when it is dropped.
#[derive(Debug)]
pub struct Mount {
    dir: Scratch,
    image: PathBuf,
    mounted: bool,
    _log: Option<LoopDevice>,
}

/// Mounts an image read-write through a loop device. If this machine cannot mount XFS at all, prints why and returns
/// `None`.
///
/// # Panics
/// If the kernel refuses the image, or if it cannot mount at all and `CI=true`.
pub fn kernel_mount(image: &Path) -> Option<Mount> {
    kernel_mount_with(image, None, &[])
}

/// As [`kernel_mount`], with the device of an external log and options of mount(8).
///
/// # Panics
/// As [`kernel_mount`].
pub fn kernel_mount_with(image: &Path, log: Option<&Path>, options: &[&str]) -> Option<Mount> {
    let mount = try_kernel_mount(image, log, options)?;
    Some(mount.unwrap_or_else(|refusal| panic!("the kernel does not mount {}: {refusal}", image.display())))
}

/// As [`kernel_mount_with`], for images that the kernel may refuse: returns the message of mount(8) then.
///
/// # Panics
/// If this machine cannot mount XFS at all and `CI=true`.
pub fn try_kernel_mount(image: &Path, log: Option<&Path>, options: &[&str]) -> Option<Result<Mount, String>> {
    if !rustix::process::geteuid().is_root() {
        skip("a loop mount needs root");
        return None;
    }
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let module = || Command::new("modprobe").arg("xfs").output().is_ok_and(|output| output.status.success());
    if !known.contains("\txfs\n") && !module() {
        skip("this machine's kernel has no XFS");
        return None;
    }
    if !Path::new("/dev/loop-control").exists() {
        skip("this machine has no loop devices");
        return None;
    }
    let dir = scratch();
    let log = log.map(LoopDevice::attach);
    let mut all = vec!["loop".to_owned(), "nouuid".to_owned()];
    all.extend(log.iter().map(|log| format!("logdev={}", log.path)));
    all.extend(options.iter().map(|&option| option.to_owned()));
    let output = Command::new("mount")
        .args(["-i", "-t", "xfs", "-o", &all.join(",")])
        .arg(image)
        .arg(dir.path())
        .output()
        .expect("mount");
    if !output.status.success() {
        return Some(Err(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Some(Ok(Mount { dir, image: image.into(), mounted: true, _log: log }))
}

/// A file attached to a loop device.
#[derive(Debug)]
struct LoopDevice {
    path: String,
}

impl LoopDevice {
    fn attach(file: &Path) -> Self {
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output().expect("losetup");
        assert!(output.status.success(), "losetup: {}", String::from_utf8_lossy(&output.stderr));
        Self { path: String::from_utf8_lossy(&output.stdout).trim().to_owned() }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // The kernel detaches a device that is in use when the filesystem is unmounted.
        drop(Command::new("losetup").args(["--detach", &self.path]).output());
    }
}

impl Mount {
    /// Where the image is mounted.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Returns all files of the image, sorted by path, and unmounts it.
    ///
    /// # Panics
    /// As [`tree()`] and [`Self::unmount`].
    pub fn into_tree(self) -> Vec<TreeEntry> {
        let files = tree(self.path());
        self.unmount();
        files
    }

    /// Unmounts the image and waits until the loop device has released it.
    ///
    /// # Panics
    /// If that fails, since the image would not be complete.
    pub fn unmount(mut self) {
        self.mounted = false;
        let end = Instant::now() + Duration::from_secs(DETACH_SECONDS);
        loop {
            let output = Command::new("umount").arg(self.path()).output().expect("umount");
            let message = String::from_utf8_lossy(&output.stderr);
            // A process that another test has forked keeps our files open until its exec.
            if !message.contains("busy") || Instant::now() > end {
                assert!(output.status.success(), "umount: {message}");
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // The loop device releases the file a moment later.
        while Instant::now() < end {
            let output = Command::new("losetup").arg("-j").arg(&self.image).output();
            if output.map_or(true, |output| output.stdout.is_empty()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{} is still attached to a loop device", self.image.display());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.mounted {
            // A test that fails may still have files open. The kernel removes the mount when they are closed.
            drop(Command::new("umount").arg("-l").arg(self.dir.path()).output());
        }
    }
}
