//! Servers in the background, and mounts that are removed also after a test that failed.
#![allow(dead_code)] // Each test uses a part.

use super::{image, ok};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use xfskit_testkit::{Scratch, scratch, skip};

/// A folder with an image and a mount point.
pub struct Prepared {
    pub scratch: Scratch,
    pub image: PathBuf,
    pub dir: PathBuf,
}

impl Drop for Prepared {
    fn drop(&mut self) {
        // A test that failed leaves one or several mounts behind.
        if std::thread::panicking() {
            for _ in 0..3 {
                drop(Command::new("umount").arg("-l").arg(&self.dir).output());
            }
        }
    }
}

/// `None`, after printing the reason, if FUSE cannot be used.
pub fn prepared() -> Option<Prepared> {
    if fs::File::open("/dev/fuse").is_err() {
        skip("this machine has no /dev/fuse");
        return None;
    }
    let scratch = scratch();
    let (image, dir) = (image(&scratch), scratch.file("mount"));
    fs::create_dir(&dir).unwrap();
    Some(Prepared { scratch, image, dir })
}

/// As [`prepared`], for tests that need root.
pub fn prepared_for_root() -> Option<Prepared> {
    if !rustix::process::geteuid().is_root() {
        skip("other mounts need root");
        return None;
    }
    prepared()
}

impl Prepared {
    /// Runs a line, in which `DIR` is the mount point, that must succeed.
    pub fn line(&self, text: &str) -> String {
        ok(&text.replace("DIR", self.dir.to_str().unwrap()), &self.image)
    }
}

/// Runs a program that must succeed.
pub fn run(program: &str, arguments: &[&str], path: &Path) {
    let output = Command::new(program).args(arguments).arg(path).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The process that serves an image.
pub fn server_of(image: &Path) -> i32 {
    let servers = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let process: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let command = fs::read_to_string(format!("/proc/{process}/cmdline")).ok()?;
        (command.contains("--server") && command.contains(image.to_str()?)).then_some(process)
    });
    servers.last().expect("a server")
}

pub fn signal(process: i32, signal: &str) {
    assert!(Command::new("kill").args([signal, &process.to_string()]).status().unwrap().success());
}

/// Waits until a process that is not a child of this one has ended.
pub fn wait_for_end(process: i32) {
    let end = Instant::now() + Duration::from_secs(30);
    // A zombie has no command line. This process is not its parent, so it cannot wait for it.
    while fs::read(format!("/proc/{process}/cmdline")).is_ok_and(|command| !command.is_empty()) {
        assert!(Instant::now() < end, "process {process} does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A folder on a small filesystem of the host.
pub struct SmallHost(pub PathBuf);

impl SmallHost {
    /// Mounts one of a size such as `20m`; `None` without root.
    pub fn new(dir: PathBuf, size: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip("a small host filesystem needs root");
            return None;
        }
        fs::create_dir(&dir).unwrap();
        run("mount", &["-t", "tmpfs", "-o", &format!("size={size}"), "none"], &dir);
        Some(Self(dir))
    }
}

impl Drop for SmallHost {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).output());
    }
}
