//! Lists directories.

use super::Volume;
use crate::dir;
use crate::error::Result;
use crate::trans::Transaction;
use std::ops::ControlFlow;
use xfskit_ondisk::InodeNumber;
use xfskit_ondisk::dir::FileType;

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: Vec<u8>,
    /// What it names.
    pub inode: InodeNumber,
    /// What kind of file that is.
    pub file_type: FileType,
    /// Where to go on reading after this entry.
    pub next_cookie: u32,
}

impl From<dir::Entry<'_>> for Entry {
    fn from(entry: dir::Entry<'_>) -> Self {
        Self { name: entry.name.to_vec(), inode: entry.inode, file_type: entry.file_type, next_cookie: entry.next }
    }
}

impl Volume {
    /// Hands entries of `dir` from `cookie` on (0 is the beginning, `.` and `..` included) to `each` until it says
    /// enough. The directory is locked for reading meanwhile.
    ///
    /// # Errors
    /// `NotADirectory`, `Corrupt`, `Io`.
    pub fn read_dir(
        &self,
        dir: InodeNumber,
        cookie: u32,
        mut each: impl FnMut(dir::Entry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let dir = self.mount.inode(dir)?;
        let mut tx = Transaction::read_only(&self.mount);
        let id = self.join_dir(&mut tx, &dir)?;
        self.located(dir.number, dir::read(&mut tx, id, cookie, &mut each))
    }

    /// All entries of `dir` but `.` and `..`.
    ///
    /// # Errors
    /// As [`Self::read_dir`].
    pub fn list_dir(&self, dir: InodeNumber) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        self.read_dir(dir, 0, |entry| {
            if entry.name != b"." && entry.name != b".." {
                entries.push(entry.into());
            }
            ControlFlow::Continue(())
        })?;
        Ok(entries)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `Invalid` for another kind of file; `Corrupt`, `Io`.
    pub fn read_link(&self, inode: InodeNumber) -> Result<Vec<u8>> {
        let inode = self.mount.inode(inode)?;
        let mut tx = Transaction::read_only(&self.mount);
        let id = self.join(&mut tx, &inode)?;
        self.located(inode.number, crate::symlink::read(&mut tx, id))
    }
}
