//! Operations: one file per verb. Each finds its inodes, takes the locks in order, checks what POSIX wants checked,
//! makes its changes in one transaction where they fit one, and answers with POSIX's results.
//!
//! Names are bytes, inodes are numbers. A caller is who acts: owner of what is made, and subject of the checks that the
//! verbs themselves make (sticky directories, set-group-id inheritance). Whether the caller may search and write the
//! directories on the way is checked above (for FUSE, by the kernel).
//!
//! Locking: a directory before its entry. A rename, which may need two directories, and a link, whose inode need not be
//! an entry of the directory, wait for one lock only and try the others.

mod acl;
mod clone;
mod contents;
mod create;
mod fallocate;
mod file_type;
mod flags;
mod inactive;
mod info;
mod link;
mod links;
mod lookup;
mod make_files;
mod map;
mod open;
mod path;
mod protected;
mod readdir;
mod reference;
mod rename;
mod seek;
mod set_xattr;
mod setattr;
mod stat;
mod times;
mod truncate;
mod unlink;
mod xattr;

pub use create::NewFile;
pub use fallocate::Fallocate;
pub use file_type::{FileType, Permissions};
pub use flags::{Flags, xflags};
pub use info::Usage;
pub use make_files::WholeFile;
pub use open::RecoveredDevices;
pub(crate) use path::MAX_LINKS_FOLLOWED;
pub use path::{LastLink, split_path};
pub use readdir::{DirEntry, DirEntryRef, ReadDir};
pub use reference::InodeRef;
pub use rename::RenameFlags;
pub use seek::{FileExtent, Seek};
pub use set_xattr::{SetMode, XattrChange, XattrOptions};
pub use setattr::{SetAttr, SetTime};
pub use stat::{FsStat, Stat};
pub use xattr::Namespace;

use crate::error::{Error, Result, caller};
use crate::incore::{Inode, InodeState};
use crate::mount::Mount;
use crate::space::cluster;
use crate::sync::Mutex;
use crate::trans::{InoId, Reservation, Transaction};
use std::collections::BTreeSet;
use std::sync::Arc;
use xfskit_ondisk::dir::is_valid_name;
use xfskit_ondisk::{BASIC_BLOCK_BYTES, DiskAddress, InodeNumber};

/// Who acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
}

impl Caller {
    /// The superuser.
    pub fn root() -> Self {
        Self { uid: 0, gid: 0, groups: Vec::new() }
    }

    /// Whether the caller belongs to a group.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// An XFS filesystem. Shared between threads; every method takes `&self`.
///
/// Dropping it without [`Volume::unmount`] leaves the image as a power cut would: everything that was synced is
/// there, and the log is dirty.
pub struct Volume {
    mount: Arc<Mount>,
    /// Inodes without a name whose freeing was refused: a sync and the unmount try again.
    put_off: Mutex<BTreeSet<InodeNumber>>,
}

impl Volume {
    /// The mount below.
    #[cfg(feature = "internals")]
    pub fn mount(&self) -> &Arc<Mount> {
        &self.mount
    }

    /// The root directory.
    pub fn root(&self) -> InodeNumber {
        self.mount.geometry.root_inode
    }

    /// Makes everything done so far durable. A file that cannot be written out is reported, and keeps nothing else from
    /// it.
    ///
    /// # Errors
    /// `Io`, `Shutdown`; `NoSpace`, `Corrupt` of a file that could not be written out and goes on waiting.
    pub fn sync(&self) -> caller::Result<()> {
        if self.mount.options.read_only {
            return Ok(());
        }
        let waiting = self.write_out_all();
        // An inode that is refused again stays on the unlinked list, durably, and waits.
        let _ = self.free_put_off();
        self.mount.sync()?;
        self.mount.journal.flush_contents()?;
        Ok(waiting?)
    }

    /// Writes everything back and closes the log. References to inodes end: inodes without a name are
    /// freed.
    ///
    /// # Errors
    /// `Io`, `Shutdown`; `NoSpace`, `Corrupt` of a file whose contents could not be written out and are lost, or of an
    /// unlinked inode that could not be freed. All else is in the image, but for the last the log stays dirty.
    pub fn unmount(self) -> caller::Result<()> {
        // What cannot be written out is lost, and reported; the image is closed in good order all the same.
        let lost = self.write_out_all();
        if lost.is_err() {
            self.discard_all();
        }
        let mut freed = self.free_put_off();
        for inode in self.mount.inodes.held() {
            inode.opens.store(0, crate::sync::atomic::Ordering::Release);
            freed = freed.and(self.inactivate(&inode));
        }
        if freed.is_err() {
            // A dirty log has every recovery, the kernel's too, look for inodes without a name.
            self.mount.sync()?;
            self.mount.journal.flush_contents()?;
            return Ok(freed?);
        }
        Ok(self.mount.unmount().and(lost)?)
    }

    /// An inode in use, locked and joined.
    fn join(&self, tx: &mut Transaction, inode: &Arc<Inode>) -> Result<InoId> {
        let id = tx.join_inode(inode);
        check_in_use(tx, id)?;
        Ok(id)
    }

    /// Names the inode that an operation worked on in an error that does not say where the damage is.
    fn located<T>(&self, inode: InodeNumber, result: Result<T>) -> Result<T> {
        result.map_err(|error| match cluster::locate(&self.mount.geometry, inode) {
            Ok((address, offset)) => {
                error.below(DiskAddress(address.0 + offset as u64 / BASIC_BLOCK_BYTES as u64), inode.0)
            }
            Err(_) => error,
        })
    }

    /// As [`Self::join`], `WouldBlock` when another thread holds the lock.
    fn try_join(&self, tx: &mut Transaction, inode: &Arc<Inode>) -> Result<InoId> {
        let id = tx.try_join_inode(inode).ok_or(Error::WouldBlock)?;
        check_in_use(tx, id)?;
        Ok(id)
    }

    /// Starts a writing transaction; durable at its commit when the mount says so.
    fn begin(&self, reservation: Reservation) -> Result<Transaction<'_>> {
        let mut tx = self.mount.transaction(reservation)?;
        if self.mount.options.wsync {
            tx.set_sync();
        }
        Ok(tx)
    }
}

fn check_in_use(tx: &Transaction, id: InoId) -> Result<()> {
    check_state_in_use(tx.inode(id))
}

/// As [`check_in_use`], of an inode that is locked without a transaction.
fn check_state_in_use(state: &InodeState) -> Result<()> {
    if state.freed || state.core.mode == 0 {
        return Err(Error::Stale(state.core.inode.0));
    }
    Ok(())
}

/// Checks a name that is to be looked up or made.
fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > 255 {
        return Err(Error::NameTooLong);
    }
    if !is_valid_name(name) {
        return Err(Error::Invalid("a name is not empty and holds no slash and no zero byte"));
    }
    Ok(())
}

/// Checks a name that is to be made or removed: `.` and `..` are not.
fn check_new_name(name: &[u8]) -> Result<()> {
    check_name(name)?;
    if name == b"." || name == b".." {
        return Err(Error::Exists);
    }
    Ok(())
}
