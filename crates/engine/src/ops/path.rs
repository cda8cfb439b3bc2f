//! Paths: from text to inodes, and from inodes back to text by their parent pointers.

use super::{InodeRef, LastLink, Stat, Volume};
use crate::cycle::CycleGuard;
use crate::error::{Error, Result};
use crate::parent;
use crate::trans::Transaction;
use std::collections::HashMap;
use xfskit_ondisk::InodeNumber;

/// Most symbolic links that a look-up follows.
pub const MAX_LINKS_FOLLOWED: usize = 40;
/// Most bytes of paths that are listed for one inode, and of a single path.
const MAX_PATH_BYTES: usize = 256 << 20;

/// Whether only a directory has such a path.
pub(crate) fn names_directory(path: &[u8]) -> bool {
    path.ends_with(b"/") || path.ends_with(b"/.")
}

impl Volume {
    /// What is known of the inode at `path`, from the root. Symbolic links on the way are followed, one at the end as
    /// `last` says. A path that ends in a slash, or in `/.`, is that of a directory: a link at its end is followed in
    /// any case. The same holds for a link's target.
    ///
    /// # Errors
    /// As [`Self::lookup`]; `NotADirectory` for another file's path with a slash; `TooManySymlinks`.
    pub fn resolve(&self, path: &[u8], last: LastLink) -> Result<Stat> {
        self.resolve_ref(path, last)?.stat()
    }

    /// As [`Self::resolve`], with a reference to the inode.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub fn resolve_ref(&self, path: &[u8], last: LastLink) -> Result<InodeRef<'_>> {
        Ok(self.walk_path(path, last)?.0)
    }

    /// The inode at a path, and the names of the directories on the way and of the inode, without symbolic links. Each
    /// inode on the way is referenced until the next one is, so that the path leads to no other file that got its
    /// number.
    #[doc(hidden)]
    pub fn walk_path(&self, path: &[u8], last: LastLink) -> Result<(InodeRef<'_>, Vec<Vec<u8>>)> {
        let mut is_dirs = names_directory(path);
        let mut at = self.reference(self.root())?;
        let mut names = components(path);
        let mut way: Vec<Vec<u8>> = Vec::new();
        let mut followed = 0;
        while let Some(name) = names.pop() {
            let (next, stat) = self.lookup_ref(at.number(), &name)?;
            let is_kept = names.is_empty() && last == LastLink::Keep && !is_dirs;
            if !stat.file_type.is_symlink() || is_kept {
                at = next;
                if name == b".." {
                    way.pop();
                } else {
                    way.push(name);
                }
                continue;
            }
            followed += 1;
            if followed > MAX_LINKS_FOLLOWED {
                return Err(Error::TooManySymlinks);
            }
            let target = self.read_link(next.number())?;
            if target.starts_with(b"/") {
                at = self.reference(self.root())?;
                way.clear();
            }
            is_dirs |= names.is_empty() && names_directory(&target);
            names.extend(components(&target));
        }
        if is_dirs && !at.stat()?.file_type.is_dir() {
            return Err(Error::NotADirectory);
        }
        Ok((at, way))
    }

    /// Every name of an inode: the directory and the name there.
    ///
    /// # Errors
    /// `NotSupported` on an image without parent pointers; `Corrupt`, `Io`.
    pub fn parents(&self, inode: InodeNumber) -> Result<Vec<(InodeNumber, Vec<u8>)>> {
        if !self.mount.geometry.has_parent() {
            return Err(Error::NotSupported(
                "parent pointers: the image was made without them (mkfs with -n parent=1)",
            ));
        }
        let inode = self.mount.inode(inode)?;
        let mut tx = Transaction::read_only(&self.mount);
        let id = self.join(&mut tx, &inode)?;
        self.located(inode.number, parent::list(&mut tx, id))
    }

    /// Every path that leads to an inode, without a look into any directory.
    ///
    /// # Errors
    /// As [`Self::parents`].
    pub fn paths(&self, inode: InodeNumber) -> Result<Vec<Vec<u8>>> {
        if inode == self.root() {
            return Ok(vec![b"/".to_vec()]);
        }
        let mut paths = Vec::new();
        let mut known = HashMap::new();
        let mut bytes = 0;
        for (dir, name) in self.parents(inode)? {
            let mut path = match known.get(&dir) {
                Some(path) => Vec::clone(path),
                None => {
                    let path = self.located(inode, self.dir_path(dir))?;
                    known.insert(dir, path.clone());
                    path
                }
            };
            bytes += path.len() + name.len();
            if bytes > MAX_PATH_BYTES {
                return Err(Error::NotSupported("more than 256 MiB of paths to one inode"));
            }
            if path.last() != Some(&b'/') {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            paths.push(path);
        }
        paths.sort();
        Ok(paths)
    }

    /// The path of a directory, which has exactly one.
    fn dir_path(&self, dir: InodeNumber) -> Result<Vec<u8>> {
        let mut names = Vec::new();
        let mut bytes = 0;
        let mut guard = CycleGuard::default();
        let mut at = dir;
        while at != self.root() {
            let parents = self.parents(at)?;
            let [(parent, name)] = parents.as_slice() else {
                return Err(xfskit_ondisk::Corruption::new("directory", "exactly one parent pointer")
                    .of(at.0)
                    .found(parents.len())
                    .into());
            };
            crate::ensure_on_disk!(guard.visit(at.0), "directory", "parents lead to the root", "from inode {dir}");
            bytes += name.len() + 1;
            if bytes > MAX_PATH_BYTES {
                return Err(Error::NotSupported("a path of more than 256 MiB"));
            }
            names.push(name.clone());
            at = *parent;
        }
        names.reverse();
        let mut path = b"/".to_vec();
        path.extend_from_slice(&names.join(&b'/'));
        Ok(path)
    }
}

/// The names of a path, the last one first; empty ones and `.` left out.
pub(crate) fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|&b| b == b'/').filter(|name| !name.is_empty() && *name != b".");
    names.rev().map(<[u8]>::to_vec).collect()
}
