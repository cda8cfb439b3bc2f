//! POSIX ACLs: stored as XFS does, shown as Linux does, inherited and kept in step with the mode.
//!
//! ```text
//! on disk   count (4, big-endian), entries of 12 bytes: tag 4, id 4, permissions 2, pad 2
//! to users  version 2 (4, little-endian), entries of 8 bytes: tag 2, permissions 2, id 4
//! ```
//! An access ACL that says no more than the mode does is not stored.
//!
//! The kernel takes any value under the name that an ACL has on disk (`trusted.SGI_ACL_FILE`), and from then on answers
//! EUCLEAN to every look-up of the file. Here a value that is no ACL is refused there.

use super::Caller;
use crate::attr::absent::{self, remember_no_acl};
use crate::attr::{self, update};
use crate::error::{Error, Result};
use crate::error_tags::REFUSE_ACL;
use crate::incore::{AttrFork, InodeState};
use crate::mount::{BlockPool, Mount};
use crate::trans::reservation_of;
use crate::trans::{InoId, InodeFields, Reservation, Transaction};
use xfskit_ondisk::acl::{ACCESS_NAME, Acl, AclEntry, DEFAULT_NAME};
use xfskit_ondisk::attr::{MAX_VALUE_BYTES, flags};
use xfskit_ondisk::inode::{MODE_DIR, MODE_SYMLINK, MODE_TYPE};
use xfskit_ondisk::{Corruption, reservation};

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
            Self::Access => ACCESS_NAME,
            Self::Default => DEFAULT_NAME,
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

    /// The attribute with this value on disk.
    pub(super) fn attr(self, value: &[u8]) -> attr::Attr<'_> {
        attr::Attr::new(flags::ROOT, self.disk_name(), value)
    }
}

const USER_VERSION: u32 = 2;

/// Decodes the form for users as Linux does: no bytes, and a header without entries, say that there is to be no ACL.
/// Whether the entries make an ACL is for [`Acl::verify`].
///
/// # Errors
/// `Invalid`, `NotSupported`.
fn decode_user(bytes: &[u8]) -> Result<Option<Acl>> {
    if bytes.is_empty() {
        return Ok(None);
    }
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
    if entries.is_empty() {
        return Ok(None);
    }
    let entries = entries
        .iter()
        .map(|e| {
            let (tag, permissions) = (u16::from_le_bytes([e[0], e[1]]), u16::from_le_bytes([e[2], e[3]]));
            AclEntry::new(tag, permissions, u32::from_le_bytes([e[4], e[5], e[6], e[7]]))
        })
        .collect();
    Ok(Some(Acl { entries }))
}

fn encode_user(acl: &Acl) -> Vec<u8> {
    let mut out = USER_VERSION.to_le_bytes().to_vec();
    for entry in &acl.entries {
        out.extend_from_slice(&entry.tag.to_le_bytes());
        out.extend_from_slice(&entry.permissions.to_le_bytes());
        out.extend_from_slice(&entry.id.to_le_bytes());
    }
    out
}

/// Decodes an ACL on disk into the form for users.
pub(super) fn to_user(bytes: &[u8]) -> Result<Vec<u8>> {
    Ok(encode_user(&Acl::decode(bytes)?))
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
        update::set(tx, ino, self.kind.attr(&self.acl.encode()), update::Logging::Logged)
    }
}

impl Inherited {
    /// Where the ACLs may have to be stored.
    pub(super) fn place(&self) -> Attributes {
        let bytes: usize = self.attributes.iter().map(|attribute| attribute.acl.encode().len()).sum();
        if bytes <= MAX_INHERITED_IN_INODE_BYTES { Attributes::InInode } else { Attributes::InBlocks }
    }
}

/// Inherited ACLs of so many bytes, together and without their names, fit any new inode.
const MAX_INHERITED_IN_INODE_BYTES: usize = 160;

