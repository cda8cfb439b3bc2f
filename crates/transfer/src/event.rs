//! What a tree is made of while it is on its way.
//!
//! A source sends its files in an order in which a directory comes before what is in it, and the first name of a file
//! before further ones. Contents that are small come with the file; others follow it, part by part, up to
//! [`Event::End`].

use crate::error::TransferError;
use xfskit::ondisk::Timestamp;

/// Contents up to this size come with their file, if they have no holes.
pub const MAX_INLINE_BYTES: u64 = 64 * 1024;
/// Larger ones follow in pieces of at most this size.
pub const PIECE_BYTES: usize = 1 << 20;

/// A step of a tree's way.
#[derive(Debug)]
pub enum Event {
    /// The next file, of whatever kind.
    Node(Node),
    /// Contents of the file that came last.
    Data {
        /// Where they belong.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The file that came last is complete, and did not change meanwhile.
    End,
    /// What is left of the file that came last cannot be read, for this reason.
    Broken(TransferError),
    /// Something else that cannot be read, for this reason: what comes goes on without it.
    Unreadable(TransferError),
}

/// A file, of whatever kind.
#[derive(Clone, Debug)]
pub struct Node {
    /// Path below the root of the tree, without a slash at either end; empty for the root itself.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Its attributes.
    pub meta: Meta,
}

/// What a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File {
        /// Its size in bytes.
        size: u64,
        /// Its contents.
        contents: Contents,
    },
    /// A symbolic link and its target.
    Symlink(Vec<u8>),
    /// A character device, its number in Linux's encoding.
    Char(u32),
    /// A block device.
    Block(u32),
    /// A pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A further name of a file that came before, under this path.
    Link(Vec<u8>),
}

/// The contents of a regular file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// All of them.
    Whole(Vec<u8>),
    /// They follow: the parts that hold data, in order, each with its offset and length. Between them are holes.
    Parts(Vec<(u64, u64)>),
}

/// The attributes of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Permissions, without the type.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Extended attributes by their full names, ACLs included, sorted.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Whether an attribute is one that every side knows. XFS shows its ACLs once more under names of its own, which are
/// left out.
pub(crate) fn is_portable(name: &[u8]) -> bool {
    match name {
        b"system.posix_acl_access" | b"system.posix_acl_default" => true,
        _ => [&b"user."[..], b"trusted.", b"security."].iter().any(|prefix| name.starts_with(prefix)),
    }
}

/// Whether an attribute is the second face of another one, or says something of its filesystem, not of its file.
pub(crate) fn is_not_the_files(name: &[u8]) -> bool {
    matches!(name, b"trusted.SGI_ACL_FILE" | b"trusted.SGI_ACL_DEFAULT") || name.starts_with(b"trusted.xfs:")
}

/// A path below a prefix, either of which may be empty.
pub(crate) fn join(prefix: &[u8], name: &[u8]) -> Vec<u8> {
    match (prefix, name) {
        (b"", name) => name.to_vec(),
        (prefix, b"") => prefix.to_vec(),
        (prefix, name) => [prefix, b"/", name].concat(),
    }
}

/// A path's folder and its last name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

impl Node {
    /// Bytes of its name and attributes.
    pub(crate) fn meta_bytes(&self) -> usize {
        self.path.len() + self.meta.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
    }

    /// Bytes of contents that come with the file.
    pub(crate) fn inline_bytes(&self) -> usize {
        match &self.kind {
            Kind::File { contents: Contents::Whole(bytes), .. } => bytes.len(),
            _ => 0,
        }
    }
}
