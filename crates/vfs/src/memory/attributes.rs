//! Modes, owners, times, flags, and extended attributes.

use super::contents::BLOCK_BYTES;
use super::node::Node;
use super::protect::{check_not_immutable, check_set_attr, check_unprotected};
use super::state::{State, blocks_of_attributes};
use crate::{
    Caller, Error, FileType, Flags, InodeNumber, Permissions, Result, SetAttr, SetMode, SetTime, Stat, Timestamp,
    XattrChange, xflags,
};

/// Longest name of an attribute behind its prefix.
pub(super) const MAX_XATTR_NAME_BYTES: usize = 255;
/// Longest value of an attribute.
pub(super) const MAX_XATTR_BYTES: usize = 64 << 10;

/// Checks a time that is to be set.
pub(super) fn check_time(time: Timestamp) -> Result<()> {
    if time.nanoseconds < 1_000_000_000 { Ok(()) } else { Err(Error::Invalid("a second has 1000000000 nanoseconds")) }
}

/// A mode without set-user-id and set-group-id. Without the right to execute, the group's bit means something else.
fn without_privileges(mode: u16) -> u16 {
    if mode & 0o010 != 0 { mode & !0o6000 } else { mode & !0o4000 }
}

/// Checks a change by itself.
pub(super) fn check_change(change: &SetAttr) -> Result<()> {
    let given = |time| if let Some(SetTime::To(time)) = time { Some(time) } else { None };
    [given(change.atime), given(change.mtime), change.ctime].into_iter().flatten().try_for_each(check_time)?;
    if [change.uid, change.gid].contains(&Some(u32::MAX)) {
        return Err(Error::Invalid("4294967295 is no user and no group"));
    }
    Ok(())
}

impl State {
    /// Changes all attributes but the size.
    pub fn set_attr(&mut self, inode: InodeNumber, change: &SetAttr, caller: &Caller) -> Result<Stat> {
        check_set_attr(self.node(inode)?, change)?;
        let now = self.environment.now();
        let node = self.node_mut(inode)?;
        let stat = &mut node.stat;
        let mut bits = stat.permissions.bits();
        let owner_changes = change.uid.is_some() || change.gid.is_some();
        if owner_changes && !stat.file_type.is_dir() && change.permissions.is_none() {
            // Another owner must not inherit the privileges of the file.
            bits = without_privileges(bits);
        }
        stat.uid = change.uid.unwrap_or(stat.uid);
        stat.gid = change.gid.unwrap_or(stat.gid);
        if let Some(permissions) = change.permissions {
            let is_member = caller.uid == 0 || caller.in_group(stat.gid);
            bits = if is_member { permissions.bits() } else { permissions.bits() & !0o2000 };
        }
        stat.permissions = Permissions::new(bits);
        let resolve = |time| match time {
            SetTime::Now => now,
            SetTime::To(time) => time,
        };
        stat.atime = change.atime.map_or(stat.atime, resolve);
        stat.mtime = change.mtime.map_or(stat.mtime, resolve);
        stat.ctime = change.ctime.unwrap_or(now);
        Ok(node.stat())
    }

    pub fn drop_privileges(&mut self, inode: InodeNumber, writer: Option<&Caller>) -> Result<bool> {
        let node = self.node_mut(inode)?;
        let mode = node.stat.permissions.bits();
        let is_member = writer.is_none_or(|writer| writer.in_group(node.stat.gid));
        let left = if is_member { without_privileges(mode) } else { mode & !0o6000 };
        if node.stat.file_type != FileType::File || left == mode {
            return Ok(false);
        }
        check_not_immutable(node)?;
        node.stat.permissions = Permissions::new(left);
        Ok(true)
    }

    pub fn set_flags(&mut self, inode: InodeNumber, wanted: &Flags, caller: &Caller) -> Result<()> {
        let node = self.node(inode)?;
        check_flags(node, wanted, caller)?;
        self.touch(inode)?;
        let node = self.node_mut(inode)?;
        if node.flags.project != wanted.project && caller.uid != 0 {
            node.stat.permissions = Permissions::new(node.stat.permissions.bits() & !0o6000);
        }
        let left_out = match node.stat.file_type {
            FileType::Dir => xflags::EXTSIZE,
            FileType::File => OF_DIRS,
            _ => OF_DIRS | xflags::EXTSIZE,
        };
        let mut flags = *wanted;
        flags.xflags &= SETTABLE & !left_out;
        if wanted.extent_size_bytes == 0 {
            flags.xflags &= !(xflags::EXTSIZE | xflags::EXTSZINHERIT);
        }
        if flags.xflags & (xflags::EXTSIZE | xflags::EXTSZINHERIT) == 0 {
            flags.extent_size_bytes = 0;
        }
        if flags.cow_extent_size_bytes == 0 || flags.xflags & xflags::COWEXTSIZE == 0 {
            flags.xflags &= !xflags::COWEXTSIZE;
            flags.cow_extent_size_bytes = 0;
        }
        node.flags = flags;
        Ok(())
    }

