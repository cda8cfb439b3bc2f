//! Removing files and trees.

use super::{AsPath, Filesystem, InodeRef, OnPath, PathEntry, Result};
use std::collections::HashSet;
use std::ops::ControlFlow;
use xfskit_engine::{Caller, DirEntry};
use xfskit_engine::{Error as Cause, Result as EngineResult};
use xfskit_ondisk::Corruption;

/// Entries that are read at once.
const BATCH: usize = 128;

/// A directory that is being emptied.
struct Level<'fs> {
    dir: InodeRef<'fs>,
    name: Vec<u8>,
}

impl Filesystem {
    /// Removes a name of a file, of a symbolic link, of anything but a directory. With the last name the file goes,
    /// as soon as no [`File`](super::File) has it open.
    ///
    /// # Errors
    /// `Path`: `NotFound`, `IsADirectory`, `Invalid` for `.` and `..`, `NotPermitted` for what is immutable or
    /// append-only.
    pub fn remove_file(&self, path: impl AsPath) -> Result<()> {
        let path = path.as_path_bytes();
        self.remove_file_at(path).on("remove", path)
    }

    fn remove_file_at(&self, path: &[u8]) -> EngineResult<()> {
        let entry = self.own_name(path)?;
        if entry.is_dirs {
            return Err(if self.names_dir(&entry)? { Cause::IsADirectory } else { Cause::NotADirectory });
        }
        self.volume().unlink(entry.dir.number(), entry.name, &Caller::root())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `Path`: `NotFound`, `NotADirectory`, `NotEmpty`, `Invalid` for `.`, `..` and the root.
    pub fn remove_dir(&self, path: impl AsPath) -> Result<()> {
        let path = path.as_path_bytes();
        let removed =
            self.own_name(path).and_then(|entry| self.volume().rmdir(entry.dir.number(), entry.name, &Caller::root()));
        removed.on("remove directory", path)
    }

    /// Removes a directory and everything below it. Symbolic links are removed and never followed; a symbolic link at
    /// `path` is all that is removed. After an error, or a crash, a part of the tree may be left.
    ///
    /// # Errors
    /// `Path`: `NotFound`, `NotADirectory` for another file, `Invalid` for `.`, `..` and the root; `NotEmpty` if
    /// another thread makes files there meanwhile; `NotPermitted` for what is immutable or append-only.
    pub fn remove_dir_all(&self, path: impl AsPath) -> Result<()> {
        let path = path.as_path_bytes();
        let removed = self.own_name(path).and_then(|entry| self.remove_tree(&entry));
        removed.on("remove tree", path)
    }

    fn remove_tree(&self, entry: &PathEntry<'_, '_>) -> EngineResult<()> {
        let (volume, root) = (self.volume(), Caller::root());
        let (top, found) = entry.dir.lookup(entry.name)?;
        if !found.file_type.is_dir() {
            let is_link = found.file_type.is_symlink() && !entry.is_dirs;
            return if is_link {
                volume.unlink(entry.dir.number(), entry.name, &root)
            } else {
                Err(Cause::NotADirectory)
            };
        }
        let mut above = HashSet::from([entry.dir.number(), top.number()]);
        let mut levels = vec![Level { dir: top, name: entry.name.to_vec() }];
        while let Some(level) = levels.last() {
            if let Some(below) = remove_files(&level.dir)? {
                let number = below.dir.number();
                if !above.insert(number) {
                    return Err(Corruption::new("directory", "leads to no directory above it").of(number.0).into());
                }
                levels.push(below);
                continue;
            }
            let Level { dir, name } = levels.pop().expect("the loop looked at the last level");
            above.remove(&dir.number());
            // A directory without a reference goes in the same transaction as its name.
            dir.release()?;
            let parent = levels.last().map_or(entry.dir.number(), |parent| parent.dir.number());
            volume.rmdir(parent, &name, &root)?;
        }
        Ok(())
    }
}

/// Removes what is not a directory from a directory, up to the first that is one.
fn remove_files<'fs>(dir: &InodeRef<'fs>) -> EngineResult<Option<Level<'fs>>> {
    let root = Caller::root();
    loop {
        let mut batch: Vec<DirEntry> = Vec::new();
        dir.volume().read_dir(dir.number(), 0, |entry| {
            if entry.name != b"." && entry.name != b".." {
                batch.push(entry.into());
            }
            if batch.len() < BATCH { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if batch.is_empty() {
            return Ok(None);
        }
        for entry in batch {
            let removed = dir.volume().unlink(dir.number(), &entry.name, &root);
            let below = match removed {
                Err(Cause::IsADirectory) => dir.lookup(&entry.name).map(Some),
                other => other.map(|()| None),
            };
            match below {
                Ok(Some((below, _))) => return Ok(Some(Level { dir: below, name: entry.name })),
                // Another thread was faster.
                Ok(None) | Err(Cause::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
    }
}
