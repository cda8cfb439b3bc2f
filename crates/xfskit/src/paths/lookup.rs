//! From paths to inodes, hand over hand.
//!
//! Between the look at a directory and the look at an inode another thread may remove the name, and the number may go
//! to another file. So each inode on the way is held, and its name is looked up once more: what is held is not freed,
//! so if the name leads to the number still, it leads to this file. No caller acts on a file that the path did not
//! lead to.

use super::LastLink;
use crate::error::caller::{Error as Cause, Result as EngineResult};
use crate::ops::{MAX_LINKS_FOLLOWED, components, names_directory};
use crate::ops::{Stat, Volume};
use xfskit_ondisk::InodeNumber;
use xfskit_ondisk::inode::{MODE_DIR, MODE_SYMLINK, MODE_TYPE};

/// How often a name is looked up that leads to an inode that is not in use, or to another one each time.
const MAX_TRIES: usize = 64;

/// An inode that is held: as long as this lives, its number stands for the same file, with a name or without.
pub(super) struct Pin<'fs> {
    pub(super) volume: &'fs Volume,
    pub(super) inode: InodeNumber,
    /// The file is open to write: the engine keeps room for its growth until that ends.
    pub(super) writes: bool,
}

impl<'fs> Pin<'fs> {
    /// Takes over an inode that is held already.
    pub(super) fn adopt(volume: &'fs Volume, inode: InodeNumber) -> Self {
        Self { volume, inode, writes: false }
    }

    /// Holds the root directory.
    fn root(volume: &'fs Volume) -> EngineResult<Self> {
        volume.hold(volume.root())?;
        Ok(Self::adopt(volume, volume.root()))
    }

    /// Holds an inode, if it is in use.
    fn hold(volume: &'fs Volume, inode: InodeNumber) -> EngineResult<Option<(Self, Stat)>> {
        let not_stale = |error| if matches!(error, Cause::Stale(_)) { Ok(None) } else { Err(error) };
        if let Err(error) = volume.hold(inode) {
            return not_stale(error);
        }
        let pin = Self::adopt(volume, inode);
        match volume.stat(inode) {
            Ok(stat) => Ok(Some((pin, stat))),
            Err(error) => not_stale(error),
        }
    }

    /// Holds a file that was just made; `None` where another thread has removed it already.
    pub(super) fn take_made(volume: &'fs Volume, made: &Stat) -> EngineResult<Option<Self>> {
        let held = Self::hold(volume, made.inode)?;
        Ok(held.filter(|(_, stat)| stat.generation == made.generation).map(|(pin, _)| pin))
    }

    /// What a name leads to in this directory, held; a symbolic link is not followed.
    ///
    /// # Errors
    /// `Stale` for a name that goes on leading to no inode in use, which is damage; those of a lookup.
    pub(super) fn step(&self, name: &[u8]) -> EngineResult<(Self, Stat)> {
        for _ in 0..MAX_TRIES {
            let number = self.volume.lookup_number(self.inode, name)?;
            if let Some(found) = Self::hold(self.volume, number)?
                && self.volume.lookup_number(self.inode, name)? == number
            {
                return Ok(found);
            }
        }
        Err(Cause::Stale(self.volume.lookup_number(self.inode, name)?.0))
    }

    pub(super) fn stat(&self) -> EngineResult<Stat> {
        self.volume.stat(self.inode)
    }

    /// Lets go of the inode, which frees one without a name.
    pub(super) fn release(self) -> EngineResult<()> {
        std::mem::ManuallyDrop::new(self).let_go()
    }

    fn let_go(&self) -> EngineResult<()> {
        if self.writes {
            self.volume.finish_writing(self.inode);
        }
        self.volume.unhold(self.inode, 1)
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.let_go() {
            tracing::warn!(inode = self.inode.0, %error, "an inode without a name could not be freed");
        }
    }
}

/// The inode at a path, held. A path that ends in a slash, or in `/.`, is that of a directory, and a link there is
/// followed.
///
/// # Errors
/// `NotFound`, `NotADirectory`, `TooManySymlinks`; `Corrupt`, `Io`.
pub(super) fn find<'fs>(volume: &'fs Volume, path: &[u8], last: LastLink) -> EngineResult<Pin<'fs>> {
    Ok(find_way(volume, path, last)?.0)
}

/// As [`find`], with the names of the directories on the way and of the inode, which no link stands between.
pub(super) fn find_way<'fs>(
    volume: &'fs Volume,
    path: &[u8],
    last: LastLink,
) -> EngineResult<(Pin<'fs>, Vec<Vec<u8>>)> {
    let mut is_dirs = names_directory(path);
    let mut at = Pin::root(volume)?;
    let mut names = components(path);
    let mut way: Vec<Vec<u8>> = Vec::new();
    let mut followed = 0;
    while let Some(name) = names.pop() {
        let (next, stat) = at.step(&name)?;
        let is_kept = names.is_empty() && last == LastLink::Keep && !is_dirs;
        if stat.mode & MODE_TYPE != MODE_SYMLINK || is_kept {
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
            return Err(Cause::TooManySymlinks);
        }
        let target = volume.read_link(next.inode)?;
        if target.starts_with(b"/") {
            at = Pin::root(volume)?;
            way.clear();
        }
        is_dirs |= names.is_empty() && names_directory(&target);
        names.extend(components(&target));
    }
    if is_dirs && at.stat()?.mode & MODE_TYPE != MODE_DIR { Err(Cause::NotADirectory) } else { Ok((at, way)) }
}
