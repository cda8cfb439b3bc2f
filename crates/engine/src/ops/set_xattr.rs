//! Changing extended attributes.
//!
//! ```text
//! one change, shortform       change_in_inode    reserves for the inode alone
//! one change, any form        change             reserves for the forms; a long value may take several transactions
//! a batch                     change             first the blocks of all long values, then all changes at once
//! ```
//! A crash leaves all changes of a call or none of them.

use super::protected::check_unprotected;
use super::xattr::{Namespace, Parsed, parse};
use super::{Caller, SetMode, Volume, XattrChange, acl};
use crate::attr;
use crate::attr::update::{self, Logging, Required};
use crate::error::{Error, Result};
use crate::mount::{AttrLogging, AttrPath, BlockPool};
use crate::trans::reservation_of;
use crate::trans::{InoId, Reservation, Transaction};
use std::collections::HashMap;
use xfskit_ondisk::InodeNumber;
use xfskit_ondisk::attr::MAX_VALUE_BYTES;
use xfskit_ondisk::attr::shortform::SHORTFORM_LENGTH_LIMIT;
use xfskit_ondisk::inode::{MODE_DIR, MODE_REGULAR, MODE_TYPE};

/// The same for the layer below.
fn required(mode: SetMode) -> Required {
    match mode {
        SetMode::Any => Required::Nothing,
        SetMode::Create => Required::Absent,
        SetMode::Replace => Required::Present,
    }
}

/// How attributes are changed. A [`SetMode`] or an [`AttrLogging`] alone can stand for it.
///
/// ```
/// use xfskit_engine::{AttrLogging, SetMode, XattrOptions};
///
/// let options = XattrOptions::new().mode(SetMode::Create).logging(AttrLogging::Always);
/// assert_eq!(XattrOptions::from(SetMode::Create).logging(AttrLogging::Always), options);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct XattrOptions {
    /// What each change may find.
    pub mode: SetMode,
    /// Whether a change that takes several transactions is logged by intents. `None`: as [`Volume::attr_logging`] says.
    pub logging: Option<AttrLogging>,
}

impl XattrOptions {
    /// Every change is made, whatever it finds, and logged as the volume has it.
    pub const fn new() -> Self {
        Self { mode: SetMode::Any, logging: None }
    }

    /// Says what each change may find.
    #[must_use]
    pub const fn mode(self, mode: SetMode) -> Self {
        Self { mode, ..self }
    }

    /// Says whether a change that takes several transactions is logged by intents.
    #[must_use]
    pub const fn logging(self, logging: AttrLogging) -> Self {
        Self { logging: Some(logging), ..self }
    }
}

impl From<SetMode> for XattrOptions {
    fn from(mode: SetMode) -> Self {
        Self::new().mode(mode)
    }
}

impl From<AttrLogging> for XattrOptions {
    fn from(logging: AttrLogging) -> Self {
        Self::new().logging(logging)
    }
}

impl Volume {
    /// Whether updates of attributes that take several transactions are logged by intents, where their callers do not
    /// say.
    pub fn attr_logging(&self) -> AttrLogging {
        self.mount.attr_logging()
    }

    /// Decides that for updates that begin from now on.
    pub fn set_attr_logging(&self, logging: AttrLogging) {
        self.mount.set_attr_logging(logging);
    }

    /// Makes or replaces an attribute; `how` is a [`SetMode`] or [`XattrOptions`]. For an ACL, as for Linux, an empty
    /// value and a header without entries remove it, and the mode does not count.
    ///
    /// # Errors
    /// `Exists`, `NoAttribute` as the mode demands, `AttributeNameTooLong`, `ValueTooLong`, `NoSpace`, `NotSupported`
    /// for an unknown prefix, `NotPermitted` for an attribute of users on what is neither a file nor a directory, and
    /// on what is immutable or append-only; `Invalid` for a value that is no ACL under a name of one, `NotSupported`
    /// for an ACL of another version than 2, `AccessDenied` for a default ACL of what is no directory.
    pub fn set_xattr(
        &self,
        inode: InodeNumber,
        name: &[u8],
        value: &[u8],
        how: impl Into<XattrOptions>,
        caller: &Caller,
    ) -> Result<()> {
        self.change(inode, &[(name, Some(value))], how.into(), caller)
    }

