//! Makes files, directories, device nodes, symbolic links and unnamed files.
//!
//! One transaction: the inode is allocated, its name goes into the directory, its parent pointer and the ACLs that
//! it inherits into its own attributes.

use super::acl::{self, Attributes};
use super::file_type::mode_of;
use super::links::count_links;
use super::protected::check_new_entry;
use super::stat::stat_of;
use super::{Caller, InodeRef, NewFile, Permissions, Stat, Volume, check_new_name};
use crate::dir::{self, DirSlot};
use crate::error::{Error, Result};
use crate::incore::Inode;
use crate::inode::{self, NewInode, unlinked};
use crate::parent;
use crate::space;
use crate::symlink;
use crate::sync::atomic::Ordering;
use crate::trans::reservation_of;
use crate::trans::{InoId, InodeFields, Reservation, Transaction};
use std::sync::Arc;
use xfskit_ondisk::dir::FileType as EntryType;
use xfskit_ondisk::symlink::SYMLINK_LENGTH_LIMIT;
use xfskit_ondisk::{DeviceNumber, InodeNumber, Timestamp, encode_device, fits_device_node};

/// Largest link count of a directory's parent, and of any file.
pub(super) const MAX_LINKS: u32 = i32::MAX as u32;

/// What the one who makes an inode, or gives it a name, gets of it besides its attributes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    Nothing,
    /// A reference.
    Reference,
}

/// Ends the transaction that has given an inode a place, and looks at it. The reference is counted while the inode is
/// locked: another thread that has followed an old name to this number would otherwise drop the last reference to a
/// file that its maker does not have yet.
pub(super) fn finish(tx: Transaction, made: Result<InoId>, hold: Hold) -> Result<Stat> {
    let held = match &made {
        Ok(child) if hold == Hold::Reference => Some(Arc::clone(tx.inode_handle(*child))),
        _ => None,
    };
    if let Some(inode) = &held {
        inode.opens.fetch_add(1, Ordering::AcqRel);
    }
    let made = made.map(|child| stat_of(&tx, tx.inode(child)));
    let finished = tx.finish(made);
    if let (Err(_), Some(inode)) = (&finished, held) {
        inode.opens.fetch_sub(1, Ordering::AcqRel);
    }
    finished
}

impl Volume {
    /// Makes a file, directory, device node, pipe or socket named `name` in `dir`.
    ///
    /// # Errors
    /// `Exists`, `NotADirectory`, `Invalid` for a link without a target, a device number that XFS has no room for or of
    /// what is no device node, and permissions of more than twelve bits, `NoSpace`, `TooManyLinks`, `NameTooLong`,
    /// `NotFound` in a removed directory, `NotPermitted` in an immutable one.
    pub fn create(&self, dir: InodeNumber, name: &[u8], new: &NewFile<'_>, caller: &Caller) -> Result<Stat> {
        self.create_in_dir(&self.mount.inode(dir)?, name, new, caller, Hold::Nothing)
    }

    /// As [`Self::create`], in a directory that was looked up.
    pub(crate) fn create_in_dir(
        &self,
        dir_inode: &Arc<Inode>,
        name: &[u8],
        new: &NewFile<'_>,
        caller: &Caller,
        hold: Hold,
    ) -> Result<Stat> {
        check_new_name(name)?;
        check_new(new)?;
        self.retry_with_room(|room| {
            let mut tx = self.begin(self.create_reservation(new, room))?;
            let result = (|| {
                let dir = self.join_dir(&mut tx, dir_inode)?;
                if tx.inode(dir).core.links == 0 {
                    return Err(Error::NotFound);
                }
                let place = dir::search(&mut tx, dir, name)?;
                if place.entry().is_some() {
                    return Err(Error::Exists);
                }
                check_new_entry(&tx, dir, new.mode())?;
                check_device(new)?;
                self.create_in(&mut tx, dir, Some((name, place)), new, (caller, room))
            })();
            self.located(dir_inode.number, finish(tx, result, hold))
        })
    }

    /// Makes something with room for inherited ACLs that lie in the inode; again with more, where `make` finds that
    /// they do not: few directories have ACLs so long, and what they take in the log is many times what a create does.
    fn retry_with_room(&self, make: impl Fn(Attributes) -> Result<Stat>) -> Result<Stat> {
        let make = || match make(Attributes::InInode) {
            Err(Error::WouldBlock) => make(Attributes::InBlocks),
            made => made,
        };
        match make() {
            // What waits to be freed may be all that is left.
            Err(Error::NoSpace) if !self.waiting.lock().is_empty() => {
                self.free_waiting()?;
                make()
            }
            made => made,
        }
    }