    /// Changes attributes, all of them or none.
    pub fn change_xattrs(&mut self, inode: InodeNumber, changes: &[XattrChange], mode: SetMode) -> Result<()> {
        for change in changes {
            check_xattr_name(&change.name)?;
            if change.value.as_ref().is_some_and(|value| value.len() > MAX_XATTR_BYTES) {
                return Err(Error::ValueTooLong);
            }
        }
        let node = self.node(inode)?;
        check_unprotected(node)?;
        let has_users = matches!(node.stat.file_type, FileType::File | FileType::Dir);
        let is_for_users = |change: &XattrChange| change.value.is_some() && change.name.starts_with(b"user.");
        if !has_users && changes.iter().any(is_for_users) {
            return Err(Error::NotPermitted);
        }
        let mut xattrs = node.xattrs.clone();
        for XattrChange { name, value } in changes {
            let Some(value) = value else {
                xattrs.remove(name).ok_or(Error::NoAttribute)?;
                continue;
            };
            match (xattrs.contains_key(name), mode) {
                (true, SetMode::Create) => return Err(Error::Exists),
                (false, SetMode::Replace) => return Err(Error::NoAttribute),
                _ => xattrs.insert(name.clone(), value.clone()),
            };
        }
        let old = blocks_of_attributes(&node.xattrs);
        self.space.take(blocks_of_attributes(&xattrs).saturating_sub(old))?;
        self.space.give_back(old.saturating_sub(blocks_of_attributes(&xattrs)));
        self.node_mut(inode)?.xattrs = xattrs;
        self.touch(inode)
    }
}

const OF_DIRS: u32 = xflags::RTINHERIT | xflags::NOSYMLINKS | xflags::EXTSZINHERIT | xflags::PROJINHERIT;
const SETTABLE: u32 = xflags::OF_DISK | xflags::DAX | xflags::COWEXTSIZE;

fn check_flags(node: &Node, wanted: &Flags, caller: &Caller) -> Result<()> {
    let protects = (node.flags.xflags ^ wanted.xflags) & (xflags::IMMUTABLE | xflags::APPEND) != 0;
    if caller.uid != 0 && (caller.uid != node.stat.uid || protects) {
        return Err(Error::NotPermitted);
    }
    if wanted.xflags & xflags::REALTIME != 0 {
        return Err(Error::Invalid("memory has no realtime device"));
    }
    let has = |flags: u32| wanted.xflags & flags != 0;
    let file_type = node.stat.file_type;
    let misplaced = has(xflags::EXTSIZE) && !file_type.is_file()
        || has(xflags::EXTSZINHERIT) && !file_type.is_dir()
        || has(xflags::COWEXTSIZE | xflags::DAX) && !(file_type.is_file() || file_type.is_dir());
    if misplaced {
        return Err(Error::Invalid("this type of file cannot have the flag"));
    }
    let has_blocks = node.contents().is_ok_and(|contents| contents.has_blocks());
    if has_blocks && wanted.extent_size_bytes != node.flags.extent_size_bytes {
        return Err(Error::Invalid("the file has extents already, of another size"));
    }
    for (bytes, flags) in [
        (wanted.extent_size_bytes, xflags::EXTSIZE | xflags::EXTSZINHERIT),
        (wanted.cow_extent_size_bytes, xflags::COWEXTSIZE),
    ] {
        if bytes > 0 && !has(flags) {
            return Err(Error::Invalid("a hint for extents comes with its flag"));
        }
        if !u64::from(bytes).is_multiple_of(BLOCK_BYTES) {
            return Err(Error::Invalid("a hint for extents is of whole blocks"));
        }
    }
    Ok(())
}

/// Checks the full name of an attribute.
pub(super) fn check_xattr_name(full: &[u8]) -> Result<()> {
    for prefix in [b"user.".as_slice(), b"trusted.", b"security."] {
        let Some(name) = full.strip_prefix(prefix) else { continue };
        return match name.len() {
            _ if name.contains(&0) => Err(Error::Invalid("an attribute name has no zero byte")),
            0 => Err(Error::Invalid("an attribute name is not empty behind its prefix")),
            1..=MAX_XATTR_NAME_BYTES => Ok(()),
            _ => Err(Error::AttributeNameTooLong),
        };
    }
    Err(Error::NotSupported("attributes outside user, trusted and security"))
}
