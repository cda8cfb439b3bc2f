//! Extended attributes, by their full names.
//!
//! ```text
//! user.NAME       plain                     trusted.NAME   name space ROOT
//! security.NAME   name space SECURE         system.posix_acl_access, ..._default   ROOT, "SGI_ACL_FILE", "SGI_ACL_DEFAULT"
//! ```
//! Parent pointers are attributes on disk, and not shown here.

use super::protected::check_unprotected;
use super::{Caller, Volume, acl, check_state_in_use};
use crate::attr;
use crate::attr::absent::kinds_of;
use crate::attr::search::{InodeList, InodeSearch, list_inode, search_inode};
use crate::attr::update::{self, Required};
use crate::error::{Error, Result, caller};
use crate::incore::{Inode, KnownAbsent};
use crate::mount::AttrLogging;
use crate::trans::reservation_of;
use crate::trans::{InoId, Reservation, Transaction};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use xfskit_ondisk::attr::shortform::{SHORTFORM_LENGTH_LIMIT, attrs};
use xfskit_ondisk::attr::{MAX_NAME_BYTES, MAX_VALUE_BYTES, flags};
use xfskit_ondisk::inode::{MODE_DIR, MODE_REGULAR, MODE_TYPE};
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

impl SetMode {
    /// The same for the layer below.
    fn required(self) -> Required {
        match self {
            Self::Any => Required::Nothing,
            Self::Create => Required::Absent,
            Self::Replace => Required::Present,
        }
    }
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
    pub fn get_xattr(&self, inode: InodeNumber, name: &[u8]) -> caller::Result<Vec<u8>> {
        let mut value = Vec::new();
        self.get_xattr_into(inode, name, &mut value)?;
        Ok(value)
    }