    /// Removes an attribute, which must be there, whatever the mode in `how` says.
    ///
    /// # Errors
    /// `NoAttribute`, `NotSupported` for an unknown prefix, `NotPermitted` on what is immutable or append-only.
    pub fn remove_xattr(
        &self,
        inode: InodeNumber,
        name: &[u8],
        how: impl Into<XattrOptions>,
        caller: &Caller,
    ) -> Result<()> {
        self.change(inode, &[(name, None)], how.into(), caller)
    }

    /// Makes many changes to the attributes of one inode, in their order: all of them or none, after an error and after
    /// a crash. The mode in `how` is that of each value that is set.
    ///
    /// # Errors
    /// As [`Self::set_xattr`] and [`Self::remove_xattr`], before anything was changed; `Invalid` for more changes than
    /// the log can hold in one piece: some hundreds in an image with the smallest log, some thousands usually. Split
    /// them then.
    pub fn change_xattrs(
        &self,
        inode: InodeNumber,
        changes: &[XattrChange],
        how: impl Into<XattrOptions>,
        caller: &Caller,
    ) -> Result<()> {
        let changes: Vec<_> = changes.iter().map(|c| (c.name.as_slice(), c.value.as_deref())).collect();
        self.change(inode, &changes, how.into(), caller)
    }

