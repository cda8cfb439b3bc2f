//! Extended attributes, by their full names.
//!
//! ```text
//! user.NAME       plain                     trusted.NAME   name space ROOT
//! security.NAME   name space SECURE         system.posix_acl_access, ..._default   ROOT, "SGI_ACL_FILE", "SGI_ACL_DEFAULT"
//! ```
//! Parent pointers are attributes on disk, and not shown here.

use super::{Caller, Filesystem, acl};
use crate::attr::{self, update};
use crate::cache::KnownAbsent;
use crate::error::{Error, Result};
use crate::mount::{AttrLogging, reservation_of};
use crate::trans::{InoId, Reservation, Transaction};
use std::collections::HashMap;
use std::ops::ControlFlow;
use xfskit_ondisk::attr::{MAX_NAME_BYTES, MAX_VALUE_BYTES, flags};
use xfskit_ondisk::inode::{MODE_DIR, MODE_REGULAR, MODE_TYPE};
use xfskit_ondisk::{InodeCore, InodeNumber};

/// What an attribute intent takes in the log besides its value: the name, and headers.
const INTENT_BYTES: usize = 512;

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

    fn known_absent(self) -> KnownAbsent {
        match self {
            Self::User => KnownAbsent::USER,
            Self::Trusted => KnownAbsent::ROOT,
            Self::Security => KnownAbsent::SECURE,
        }
    }
}

/// What a set may find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetMode {
    /// Make it or replace it.
    Any,
    /// It must not exist.
    Create,
    /// It must exist.
    Replace,
}

/// One change of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XattrChange {
    /// Full name.
    pub name: Vec<u8>,
    /// The new value; `None` removes.
    pub value: Option<Vec<u8>>,
}

/// A full name taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Parsed<'a> {
    /// An attribute of a name space.
    Plain(Namespace, &'a [u8]),
    /// An ACL.
    Acl(acl::AclKind),
}

