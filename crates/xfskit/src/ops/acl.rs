//! POSIX ACLs: stored as XFS does, shown as Linux does, inherited and kept in step with the mode.
//!
//! ```text
//! on disk   count (4, big-endian), entries of 12 bytes: tag 4, id 4, permissions 2, pad 2
//! to users  version 2 (4, little-endian), entries of 8 bytes: tag 2, permissions 2, id 4
//! ```
//! An access ACL that says no more than the mode does is not stored.

use super::Caller;
use crate::attr::{self, update};
use crate::cache::{AttrFork, InodeState, KnownAbsent};
use crate::error::{Error, Result};
use crate::mount::{Mount, reservation_of};
use crate::trans::{InoId, InodeFields, Reservation, Transaction};
use xfskit_ondisk::attr::{MAX_VALUE_BYTES, flags};
use xfskit_ondisk::inode::{MODE_DIR, MODE_SYMLINK, MODE_TYPE};
use xfskit_ondisk::limits::Limits;
use xfskit_ondisk::{Corruption, Geometry, reservation};

/// Which ACL of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AclKind {
    /// Who may use the file.
    Access,
    /// What files in a directory start with.
    Default,
}

impl AclKind {
    /// The attribute's name on disk, in the name space ROOT.
    pub(super) fn disk_name(self) -> &'static [u8] {
        match self {
            Self::Access => b"SGI_ACL_FILE",
            Self::Default => b"SGI_ACL_DEFAULT",
        }
    }

    /// The name that users see.
    pub(super) fn full_name(self) -> &'static [u8] {
        match self {
            Self::Access => b"system.posix_acl_access",
            Self::Default => b"system.posix_acl_default",
        }
    }

    /// The ACL that an attribute on disk is.
    pub(super) fn of(namespace: u8, name: &[u8]) -> Option<Self> {
        [Self::Access, Self::Default]
            .into_iter()
            .find(|kind| namespace & flags::NAMESPACE == flags::ROOT && name == kind.disk_name())
    }

    /// What an inode without it is known to lack.
    pub(super) fn known_absent(self) -> KnownAbsent {
        match self {
            Self::Access => KnownAbsent::ACCESS_ACL,
            Self::Default => KnownAbsent::DEFAULT_ACL,
        }
    }

    fn key(self) -> update::Key<'static> {
        update::Key { namespace: flags::ROOT, name: self.disk_name() }
    }
}

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const NO_ID: u32 = u32::MAX;
const USER_VERSION: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    permissions: u16,
    id: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
struct Acl {
    entries: Vec<Entry>,
}

impl Acl {
    fn decode_disk(bytes: &[u8]) -> Result<Self> {
        let (count, rest) =
            bytes.split_first_chunk::<4>().map_or((0, bytes), |(c, rest)| (u32::from_be_bytes(*c), rest));
        let (entries, tail) = rest.as_chunks::<12>();
        ensure_on_disk!(
            tail.is_empty() && entries.len() == count as usize,
            "ACL",
            "as many entries as it counts",
            "{count} in {} bytes",
            bytes.len()
        );
        let entries = entries
            .iter()
            .map(|e| Entry {
                tag: u32::from_be_bytes([e[0], e[1], e[2], e[3]]) as u16,
                permissions: u16::from_be_bytes([e[8], e[9]]) & 7,
                id: u32::from_be_bytes([e[4], e[5], e[6], e[7]]),
            })
            .map(|e| if matches!(e.tag, USER | GROUP) { e } else { Entry { id: NO_ID, ..e } })
            .collect();
        let acl = Self { entries };
        acl.verify().map_err(|what| Corruption::new("ACL", what))?;
        Ok(acl)
    }

    fn encode_disk(&self) -> Vec<u8> {
        let mut out = (self.entries.len() as u32).to_be_bytes().to_vec();
        for entry in &self.entries {
            out.extend_from_slice(&u32::from(entry.tag).to_be_bytes());
            let id = if matches!(entry.tag, USER | GROUP) { entry.id } else { 0 };
            out.extend_from_slice(&id.to_be_bytes());
            out.extend_from_slice(&entry.permissions.to_be_bytes());
            out.extend_from_slice(&[0, 0]);
        }
        out
    }

