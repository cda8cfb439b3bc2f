//! Finds a name in a directory.

use super::{Stat, Volume, check_name};
use crate::dir;
use crate::error::{Error, Result};
use crate::trans::{InoId, Transaction};
use std::ops::ControlFlow;
use xfskit_ondisk::InodeNumber;

impl Volume {
    /// The inode that `name` names in directory `dir`.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `NameTooLong`, `Corrupt`, `Io`.
    pub fn lookup(&self, dir: InodeNumber, name: &[u8]) -> Result<Stat> {
        let number = self.lookup_number(dir, name)?;
        self.stat(number)
    }

    /// As [`Self::lookup`], without a look at the inode.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    pub fn lookup_number(&self, dir: InodeNumber, name: &[u8]) -> Result<InodeNumber> {
        check_name(name)?;
        let dir = self.mount.inode(dir)?;
        let mut tx = Transaction::read_only(&self.mount);
        let id = self.join_dir(&mut tx, &dir)?;
        if name == b"." {
            return Ok(dir.number);
        }
        let found = self.located(dir.number, dir::lookup(&mut tx, id, name));
        drop(tx);
        let found = match found {
            Err(error) if error.is_damage() => self.look_through(dir.number, name)?.ok_or(error)?,
            found => found?.map(|entry| entry.inode),
        };
        found.ok_or(Error::NotFound)
    }

    /// Looks for a name in the data blocks of a directory whose index cannot be used. `None` if the name is in none of
    /// them and not all of them can be read: nobody knows then.
    fn look_through(&self, dir: InodeNumber, name: &[u8]) -> Result<Option<Option<InodeNumber>>> {
        let dir = self.mount.inode(dir)?;
        let mut tx = Transaction::read_only(&self.mount);
        let id = self.join_dir(&mut tx, &dir)?;
        let mut found = None;
        let lost = dir::read_what_is_left(&mut tx, id, &mut |entry| {
            if entry.name != name {
                return ControlFlow::Continue(());
            }
            found = Some(entry.inode);
            ControlFlow::Break(())
        });
        Ok(match (found, lost) {
            (Some(inode), _) => Some(Some(inode)),
            (None, Ok(None)) => Some(None),
            (None, _) => None,
        })
    }

    /// A directory in use, locked and joined.
    pub(super) fn join_dir(&self, tx: &mut Transaction, dir: &std::sync::Arc<crate::incore::Inode>) -> Result<InoId> {
        let id = self.join(tx, dir)?;
        if !tx.inode(id).core.is_dir() {
            return Err(Error::NotADirectory);
        }
        Ok(id)
    }

    /// Whether an inode number names an inode in use that is part of the tree: those of the realtime section and of
    /// quotas are not. All other methods take numbers that came out of a directory; a
    /// number from elsewhere (a person, a handle that was kept for long) is to be asked about first.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    pub fn is_in_use(&self, inode: InodeNumber) -> Result<bool> {
        if self.mount.geometry.split_inode(inode).is_none() || self.mount.superblock().owns_inode(inode) {
            return Ok(false);
        }
        crate::space::inodes::is_allocated(&mut Transaction::read_only(&self.mount), inode)
    }
}
