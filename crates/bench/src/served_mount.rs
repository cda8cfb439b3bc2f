//! A mount by this program's command, with a server process of its own, as a user has it.

use crate::machine::mount_point;
use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const KIND: &str = "fuse.xfskit";
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(5);

/// A mount; unmounted when it is dropped.
pub(crate) struct ServedMount {
    dir: PathBuf,
    server: Option<Child>,
}

impl ServedMount {
    /// Mounts an image with these options (`-o`).
    pub(crate) fn new(image: &Path, dir: &Path, options: &[&str]) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["mount", "-f"]);
        for option in options {
            command.args(["-o", option]);
        }
        command.args([image, dir]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut mount = Self { dir: dir.into(), server: Some(command.spawn().context("xfskit mount")?) };
        mount.await_mount()?;
        Ok(mount)
    }

    fn await_mount(&mut self) -> Result<()> {
        let begun = Instant::now();
        while mount_point(&self.dir).is_none_or(|mount| mount.kind != KIND) {
            let ended = self.server.as_mut().map(Child::try_wait).transpose()?.flatten();
            if ended.is_some() {
                let mut message = String::new();
                if let Some(mut errors) = self.server.take().and_then(|mut server| server.stderr.take()) {
                    errors.read_to_string(&mut message)?;
                }
                bail!("xfskit mount: {}", message.trim());
            }
            ensure!(begun.elapsed() < PATIENCE, "xfskit mount: there is no mount after {PATIENCE:?}");
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// The most memory that the server has used so far, in bytes.
    pub(crate) fn most_memory_bytes(&self) -> Option<u64> {
        // The parent that was started reads no image; its child does.
        let parent = self.server.as_ref()?.id();
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
        let status = fs::read_to_string(format!("/proc/{}/status", children.split_whitespace().next()?)).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
    }

    /// Unmounts, and waits until the image is closed.
    pub(crate) fn unmount(mut self) -> Result<()> {
        xfskit(&[OsStr::new("umount"), self.dir.as_os_str()])?;
        let Some(mut server) = self.server.take() else { return Ok(()) };
        ensure!(server.wait()?.success(), "the server of {} ended with an error", self.dir.display());
        Ok(())
    }
}

impl Drop for ServedMount {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            // Another error is reported already.
            if xfskit(&[OsStr::new("umount"), self.dir.as_os_str()]).is_err() {
                let _ = server.kill();
            }
            let _ = server.wait();
        }
    }
}

fn xfskit(arguments: &[&OsStr]) -> Result<()> {
    let output = Command::new(std::env::current_exe()?).args(arguments).output().context("this program")?;
    ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
