//! Removes names: files and empty directories.
//!
//! ```text
//! last name of an inode without references and without blocks       one transaction: name and inode
//! last name otherwise                                               name now, inode on the unlinked list;
//!                                                                   it is freed with its last reference
//! ```

use super::create::{single, take_in_write, touch_dir_at};
use super::links::{check_empty_dir, check_has_subdirectory, check_named, count_links};
use super::protected::check_lost_entry;
use super::{Caller, Volume, check_name};
use crate::dir::{self, DirSlot};
use crate::error::{Error, Result};
use crate::inode::unlinked;
use crate::mount::BlockPool;
use crate::parent;
use crate::space;
use crate::sync::atomic::Ordering;
use crate::trans::reservation_of;
use crate::trans::{InoId, InodeFields, Reservation, Transaction};
use xfskit_ondisk::InodeNumber;

/// What the removed name has to be the name of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expected {
    Directory,
    NoDirectory,
}

impl Volume {
    /// Removes the name of something that is not a directory.
    ///
    /// # Errors
    /// `NotFound`, `IsADirectory`, `NotPermitted` in a sticky directory and for what is immutable or append-only.
    pub fn unlink(&self, dir: InodeNumber, name: &[u8], caller: &Caller) -> Result<()> {
        self.remove_name(dir, name, Expected::NoDirectory, caller)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `NotEmpty`, `Invalid` for `.`; `NotPermitted` as [`Self::unlink`].
    pub fn rmdir(&self, dir: InodeNumber, name: &[u8], caller: &Caller) -> Result<()> {
        self.remove_name(dir, name, Expected::Directory, caller)
    }

    fn remove_name(&self, dir: InodeNumber, name: &[u8], expected: Expected, caller: &Caller) -> Result<()> {
        check_name(name)?;
        match name {
            b"." => return Err(Error::Invalid("the directory itself cannot be removed through '.'")),
            b".." => return Err(Error::NotEmpty),
            _ => {}
        }
        loop {
            match self.try_remove_name(dir, name, expected, caller) {
                Err(Error::WouldBlock) => crate::sync::yield_now(),
                other => return self.located(dir, other),
            }
        }
    }

    fn try_remove_name(&self, dir: InodeNumber, name: &[u8], expected: Expected, caller: &Caller) -> Result<()> {
        let dir_inode = self.mount.inode(dir)?;
        let mut tx = self.begin(self.remove_reservation())?;
        let mut left_over = None;
        let result = (|| {
            let dir = self.join_dir(&mut tx, &dir_inode)?;
            let place = dir::search(&mut tx, dir, name)?;
            let entry = place.entry().ok_or(Error::NotFound)?;
            crate::ensure_on_disk!(entry.inode != dir_inode.number, "directory entry", "names another inode", "itself");
            let child_inode = self.mount.inode(entry.inode)?;
            // Where directories go in circles, another thread may hold the child and wait for the parent.
            let child = self.try_join(&mut tx, &child_inode)?;
            check_removable(&mut tx, dir, child, expected, caller)?;
            let held = child_inode.opens.load(Ordering::Acquire) > 0;
            self.drop_name(&mut tx, dir, (name, place), child, held)?;
            if tx.inode(child).core.links == 0 && !tx.inode(child).freed && !held {
                left_over = Some(child_inode);
            }
            Ok(())
        })();
        tx.finish(result)?;
        match left_over {
            Some(inode) => self.inactivate_or_put_off(&inode),
            None => Ok(()),
        }
    }

    /// Log space and blocks for the removal of a name and of the inode with it.
    pub(super) fn remove_reservation(&self) -> Reservation {
        let mount = &self.mount;
        let remove = reservation_of(mount.reservations.remove);
        let free = reservation_of(mount.reservations.ifree);
        let blocks = dir::blocks_to_remove(&mount.geometry, &mount.limits)
            + space::inode_free_blocks(&mount.geometry, &mount.limits)
            + parent::blocks_to_add(&mount.geometry, &mount.limits);
        let both = Reservation { log_bytes: remove.log_bytes + free.log_bytes, ..remove };
        Reservation { log_count: 1, ..single(both) }.with_blocks(blocks).with_pool(BlockPool::Removal)
    }

    /// Removes a name and what belongs to it; frees the inode at once where that is possible.
    pub(super) fn drop_name(
        &self,
        tx: &mut Transaction,
        dir: InoId,
        (name, place): (&[u8], DirSlot),
        child: InoId,
        held: bool,
    ) -> Result<()> {
        let is_dir = tx.inode(child).core.is_dir();
        let links = tx.inode(child).core.links;
        let last = links == 1 || is_dir && links == 2;
        // The inode trees come first: AG headers are locked in order, inode headers before free space.
        let frees_now = last && !held && super::inactive::goes_with_its_name(tx, child);
        if !frees_now {
            parent::verify(tx, dir, name, child)?;
        }
        take_in_write(tx, child);
        let now = tx.mount().env.now();
        let core = &mut tx.inode_mut(child, InodeFields::CORE).core;
        core.ctime = now;
        core.links = if last { 0 } else { links - 1 };
        if frees_now {
            super::inactive::free_now(tx, child)?;
        } else if last {
            unlinked::insert(tx, child)?;
        }
        dir::remove_at(tx, place, name)?;
        touch_dir_at(tx, dir, now);
        if is_dir {
            count_links(tx, dir, -1)?;
        }
        if frees_now { Ok(()) } else { parent::remove(tx, dir, name, child) }
    }
}

/// Whether the entry may be removed.
fn check_removable(tx: &mut Transaction, dir: InoId, child: InoId, expected: Expected, caller: &Caller) -> Result<()> {
    check_lost_entry(tx, dir, child, caller)?;
    let is_dir = tx.inode(child).core.is_dir();
    if is_dir && expected == Expected::NoDirectory {
        return Err(Error::IsADirectory);
    }
    if !is_dir && expected == Expected::Directory {
        return Err(Error::NotADirectory);
    }
    if is_dir {
        if !dir::is_empty(tx, child)? {
            return Err(Error::NotEmpty);
        }
        check_empty_dir(tx, child)?;
        return check_has_subdirectory(tx, dir);
    }
    check_named(tx, child)
}