    fn decode_user(bytes: &[u8]) -> Result<Self> {
        let Some((version, rest)) = bytes.split_first_chunk::<4>() else {
            return Err(Error::Invalid("an ACL has a header of 4 bytes"));
        };
        if u32::from_le_bytes(*version) != USER_VERSION {
            return Err(Error::NotSupported("ACLs of another version than 2"));
        }
        let (entries, tail) = rest.as_chunks::<8>();
        if !tail.is_empty() {
            return Err(Error::Invalid("an ACL has entries of 8 bytes"));
        }
        let entries = entries
            .iter()
            .map(|e| Entry {
                tag: u16::from_le_bytes([e[0], e[1]]),
                permissions: u16::from_le_bytes([e[2], e[3]]),
                id: u32::from_le_bytes([e[4], e[5], e[6], e[7]]),
            })
            .map(|e| if matches!(e.tag, USER | GROUP) { e } else { Entry { id: NO_ID, ..e } })
            .collect();
        let acl = Self { entries };
        acl.verify().map_err(Error::Invalid)?;
        Ok(acl)
    }

    fn encode_user(&self) -> Vec<u8> {
        let mut out = USER_VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            out.extend_from_slice(&entry.tag.to_le_bytes());
            out.extend_from_slice(&entry.permissions.to_le_bytes());
            out.extend_from_slice(&entry.id.to_le_bytes());
        }
        out
    }

    /// Entries in the order of their tags, one each of owner, group and others, a mask where somebody is named.
    fn verify(&self) -> std::result::Result<(), &'static str> {
        let count = |tag| self.entries.iter().filter(|entry| entry.tag == tag).count();
        let named = count(USER) + count(GROUP) > 0;
        if !self.entries.windows(2).all(|pair| pair[0].tag <= pair[1].tag) {
            return Err("ACL entries stand in the order of their tags");
        }
        if self
            .entries
            .iter()
            .any(|e| e.permissions > 7 || !matches!(e.tag, USER_OBJ | USER | GROUP_OBJ | GROUP | MASK | OTHER))
        {
            return Err("ACL entries have known tags and permissions");
        }
        if count(USER_OBJ) != 1
            || count(GROUP_OBJ) != 1
            || count(OTHER) != 1
            || count(MASK) > 1
            || named && count(MASK) == 0
        {
            return Err("an ACL has one entry each for owner, group and others, and a mask where it names somebody");
        }
        Ok(())
    }

    fn permissions(&self, tag: u16) -> Option<u16> {
        self.entries.iter().find(|entry| entry.tag == tag).map(|entry| entry.permissions)
    }

    fn set(&mut self, tag: u16, permissions: u16) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.tag == tag) {
            entry.permissions = permissions;
        }
    }

    /// The entry that the mode's group bits stand for.
    fn group_class(&self) -> u16 {
        if self.permissions(MASK).is_some() { MASK } else { GROUP_OBJ }
    }

    /// The permission bits that the ACL amounts to, and whether it says no more than they do.
    fn mode(&self) -> (u16, bool) {
        let of = |tag| self.permissions(tag).unwrap_or(0);
        (of(USER_OBJ) << 6 | of(self.group_class()) << 3 | of(OTHER), self.entries.len() == 3)
    }

    /// Makes the ACL agree with the mode.
    fn follow(&mut self, mode: u16) {
        self.set(USER_OBJ, mode >> 6 & 7);
        let class = self.group_class();
        self.set(class, mode >> 3 & 7);
        self.set(OTHER, mode & 7);
    }

    /// A new file's ACL from a default ACL: never more than `mode` allows. Returns the mode that it amounts to.
    fn restrict(&mut self, mode: u16) -> u16 {
        let class = self.group_class();
        for (tag, shift) in [(USER_OBJ, 6), (class, 3), (OTHER, 0)] {
            let allowed = self.permissions(tag).unwrap_or(0) & (mode >> shift & 7);
            self.set(tag, allowed);
        }
        self.mode().0
    }
}

/// Decodes an ACL on disk into the form for users.
pub(super) fn to_user(bytes: &[u8]) -> Result<Vec<u8>> {
    Ok(Acl::decode_disk(bytes)?.encode_user())
}