fn parse(full: &[u8]) -> Result<Parsed<'_>> {
    match full {
        b"system.posix_acl_access" => return Ok(Parsed::Acl(acl::AclKind::Access)),
        b"system.posix_acl_default" => return Ok(Parsed::Acl(acl::AclKind::Default)),
        _ => {}
    }
    for namespace in [Namespace::User, Namespace::Trusted, Namespace::Security] {
        if let Some(name) = full.strip_prefix(namespace.prefix()) {
            return match name.len() {
                0 => Err(Error::Invalid("an attribute name is not empty behind its prefix")),
                1..=MAX_NAME_BYTES => Ok(Parsed::Plain(namespace, name)),
                _ => Err(Error::BufferTooSmall),
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

impl Filesystem {
    /// The value of an attribute.
    ///
    /// # Errors
    /// `NoAttribute`, `NotSupported` for an unknown prefix, `Corrupt`, `Io`.
    pub fn get_xattr(&self, inode: InodeNumber, name: &[u8]) -> Result<Vec<u8>> {
        let parsed = parse(name)?;
        let inode = self.mount.inode(inode)?;
        let mut tx = Transaction::read_only(&self.mount);
        let id = self.join(&mut tx, &inode)?;
        match parsed {
            Parsed::Plain(namespace, name) => {
                self.search(&mut tx, id, namespace.known_absent(), namespace.flags(), name)?.ok_or(Error::NoAttribute)
            }
            Parsed::Acl(kind) => {
                let raw = self.search(&mut tx, id, kind.known_absent(), flags::ROOT, kind.disk_name())?;
                acl::to_user(&raw.ok_or(Error::NoAttribute)?)
            }
        }
    }

    /// Looks for an attribute, unless the inode is known to have none of its kind.
    fn search(
        &self,
        tx: &mut Transaction,
        id: InoId,
        kind: KnownAbsent,
        namespace: u8,
        name: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        if self.mount.options.known_absent && tx.inode(id).known_absent.contains(kind) {
            self.mount.counters.attr_searches_skipped.increment();
            return Ok(None);
        }
        self.mount.counters.attr_searches.increment();
        let found = attr::get(tx, id, &attr::Attr::key(namespace, name));
        self.located(tx.inode(id).core.inode, found)
    }

    /// The full names of all attributes.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    pub fn list_xattr(&self, inode: InodeNumber) -> Result<Vec<Vec<u8>>> {
        let inode = self.mount.inode(inode)?;
        let mut names = Vec::new();
        let mut found = KnownAbsent::default();
        let version;
        {
            let mut tx = Transaction::read_only(&self.mount);
            let id = self.join(&mut tx, &inode)?;
            if self.mount.options.known_absent && tx.inode(id).known_absent.contains(KnownAbsent::ALL) {
                self.mount.counters.attr_searches_skipped.increment();
                return Ok(names);
            }
            self.mount.counters.attr_searches.increment();
            version = version_of(&tx.inode(id).core);
            let listed = attr::list(&mut tx, id, &mut |attr| {
                if attr.namespace & flags::PARENT != 0 {
                    return ControlFlow::Continue(());
                }
                let namespace = Namespace::of_flags(attr.namespace);
                found.insert(namespace.known_absent());
                if let Some(kind) = acl::AclKind::of(attr.namespace, attr.name) {
                    found.insert(kind.known_absent());
                    names.push(kind.full_name().to_vec());
                }
                names.push([namespace.prefix(), attr.name].concat());
                ControlFlow::Continue(())
            });
            self.located(inode.number, listed)?;
        }
        self.remember_absent(&inode, found, version);
        Ok(names)
    }

    /// A whole list of `version` was read: what it did not show is known to be absent.
    fn remember_absent(&self, inode: &crate::cache::Inode, found: KnownAbsent, version: (u32, u64)) {
        // Only if nobody holds the lock and nobody changed it since: knowledge may be late, never wrong.
        if let Some(mut state) = inode.state_lock().try_write()
            && !state.freed
            && version_of(&state.core) == version
        {
            let mut absent = KnownAbsent::ALL;
            absent.remove(found);
            state.known_absent.insert(absent);
        }
    }

    /// Makes or replaces an attribute.
    ///
    /// # Errors
    /// `Exists`, `NoAttribute` as `mode` demands, `ValueTooLong`, `NoSpace`, `NotSupported` for an unknown prefix,
    /// `NotPermitted` for an attribute of users on what is neither a file nor a directory.
    pub fn set_xattr(
        &self,
        inode: InodeNumber,
        name: &[u8],
        value: &[u8],
        mode: SetMode,
        caller: &Caller,
    ) -> Result<()> {
        self.change(inode, &[(name, Some(value))], mode, caller)
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// `NoAttribute`, `NotSupported` for an unknown prefix.
    pub fn remove_xattr(&self, inode: InodeNumber, name: &[u8], caller: &Caller) -> Result<()> {
        self.change(inode, &[(name, None)], SetMode::Any, caller)
    }

    /// Makes many changes to the attributes of one inode, all or nothing as far as errors go; in one transaction where
    /// they fit.
    ///
    /// # Errors
    /// As [`Self::set_xattr`] and [`Self::remove_xattr`], before anything was changed.
    pub fn change_xattrs(&self, inode: InodeNumber, changes: &[XattrChange], caller: &Caller) -> Result<()> {
        let changes: Vec<_> = changes.iter().map(|c| (c.name.as_slice(), c.value.as_deref())).collect();
        self.change(inode, &changes, SetMode::Any, caller)
    }

    fn change(
        &self,
        inode: InodeNumber,
        changes: &[(&[u8], Option<&[u8]>)],
        mode: SetMode,
        caller: &Caller,
    ) -> Result<()> {
        let mut parsed = Vec::with_capacity(changes.len());
        for (name, value) in changes {
            if value.is_some_and(|value| value.len() > MAX_VALUE_BYTES) {
                return Err(Error::ValueTooLong);
            }
            let name = parse(name)?;
            if let (Parsed::Acl(kind), Some(value)) = (name, value) {
                acl::check(kind, value, self.stat(inode)?.mode)?;
            }
            parsed.push((name, *value));
        }
        let inode = self.mount.inode(inode)?;
        let mut tx = self.begin(self.xattr_reservation(&parsed)?)?;
        let result = (|| {
            let id = self.join(&mut tx, &inode)?;
            check_namespaces(&tx, id, &parsed)?;
            // What each change will find, those before it done.
            let mut there: HashMap<Parsed<'_>, bool> = HashMap::new();
            for (name, value) in &parsed {
                check_mode(&mut tx, id, (name, *value), mode, there.get(name).copied())?;
                there.insert(*name, value.is_some());
            }
            self.change_all(&mut tx, id, &last_of_each(&parsed), caller)?;
            super::create::touch(&mut tx, id);
            Ok(())
        })();
        self.located(inode.number, tx.finish(result))
    }

    /// Makes all changes, so that a crash leaves all of them or none. Only a value outside of the leaf may take several
    /// transactions, to map its blocks, which nobody sees; so the blocks of all such values are mapped first, and the rest is
    /// one transaction. Under the policy `always` that transaction has an intent for each change, and the changes follow it.
    fn change_all(
        &self,
        tx: &mut Transaction,
        id: InoId,
        changes: &[(Parsed<'_>, Option<&[u8]>)],
        caller: &Caller,
    ) -> Result<()> {
        let always = self.mount.options.attr_logging == AttrLogging::Always;
        let mut places = vec![None; changes.len()];
        if always || changes.len() > 1 {
            for (index, (name, value)) in changes.iter().enumerate() {
                let (Parsed::Plain(_, name), Some(value)) = (name, value) else { continue };
                if !attr::is_remote(tx.geometry(), name.len(), value.len()) {
                    continue;
                }
                match attr::map_value(tx, id, value.len()) {
                    Ok(place) => places[index] = Some(place),
                    Err(error) => {
                        attr::unmap_values(tx, id, places.into_iter().flatten())?;
                        return Err(error);
                    }
                }
            }
        }
        let logging = if always { update::Logging::Logged } else { update::Logging::NotLogged };
        for ((name, value), place) in changes.iter().zip(places) {
            apply(tx, id, (name, *value), place, logging, caller)?;
        }
        Ok(())
    }

    /// Log space and blocks for the changes.
    ///
    /// # Errors
    /// `Invalid` for a batch that is too large for one transaction in this log.
    fn xattr_reservation(&self, changes: &[(Parsed<'_>, Option<&[u8]>)]) -> Result<Reservation> {
        let mount = &self.mount;
        let block_bytes = mount.geometry.block_bytes();
        let mut further_bytes = 0;
        let mut total = Reservation { log_count: 1, ..Reservation::default() };
        for (_, value) in changes {
            let one = update::reservation(mount, value.map_or(0, <[u8]>::len));
            total.blocks += one.blocks;
            total.log_bytes = total.log_bytes.max(one.log_bytes);
            if mount.options.attr_logging == AttrLogging::Always {
                // The intents of all changes commit together, with their values.
                further_bytes += (value.map_or(0, <[u8]>::len) + INTENT_BYTES) as u64;
            }
            // A further change of the same inode dirties a leaf and what its split may make; the rest is dirty already.
            further_bytes += 3 * block_bytes as u64;
        }
        let first_bytes = total.log_bytes + reservation_of(mount.reservations.ichange).log_bytes;
        let log_bytes = u64::from(first_bytes) + further_bytes.saturating_sub(3 * block_bytes as u64);
        let (_, log_size) = mount.journal.usage();
        match u32::try_from(log_bytes) {
            Ok(log_bytes) if u64::from(log_bytes) <= log_size / 4 || changes.len() == 1 => {
                Ok(Reservation { log_bytes, ..total })
            }
            _ => Err(Error::Invalid("more attribute changes than one transaction can hold: split the batch")),
        }
    }
}

/// The changes without those that a later one of the same name undoes. ACLs stay, since each changes the mode as well.
fn last_of_each<'a>(changes: &[(Parsed<'a>, Option<&'a [u8]>)]) -> Vec<(Parsed<'a>, Option<&'a [u8]>)> {
    let last: HashMap<_, _> = changes.iter().enumerate().map(|(index, (name, _))| (*name, index)).collect();
    let counts =
        |&(index, (name, _)): &(usize, &(Parsed<'a>, _))| matches!(name, Parsed::Acl(_)) || last[name] == index;
    changes.iter().enumerate().filter(counts).map(|(_, change)| *change).collect()
}

/// Makes one change.
fn apply(
    tx: &mut Transaction,
    id: InoId,
    (name, value): (&Parsed<'_>, Option<&[u8]>),
    place: Option<attr::ValuePlace>,
    logging: update::Logging,
    caller: &Caller,
) -> Result<()> {
    let (namespace, name) = match name {
        Parsed::Acl(kind) => return acl::set(tx, id, *kind, value, caller),
        Parsed::Plain(namespace, name) => (namespace.flags(), *name),
    };
    let key = update::Key { namespace, name };
    match value {
        Some(value) => update::put_at(tx, id, key, value, logging, place),
        // It was there when the batch was checked: another name for it (an ACL's) has removed it since.
        None => match update::remove(tx, id, key, logging) {
            Err(Error::NoAttribute) => Ok(()),
            other => other,
        },
    }
}

/// Tells an inode from what it was before and from others of its number: generation and number of changes.
fn version_of(core: &InodeCore) -> (u32, u64) {
    (core.generation, core.change_count)
}

/// Whether a change may be made. `known` says whether the attribute will be there, where an earlier change of the batch
/// decides that.
/// Attributes of users belong to files and directories only: on others, whose permissions everybody has or nobody, the
/// kernel does not show them.
fn check_namespaces(tx: &Transaction, id: InoId, changes: &[(Parsed<'_>, Option<&[u8]>)]) -> Result<()> {
    let has_users = matches!(tx.inode(id).core.mode & MODE_TYPE, MODE_REGULAR | MODE_DIR);
    let for_users = |(name, value): &(Parsed<'_>, Option<&[u8]>)| {
        matches!(name, Parsed::Plain(Namespace::User, _)) && value.is_some()
    };
    if has_users || !changes.iter().any(for_users) { Ok(()) } else { Err(Error::NotPermitted) }
}

fn check_mode(
    tx: &mut Transaction,
    id: InoId,
    (name, value): (&Parsed<'_>, Option<&[u8]>),
    mode: SetMode,
    known: Option<bool>,
) -> Result<()> {
    let must_know = mode != SetMode::Any || value.is_none();
    if !must_know {
        return Ok(());
    }
    let exists = match name {
        Parsed::Plain(..) if known.is_some() => known == Some(true),
        Parsed::Plain(namespace, name) => attr::exists(tx, id, namespace.flags(), name)?,
        // Removing an ACL that is not there is fine.
        Parsed::Acl(_) if value.is_none() => return Ok(()),
        Parsed::Acl(kind) => attr::exists(tx, id, flags::ROOT, kind.disk_name())?,
    };
    match (exists, mode, value) {
        (true, SetMode::Create, Some(_)) => Err(Error::Exists),
        (false, SetMode::Replace, _) | (false, _, None) => Err(Error::NoAttribute),
        _ => Ok(()),
    }
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
