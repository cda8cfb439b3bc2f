//! What Linux's `FS_IOC_FSSETXATTR` sets of an inode: flags (as chattr sets them), project, hints for the size of
//! extents.

use super::create::{single, touch};
use super::{Caller, Flags, Volume, xflags};
use crate::error::{Error, Result};
use crate::trans::reservation_of;
use crate::trans::{InoId, InodeFields, Transaction};
use xfskit_ondisk::extent::MAX_EXTENT_BLOCKS;
use xfskit_ondisk::inode::{MODE_DIR, MODE_REGULAR, MODE_TYPE, flags, flags2};
use xfskit_ondisk::{Geometry, InodeCore, InodeNumber};

impl Volume {
    /// The flags, the project and the hints of an inode.
    ///
    /// # Errors
    /// `Stale`, `Corrupt`, `Io`.
    pub fn flags(&self, inode: InodeNumber) -> Result<Flags> {
        let inode = self.mount.inode(inode)?;
        let mut tx = Transaction::read_only(&self.mount);
        let id = self.join(&mut tx, &inode)?;
        Ok(flags_of(&tx, id))
    }

    /// Sets the flags, the project and the hints of an inode, in one transaction. Flags that an inode of its type
    /// cannot have are left out, as by the kernel, and so are those that no caller sets; a hint of 0 takes its flag
    /// away.
    ///
    /// # Errors
    /// `NotPermitted` for all but the owner and root, and for all but root for the immutable and the append-only
    /// flag; `Invalid` for a hint that the image or the type of file cannot have, for another hint once a file has
    /// extents, and for the realtime flag; `ReadOnly`, `Stale`, `Corrupt`, `Io`.
    pub fn set_flags(&self, inode: InodeNumber, wanted: &Flags, caller: &Caller) -> Result<()> {
        let inode = self.mount.inode(inode)?;
        let mut tx = self.begin(single(reservation_of(self.mount.reservations.ichange)))?;
        let result = (|| {
            let id = self.join(&mut tx, &inode)?;
            check(&tx, id, wanted, caller)?;
            touch(&mut tx, id);
            let block_log = tx.geometry().block_log;
            let core = &mut tx.inode_mut(id, InodeFields::CORE).core;
            if core.project != wanted.project && caller.uid != 0 {
                core.mode &= !0o6000;
            }
            apply(core, wanted, block_log);
            Ok(())
        })();
        self.located(inode.number, tx.finish(result))
    }
}

fn flags_of(tx: &Transaction, id: InoId) -> Flags {
    let state = tx.inode(id);
    let (core, block_log) = (&state.core, tx.geometry().block_log);
    let bit = |flag: u64, bit: u32| if core.flags2 & flag != 0 { bit } else { 0 };
    let has_attributes = if core.fork_offset > 0 { xflags::HASATTR } else { 0 };
    let of_disk = u32::from(core.flags) & (xflags::OF_DISK | xflags::REALTIME | xflags::PREALLOC);
    Flags {
        xflags: of_disk | has_attributes | bit(flags2::DAX, xflags::DAX) | bit(flags2::COWEXTSIZE, xflags::COWEXTSIZE),
        project: core.project,
        extent_size_bytes: core.extent_size.checked_shl(block_log.into()).unwrap_or(0),
        cow_extent_size_bytes: core.cow_extent_size.checked_shl(block_log.into()).unwrap_or(0),
    }
}

