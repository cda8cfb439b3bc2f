//! The state of an inode of the model, ACLs included.

use crate::stress::DIR;
use std::collections::BTreeMap;
use xfskit_ondisk::{InodeNumber, Timestamp};

pub const TYPE: u16 = 0o170_000;
pub const LINK: u16 = 0o120_000;
pub const CHAR: u16 = 0o020_000;
pub const ACCESS: &[u8] = b"system.posix_acl_access";
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// An inode as it should be.
#[derive(Clone, Debug)]
pub struct Node {
    pub inode: InodeNumber,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub links: u32,
    pub rdev: u32,
    pub target: Vec<u8>,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub children: BTreeMap<Vec<u8>, usize>,
    pub parent: usize,
    pub held: u32,
}

impl Node {
    pub fn is_dir(&self) -> bool {
        self.mode & TYPE == DIR
    }
}

/// An ACL of five entries, and the mode that it makes.
pub fn acl(owner: u16, named: u16, group: u16, mask: u16, other: u16) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in
        [(1u16, owner, u32::MAX), (2, named, 1000), (4, group, u32::MAX), (16, mask, u32::MAX), (32, other, u32::MAX)]
    {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// The permissions at an entry of such an ACL.
pub fn permissions(acl: &[u8], entry: usize) -> u16 {
    u16::from_le_bytes([acl[4 + 8 * entry + 2], acl[4 + 8 * entry + 3]])
}

/// The ACL with its owner, mask and others as the mode has them.
pub fn following(acl: &[u8], mode: u16) -> Vec<u8> {
    let mut acl = acl.to_vec();
    for (entry, shift) in [(0, 6), (3, 3), (4, 0)] {
        acl[4 + 8 * entry + 2] = (mode >> shift & 7) as u8;
    }
    acl
}
