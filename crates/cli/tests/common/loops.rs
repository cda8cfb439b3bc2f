//! Loop devices, for tests of images that are in use.

use std::path::{Path, PathBuf};
use std::process::Command;
use xfskit_testkit::skip;

/// A loop device over a file, which is detached in the end.
pub struct Loop(pub PathBuf);

impl Loop {
    /// `None`, after printing the reason, if this user may attach none.
    pub fn attach(options: &[&str], image: &Path) -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
            skip("loop devices need root");
            return None;
        }
        let output = Command::new("losetup").args(["--find", "--show"]).args(options).arg(image).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        Some(Self(String::from_utf8(output.stdout).unwrap().trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        drop(Command::new("losetup").arg("--detach").arg(&self.0).status());
    }
}
