//! Extended attributes, by their full names.
//!
//! ```text
//! user.NAME       plain                     trusted.NAME   name space ROOT
//! security.NAME   name space SECURE
//! system.posix_acl_access, ..._default      name space ROOT, "SGI_ACL_FILE", "SGI_ACL_DEFAULT"
//! ```
//! Parent pointers are attributes on disk, and not shown here.

use super::{Volume, acl, check_state_in_use};
use crate::attr;
use crate::attr::absent::kinds_of;
use crate::attr::search::{InodeList, InodeSearch, list_inode, search_inode};
use crate::error::{Error, Result};
use crate::incore::{Inode, KnownAbsent};
use crate::trans::Transaction;
use std::ops::ControlFlow;
use std::sync::Arc;
use xfskit_ondisk::attr::shortform::attrs;
use xfskit_ondisk::attr::{MAX_NAME_BYTES, flags};
use xfskit_ondisk::{InodeCore, InodeNumber};

/// Name spaces of attributes that people see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Namespace {
    /// `user.`
    User,
    /// `trusted.`
    Trusted,
    /// `security.`
    Security,
}

impl Namespace {
    /// The flags on disk.
    pub fn flags(self) -> u8 {
        match self {
            Self::User => 0,
            Self::Trusted => flags::ROOT,
            Self::Security => flags::SECURE,
        }
    }

    /// The prefix of full names.
    pub fn prefix(self) -> &'static [u8] {
        match self {
            Self::User => b"user.",
            Self::Trusted => b"trusted.",
            Self::Security => b"security.",
        }
    }

    fn of_flags(namespace: u8) -> Self {
        match namespace & flags::NAMESPACE {
            flags::ROOT => Self::Trusted,
            flags::SECURE => Self::Security,
            _ => Self::User,
        }
    }
}

/// A full name taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Parsed<'a> {
    /// An attribute of a name space.
    Plain(Namespace, &'a [u8]),
    /// An ACL.
    Acl(acl::AclKind),
}

impl<'a> Parsed<'a> {
    /// The name as it is on disk.
    pub(super) fn disk_name(self) -> &'a [u8] {
        match self {
            Self::Plain(_, name) => name,
            Self::Acl(kind) => kind.disk_name(),
        }
    }
}

pub(super) fn parse(full: &[u8]) -> Result<Parsed<'_>> {
    match full {
        b"system.posix_acl_access" => return Ok(Parsed::Acl(acl::AclKind::Access)),
        b"system.posix_acl_default" => return Ok(Parsed::Acl(acl::AclKind::Default)),
        _ => {}
    }
    for namespace in [Namespace::User, Namespace::Trusted, Namespace::Security] {
        if let Some(name) = full.strip_prefix(namespace.prefix()) {
            return match name.len() {
                _ if name.contains(&0) => Err(Error::Invalid("an attribute name has no zero byte")),
                0 => Err(Error::Invalid("an attribute name is not empty behind its prefix")),
                1..=MAX_NAME_BYTES => Ok(Parsed::Plain(namespace, name)),
                _ => Err(Error::AttributeNameTooLong),
            };
        }
    }
    Err(Error::NotSupported("attributes outside user, trusted, security and the ACLs of system"))
}

/// As [`parse`], for attributes that are not ACLs.
pub(super) fn parse_plain(full: &[u8]) -> Result<(Namespace, &[u8])> {
    match parse(full)? {
        Parsed::Plain(namespace, name) => Ok((namespace, name)),
        Parsed::Acl(_) => Err(Error::Invalid("an ACL follows the mode of its file")),
    }
}

impl Volume {
    /// The value of an attribute.
    ///
    /// # Errors
    /// `NoAttribute`, `NotSupported` for an unknown prefix, `Corrupt`, `Io`.
    pub fn get_xattr(&self, inode: InodeNumber, name: &[u8]) -> Result<Vec<u8>> {
        let mut value = Vec::new();
        self.get_xattr_into(inode, name, &mut value)?;
        Ok(value)
    }

    /// As [`Self::get_xattr`], into a vector whose memory is used again; what it held is lost.
    ///
    /// # Errors
    /// As [`Self::get_xattr`].
    pub fn get_xattr_into(&self, inode: InodeNumber, name: &[u8], value: &mut Vec<u8>) -> Result<()> {
        let parsed = parse(name)?;
        let inode = self.mount.inode(inode)?;
        value.clear();
        if let Parsed::Plain(namespace, name) = parsed
            && let Some(found) = self.get_from_inode(&inode, namespace, name, value)?
        {
            return if found { Ok(()) } else { Err(Error::NoAttribute) };
        }
        *value = self.get_by_transaction(&inode, parsed)?;
        Ok(())
    }

