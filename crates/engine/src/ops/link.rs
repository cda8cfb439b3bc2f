//! Gives an inode one more name.

use super::create::{Hold, MAX_LINKS, finish, single, touch, touch_dir};
use super::links::{check_project, count_links};
use super::protected::{check_lost_entry, check_new_entry, check_unprotected};
use super::{Caller, RenameFlags, Stat, Volume, check_new_name};
use crate::dir;
use crate::error::{Error, Result};
use crate::incore::Inode;
use crate::inode::unlinked;
use crate::parent;
use crate::trans::Transaction;
use crate::trans::reservation_of;
use std::sync::Arc;
use xfskit_ondisk::InodeNumber;
use xfskit_ondisk::dir::FileType;

impl Volume {
    /// Gives `inode`, which is not a directory, the name `name` in `dir`. A file that was made without a name gets its
    /// first, and brings its contents along: a crash leaves the name with all that was written before, or no name. Of
    /// the caller's rights nothing is checked.
    ///
    /// # Errors
    /// `Exists`, `NotPermitted` for a directory and for what is immutable or append-only, `TooManyLinks`, `NoSpace`,
    /// `NotFound` for a file whose last name was removed, `CrossesProjects`.
    pub fn link(&self, dir: InodeNumber, name: &[u8], inode: InodeNumber, _: &Caller) -> Result<Stat> {
        self.link_inode(dir, name, &self.mount.inode(inode)?, Hold::Nothing)
    }

    /// As [`Self::link`], of an inode that was looked up.
    pub(crate) fn link_inode(&self, dir: InodeNumber, name: &[u8], inode: &Arc<Inode>, hold: Hold) -> Result<Stat> {
        check_new_name(name)?;
        self.settle_unnamed(inode)?;
        let dir = self.mount.inode(dir)?;
        loop {
            match self.try_link(&dir, name, inode, hold) {
                Err(Error::WouldBlock) => crate::sync::yield_now(),
                other => return other,
            }
        }
    }

    /// As [`Self::link`], in place of what has the name now, if that is not a directory: at every moment, and after a
    /// crash, the name is there and stands for the one or the other. A crash may also leave the inode a second name,
    /// which begins with `.xfskit-`.
    ///
    /// # Errors
    /// `IsADirectory`, and those of [`Self::link`] and [`Self::rename`].
    pub fn link_over(&self, dir: InodeNumber, name: &[u8], inode: InodeNumber, caller: &Caller) -> Result<()> {
        match self.link(dir, name, inode, caller) {
            Err(Error::Exists) => {}
            other => return other.map(drop),
        }
        if self.lookup_number(dir, name)? == inode {
            return Ok(());
        }
        // The temporary name could not be taken away either.
        self.check_replaceable(dir, name, caller)?;
        let temporary = format!(".xfskit-{:x}", inode.0).into_bytes();
        let linked = self.link(dir, &temporary, inode, caller);
        // A crash may have left the temporary name.
        if !matches!(linked, Err(Error::Exists)) || self.lookup_number(dir, &temporary)? != inode {
            linked?;
        }
        let renamed = self.rename(dir, &temporary, dir, name, RenameFlags::default(), caller);
        // It is still there after an error, and when another thread gave the inode that name meanwhile: two names of
        // one inode are renamed by doing nothing.
        match self.unlink(dir, &temporary, caller) {
            Err(Error::NotFound) | Ok(()) => renamed,
            other => renamed.and(other),
        }
    }

    /// Whether the caller may put something else, by a rename, in place of what has the name: for a program that is
    /// about to make a temporary name in the directory.
    ///
    /// # Errors
    /// `NotPermitted` for what is immutable or append-only, and as in a sticky directory; `NotFound`, `Corrupt`, `Io`.
    pub fn check_replaceable(&self, dir: InodeNumber, name: &[u8], caller: &Caller) -> Result<()> {
        let dir_inode = self.mount.inode(dir)?;
        loop {
            let child_inode = self.mount.inode(self.lookup_number(dir, name)?)?;
            let mut tx = Transaction::read_only(&self.mount);
            let dir = self.join_dir(&mut tx, &dir_inode)?;
            match self.try_join(&mut tx, &child_inode) {
                Err(Error::WouldBlock) => crate::sync::yield_now(),
                child => return check_lost_entry(&tx, dir, child?, caller),
            }
        }
    }

    /// Writes out a file without a name, as a rename does before it replaces a file.
    fn settle_unnamed(&self, inode: &Arc<Inode>) -> Result<()> {
        let waits = {
            let state = inode.state_lock().read();
            state.core.links == 0 && !state.is_settled()
        };
        if waits { self.write_out(inode) } else { Ok(()) }
    }

    /// The number may turn out to name a directory, even one above `dir`: its lock is tried only, and when it is taken
    /// the transaction, which has changed nothing yet, starts anew.
    fn try_link(&self, dir_inode: &Arc<Inode>, name: &[u8], inode: &Arc<Inode>, hold: Hold) -> Result<Stat> {
        let mount = &self.mount;
        let blocks =
            dir::blocks_to_add(&mount.geometry, &mount.limits) + parent::blocks_to_add(&mount.geometry, &mount.limits);
        let mut tx = self.begin(single(reservation_of(mount.reservations.link)).with_blocks(blocks))?;
        let result = (|| {
            let dir = self.join_dir(&mut tx, dir_inode)?;
            if inode.number == dir_inode.number {
                return Err(Error::NotPermitted);
            }
            let child = self.try_join(&mut tx, inode)?;
            let core = &tx.inode(child).core;
            if core.is_dir() {
                return Err(Error::NotPermitted);
            }
            if core.links >= MAX_LINKS {
                return Err(Error::TooManyLinks);
            }
            let (was_unlinked, file_type) = (core.links == 0, FileType::from_mode(core.mode));
            if tx.inode(dir).core.links == 0 {
                return Err(Error::NotFound);
            }
            let place = dir::search(&mut tx, dir, name)?;
            if place.entry().is_some() {
                return Err(Error::Exists);
            }
            check_new_entry(&tx, dir, 0)?;
            check_unprotected(&tx.inode(child).core)?;
            check_project(&tx, dir, child)?;
            parent::expect_room(&mut tx, child)?;
            if was_unlinked {
                self.mount.journal.order_in_place();
                unlinked::remove(&mut tx, child)?;
            }
            dir::add_at(&mut tx, place, name, inode.number, file_type)?;
            touch_dir(&mut tx, dir);
            touch(&mut tx, child);
            count_links(&mut tx, child, 1)?;
            parent::add(&mut tx, dir, name, child)?;
            Ok(child)
        })();
        self.located(dir_inode.number, finish(tx, result, hold))
    }
}
