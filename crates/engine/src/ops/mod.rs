//! Operations: one file per verb. Each finds its inodes, takes the locks in order, checks what POSIX wants checked,
//! makes its changes in one transaction where they fit one, and answers with POSIX's results.
//!
//! Names are bytes, inodes are numbers. The caller owns what is made, and is the subject of the checks that the verbs
//! themselves make (sticky directories, set-group-id inheritance). Whether the caller may search and write the
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
mod fsync;
mod grow;
mod identity;
mod inactive;
mod info;
mod link;
mod links;
mod lookup;
mod make_files;
mod map;
mod nameless;
mod open;
mod path;
mod protected;
mod read_ahead;
mod readdir;
mod reference;
mod rename;
mod seek;
mod set_xattr;
mod setattr;
mod stat;
mod times;
mod trim;
mod truncate;
mod unlink;
mod write_out;
mod xattr;

pub(crate) use create::Hold;
pub use grow::Growth;
pub(crate) use identity::LABEL_BYTES;
pub use identity::NewUuid;
pub use info::Usage;
pub use open::RecoveredDevices;
pub use path::MAX_LINKS_FOLLOWED;
pub use readdir::ReadDir;
pub use reference::InodeRef;
pub use set_xattr::XattrOptions;
pub use trim::{TrimBy, Trimmed};
pub use xattr::Namespace;
pub use xfskit_vfs::{
    Caller, DirEntry, DirEntryRef, Fallocate, FileExtent, FileType, Flags, FsStat, LastLink, LostNames, NewFile,
    Permissions, ReadAhead, RenameFlags, Seek, SetAttr, SetMode, SetTime, Stat, SyncKind, SyncPoint, WholeFile,
    XattrChange, split_path, xflags,
};

use crate::error::{Error, Result};
use crate::incore::{Inode, InodeState};
use crate::inode::located_at;
use crate::mount::Mount;
use crate::sync::Mutex;
use crate::trans::{InoId, Reservation, Transaction};
use std::collections::BTreeSet;
use std::sync::Arc;
use xfskit_ondisk::InodeNumber;
use xfskit_ondisk::dir::is_valid_name;