    /// Looks for an attribute without a transaction, where what the inode holds is enough: whether it is there, and its
    /// value.
    fn get_from_inode(
        &self,
        inode: &Inode,
        namespace: Namespace,
        name: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<Option<bool>> {
        let state = inode.state_lock().read();
        check_state_in_use(&state)?;
        let key = attr::Attr::key(namespace.flags(), name);
        let found = self.located(inode.number, search_inode(&self.mount, &state, &key))?;
        found.count(&self.mount);
        match found {
            InodeSearch::KnownAbsent | InodeSearch::Absent => Ok(Some(false)),
            InodeSearch::Found(found) => {
                value.extend_from_slice(found.value);
                Ok(Some(true))
            }
            InodeSearch::InTree => Ok(None),
        }
    }

    fn get_by_transaction(&self, inode: &Arc<Inode>, parsed: Parsed<'_>) -> Result<Vec<u8>> {
        let mut tx = Transaction::read_only(&self.mount);
        let id = self.join(&mut tx, inode)?;
        let (namespace, disk_name) = match parsed {
            Parsed::Plain(namespace, name) => (namespace.flags(), name),
            Parsed::Acl(kind) => (flags::ROOT, kind.disk_name()),
        };
        let found = attr::get(&mut tx, id, &attr::Attr::key(namespace, disk_name));
        let raw = self.located(inode.number, found)?.ok_or(Error::NoAttribute)?;
        if let Parsed::Acl(_) = parsed { acl::to_user(&raw) } else { Ok(raw) }
    }

    /// The full names of all attributes.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    pub fn list_xattrs(&self, inode: InodeNumber) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        self.for_each_xattr(inode, &mut |prefix, name| names.push([prefix, name].concat()))?;
        Ok(names)
    }

    /// As [`Self::list_xattrs`], into a vector whose memory is used again, each name with a zero byte behind it, as
    /// listxattr(2) gives them.
    ///
    /// # Errors
    /// As [`Self::list_xattrs`].
    pub fn list_xattrs_into(&self, inode: InodeNumber, names: &mut Vec<u8>) -> Result<()> {
        names.clear();
        self.for_each_xattr(inode, &mut |prefix, name| {
            names.extend_from_slice(prefix);
            names.extend_from_slice(name);
            names.push(0);
        })
    }

    /// As [`Self::list_xattrs_into`], for a caller that takes no more than `most_bytes`.
    ///
    /// # Errors
    /// `TooLarge` for a longer list; as [`Self::list_xattrs`].
    pub fn list_xattrs_within(&self, inode: InodeNumber, most_bytes: usize) -> Result<Vec<u8>> {
        let (mut names, mut is_too_long) = (Vec::new(), false);
        self.for_each_xattr(inode, &mut |prefix, name| {
            is_too_long |= names.len() + prefix.len() + name.len() + 1 > most_bytes;
            if !is_too_long {
                names.extend_from_slice(prefix);
                names.extend_from_slice(name);
                names.push(0);
            }
        })?;
        if is_too_long { Err(Error::TooLarge) } else { Ok(names) }
    }

    /// Hands out all attributes, each as the two parts of its full name.
    fn for_each_xattr(&self, inode: InodeNumber, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let inode = self.mount.inode(inode)?;
        let mut found = KnownAbsent::default();
        let mut visit = |namespace: u8, name: &[u8]| {
            if namespace & flags::PARENT != 0 {
                return;
            }
            found.insert(kinds_of(namespace, name));
            if let Some(kind) = acl::AclKind::of(namespace, name) {
                each(kind.full_name(), &[]);
            }
            each(Namespace::of_flags(namespace).prefix(), name);
        };
        let (version, known) = {
            let state = inode.state_lock().read();
            check_state_in_use(&state)?;
            let list = list_inode(&self.mount, &state);
            list.count(&self.mount);
            match list {
                InodeList::KnownAbsent => return Ok(()),
                InodeList::Shortform(bytes) => {
                    for attr in attrs(bytes) {
                        let attr = self.located(inode.number, attr.map_err(Error::from))?;
                        visit(attr.namespace, attr.name);
                    }
                    (version_of(&state.core), state.known_absent)
                }
                InodeList::InTree => {
                    drop(state);
                    let mut tx = Transaction::read_only(&self.mount);
                    let id = self.join(&mut tx, &inode)?;
                    let seen = (version_of(&tx.inode(id).core), tx.inode(id).known_absent);
                    let listed = attr::list(&mut tx, id, &mut |attr| {
                        visit(attr.namespace, attr.name);
                        ControlFlow::Continue(())
                    });
                    self.located(inode.number, listed)?;
                    seen
                }
            }
        };
        let mut absent = KnownAbsent::ALL;
        absent.remove(found);
        if !known.contains(absent) {
            remember_absent(&inode, absent, version);
        }
        Ok(())
    }
}

/// A whole list of `version` was read: what it did not show is known to be absent.
fn remember_absent(inode: &Inode, absent: KnownAbsent, version: (u32, u64)) {
    // Only if no thread holds the lock and none changed it since: knowledge may be late, never wrong.
    if let Some(mut state) = inode.state_lock().try_write()
        && !state.freed
        && version_of(&state.core) == version
    {
        state.known_absent.insert(absent);
    }
}

/// Generation and number of changes: another one after a change of the inode, and of another inode with its number.
fn version_of(core: &InodeCore) -> (u32, u64) {
    (core.generation, core.change_count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_names_are_taken_apart() {
        assert_eq!(parse(b"user.a").unwrap(), Parsed::Plain(Namespace::User, b"a"));
        assert_eq!(parse(b"security.selinux").unwrap(), Parsed::Plain(Namespace::Security, b"selinux"));
        assert_eq!(parse(b"system.posix_acl_default").unwrap(), Parsed::Acl(acl::AclKind::Default));
        assert!(matches!(parse(b"user."), Err(Error::Invalid(_))));
        assert!(matches!(parse(b"system.other"), Err(Error::NotSupported(_))));
    }
}