/// An attribute that a new inode starts with.
#[derive(Debug)]
pub(super) struct InheritedAcl {
    kind: AclKind,
    acl: Acl,
}

/// What a new inode gets from the default ACL of its directory.
#[derive(Debug)]
pub(super) struct Inherited {
    /// Its mode.
    pub mode: u16,
    /// Its ACLs.
    pub attributes: Vec<InheritedAcl>,
}

impl InheritedAcl {
    /// Stores the ACL on the new inode.
    pub(super) fn set_on_new(&self, tx: &mut Transaction, ino: InoId) -> Result<()> {
        update::set(tx, ino, self.kind.key(), &self.acl.encode_disk(), update::Logging::Logged)
    }
}

/// Blocks that inherited ACLs may need.
pub(super) fn blocks_to_inherit(_: &Geometry, limits: &Limits) -> u64 {
    2 * u64::from(reservation::attribute_space(limits))
}

/// Works out what an inode of `mode` made in `dir` inherits; without a default ACL, `umask` is taken from the mode.
pub(super) fn inherited(tx: &mut Transaction, dir: InoId, mode: u16, umask: u16) -> Result<Inherited> {
    if mode & MODE_TYPE == MODE_SYMLINK {
        return Ok(Inherited { mode, attributes: Vec::new() });
    }
    let Some(default) = read(tx, dir, AclKind::Default)? else {
        return Ok(Inherited { mode: mode & !(umask & 0o777), attributes: Vec::new() });
    };
    let mut access = default.clone();
    let permissions = access.restrict(mode);
    let mut attributes = Vec::new();
    if !access.mode().1 {
        attributes.push(InheritedAcl { kind: AclKind::Access, acl: access });
    }
    if mode & MODE_TYPE == MODE_DIR {
        attributes.push(InheritedAcl { kind: AclKind::Default, acl: default });
    }
    Ok(Inherited { mode: mode & !0o777 | permissions, attributes })
}

/// Reads an ACL, unless the inode is known to have none; remembers when there is none.
fn read(tx: &mut Transaction, ino: InoId, kind: AclKind) -> Result<Option<Acl>> {
    let known = tx.mount().options.known_absent;
    if known && tx.inode(ino).known_absent.contains(kind.known_absent()) {
        tx.mount().counters.attr_searches_skipped.increment();
        return Ok(None);
    }
    tx.mount().counters.attr_searches.increment();
    let number = tx.inode(ino).core.inode;
    match attr::get(tx, ino, &attr::Attr::key(flags::ROOT, kind.disk_name()))? {
        Some(bytes) => Acl::decode_disk(&bytes).map(Some).map_err(|error| match error {
            Error::Corrupt(corruption) => corruption.of(number.0).into(),
            other => other,
        }),
        None => {
            if tx.is_writable() {
                tx.inode_memory_mut(ino).known_absent.insert(kind.known_absent());
            }
            Ok(None)
        }
    }
}

/// Checks an ACL given in the form for users before anything is changed.
pub(super) fn check(kind: AclKind, value: &[u8], mode: u16) -> Result<()> {
    let some = value.len() > 4;
    if some {
        Acl::decode_user(value)?;
    }
    if bytes_on_disk(value.len()) > MAX_VALUE_BYTES {
        return Err(Error::Invalid("an ACL has no more entries than a value on disk has room for"));
    }
    if some && kind == AclKind::Default && mode & MODE_TYPE != MODE_DIR { Err(Error::AccessDenied) } else { Ok(()) }
}

/// Length on disk of an ACL that has so many bytes in the form for users.
pub(super) fn bytes_on_disk(user_bytes: usize) -> usize {
    4 + user_bytes.saturating_sub(4) / 8 * 12
}