/// An XFS filesystem. Shared between threads; every method takes `&self`.
///
/// Dropping it without [`Volume::unmount`] leaves the image as a power cut would: everything that was synced is
/// there, and the log is dirty.
///
/// # Names
///
/// ```
/// use xfskit_engine::{Caller, LastLink, LostNames, NewFile, RenameFlags};
/// # use std::sync::Arc;
/// # let device = Arc::new(xfskit_device::MemoryDevice::new(64 << 20));
/// # let fs = xfskit::create_on(device, &xfskit::MkfsOptions::new().small())?;
/// # let volume = fs.volume();
///
/// let (top, me) = (volume.root(), Caller::root());
/// let dir = volume.create(top, b"dir", &NewFile::dir(0o755), &me)?.inode;
/// let file = volume.create(dir, b"file", &NewFile::file(0o644), &me)?.inode;
/// let link = volume.symlink(top, b"link", b"dir/file", &me)?.inode;
/// assert_eq!(volume.read_link(link)?, b"dir/file");
///
/// volume.link(top, b"other name", file, &Caller::root())?;
/// volume.rename(dir, b"file", top, b"moved", RenameFlags::default(), &me)?;
/// assert_eq!(volume.lookup(top, b"moved")?.links, 2);
/// assert_eq!(volume.lookup_number(top, b"moved")?, file);
/// assert_eq!(volume.paths(file)?, [b"/moved".to_vec(), b"/other name".to_vec()]);
/// assert_eq!(volume.parents(dir)?, [(top, b"dir".to_vec())]);
///
/// volume.link_over(top, b"link", file, &me)?;
/// assert_eq!(volume.resolve(b"/link", LastLink::Keep)?.inode, file);
/// volume.unlink(top, b"link", &me)?;
/// volume.rmdir(top, b"dir", &me)?;
/// // The two names of the file; `.` and `..` are not listed.
/// assert_eq!(volume.list_dir(top)?.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Contents
///
/// ```
/// use xfskit_engine::{Caller, Fallocate, NewFile, Seek};
/// # use std::sync::Arc;
/// # let device = Arc::new(xfskit_device::MemoryDevice::new(64 << 20));
/// # let fs = xfskit::create_on(device, &xfskit::MkfsOptions::new().small())?;
/// # let volume = fs.volume();
///
/// let make = |name: &[u8]| volume.create(volume.root(), name, &NewFile::file(0o644), &Caller::root());
/// let (file, copy) = (make(b"file")?.inode, make(b"copy")?.inode);
/// volume.write_at(file, 0, &[7; 8192])?;
/// assert_eq!(volume.append(file, b"tail")?, 8192);
/// let mut buffer = [0; 100];
/// assert_eq!(volume.read_at(file, 8192, &mut buffer)?, 4);
///
/// volume.fallocate(file, 0, 4096, Fallocate::PunchHole)?;
/// assert_eq!(volume.seek(file, 0, Seek::Data)?, 4096);
/// volume.truncate(file, 8192)?;
/// volume.fsync(file)?;
/// assert_eq!(volume.file_extents(file)?.len(), 1);
///
/// // The whole file, from the first byte on: the two share its blocks.
/// volume.clone_range(file, 0, copy, 0, 0)?;
/// assert_eq!(volume.copy_range(file, 4096, copy, 8192, 4096)?, 4096);
/// volume.fdatasync(copy)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Attributes
///
/// ```
/// use xfskit_engine::{Caller, NewFile, Permissions, SetAttr, SetMode, SetTime, XattrChange};
/// # use std::sync::Arc;
/// # let device = Arc::new(xfskit_device::MemoryDevice::new(64 << 20));
/// # let fs = xfskit::create_on(device, &xfskit::MkfsOptions::new().small())?;
/// # let volume = fs.volume();
///
/// let me = Caller::root();
/// let file = volume.create(volume.root(), b"file", &NewFile::file(0o644), &me)?.inode;
/// let permissions = Some(Permissions::new(0o600));
/// let change = SetAttr { permissions, uid: Some(1000), mtime: Some(SetTime::Now), ..SetAttr::default() };
/// let stat = volume.set_attr(file, &change, &me)?;
/// assert_eq!((stat.mode(), stat.uid), (0o100_600, 1000));
/// assert_eq!(volume.stat(file)?, stat);
///
/// volume.set_xattr(file, b"user.color", b"blue", SetMode::Create, &me)?;
/// assert_eq!(volume.get_xattr(file, b"user.color")?, b"blue");
/// assert_eq!(volume.list_xattrs(file)?, [b"user.color".to_vec()]);
/// volume.remove_xattr(file, b"user.color", SetMode::Any, &me)?;
/// // All of these or, after a crash, none.
/// let set = |name: &str, value: &str| XattrChange { name: name.into(), value: Some(value.into()) };
/// volume.change_xattrs(file, &[set("user.a", "1"), set("user.b", "2")], SetMode::Any, &me)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # References
///
/// ```
/// use xfskit_engine::{Caller, LastLink, NewFile};
/// # use std::sync::Arc;
/// # let device = Arc::new(xfskit_device::MemoryDevice::new(64 << 20));
/// # let fs = xfskit::create_on(device, &xfskit::MkfsOptions::new().small())?;
/// # let volume = fs.volume();
///
/// // A file that appears under its name when it is complete.
/// let new = volume.tmpfile(volume.root(), &NewFile::file(0o644), &Caller::root())?;
/// volume.write_at(new.number(), 0, b"complete")?;
/// volume.link(volume.root(), b"file", new.number(), &Caller::root())?;
/// new.release()?;
///
/// let file = volume.resolve_ref(b"/file", LastLink::Follow)?;
/// let (same, stat) = volume.lookup_ref(volume.root(), b"file")?;
/// assert_eq!((same.number(), stat.size), (file.number(), 8));
/// assert!(volume.is_in_use(file.number())?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # The filesystem as a whole
///
/// ```
/// # use std::sync::Arc;
/// # let device = Arc::new(xfskit_device::MemoryDevice::new(64 << 20));
/// # let fs = xfskit::create_on(device, &xfskit::MkfsOptions::new().small())?;
/// # let volume = fs.volume();
/// let stat = volume.statfs();
/// println!("{} of {} blocks of {} bytes are free", stat.free_blocks, stat.blocks, stat.block_bytes);
/// let usage = volume.usage();
/// println!("{} of {} bytes of the log are in use", usage.log_used_bytes, usage.log_bytes);
/// println!("{} transactions so far", volume.counters().transactions.get());
/// volume.sync()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Volume {
    mount: Arc<Mount>,
    /// Inodes without a name whose freeing was refused: a sync and the unmount try again.
    put_off: Mutex<BTreeSet<InodeNumber>>,
    /// Inodes without a name and without blocks that are freed together, see `nameless`.
    waiting: Mutex<BTreeSet<InodeNumber>>,
}

