//! The kernel's XFS, through system calls on a loop mount.

use crate::{Arguments, Phase, Target, run};
use anyhow::{Context, Result};
use rustix::fs::XattrFlags;
use std::fs;
use std::path::{Path, PathBuf};

struct Kernel {
    root: PathBuf,
    statistics: PathBuf,
}

impl Target for Kernel {
    type File = PathBuf;

    fn create(&self, thread: usize, name: &str) -> PathBuf {
        let path = self.path(thread, name);
        fs::File::create(&path).expect("a file is made");
        path
    }

    fn set(&self, file: &PathBuf, value: &[u8]) {
        rustix::fs::setxattr(file, "user.test", value, XattrFlags::empty()).expect("an attribute is set");
    }

    fn get(&self, file: &PathBuf, value: &mut [u8]) {
        rustix::fs::getxattr(file, "user.test", value).expect("an attribute is read");
    }

    fn remove(&self, file: &PathBuf) {
        rustix::fs::removexattr(file, "user.test").expect("an attribute is removed");
    }

    fn unlink(&self, thread: usize, name: &str) {
        fs::remove_file(self.path(thread, name)).expect("a file is removed");
    }

    fn sync(&self) {
        let root = fs::File::open(&self.root).expect("the mount is there");
        rustix::fs::syncfs(&root).expect("a sync");
    }

    fn counts(&self) -> (u64, u64) {
        let text = fs::read_to_string(&self.statistics).expect("the kernel's statistics");
        let line = |name: &str| -> Vec<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a known statistic");
            line.split_whitespace().map(|word| word.parse().expect("a number")).collect()
        };
        let (transactions, log) = (line("trans "), line("log "));
        (transactions[0] + transactions[1], log[1] * 512)
    }
}

impl Kernel {
    fn path(&self, thread: usize, name: &str) -> PathBuf {
        self.root.join(format!("dir{thread}")).join(name)
    }
}

/// Runs all phases on a loop mount of `image`; `None` where the kernel cannot mount it.
pub(crate) fn measure(image: &Path, arguments: &Arguments) -> Result<Option<Vec<Phase>>> {
    let Some(mount) = xfskit_testkit::kernel_mount(image) else { return Ok(None) };
    let mounts = fs::read_to_string("/proc/mounts")?;
    let device = mounts
        .lines()
        .find_map(|line| line.split_once(&format!(" {} ", mount.path().display())).map(|(device, _)| device.to_owned()))
        .context("the mount is not listed")?;
    let name = device.rsplit('/').next().unwrap_or_default();
    let kernel =
        Kernel { root: mount.path().to_owned(), statistics: PathBuf::from(format!("/sys/fs/xfs/{name}/stats/stats")) };
    for thread in 0..arguments.threads {
        fs::create_dir(kernel.root.join(format!("dir{thread}")))?;
    }
    kernel.sync();
    let phases = run(&kernel, arguments);
    mount.unmount();
    Ok(Some(phases))
}
