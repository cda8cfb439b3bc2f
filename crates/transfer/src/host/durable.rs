//! When a copy on the host is durable: a power cut must not undo what was reported as done.
//!
//! ```text
//! a file that replaces another   contents durable ── renamed      at each such file
//! everything                     syncfs                           once, at the end, for each filesystem
//! ```
//! One `syncfs` is much less work than an `fsync` of each file; it also waits for the writes of other programs.
//!
//! Source of facts: syncfs(2), rename(2).

use crate::error::{Result, host};
use rustix::fd::{AsFd, OwnedFd};

/// What becomes durable, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The new contents of a file that replaces another one, before the rename: after a power cut, either the old or
    /// the new file is there. Everything else with [`Written::sync`].
    #[default]
    Kept,
    /// Nothing: the host decides when it writes.
    LeftToTheHost,
}

/// The filesystems of the host that a copy has written to.
#[derive(Debug, Default)]
pub struct Written {
    filesystems: Vec<(u64, OwnedFd)>,
}

impl Written {
    /// Notes the filesystem of a folder.
    pub(super) fn note(&mut self, folder: impl AsFd, path: &[u8]) -> Result<()> {
        let device = rustix::fs::fstat(&folder).map_err(host(path, "looking at the folder"))?.st_dev;
        if self.filesystems.iter().all(|(known, _)| *known != device) {
            let fd = folder.as_fd().try_clone_to_owned().map_err(host(path, "opening the folder"))?;
            self.filesystems.push((device, fd));
        }
        Ok(())
    }

    /// Adds the filesystems of another copy.
    pub fn add(&mut self, other: Self) {
        let known: Vec<u64> = self.filesystems.iter().map(|(device, _)| *device).collect();
        self.filesystems.extend(other.filesystems.into_iter().filter(|(device, _)| !known.contains(device)));
    }

    /// Makes the copy durable, and all other writes to these filesystems.
    ///
    /// # Errors
    /// `Host`: something could not be written after all.
    pub fn sync(&self) -> Result<()> {
        for (_, fd) in &self.filesystems {
            rustix::fs::syncfs(fd).map_err(host(b"", "making the copy durable"))?;
        }
        Ok(())
    }
}