impl Volume {
    /// The mount below.
    #[doc(hidden)]
    pub fn mount(&self) -> &Arc<Mount> {
        &self.mount
    }

    /// The root directory.
    pub fn root(&self) -> InodeNumber {
        self.mount.geometry.root_inode
    }

    /// Makes everything done so far durable. A file that cannot be written out is reported, and keeps nothing else from
    /// it. With [`Discard::Freed`](crate::Discard::Freed) what was freed before goes back to the host.
    ///
    /// # Errors
    /// `Io`, `Shutdown`; `NoSpace`, `Corrupt` of a file that could not be written out and goes on waiting.
    pub fn sync(&self) -> Result<()> {
        if self.mount.options.read_only {
            return Ok(());
        }
        self.and_discard(|| self.sync_all())
    }

    fn sync_all(&self) -> Result<()> {
        let waiting = self.write_out_all();
        // An inode that is refused again stays on the unlinked list, durably, and waits.
        let _ = self.free_waiting();
        let _ = self.free_put_off();
        self.mount.sync()?;
        self.mount.journal.flush_contents()?;
        waiting
    }

    /// Makes everything durable, writes it to its place on the device and ends the log clean: until the next change who
    /// reads the image has nothing to recover. Where inodes without names are left, the log stays dirty, so that a
    /// recovery frees them.
    ///
    /// # Errors
    /// As [`Self::sync`].
    pub fn end_log(&mut self) -> Result<()> {
        self.sync()?;
        if self.mount.nameless.now() > 0 {
            return Ok(());
        }
        self.mount.end_log()
    }

    /// Writes everything back and closes the log. References to inodes end: inodes without a name are
    /// freed.
    ///
    /// # Errors
    /// `Io`, `Shutdown`; `NoSpace`, `Corrupt` of a file whose contents could not be written out and are lost, or of an
    /// unlinked inode that could not be freed. All else is in the image. For an unlinked inode, unless it is damaged,
    /// the log stays dirty, so that the next mount tries again, the kernel's too.
    pub fn unmount(self) -> Result<()> {
        self.close_with(Mount::unmount)
    }

    /// As [`Self::unmount`]; `close` closes the log.
    fn close_with(self, close: impl FnOnce(&Arc<Mount>) -> Result<()>) -> Result<()> {
        // What cannot be written out is lost, and reported; the image is closed in good order all the same.
        let lost = self.write_out_all();
        if lost.is_err() {
            self.discard_all();
        }
        let mut freed = self.free_all_waiting();
        for inode in self.mount.inodes.held() {
            inode.opens.store(0, crate::sync::atomic::Ordering::Release);
            freed = freed.and(self.inactivate(&inode));
        }
        // A damaged one would stop the recovery of the kernel.
        if freed.as_ref().is_err_and(|error| !matches!(error, Error::Corrupt(_))) {
            // A dirty log has every recovery, the kernel's too, look for inodes without a name.
            self.mount.sync()?;
            self.mount.journal.flush_contents()?;
            return freed;
        }
        self.discard_before_close()?;
        close(&self.mount).and(lost).and(freed)
    }

    /// An inode in use, locked and joined.
    fn join(&self, tx: &mut Transaction, inode: &Arc<Inode>) -> Result<InoId> {
        let id = tx.join_inode(inode);
        check_in_use(tx, id)?;
        Ok(id)
    }

    /// Names the inode that an operation worked on in an error that does not say where the damage is.
    fn located<T>(&self, inode: InodeNumber, result: Result<T>) -> Result<T> {
        located_at(&self.mount.geometry, inode, result)
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