/// Stores or removes an ACL given in the form for users, and brings the mode into step with an access ACL.
pub(super) fn set(
    tx: &mut Transaction,
    ino: InoId,
    kind: AclKind,
    value: Option<&[u8]>,
    caller: &Caller,
) -> Result<()> {
    let mode = tx.inode(ino).core.mode;
    let acl = match value {
        Some(value) if value.len() > 4 => Some(Acl::decode_user(value)?),
        _ => None,
    };
    if kind == AclKind::Default && mode & MODE_TYPE != MODE_DIR {
        return if acl.is_some() { Err(Error::AccessDenied) } else { Ok(()) };
    }
    let mut acl = acl;
    let mut new_mode = mode;
    if let (AclKind::Access, Some(access)) = (kind, &acl) {
        let (permissions, minimal) = access.mode();
        new_mode = mode & !0o777 | permissions;
        if caller.uid != 0 && !caller.in_group(tx.inode(ino).core.gid) {
            new_mode &= !0o2000;
        }
        if minimal {
            acl = None;
        }
    }
    // The attribute first: it may be refused, the mode may not.
    match acl {
        Some(acl) => update::put(tx, ino, kind.key(), &acl.encode_disk(), update::Logging::Logged)?,
        None if attr::exists(tx, ino, flags::ROOT, kind.disk_name())? => {
            update::remove(tx, ino, kind.key(), update::Logging::Logged)?;
        }
        None => {}
    }
    if new_mode != mode {
        tx.inode_mut(ino, InodeFields::CORE).core.mode = new_mode;
    }
    Ok(())
}

/// Where the attributes are that a change of mode may have to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attributes {
    InInode,
    InBlocks,
}

impl Attributes {
    /// Where an inode's are at the moment.
    pub(super) fn of(state: &InodeState) -> Self {
        if matches!(state.attr, None | Some(AttrFork::Local(_))) { Self::InInode } else { Self::InBlocks }
    }
}

/// What a change of mode reserves: the access ACL may have to follow.
pub(super) fn chmod_reservation(mount: &Mount, attributes: Attributes) -> Reservation {
    let change = reservation_of(mount.reservations.ichange);
    let attr = update::reservation(mount, if attributes == Attributes::InInode { 1024 } else { MAX_VALUE_BYTES });
    Reservation { log_bytes: change.log_bytes + attr.log_bytes, log_count: 1, ..attr }
}

/// Checks that the access ACL, if there is one, can be read.
pub(super) fn verify_access(tx: &mut Transaction, ino: InoId) -> Result<()> {
    read(tx, ino, AclKind::Access).map(drop)
}

/// The inode is about to get a mode: the access ACL is brought into step. Before anything else is changed, for the ACL may be
/// damaged or not be possible any more.
pub(super) fn follow_mode(tx: &mut Transaction, ino: InoId, mode: u16) -> Result<()> {
    let Some(mut acl) = read(tx, ino, AclKind::Access)? else { return Ok(()) };
    acl.follow(mode);
    update::put(tx, ino, AclKind::Access.key(), &acl.encode_disk(), update::Logging::Logged)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Acl {
        let entry = |tag, permissions, id| Entry { tag, permissions, id };
        Acl {
            entries: vec![
                entry(USER_OBJ, 7, NO_ID),
                entry(USER, 6, 1000),
                entry(GROUP_OBJ, 5, NO_ID),
                entry(MASK, 7, NO_ID),
                entry(OTHER, 4, NO_ID),
            ],
        }
    }

    #[test]
    fn both_forms_hold_the_same_acl() {
        let acl = sample();
        assert_eq!(Acl::decode_disk(&acl.encode_disk()).unwrap(), acl);
        assert_eq!(Acl::decode_user(&acl.encode_user()).unwrap(), acl);
        assert_eq!(acl.encode_disk().len(), 4 + 5 * 12);
    }

    #[test]
    fn the_mask_stands_for_the_group_bits() {
        let mut acl = sample();
        assert_eq!(acl.mode(), (0o774, false));
        acl.follow(0o640);
        assert_eq!(acl.permissions(MASK), Some(4));
        assert_eq!(acl.permissions(GROUP_OBJ), Some(5));
        assert_eq!(sample().restrict(0o640), 0o640);
    }

    #[test]
    fn a_named_user_without_a_mask_is_refused() {
        let mut acl = sample();
        acl.entries.retain(|entry| entry.tag != MASK);
        assert!(Acl::decode_user(&acl.encode_user()).is_err());
    }
}
