//! POSIX ACLs as values of the attributes `SGI_ACL_FILE` and `SGI_ACL_DEFAULT` in the name space ROOT.
//!
//! ```text
//! count (4)   entries of 12 bytes: tag 4, id 4, permissions 2, pad 2      all big-endian
//! ```
//! The id of an entry that names no user and no group is all ones, and is not looked at.
//!
//! Facts: the kernel's `struct xfs_acl_entry`; POSIX 1003.1e draft 17 for what an ACL must have.

use crate::{Corruption, Verdict, ensure};

/// The attribute with a file's access ACL.
pub const ACCESS_NAME: &[u8] = b"SGI_ACL_FILE";
/// The attribute with a directory's default ACL, from which new files in it get theirs.
pub const DEFAULT_NAME: &[u8] = b"SGI_ACL_DEFAULT";

/// Tag of the owner's entry.
pub const USER_OBJ: u16 = 0x01;
/// Tag of an entry for a user.
pub const USER: u16 = 0x02;
/// Tag of the owning group's entry.
pub const GROUP_OBJ: u16 = 0x04;
/// Tag of an entry for a group.
pub const GROUP: u16 = 0x08;
/// Tag of the entry that bounds users, groups and the owning group.
pub const MASK: u16 = 0x10;
/// Tag of the entry for all others.
pub const OTHER: u16 = 0x20;
/// The id of an entry whose tag names no user and no group.
pub const NO_ID: u32 = u32::MAX;

const NAME: &str = "ACL";

/// An entry of an ACL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclEntry {
    /// Which users it is for: one of the tags above.
    pub tag: u16,
    /// Read 4, write 2, execute 1.
    pub permissions: u16,
    /// The user or group; [`NO_ID`] for other tags.
    pub id: u32,
}

impl AclEntry {
    /// An entry. `id` is used with the tags [`USER`] and [`GROUP`] only.
    pub fn new(tag: u16, permissions: u16, id: u32) -> Self {
        Self { tag, permissions, id: if matches!(tag, USER | GROUP) { id } else { NO_ID } }
    }
}

/// An ACL.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Acl {
    /// Its entries.
    pub entries: Vec<AclEntry>,
}

impl Acl {
    /// Decodes and verifies the attribute's value.
    ///
    /// # Errors
    /// A corruption of the "ACL".
    pub fn decode(bytes: &[u8]) -> Verdict<Self> {
        let (count, rest) =
            bytes.split_first_chunk::<4>().map_or((0, bytes), |(c, rest)| (u32::from_be_bytes(*c), rest));
        let (entries, tail) = rest.as_chunks::<12>();
        ensure!(
            tail.is_empty() && entries.len() == count as usize,
            NAME,
            "as many entries as it counts",
            "{count} in {} bytes",
            bytes.len()
        );
        let entries = entries
            .iter()
            .map(|e| {
                let tag = u32::from_be_bytes([e[0], e[1], e[2], e[3]]) as u16;
                let id = u32::from_be_bytes([e[4], e[5], e[6], e[7]]);
                AclEntry::new(tag, u16::from_be_bytes([e[8], e[9]]) & 7, id)
            })
            .collect();
        let acl = Self { entries };
        acl.verify().map_err(|what| Corruption::new(NAME, what))?;
        Ok(acl)
    }

    /// The attribute's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = (self.entries.len() as u32).to_be_bytes().to_vec();
        for entry in &self.entries {
            out.extend_from_slice(&u32::from(entry.tag).to_be_bytes());
            let id = if matches!(entry.tag, USER | GROUP) { entry.id } else { NO_ID };
            out.extend_from_slice(&id.to_be_bytes());
            out.extend_from_slice(&entry.permissions.to_be_bytes());
            out.extend_from_slice(&[0, 0]);
        }
        out
    }

    /// Verifies that entries stand in the order of their tags, that there is one each for owner, group and others, and
    /// a mask where a user or a group is named.
    ///
    /// # Errors
    /// What is wrong.
    pub fn verify(&self) -> Result<(), &'static str> {
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
            return Err(
                "an ACL has one entry each for owner, group and others, and a mask where it names a user or a group",
            );
        }
        Ok(())
    }

    /// The permissions of the first entry with a tag.
    pub fn permissions(&self, tag: u16) -> Option<u16> {
        self.entries.iter().find(|entry| entry.tag == tag).map(|entry| entry.permissions)
    }

    fn set(&mut self, tag: u16, permissions: u16) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.tag == tag) {
            entry.permissions = permissions;
        }
    }

    /// The tag of the entry that the mode's group bits stand for.
    pub fn group_class(&self) -> u16 {
        if self.permissions(MASK).is_some() { MASK } else { GROUP_OBJ }
    }

    /// The permission bits of the ACL's mode, and whether they say all that the ACL says.
    pub fn mode(&self) -> (u16, bool) {
        let of = |tag| self.permissions(tag).unwrap_or(0);
        (of(USER_OBJ) << 6 | of(self.group_class()) << 3 | of(OTHER), self.entries.len() == 3)
    }

    /// Makes the ACL agree with the mode.
    pub fn follow(&mut self, mode: u16) {
        self.set(USER_OBJ, mode >> 6 & 7);
        let class = self.group_class();
        self.set(class, mode >> 3 & 7);
        self.set(OTHER, mode & 7);
    }

    /// Reduces a default ACL to what `mode` allows, which makes it a new file's ACL. Returns the permission bits that
    /// result.
    pub fn restrict(&mut self, mode: u16) -> u16 {
        let class = self.group_class();
        for (tag, shift) in [(USER_OBJ, 6), (class, 3), (OTHER, 0)] {
            let allowed = self.permissions(tag).unwrap_or(0) & (mode >> shift & 7);
            self.set(tag, allowed);
        }
        self.mode().0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Acl {
        let entries = [(USER_OBJ, 7), (USER, 6), (GROUP_OBJ, 5), (MASK, 7), (OTHER, 4)];
        Acl { entries: entries.map(|(tag, permissions)| AclEntry::new(tag, permissions, 1000)).into() }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let acl = sample();
        assert_eq!(Acl::decode(&acl.encode()).unwrap(), acl);
        assert_eq!(acl.encode().len(), 4 + 5 * 12);
        assert_eq!(acl.entries[0].id, NO_ID);
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
        assert!(Acl::decode(&acl.encode()).is_err());
    }
}
