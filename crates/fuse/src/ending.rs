//! How a mount ended, as the server reports it to the program that unmounts.
//!
//! ```text
//! server     memory file "xfskit:DEVICE:MOUNT", empty while it serves ── closed ──▶ "closed" or "failed" and text
//! unmounter  finds it among the server's descriptors before it unmounts ── reads it until it is no longer empty
//! ```
//! Nothing of this goes through the mount, whose server may belong to any user and need not answer. The unmounter opens
//! only a memory file of the kernel, in a process of root or of the user who made the mount. So it never waits, and no
//! other user can answer. If the server dies, the file is no longer among any process's descriptors, and the unmounter
//! sees that too.

use crate::mountinfo::MountEntry;
use rustix::fs::{AtFlags, MemfdFlags, Mode, OFlags, StatxFlags};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

const CLOSED: &str = "closed\n";
const FAILED: &str = "failed\n";
const MAX_BYTES: usize = 16 << 10;

fn name_of(entry: &MountEntry) -> String {
    format!("xfskit:{}:{}", entry.device, entry.id)
}

/// The server's side.
#[derive(Debug)]
pub(crate) struct EndReport(File);

impl EndReport {
    /// The file for the report of a mount.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn file_for(entry: &MountEntry) -> io::Result<OwnedFd> {
        Ok(rustix::fs::memfd_create(name_of(entry), MemfdFlags::CLOEXEC)?)
    }

    /// The report in a file that [`Self::file_for`] has made.
    pub fn over(file: OwnedFd) -> Self {
        Self(file.into())
    }

    /// Reports the failure of closing, or else notes on what went wrong before.
    pub fn write(&self, failure: Option<&str>, notes: &str) {
        let text = match failure {
            Some(failure) => format!("{FAILED}{failure}\n"),
            None => format!("{CLOSED}{notes}\n"),
        };
        // If there is no memory for the report, the unmounter sees from the end of the server that the image was not
        // closed.
        let _ = self.0.write_all_at(text.as_bytes(), 0);
    }
}

/// How a mount ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The image was closed. Notes on earlier errors follow.
    Closed(String),
    /// The image was not closed, and why.
    Failed(String),
    /// The server ended without closing the image.
    Died,
}

/// The unmounter's side.
#[derive(Debug)]
pub struct Watch {
    file: File,
    descriptor: PathBuf,
    name: String,
}

impl Watch {
    /// Finds the server of a mount. This must be called before the mount is unmounted. `None` if the server cannot be
    /// seen.
    pub fn find(entry: &MountEntry) -> Option<Self> {
        let name = format!("/memfd:{} (deleted)", name_of(entry));
        let memory = rustix::fs::memfd_create("xfskit", MemfdFlags::CLOEXEC).ok()?;
        for process in fs::read_dir("/proc").ok()?.flatten() {
            let is_users = fs::metadata(process.path()).is_ok_and(|data| [0, entry.user_id].contains(&data.uid()));
            if !is_users {
                continue;
            }
            for file in fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten() {
                let descriptor = file.path();
                if fs::read_link(&descriptor).is_ok_and(|link| link == Path::new(&name))
                    && let Some(file) = open_memory(&descriptor, &memory)
                {
                    return Some(Self { file, descriptor, name });
                }
            }
        }
        None
    }

    /// How the mount ended, if it has.
    pub fn ending(&self) -> Option<Ending> {
        let is_there = fs::read_link(&self.descriptor).is_ok_and(|link| link == Path::new(&self.name));
        let mut bytes = vec![0; MAX_BYTES];
        let count = self.file.read_at(&mut bytes, 0).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes[..count]);
        if let Some(notes) = text.strip_prefix(CLOSED) {
            return Some(Ending::Closed(notes.trim().to_owned()));
        }
        if let Some(why) = text.strip_prefix(FAILED) {
            return Some(Ending::Failed(why.trim().to_owned()));
        }
        if is_there { None } else { Some(Ending::Died) }
    }
}

/// Opens a descriptor of another process if it is a memory file of the kernel. No request is sent to any other
/// filesystem.
fn open_memory(descriptor: &Path, memory: &OwnedFd) -> Option<File> {
    let found = rustix::fs::open(descriptor, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let device = |file: &OwnedFd| {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let data = rustix::fs::statx(file.as_fd(), "", flags, StatxFlags::TYPE).ok()?;
        Some((data.stx_dev_major, data.stx_dev_minor))
    };
    if device(&found)? != device(memory)? {
        return None;
    }
    File::open(format!("/proc/self/fd/{}", found.as_raw_fd())).ok()
}
