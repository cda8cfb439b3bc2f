//! Immutable and append-only inodes: what the kernel refuses to do with them, to every caller.
//!
//! ```text
//! immutable      contents, attributes and names stay; a directory's entries too
//! append-only    contents are only added to; a directory's entries too
//! ```
//! Only verbs ask: recovery, write-out and inactivation go on with what was begun before the inode was protected.

use super::{Caller, SetAttr, SetTime};
use crate::error::{Error, Result};
use crate::trans::{InoId, Transaction};
use xfskit_ondisk::InodeCore;
use xfskit_ondisk::inode::{MODE_SYMLINK, MODE_TYPE, flags};

fn refuse_if(is_refused: bool) -> Result<()> {
    if is_refused { Err(Error::NotPermitted) } else { Ok(()) }
}

/// Whether the inode may change in any way.
pub(super) fn check_not_immutable(core: &InodeCore) -> Result<()> {
    refuse_if(core.flags & flags::IMMUTABLE != 0)
}

/// Whether what the inode has may be changed and taken away.
pub(super) fn check_unprotected(core: &InodeCore) -> Result<()> {
    refuse_if(core.flags & (flags::IMMUTABLE | flags::APPEND) != 0)
}

/// Whether bytes may be written at `offset` of a file that now has `size` bytes.
pub(super) fn check_write(core: &InodeCore, size: u64, offset: u64) -> Result<()> {
    check_not_immutable(core)?;
    refuse_if(is_append_only(core) && offset < size)
}

/// Whether what the inode holds is only added to.
pub(super) fn is_append_only(core: &InodeCore) -> bool {
    core.flags & flags::APPEND != 0
}

/// Whether a cache may write `data` late where an append-only file has `old`: it writes whole pages, which begin with
/// what was there already.
pub(super) fn check_same(old: &[u8], data: &[u8]) -> Result<()> {
    refuse_if(!data.starts_with(old))
}

/// Whether something of `mode` may get a name in the directory.
pub(super) fn check_new_entry(tx: &Transaction, dir: InoId, mode: u16) -> Result<()> {
    let core = &tx.inode(dir).core;
    check_not_immutable(core)?;
    refuse_if(mode & MODE_TYPE == MODE_SYMLINK && core.flags & flags::NOSYMLINKS != 0)
}

/// Whether the caller may take an entry away from its directory.
pub(super) fn check_lost_entry(tx: &Transaction, dir: InoId, child: InoId, caller: &Caller) -> Result<()> {
    check_unprotected(&tx.inode(dir).core)?;
    check_sticky(tx, dir, child, caller)?;
    check_unprotected(&tx.inode(child).core)
}

/// Whether attributes may be set. A caller that may write the file may set its times to now, which appending does as
/// well.
///
/// A cache that keeps the time of writes says what now is, in `ctime`: to set `mtime` alone to now, which the kernel's
/// XFS refuses for an append-only file, looks like the times that it brings after a write, and passes.
pub(super) fn check_set_attr(core: &InodeCore, change: &SetAttr) -> Result<()> {
    let sets_now = change.ctime.is_some_and(|now| change.mtime == Some(SetTime::To(now)));
    let follows_write = change.atime.is_none() && sets_now;
    let is_touch = change.atime == Some(SetTime::Now) && (change.mtime == Some(SetTime::Now) || sets_now);
    let sets_times = change.atime.is_some() || change.mtime.is_some();
    let sets_more =
        change.permissions.is_some() || change.uid.is_some() || change.gid.is_some() || change.size.is_some();
    match (sets_more, sets_times) {
        (false, false) => Ok(()),
        (false, true) if is_touch || follows_write => check_not_immutable(core),
        _ => check_unprotected(core),
    }
}

/// In a sticky directory only the owners of the entry and of the directory may remove or rename it.
pub(super) fn check_sticky(tx: &Transaction, dir: InoId, child: InoId, caller: &Caller) -> Result<()> {
    let core = &tx.inode(dir).core;
    let owner = [core.uid, tx.inode(child).core.uid].contains(&caller.uid);
    if core.mode & 0o1000 != 0 && caller.uid != 0 && !owner { Err(Error::NotPermitted) } else { Ok(()) }
}
