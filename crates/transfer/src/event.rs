//! The events that make up a tree while it is copied.
//!
//! A source sends a directory before what is in it, and the first name of a file before its further names. Small
//! contents are part of the file's event; others follow it, part by part, up to [`Event::End`].

use crate::error::TransferError;
use std::fmt;
use xfskit_vfs::Timestamp;

/// Contents up to this size are part of their file's event, if they have no holes.
pub const MAX_INLINE_BYTES: u64 = 64 * 1024;
/// Larger contents follow in pieces of at most this size.
pub const PIECE_BYTES: usize = 1 << 20;

/// Longest path of an archive. Linux takes 4,096 bytes at once; an image may have longer ones, and `export` writes
/// them.
/// Beyond this length a path is refused: each of its names makes a directory.
pub(crate) const MAX_PATH_BYTES: usize = 16 * 1024;
/// Longest path of a text that describes files (`PATH_MAX` of Linux).
pub(crate) const MAX_TEXT_PATH_BYTES: usize = 4096;

/// An element of a tree.
#[derive(Debug)]
pub enum Event {
    /// The next file of any kind.
    Node(Node),
    /// Contents of the last file.
    Data {
        /// Offset in the file in bytes.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The last file is complete, and did not change while it was read.
    End,
    /// A layer begins: what follows lies over what came before.
    Layer(OverLinks),
    /// Something that lower layers have is not in the tree.
    Hide(Hidden),
    /// The rest of the last file cannot be read, for this reason.
    Broken(TransferError),
    /// Something else cannot be read, for this reason; the events that follow leave it out.
    Unreadable(TransferError),
}

/// What an entry for a directory means where a lower layer has a symbolic link to a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverLinks {
    /// The directory replaces the link, as when a layer of a container image or an archive is unpacked.
    #[default]
    Replaces,
    /// It is the directory to which the link leads. Folders of the host have an entry for every directory in which
    /// something lies.
    LiesInThem,
}

/// What a layer removes from those below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hidden {
    /// A file, or a directory with everything in it.
    Path(Vec<u8>),
    /// What is in a directory.
    Contents(Vec<u8>),
}

/// A file of any kind.
#[derive(Clone, Debug)]
pub struct Node {
    /// Path below the root of the tree, without a slash at either end; empty for the root itself.
    pub path: Vec<u8>,
    /// Its type.
    pub kind: Kind,
    /// Its attributes.
    pub meta: Meta,
}

/// The type of a file.
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
    /// A character device and its number in Linux's encoding.
    Char(u32),
    /// A block device and its number in Linux's encoding.
    Block(u32),
    /// A pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A further name of a file that was sent before, under this path.
    Link(Vec<u8>),
}

/// The type of a file, without what belongs to it. A further name of a file counts as a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device.
    Char,
    /// A block device.
    Block,
    /// A pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl From<&Kind> for FileKind {
    fn from(kind: &Kind) -> Self {
        match kind {
            Kind::Directory => Self::Directory,
            Kind::File { .. } | Kind::Link(_) => Self::File,
            Kind::Symlink(_) => Self::Symlink,
            Kind::Char(_) => Self::Char,
            Kind::Block(_) => Self::Block,
            Kind::Fifo => Self::Fifo,
            Kind::Socket => Self::Socket,
        }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "regular file",
            Self::Directory => "directory",
            Self::Symlink => "symbolic link",
            Self::Char => "character device",
            Self::Block => "block device",
            Self::Fifo => "pipe",
            Self::Socket => "socket",
        })
    }
}

/// The contents of a regular file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// All of them.
    Whole(Vec<u8>),
    /// They follow. These are the parts that contain data, in order, each with its offset and length; between them are
    /// holes.
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

impl Meta {
    /// Bytes of the extended attributes.
    pub(crate) fn xattr_bytes(&self) -> usize {
        self.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum()
    }
}

/// Whether every side knows an attribute of this name. XFS also shows its ACLs under names of its own, which are left
/// out.
pub(crate) fn is_portable(name: &[u8]) -> bool {
    match name {
        b"system.posix_acl_access" | b"system.posix_acl_default" => true,
        _ => [&b"user."[..], b"trusted.", b"security."].iter().any(|prefix| name.starts_with(prefix)),
    }
}

/// Whether an attribute is another view of one that is copied already, or describes the filesystem instead of the file.
pub fn is_not_the_files(name: &[u8]) -> bool {
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

/// The folder of a path, and the last name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

impl Node {
    /// Bytes of the path, the attributes and the map of the contents.
    pub(crate) fn meta_bytes(&self) -> usize {
        let map = match &self.kind {
            Kind::File { contents: Contents::Parts(parts), .. } => std::mem::size_of_val(parts.as_slice()),
            _ => 0,
        };
        self.path.len() + map + self.meta.xattr_bytes()
    }

    /// Bytes of contents in the file's event.
    pub(crate) fn inline_bytes(&self) -> usize {
        match &self.kind {
            Kind::File { contents: Contents::Whole(bytes), .. } => bytes.len(),
            _ => 0,
        }
    }
}