    /// Makes a symbolic link to `target`.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn symlink(&self, dir: InodeNumber, name: &[u8], target: &[u8], caller: &Caller) -> Result<Stat> {
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        self.create(dir, name, &NewFile::symlink(target), caller)
    }

    /// Makes a regular file without a name, near `dir`. It is gone with its last reference, of which the caller gets
    /// the first, unless [`Self::link`] gives it a name before.
    ///
    /// # Errors
    /// As [`Self::create`]; `Invalid` for anything but a regular file.
    pub fn tmpfile(&self, dir: InodeNumber, new: &NewFile<'_>, caller: &Caller) -> Result<InodeRef<'_>> {
        let made = self.tmpfile_in_dir(&self.mount.inode(dir)?, new, caller)?;
        Ok(InodeRef::from_raw(self, made.inode))
    }

    /// As [`Self::tmpfile`], near a directory that was looked up; the caller has the reference.
    pub(crate) fn tmpfile_in_dir(&self, dir: &Arc<Inode>, new: &NewFile<'_>, caller: &Caller) -> Result<Stat> {
        check_new(new)?;
        if !new.file_type.is_file() {
            return Err(Error::Invalid("only a regular file can be without a name"));
        }
        self.retry_with_room(|room| {
            let mut tx = self.begin(self.create_reservation(new, room))?;
            let result = (|| {
                let dir = self.join_dir(&mut tx, dir)?;
                check_new_entry(&tx, dir, new.mode())?;
                self.create_in(&mut tx, dir, None, new, (caller, room))
            })();
            finish(tx, result, Hold::Reference)
        })
    }

    /// What a create takes, with room for inherited ACLs.
    pub(super) fn create_reservation(&self, new: &NewFile<'_>, room: Attributes) -> Reservation {
        let mount = &self.mount;
        let kernel = if new.target.is_empty() { mount.reservations.create } else { mount.reservations.symlink };
        let blocks = space::inode_allocation_blocks(&mount.geometry, &mount.limits)
            + dir::blocks_to_add(&mount.geometry, &mount.limits)
            + u64::from(symlink::blocks_needed(&mount.geometry, new.target.len()))
            + parent::blocks_to_add(&mount.geometry, &mount.limits);
        let (kernel, acls) = (single(reservation_of(kernel)), acl::to_inherit(mount, room));
        Reservation { log_bytes: kernel.log_bytes + acls.log_bytes, blocks: blocks + acls.blocks, ..kernel }
    }

    /// Makes an inode in the transaction, under `name` in `dir` or on the unlinked list. `WouldBlock`, and nothing was
    /// changed: its ACLs need more than `room`.
    fn create_in(
        &self,
        tx: &mut Transaction,
        dir: InoId,
        name: Option<(&[u8], DirSlot)>,
        new: &NewFile<'_>,
        (caller, room): (&Caller, Attributes),
    ) -> Result<InoId> {
        let inherited = acl::inherited(tx, dir, new.mode(), new.umask)?;
        if room == Attributes::InInode && inherited.place() == Attributes::InBlocks {
            return Err(Error::WouldBlock);
        }
        let new = NewFile { permissions: Permissions::new(inherited.mode), ..new.clone() };
        let child = self.create_unnamed(tx, dir, &new, caller)?;
        match name {
            Some((name, place)) => self.enter(tx, dir, (name, place), child)?,
            None => unlinked::insert(tx, child)?,
        }
        for attribute in &inherited.attributes {
            attribute.set_on_new(tx, child)?;
        }
        Ok(child)
    }

    /// Makes an inode that no list and no directory knows yet; the caller gives it its place.
    pub(super) fn create_unnamed(
        &self,
        tx: &mut Transaction,
        dir: InoId,
        new: &NewFile<'_>,
        caller: &Caller,
    ) -> Result<InoId> {
        let parent = &tx.inode(dir).core;
        if new.file_type.is_dir() && parent.links >= MAX_LINKS {
            return Err(Error::TooManyLinks);
        }
        let parent = parent.inode;
        let number = space::inodes::allocate_inode(tx, parent, new.mode())?.ok_or(Error::NoSpace)?;
        self.create_numbered(tx, dir, number, new, caller)
    }

    /// As [`Self::create_unnamed`], of a number that was allocated.
    pub(super) fn create_numbered(
        &self,
        tx: &mut Transaction,
        dir: InoId,
        number: InodeNumber,
        new: &NewFile<'_>,
        caller: &Caller,
    ) -> Result<InoId> {
        let is_dir = new.file_type.is_dir();
        let parent_core = &tx.inode(dir).core;
        let (parent_number, parent_mode, parent_gid) = (parent_core.inode, parent_core.mode, parent_core.gid);
        let mut mode = new.mode();
        let mut gid = caller.gid;
        if parent_mode & 0o2000 != 0 {
            gid = parent_gid;
            if is_dir {
                mode |= 0o2000;
            } else if mode & 0o2010 == 0o2010 && caller.uid != 0 && !caller.in_group(gid) {
                mode &= !0o2000;
            }
        }
        let links = if is_dir { 2 } else { 0 };
        let attr_fork = tx.geometry().has_parent();
        let device = if new.file_type.is_device() { encode_device(DeviceNumber::from_linux(new.device)) } else { 0 };
        let mode = mode_of(new.file_type, Permissions::new(mode));
        let new_inode = NewInode { mode, uid: caller.uid, gid, links, device, attr_fork };
        let child = inode::create(tx, number, &new_inode, Some(dir))?;
        if is_dir {
            dir::init(tx, child, parent_number);
        }
        if new.file_type.is_symlink() {
            symlink::write(tx, child, new.target)?;
        }
        Ok(child)
    }

    /// Gives a new inode its name, at its place in the directory, and its parent pointer.
    pub(super) fn enter(
        &self,
        tx: &mut Transaction,
        dir: InoId,
        (name, place): (&[u8], DirSlot),
        child: InoId,
    ) -> Result<()> {
        let core = &tx.inode(child).core;
        let (number, is_dir, now) = (core.inode, core.is_dir(), core.birth_time);
        let file_type = EntryType::from_mode(core.mode);
        dir::add_at(tx, place, name, number, file_type)?;
        touch_dir_at(tx, dir, now);
        if is_dir {
            count_links(tx, dir, 1)?;
        } else {
            tx.inode_mut(child, InodeFields::CORE).core.links = 1;
        }
        parent::add(tx, dir, name, child)
    }
}

