//! Symbolic links in the way to a file, where a tree consists of layers.
//!
//! A layer that has `lib/libc.so` means the directory to which a lower layer's link `lib` leads, as for umoci and
//! containerd, which unpack a layer within the root of the image. A link leads nowhere else: the root of the tree is
//! `/` for it, and `..` stays there. The last name of a path is not followed, for it is replaced, unless it is a
//! directory of a source in which every directory has an entry ([`OverLinks`]).
//!
//! Paths are converted to ones without links before anything else is done with them, so what a layer has and what a
//! whiteout removes are compared by what they are.

use super::sink::ImageSink;
use crate::error::{Result, image};
use crate::event::{Hidden, Kind, Node, OverLinks, join, split};
use xfskit_vfs::Error;

/// Most links that a path may lead through, as for Linux.
const MAX_LINKS: usize = 40;

impl ImageSink<'_> {
    /// Sets how the current layer's directories are taken.
    pub(super) fn begin_links(&mut self, over_links: OverLinks) {
        self.over_links = over_links;
        self.forget_recent();
    }

    /// Gives a file the path without links.
    pub(super) fn follow_links(&mut self, node: &mut Node) -> Result<()> {
        if self.layer.is_none() {
            return Ok(());
        }
        let followed = self.beyond_links(&node.path)?;
        node.path = match (&node.kind, self.over_links) {
            (Kind::Directory, OverLinks::LiesInThem) => self.directory_behind(followed)?,
            _ => followed,
        };
        if let Kind::Link(first) = &mut node.kind {
            *first = self.beyond_links(first)?;
        }
        Ok(())
    }

    /// What a whiteout removes, without links.
    pub(super) fn follow_links_to_hidden(&mut self, hidden: &Hidden) -> Result<Hidden> {
        Ok(match hidden {
            Hidden::Path(path) => Hidden::Path(self.beyond_links(path)?),
            Hidden::Contents(path) => Hidden::Contents(self.resolve(path)?),
        })
    }

    /// The path without links in front of its last name.
    fn beyond_links(&mut self, path: &[u8]) -> Result<Vec<u8>> {
        let (dir, name) = split(path);
        if self.recent_links.0 != dir {
            self.recent_links = (dir.to_vec(), self.resolve(dir)?);
        }
        Ok(join(&self.recent_links.1, name))
    }

    /// The path of the directory to which a link of this path leads, or the path itself.
    fn directory_behind(&mut self, path: Vec<u8>) -> Result<Vec<u8>> {
        let behind = self.resolve(&path)?;
        let is_dir = self.find(&behind)?.is_some_and(|stat| stat.file_type.is_dir());
        Ok(if is_dir { behind } else { path })
    }

    /// The path without links. What does not exist stays as it is.
    fn resolve(&self, path: &[u8]) -> Result<Vec<u8>> {
        let too_many = || image(path)(Error::TooManyLinks);
        let reversed =
            |path: &[u8]| -> Vec<Vec<u8>> { path.split(|&byte| byte == b'/').rev().map(<[u8]>::to_vec).collect() };
        let mut left = reversed(path);
        // The directories that the resolved names lead through; the last is missing where a name does not exist.
        let (mut names, mut dirs, mut links) = (Vec::new(), vec![Some(self.base())], 0);
        while let Some(name) = left.pop() {
            match name.as_slice() {
                b"" | b"." => continue,
                b".." => {
                    if names.pop().is_some() {
                        dirs.pop();
                    }
                    continue;
                }
                _ => {}
            }
            let found = match dirs.last().copied().flatten() {
                Some(dir) => match self.filesystem.lookup(dir, &name) {
                    Err(Error::NotFound) => None,
                    found => Some(found.map_err(image(path))?),
                },
                None => None,
            };
            match found {
                Some(stat) if stat.file_type.is_symlink() => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(too_many());
                    }
                    let target = self.filesystem.read_link(stat.inode).map_err(image(path))?;
                    if target.starts_with(b"/") {
                        names.clear();
                        dirs.truncate(1);
                    }
                    left.extend(reversed(&target));
                }
                found => {
                    names.push(name);
                    dirs.push(found.filter(|stat| stat.file_type.is_dir()).map(|stat| stat.inode));
                }
            }
        }
        Ok(names.join(&b'/'))
    }
}