/// What a create reserves for the ACLs that it inherits, two at most, besides what it needs itself.
pub(super) fn to_inherit(mount: &Mount, place: Attributes) -> Reservation {
    match place {
        // The inode's fork is logged with the inode, which is new.
        Attributes::InInode => {
            let blocks = 2 * u64::from(reservation::attribute_space(&mount.limits));
            Reservation { log_bytes: 2 * update::intent_bytes(0), blocks, ..Reservation::default() }
        }
        Attributes::InBlocks => {
            let one = update::reservation(mount, MAX_VALUE_BYTES, update::Logging::Logged);
            let log_bytes = one.log_bytes + update::intent_bytes(MAX_VALUE_BYTES);
            Reservation { log_bytes, blocks: 2 * one.blocks, ..Reservation::default() }
        }
    }
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

/// Reads an ACL; remembers when there is none.
fn read(tx: &mut Transaction, ino: InoId, kind: AclKind) -> Result<Option<Acl>> {
    let number = tx.inode(ino).core.inode;
    let key = kind.attr(&[]);
    match attr::get(tx, ino, &key)? {
        Some(_) if tx.mount().error_tags.strikes(REFUSE_ACL) => {
            Err(Corruption::new("ACL", "error tag").of(number.0).into())
        }
        Some(bytes) => Ok(Some(Acl::decode(&bytes).map_err(|corruption| corruption.of(number.0))?)),
        None => {
            if tx.is_writable() {
                remember_no_acl(tx, ino, &key);
            }
            Ok(None)
        }
    }
}

/// Checks an ACL given in the form for users before anything is changed.
pub(super) fn check(kind: AclKind, value: &[u8], mode: u16) -> Result<()> {
    let Some(acl) = decode_user(value)? else { return Ok(()) };
    if kind == AclKind::Default && mode & MODE_TYPE != MODE_DIR {
        return Err(Error::AccessDenied);
    }
    acl.verify().map_err(Error::Invalid)?;
    if bytes_on_disk(value.len()) > MAX_VALUE_BYTES {
        return Err(Error::Invalid("an ACL has no more entries than a value on disk has room for"));
    }
    Ok(())
}

/// Checks a value that is set under the name which an ACL has on disk: nothing could be done with the file otherwise.
pub(super) fn check_stored(namespace: u8, name: &[u8], value: &[u8]) -> Result<()> {
    let is_acl = AclKind::of(namespace, name).is_some();
    let is_wrong = is_acl && Acl::decode(value).is_err();
    if is_wrong { Err(Error::Invalid("the value is no ACL as XFS stores it")) } else { Ok(()) }
}

/// Length on disk of an ACL that has so many bytes in the form for users.
pub(super) fn bytes_on_disk(user_bytes: usize) -> usize {
    4 + user_bytes.saturating_sub(4) / 8 * 12
}

/// Stores or removes an ACL given in the form for users, which [`check`] has passed, and sets the mode to what an
/// access ACL says.
pub(super) fn set(
    tx: &mut Transaction,
    ino: InoId,
    kind: AclKind,
    value: Option<&[u8]>,
    caller: &Caller,
) -> Result<()> {
    let mode = tx.inode(ino).core.mode;
    let acl = value.map_or(Ok(None), decode_user)?;
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
        Some(acl) => update::put(tx, ino, kind.attr(&acl.encode()), update::Logging::Logged)?,
        // An update that is queued may add it, so only the removal itself can tell whether it is there.
        None => match update::remove(tx, ino, kind.attr(&[]), update::Logging::Logged) {
            Err(Error::NoAttribute) => {}
            other => other?,
        },
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

/// Where the access ACL may be at the moment that has to follow a change of mode; `None` if there is none.
///
/// # Errors
/// `Corrupt`.
pub(super) fn access_of(mount: &Mount, state: &InodeState) -> Result<Option<Attributes>> {
    let key = AclKind::Access.attr(&[]);
    let is_absent = match &state.attr {
        None => true,
        Some(AttrFork::Local(_)) => attr::shortform::find_in(state, &key)?.is_none(),
        Some(AttrFork::Mapped(_)) => absent::is_known(mount, state, &key),
    };
    Ok((!is_absent).then(|| Attributes::of(state)))
}

/// What a change of mode reserves: the access ACL may have to follow. As by the kernel, attributes that are not a
/// user's may take reserved blocks, so that rights can be taken away on a full image.
pub(super) fn chmod_reservation(mount: &Mount, acl: Option<Attributes>) -> Reservation {
    let change = reservation_of(mount.reservations.ichange);
    let value_bytes = match acl {
        None => return Reservation { log_count: 1, ..change },
        Some(Attributes::InInode) => 1024,
        Some(Attributes::InBlocks) => MAX_VALUE_BYTES,
    };
    let attr = update::reservation(mount, value_bytes, update::Logging::Logged).with_pool(BlockPool::Reserve);
    Reservation { log_bytes: change.log_bytes + attr.log_bytes, log_count: 1, ..attr }
}

/// Checks that the access ACL, if there is one, can be read.
pub(super) fn verify_access(tx: &mut Transaction, ino: InoId) -> Result<()> {
    read(tx, ino, AclKind::Access).map(drop)
}

/// The inode is about to get a mode: the access ACL is brought into step. Before anything else is changed, for the ACL
/// may be damaged or not be possible any more.
pub(super) fn follow_mode(tx: &mut Transaction, ino: InoId, mode: u16) -> Result<()> {
    let Some(mut acl) = read(tx, ino, AclKind::Access)? else { return Ok(()) };
    acl.follow(mode);
    update::put(tx, ino, AclKind::Access.attr(&acl.encode()), update::Logging::Logged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use xfskit_ondisk::acl::{GROUP_OBJ, MASK, OTHER, USER, USER_OBJ};

    #[test]
    fn both_forms_hold_the_same_acl() {
        let entries = [(USER_OBJ, 7), (USER, 6), (GROUP_OBJ, 5), (MASK, 7), (OTHER, 4)];
        let mut acl = Acl { entries: entries.map(|(tag, permissions)| AclEntry::new(tag, permissions, 1000)).into() };
        let user = encode_user(&acl);
        assert_eq!(decode_user(&user).unwrap().as_ref(), Some(&acl));
        check(AclKind::Access, &user, 0).unwrap();
        acl.entries.retain(|entry| entry.tag != MASK);
        assert!(check(AclKind::Access, &encode_user(&acl), 0).is_err());
    }
}