/// Checks that there can be such a file, wherever it is made.
pub(super) fn check_new(new: &NewFile<'_>) -> Result<()> {
    if new.permissions.has_other_bits() {
        return Err(Error::Invalid("permissions have twelve bits; NewFile::of_mode takes a mode with a type"));
    }
    if new.device != 0 && !new.file_type.is_device() {
        return Err(Error::Invalid("a device node has a device number, and nothing else has one"));
    }
    if new.file_type.is_symlink() == new.target.is_empty() {
        return Err(Error::Invalid("a symbolic link has a target, and nothing else has one"));
    }
    if new.target.len() > SYMLINK_LENGTH_LIMIT - 1 {
        return Err(Error::TargetTooLong);
    }
    if new.target.contains(&0) {
        return Err(Error::Invalid("a link's target holds no zero byte"));
    }
    Ok(())
}

/// Whether the number of a device node can be stored; it would become another device's.
fn check_device(new: &NewFile<'_>) -> Result<()> {
    let fits = !new.file_type.is_device() || fits_device_node(DeviceNumber::from_linux(new.device));
    if fits { Ok(()) } else { Err(Error::Invalid("XFS has no room for such a device number")) }
}

/// A reservation whose operation does in one link what the kernel spreads over two: an inode chunk and a directory
/// block may both have to be allocated, reverse mappings included.
pub(super) fn single(kernel: Reservation) -> Reservation {
    Reservation { log_bytes: kernel.log_bytes * 2, log_count: 1, ..kernel }
}

/// A directory's contents changed.
pub(super) fn touch_dir(tx: &mut Transaction, dir: InoId) {
    let now = tx.mount().env.now();
    touch_dir_at(tx, dir, now);
}

/// As [`touch_dir`], at a time that is known.
pub(super) fn touch_dir_at(tx: &mut Transaction, dir: InoId, now: Timestamp) {
    let core = &mut tx.inode_mut(dir, InodeFields::CORE).core;
    core.mtime = now;
    core.ctime = now;
}

/// Moves the time of the last write from the inode's note into its core, before a change that is later: a note that is
/// taken in after that change would count as newer than it.
pub(super) fn take_in_write(tx: &mut Transaction, ino: InoId) {
    if let Some(written) = tx.inode_handle(ino).take_noted_write() {
        let core = &mut tx.inode_mut(ino, InodeFields::CORE).core;
        (core.mtime, core.ctime) = (written, written);
    }
}

/// An inode changed.
pub(super) fn touch(tx: &mut Transaction, ino: InoId) {
    take_in_write(tx, ino);
    let now = tx.mount().env.now();
    tx.inode_mut(ino, InodeFields::CORE).core.ctime = now;
}
