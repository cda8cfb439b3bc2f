//! Changes modes, owners, times and sizes.

use super::create::{single, take_in_write};
use super::protected::{check_not_immutable, check_set_attr};
use super::stat::stat_of;
use super::{Caller, SetAttr, SetTime, Stat, Volume, acl};
use crate::error::{Error, Result};
use crate::incore::Inode;
use crate::sync::atomic::Ordering;
use crate::trans::reservation_of;
use crate::trans::{InodeFields, Transaction};
use std::sync::Arc;
use xfskit_ondisk::inode::{MODE_DIR, MODE_TYPE};
use xfskit_ondisk::{Geometry, InodeCore, InodeNumber, Timestamp, clamp_time};

impl Volume {
    /// Changes attributes of an inode: a size, with everything else but a mode, by [`Self::truncate`]'s links, all else
    /// in one transaction.
    ///
    /// # Errors
    /// `Invalid` for a time with a whole second of nanoseconds or more, and for the owner 2³² − 1, which is none:
    /// `chown(2)` takes it for "leave it"; `NotPermitted` for what is immutable or
    /// append-only; `Stale`, `NoSpace`, `Io`; for a size as [`Self::truncate`].
    pub fn set_attr(&self, inode: InodeNumber, change: &SetAttr, caller: &Caller) -> Result<Stat> {
        let given = |time| if let Some(SetTime::To(time)) = time { Some(time) } else { None };
        for time in [given(change.atime), given(change.mtime), change.ctime].into_iter().flatten() {
            check_time(time)?;
        }
        if [change.uid, change.gid].contains(&Some(u32::MAX)) {
            return Err(Error::Invalid("4294967295 is no user and no group"));
        }
        if let Some(size) = change.size {
            let others = if change.permissions.is_none() { *change } else { SetAttr::default() };
            if change.permissions.is_some() {
                self.check_acl(inode)?;
            }
            let stat = self.resize(inode, size, &others, caller)?;
            if change.permissions.is_none() {
                return Ok(stat);
            }
        }
        let inode = self.mount.inode(inode)?;
        if !change.sets_more_than_times() && !self.mount.options.wsync {
            return self.located(inode.number, self.set_times_in_memory(&inode, change, caller));
        }
        loop {
            match self.try_set_attr(&inode, change, caller) {
                Err(Error::WouldBlock) => {}
                other => return self.located(inode.number, other),
            }
        }
    }

    /// As [`Self::set_attr`], all but the size; `WouldBlock` when the inode has got an ACL meanwhile, or attributes in
    /// blocks, for which nothing is reserved.
    fn try_set_attr(&self, inode: &Arc<Inode>, change: &SetAttr, caller: &Caller) -> Result<Stat> {
        let mut reservation = single(reservation_of(self.mount.reservations.ichange));
        let mut acl = None;
        if change.permissions.is_some() {
            acl = acl::access_of(&self.mount, &inode.state_lock().read())?;
            reservation = acl::chmod_reservation(&self.mount, acl);
        }
        let mut tx = self.begin(reservation)?;
        let result = (|| {
            let id = self.join(&mut tx, inode)?;
            if change.permissions.is_some() && acl::access_of(&self.mount, tx.inode(id))? != acl {
                return Err(Error::WouldBlock);
            }
            check_set_attr(&tx.inode(id).core, change)?;
            let (now, geometry) = (tx.mount().env.now(), tx.geometry());
            if change.permissions.is_some() {
                let mut core = tx.inode(id).core.clone();
                apply(&mut core, change, now, caller, tx.geometry());
                acl::follow_mode(&mut tx, id, core.mode)?;
            }
            take_in_write(&mut tx, id);
            // A file without a name is gone after a crash, its times with it; while it has references, memory keeps
            // them, and a name that it gets is logged with all of its core.
            let is_kept = tx.inode(id).core.links == 0 && inode.opens.load(Ordering::Acquire) > 0;
            let is_logged = change.sets_more_than_times() || !is_kept;
            let state = if is_logged { tx.inode_mut(id, InodeFields::CORE) } else { tx.inode_memory_mut(id) };
            apply(&mut state.core, change, now, caller, geometry);
            Ok(stat_of(&tx, tx.inode(id)))
        })();
        tx.finish(result)
    }