    /// As [`Self::get_xattr`], into a vector whose memory is used again; what it held is lost.
    ///
    /// # Errors
    /// As [`Self::get_xattr`].
    pub fn get_xattr_into(&self, inode: InodeNumber, name: &[u8], value: &mut Vec<u8>) -> caller::Result<()> {
        let parsed = parse(name)?;
        let inode = self.mount.inode(inode)?;
        value.clear();
        if let Parsed::Plain(namespace, name) = parsed
            && let Some(found) = self.get_from_inode(&inode, namespace, name, value)?
        {
            return if found { Ok(()) } else { Err(Error::NoAttribute.into()) };
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
    pub fn list_xattr(&self, inode: InodeNumber) -> caller::Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        self.for_each_xattr(inode, &mut |prefix, name| names.push([prefix, name].concat()))?;
        Ok(names)
    }

    /// As [`Self::list_xattr`], into a vector whose memory is used again, each name with a zero byte behind it, as
    /// listxattr(2) gives them.
    ///
    /// # Errors
    /// As [`Self::list_xattr`].
    pub fn list_xattr_into(&self, inode: InodeNumber, names: &mut Vec<u8>) -> caller::Result<()> {
        names.clear();
        Ok(self.for_each_xattr(inode, &mut |prefix, name| {
            names.extend_from_slice(prefix);
            names.extend_from_slice(name);
            names.push(0);
        })?)
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

    /// Makes or replaces an attribute. For an ACL, as for Linux, an empty value and a header without entries remove it,
    /// and `mode` does not count.
    ///
    /// # Errors
    /// `Exists`, `NoAttribute` as `mode` demands, `AttributeNameTooLong`, `ValueTooLong`, `NoSpace`, `NotSupported` for
    /// an unknown prefix, `NotPermitted` for an attribute of users on what is neither a file nor a directory, and on
    /// what is immutable or append-only; `Invalid` for a value that is no ACL, `NotSupported` for an ACL of another
    /// version than 2, `AccessDenied` for a default ACL of what is no directory.
    pub fn set_xattr(
        &self,
        inode: InodeNumber,
        name: &[u8],
        value: &[u8],
        mode: SetMode,
        caller: &Caller,
    ) -> caller::Result<()> {
        Ok(self.change(inode, &[(name, Some(value))], mode, caller)?)
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// `NoAttribute`, `NotSupported` for an unknown prefix, `NotPermitted` on what is immutable or append-only.
    pub fn remove_xattr(&self, inode: InodeNumber, name: &[u8], caller: &Caller) -> caller::Result<()> {
        Ok(self.change(inode, &[(name, None)], SetMode::Any, caller)?)
    }

    /// Makes many changes to the attributes of one inode, all or nothing as far as errors go; in one transaction where
    /// they fit.
    ///
    /// # Errors
    /// As [`Self::set_xattr`] and [`Self::remove_xattr`], before anything was changed.
    pub fn change_xattrs(&self, inode: InodeNumber, changes: &[XattrChange], caller: &Caller) -> caller::Result<()> {
        let changes: Vec<_> = changes.iter().map(|c| (c.name.as_slice(), c.value.as_deref())).collect();
        Ok(self.change(inode, &changes, SetMode::Any, caller)?)
    }

    /// Makes one change that is a matter of the inode alone, and reserves no more than that takes. `false`: it is not,
    /// and nothing was changed.
    fn change_in_inode(&self, number: InodeNumber, name: &[u8], value: Option<&[u8]>, mode: SetMode) -> Result<bool> {
        if value.is_some_and(|value| value.len() >= SHORTFORM_LENGTH_LIMIT) || !self.mount.options.attr_fast_path {
            return Ok(false);
        }
        let Parsed::Plain(namespace, name) = parse(name)? else { return Ok(false) };
        let inode = self.mount.inode(number)?;
        let mut tx = self.begin(reservation_of(self.mount.reservations.ichange))?;
        let id = self.join(&mut tx, &inode)?;
        let attr = attr::Attr::new(namespace.flags(), name, value.unwrap_or_default());
        let result = check_allowed(&tx, id, &[(Parsed::Plain(namespace, name), value)]).and_then(|()| match value {
            Some(_) => update::put_in_inode(&mut tx, id, &attr, mode.required()),
            None => update::remove_in_inode(&mut tx, id, &attr),
        });
        if matches!(result, Ok(true)) {
            super::create::touch(&mut tx, id);
        }
        self.located(number, tx.finish(result))
    }

    fn change(
        &self,
        inode: InodeNumber,
        changes: &[(&[u8], Option<&[u8]>)],
        mode: SetMode,
        caller: &Caller,
    ) -> Result<()> {
        if let [(name, value)] = changes
            && self.change_in_inode(inode, name, *value, mode)?
        {
            return Ok(());
        }
        let mut parsed = Vec::with_capacity(changes.len());
        for (name, value) in changes {
            let name = parse(name)?;
            if value.is_some_and(|value| value.len() > MAX_VALUE_BYTES) {
                return Err(Error::ValueTooLong);
            }
            if let (Parsed::Acl(kind), Some(value)) = (name, value) {
                acl::check(kind, value, self.stat(inode)?.mode)?;
            }
            parsed.push((name, *value));
        }
        let inode = self.mount.inode(inode)?;
        let mut tx = self.begin(self.xattr_reservation(&parsed)?)?;
        let result = (|| {
            let id = self.join(&mut tx, &inode)?;
            check_allowed(&tx, id, &parsed)?;
            // What each change will find, those before it done.
            let mut there: HashMap<Parsed<'_>, bool> = HashMap::new();
            for (name, value) in &parsed {
                check_mode(&mut tx, id, (name, *value), mode, there.get(name).copied())?;
                there.insert(*name, value.is_some());
            }
            let changes = last_of_each(&parsed);
            attr::expect_room(&mut tx, id, changes.iter().filter_map(|change| bytes_on_disk(change)))?;
            self.change_all(&mut tx, id, &changes, caller)?;
            super::create::touch(&mut tx, id);
            Ok(())
        })();
        self.located(inode.number, tx.finish(result))
    }

    /// Makes all changes, so that a crash leaves all of them or none. Only a value outside of the leaf may take several
    /// transactions, to map its blocks, which no reader sees; so the blocks of all such values are mapped first, and the
    /// rest is one transaction. Under the policy `always` that transaction has an intent for each change, and the
    /// changes follow it.
    fn change_all(
        &self,
        tx: &mut Transaction,
        id: InoId,
        changes: &[(Parsed<'_>, Option<&[u8]>)],
        caller: &Caller,
    ) -> Result<()> {
        let always = self.mount.options.attr_logging == AttrLogging::Always;
        let mut mappings = vec![None; changes.len()];
        if always || changes.len() > 1 {
            for (index, (name, value)) in changes.iter().enumerate() {
                let (Parsed::Plain(_, name), Some(value)) = (name, value) else { continue };
                if !attr::is_remote(tx.geometry(), name.len(), value.len()) {
                    continue;
                }
                match attr::map_value(tx, id, value.len()) {
                    Ok(mapping) => mappings[index] = Some(mapping),
                    Err(error) => {
                        attr::unmap_values(tx, id, mappings.into_iter().flatten())?;
                        return Err(error);
                    }
                }
            }
        }
        let logging = if always { update::Logging::Logged } else { update::Logging::NotLogged };
        for ((name, value), mapping) in changes.iter().zip(mappings) {
            apply(tx, id, (name, *value), mapping, logging, caller)?;
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
        for change in changes {
            let value_bytes = bytes_on_disk(change).unwrap_or_default();
            let one = update::reservation(mount, value_bytes, update::Logging::NotLogged);
            total.blocks += one.blocks;
            total.log_bytes = total.log_bytes.max(one.log_bytes);
            if mount.options.attr_logging == AttrLogging::Always || matches!(change.0, Parsed::Acl(_)) {
                // The intents of all changes may commit together, with their values.
                further_bytes += u64::from(update::intent_bytes(value_bytes));
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
    if changes.len() == 1 {
        return changes.to_vec();
    }
    let last: HashMap<_, _> = changes.iter().enumerate().map(|(index, (name, _))| (*name, index)).collect();
    let counts =
        |&(index, (name, _)): &(usize, &(Parsed<'a>, _))| matches!(name, Parsed::Acl(_)) || last[name] == index;
    changes.iter().enumerate().filter(counts).map(|(_, change)| *change).collect()
}

/// Bytes of the value that a change makes.
fn bytes_on_disk((name, value): &(Parsed<'_>, Option<&[u8]>)) -> Option<usize> {
    value.map(|value| if let Parsed::Acl(_) = name { acl::bytes_on_disk(value.len()) } else { value.len() })
}

/// Makes one change.
fn apply(
    tx: &mut Transaction,
    id: InoId,
    (name, value): (&Parsed<'_>, Option<&[u8]>),
    mapping: Option<attr::ValueMapping>,
    logging: update::Logging,
    caller: &Caller,
) -> Result<()> {
    let (namespace, name) = match name {
        Parsed::Acl(kind) => return acl::set(tx, id, *kind, value, caller),
        Parsed::Plain(namespace, name) => (namespace.flags(), *name),
    };
    let attr = attr::Attr::new(namespace, name, value.unwrap_or_default());
    match value {
        Some(_) => update::put_at(tx, id, attr, logging, mapping),
        // It was there when the batch was checked: another name for it (an ACL's) has removed it since.
        None => match update::remove(tx, id, attr, logging) {
            Err(Error::NoAttribute) => Ok(()),
            other => other,
        },
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

/// Tells an inode from what it was before and from others of its number: generation and number of changes.
fn version_of(core: &InodeCore) -> (u32, u64) {
    (core.generation, core.change_count)
}

/// Attributes of users belong to files and directories only: on others, whose permissions everybody has or nobody, the
/// kernel does not show them.
fn check_allowed(tx: &Transaction, id: InoId, changes: &[(Parsed<'_>, Option<&[u8]>)]) -> Result<()> {
    check_unprotected(&tx.inode(id).core)?;
    let has_users = matches!(tx.inode(id).core.mode & MODE_TYPE, MODE_REGULAR | MODE_DIR);
    let for_users = |(name, value): &(Parsed<'_>, Option<&[u8]>)| {
        matches!(name, Parsed::Plain(Namespace::User, _)) && value.is_some()
    };
    if has_users || !changes.iter().any(for_users) { Ok(()) } else { Err(Error::NotPermitted) }
}

/// Whether a change may be made. `known` says whether the attribute will be there, where an earlier change of the batch
/// decides that.
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
        Parsed::Plain(namespace, name) => attr::exists(tx, id, &attr::Attr::key(namespace.flags(), name))?,
        // As Linux has it: an ACL is set and removed whether there is one or not.
        Parsed::Acl(_) => return Ok(()),
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