    /// Makes one change that is a matter of the inode alone, and reserves no more than that takes. `false`: it is not,
    /// and nothing was changed.
    fn change_in_inode(&self, number: InodeNumber, name: &[u8], value: Option<&[u8]>, mode: SetMode) -> Result<bool> {
        let is_fast = self.mount.options.attr_path == AttrPath::Fast;
        if !is_fast || value.is_some_and(|value| value.len() >= SHORTFORM_LENGTH_LIMIT) {
            return Ok(false);
        }
        let Parsed::Plain(namespace, name) = parse(name)? else { return Ok(false) };
        if let Some(value) = value {
            acl::check_stored(namespace.flags(), name, value)?;
        }
        let inode = self.mount.inode(number)?;
        let mut tx = self.begin(reservation_of(self.mount.reservations.ichange))?;
        let id = self.join(&mut tx, &inode)?;
        let attr = attr::Attr::new(namespace.flags(), name, value.unwrap_or_default());
        let result = check_allowed(&tx, id, &[(Parsed::Plain(namespace, name), value)]).and_then(|()| match value {
            Some(_) => update::put_in_inode(&mut tx, id, &attr, required(mode)),
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
        how: XattrOptions,
        caller: &Caller,
    ) -> Result<()> {
        if let [(name, value)] = changes
            && self.change_in_inode(inode, name, *value, how.mode)?
        {
            return Ok(());
        }
        let mut parsed = Vec::with_capacity(changes.len());
        for (name, value) in changes {
            let name = parse(name)?;
            if value.is_some_and(|value| value.len() > MAX_VALUE_BYTES) {
                return Err(Error::ValueTooLong);
            }
            match (name, value) {
                (Parsed::Acl(kind), Some(value)) => acl::check(kind, value, self.stat(inode)?.mode())?,
                (Parsed::Plain(namespace, name), Some(value)) => acl::check_stored(namespace.flags(), name, value)?,
                _ => {}
            }
            parsed.push((name, *value));
        }
        let inode = self.mount.inode(inode)?;
        let logging = self.prepare_logging(&parsed, how)?;
        let mut reservation = self.xattr_reservation(&parsed, logging)?;
        // As by the kernel: an ACL that takes rights away is set on a full image, too.
        if reservation.pool == BlockPool::Ordinary && parsed.iter().all(|(name, _)| matches!(name, Parsed::Acl(_))) {
            reservation = reservation.with_pool(BlockPool::Reserve);
        }
        let mut tx = self.begin(reservation)?;
        let result = (|| {
            let id = self.join(&mut tx, &inode)?;
            check_allowed(&tx, id, &parsed)?;
            // What each change will find, those before it done.
            let mut there: HashMap<Parsed<'_>, bool> = HashMap::new();
            for (name, value) in &parsed {
                check_mode(&mut tx, id, (name, *value), how.mode, there.get(name).copied())?;
                there.insert(*name, value.is_some());
            }
            let changes = last_of_each(&parsed);
            attr::expect_room(&mut tx, id, changes.iter().filter_map(|change| bytes_on_disk(change)))?;
            self.change_all(&mut tx, id, &changes, logging, caller)?;
            super::create::touch(&mut tx, id);
            Ok(())
        })();
        self.located(inode.number, tx.finish(result))
    }

    /// Makes all changes, so that a crash leaves all of them or none. Only a value outside of the leaf may take several
    /// transactions, to map its blocks, which no reader sees; so the blocks of all such values are mapped first, and
    /// the rest is one transaction. With `AttrPath::Intents`, if they are logged, that transaction has an intent for
    /// each change, and the changes follow it.
    fn change_all(
        &self,
        tx: &mut Transaction,
        id: InoId,
        changes: &[(Parsed<'_>, Option<&[u8]>)],
        logging: Logging,
        caller: &Caller,
    ) -> Result<()> {
        let is_queued = self.mount.options.attr_path == AttrPath::Intents && logging == Logging::Logged;
        let mut mappings = vec![None; changes.len()];
        if is_queued || changes.len() > 1 {
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
        for ((name, value), mapping) in changes.iter().zip(mappings) {
            apply(tx, id, (name, *value), mapping, logging, caller)?;
        }
        Ok(())
    }

    /// Whether the changes are to be logged by intents. Where they may be, the superblock announces it from here on.
    fn prepare_logging(&self, changes: &[(Parsed<'_>, Option<&[u8]>)], how: XattrOptions) -> Result<Logging> {
        if how.logging.unwrap_or_else(|| self.mount.attr_logging()) == AttrLogging::Never {
            return Ok(Logging::NotLogged);
        }
        let may_take_links =
            |(name, _): &(Parsed<'_>, _), bytes| attr::is_remote(&self.mount.geometry, name.disk_name().len(), bytes);
        let is_long = |change: &_| bytes_on_disk(change).is_some_and(|bytes| may_take_links(change, bytes));
        if self.mount.options.attr_path == AttrPath::Intents || changes.iter().any(is_long) {
            self.mount.announce_attr_intents()?;
        }
        Ok(Logging::Logged)
    }

    /// Log space and blocks for the changes.
    ///
    /// # Errors
    /// `Invalid` for a batch that is too large for one transaction in this log.
    fn xattr_reservation(&self, changes: &[(Parsed<'_>, Option<&[u8]>)], logging: Logging) -> Result<Reservation> {
        let mount = &self.mount;
        let block_bytes = mount.geometry.block_bytes();
        let mut further_bytes = 0;
        let removes = changes.iter().all(|(_, value)| value.is_none());
        let pool = if removes { BlockPool::Removal } else { BlockPool::Ordinary };
        let mut total = Reservation { log_count: 1, pool, ..Reservation::default() };
        for change in changes {
            let value_bytes = bytes_on_disk(change).unwrap_or_default();
            let one = update::reservation(mount, value_bytes, Logging::NotLogged);
            total.blocks += one.blocks;
            total.log_bytes = total.log_bytes.max(one.log_bytes);
            if logging == Logging::Logged || matches!(change.0, Parsed::Acl(_)) {
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
    logging: Logging,
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

/// Attributes of users belong to files and directories only. The kernel does not show them on other types, whose
/// permissions do not say who may read what is stored there.
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