/// Checks what the kernel checks before it sets anything.
fn check(tx: &Transaction, id: InoId, wanted: &Flags, caller: &Caller) -> Result<()> {
    let protecting = u32::from(flags::IMMUTABLE | flags::APPEND);
    let (now, state, geometry) = (flags_of(tx, id), tx.inode(id), tx.geometry());
    let core = &state.core;
    let protects = (now.xflags ^ wanted.xflags) & protecting != 0;
    if caller.uid != 0 && (caller.uid != core.uid || protects) {
        return Err(Error::NotPermitted);
    }
    if wanted.xflags & xflags::REALTIME != 0 {
        return Err(Error::Invalid("the image has no realtime device"));
    }
    let kind = core.mode & MODE_TYPE;
    let has = |flag: u16| wanted.xflags & u32::from(flag) != 0;
    let is_for_both = kind == MODE_REGULAR || kind == MODE_DIR;
    let misplaced = has(flags::EXTSIZE) && kind != MODE_REGULAR
        || has(flags::EXTSZINHERIT) && kind != MODE_DIR
        || wanted.xflags & (xflags::COWEXTSIZE | xflags::DAX) != 0 && !is_for_both;
    if misplaced {
        return Err(Error::Invalid("this type of file cannot have the flag"));
    }
    let has_contents = core.data_extents > 0 || state.dirty.as_ref().is_some_and(|dirty| dirty.count() > 0);
    if kind == MODE_REGULAR && has_contents && wanted.extent_size_bytes != now.extent_size_bytes {
        return Err(Error::Invalid("the file has extents already, of another size"));
    }
    check_hint(geometry, wanted.extent_size_bytes, has(flags::EXTSIZE) || has(flags::EXTSZINHERIT))?;
    let has_cow_flag = wanted.xflags & xflags::COWEXTSIZE != 0;
    if has_cow_flag && wanted.cow_extent_size_bytes > 0 && !geometry.has_reflink() {
        return Err(Error::Invalid("this image cannot share blocks (mkfs option reflink=1)"));
    }
    check_hint(geometry, wanted.cow_extent_size_bytes, has_cow_flag)?;
    Ok(())
}

/// Checks a hint: whole blocks, of which an extent can have so many and an AG twice as many, and a flag that says so.
fn check_hint(geometry: &Geometry, bytes: u32, has_flag: bool) -> Result<()> {
    let blocks = u64::from(bytes) >> geometry.block_log;
    let is_whole = (bytes as usize).is_multiple_of(geometry.block_bytes());
    if bytes > 0 && !has_flag {
        return Err(Error::Invalid("a hint for extents comes with its flag"));
    }
    if is_whole && blocks <= MAX_EXTENT_BLOCKS.min(u64::from(geometry.ag_blocks) / 2) {
        return Ok(());
    }
    Err(Error::Invalid("a hint for extents is of whole blocks, and of half an AG at most"))
}

/// Sets what was checked.
fn apply(core: &mut InodeCore, wanted: &Flags, block_log: u8) {
    const OF_DIRS: u16 = flags::RTINHERIT | flags::NOSYMLINKS | flags::EXTSZINHERIT | flags::PROJINHERIT;
    let left_out = match core.mode & MODE_TYPE {
        MODE_DIR => flags::EXTSIZE,
        MODE_REGULAR => OF_DIRS,
        _ => OF_DIRS | flags::EXTSIZE,
    };
    let mut new = (wanted.xflags & xflags::OF_DISK) as u16 & !left_out;
    if wanted.extent_size_bytes == 0 {
        new &= !(flags::EXTSIZE | flags::EXTSZINHERIT);
    }
    let has_hint = new & (flags::EXTSIZE | flags::EXTSZINHERIT) != 0;
    let has_cow_hint = wanted.xflags & xflags::COWEXTSIZE != 0 && wanted.cow_extent_size_bytes != 0;
    core.flags = core.flags & flags::PREALLOC | new;
    core.flags2 &= !(flags2::DAX | flags2::COWEXTSIZE);
    core.flags2 |= if wanted.xflags & xflags::DAX != 0 { flags2::DAX } else { 0 };
    core.flags2 |= if has_cow_hint { flags2::COWEXTSIZE } else { 0 };
    core.project = wanted.project;
    core.extent_size = if has_hint { wanted.extent_size_bytes >> block_log } else { 0 };
    core.cow_extent_size = if has_cow_hint { wanted.cow_extent_size_bytes >> block_log } else { 0 };
}