    /// Checks that a change of mode will not meet a damaged ACL, for an operation that changes something else before.
    fn check_acl(&self, inode: InodeNumber) -> Result<()> {
        let inode = self.mount.inode(inode)?;
        let mut tx = Transaction::read_only(&self.mount);
        let id = self.join(&mut tx, &inode)?;
        self.located(inode.number, acl::verify_access(&mut tx, id))
    }

    /// Takes the privileges of a regular file away that its execution gives: its contents change, by `writer`, or
    /// by a member of its group if that is `None`. Says whether there were any. An append-only file loses them as well;
    /// the time of it is for that change to set.
    ///
    /// # Errors
    /// `NotPermitted` for what is immutable; `Stale`, `NoSpace`, `Io`.
    pub fn drop_privileges(&self, inode: InodeNumber, writer: Option<&Caller>) -> Result<bool> {
        self.drop_privileges_of(&self.mount.inode(inode)?, writer)
    }

    /// As [`Self::drop_privileges`], of an inode that was looked up.
    pub(crate) fn drop_privileges_of(&self, inode: &Arc<Inode>, writer: Option<&Caller>) -> Result<bool> {
        let left = |mode: u16, gid: u32| {
            let is_member = writer.is_none_or(|writer| writer.in_group(gid));
            if is_member { without_privileges(mode) } else { mode & !0o6000 }
        };
        let stat = self.stat_of(inode)?;
        if !stat.file_type.is_file() || left(stat.mode(), stat.gid) == stat.mode() {
            return Ok(false);
        }
        let mut tx = self.begin(single(reservation_of(self.mount.reservations.ichange)))?;
        let result = (|| {
            let id = self.join(&mut tx, inode)?;
            check_not_immutable(&tx.inode(id).core)?;
            let core = &mut tx.inode_mut(id, InodeFields::CORE).core;
            core.mode = left(core.mode, core.gid);
            Ok(true)
        })();
        self.located(inode.number, tx.finish(result))
    }
}

/// Checks a time that is to be set. A time beyond what the image can represent is not refused, but the nearest one set.
pub(super) fn check_time(time: Timestamp) -> Result<()> {
    if time.nanoseconds < 1_000_000_000 { Ok(()) } else { Err(Error::Invalid("a second has 1000000000 nanoseconds")) }
}

/// A mode without set-user-id and set-group-id. Without the right to execute, the group's bit means something else.
fn without_privileges(mode: u16) -> u16 {
    if mode & 0o010 != 0 { mode & !0o6000 } else { mode & !0o4000 }
}

/// Changes what is to be changed, all but the size.
pub(super) fn apply(core: &mut InodeCore, change: &SetAttr, now: Timestamp, caller: &Caller, geometry: &Geometry) {
    let owner_changes = change.uid.is_some() || change.gid.is_some();
    if owner_changes && core.mode & MODE_TYPE != MODE_DIR && change.permissions.is_none() {
        // Another owner must not inherit the privileges of the file.
        core.mode = without_privileges(core.mode);
    }
    if let Some(uid) = change.uid {
        core.uid = uid;
    }
    if let Some(gid) = change.gid {
        core.gid = gid;
    }
    if let Some(permissions) = change.permissions {
        core.mode = core.mode & MODE_TYPE | permissions.bits();
        if caller.uid != 0 && !caller.in_group(core.gid) {
            core.mode &= !0o2000;
        }
    }
    // An inode from before the feature gets it with this change.
    let bigtime = geometry.has_bigtime();
    let resolve = |time| match time {
        SetTime::Now => now,
        SetTime::To(time) => clamp_time(time, bigtime),
    };
    if let Some(time) = change.atime {
        core.atime = resolve(time);
    }
    if let Some(time) = change.mtime {
        core.mtime = resolve(time);
    }
    core.ctime = change.ctime.map_or(now, |time| clamp_time(time, bigtime));
}
