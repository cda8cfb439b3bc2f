//! What is to be made.

use crate::mode::MODE_TYPE;
use crate::{FileType, Permissions, Timestamp};

/// What to make.
///
/// ```
/// use xfskit_vfs::{FileType, NewFile, Permissions};
///
/// let file = NewFile::file(0o644);
/// let dir = NewFile::dir(0o755);
/// let link = NewFile::symlink(b"target");
/// let pipe = NewFile::new(FileType::Fifo, Permissions::new(0o600));
/// // /dev/null, made by a caller that has a umask.
/// let null = NewFile { device: 0x0103, umask: 0o022, ..NewFile::new(FileType::CharDevice, Permissions::new(0o666)) };
/// // What mknod(2) was given: there are seven types.
/// assert_eq!(NewFile::of_mode(0o010_600).map(|new| new.file_type), Some(FileType::Fifo));
/// assert!(NewFile::of_mode(0o150_000).is_none());
/// # let _ = (file, dir, link, pipe, null);
/// ```
#[derive(Clone, Debug)]
pub struct NewFile<'a> {
    /// What kind of file.
    pub file_type: FileType,
    /// Who may use it.
    pub permissions: Permissions,
    /// Bits of permissions that are taken away where the directory has no default ACL.
    pub umask: u16,
    /// Device number of a device node, in Linux's encoding; 0 for all else.
    pub device: u32,
    /// Target of a symbolic link; empty for all else.
    pub target: &'a [u8],
}

impl NewFile<'static> {
    /// A file of a type. A device node needs its `device` as well, and for a symbolic link there is
    /// [`Self::symlink`].
    pub const fn new(file_type: FileType, permissions: Permissions) -> Self {
        Self { file_type, permissions, umask: 0, device: 0, target: &[] }
    }

    /// A regular file with these bits of permissions. To make one with more than the twelve bits that there are is
    /// refused; [`Self::of_mode`] takes a mode with a type.
    pub const fn file(permissions: u16) -> Self {
        Self::new(FileType::File, Permissions::unchecked(permissions))
    }

    /// A directory with these bits of permissions, as [`Self::file`].
    pub const fn dir(permissions: u16) -> Self {
        Self::new(FileType::Dir, Permissions::unchecked(permissions))
    }

    /// What a raw mode asks for, as mknod(2) takes it: a regular file if it names no type; `None` for a type that does
    /// not exist.
    pub const fn of_mode(mode: u16) -> Option<Self> {
        let permissions = Permissions::new(mode);
        match FileType::of_mode(mode) {
            Some(file_type) => Some(Self::new(file_type, permissions)),
            None if mode & MODE_TYPE == 0 => Some(Self::new(FileType::File, permissions)),
            None => None,
        }
    }
}

impl<'a> NewFile<'a> {
    /// A symbolic link to `target`.
    pub const fn symlink(target: &'a [u8]) -> Self {
        Self { target, ..NewFile::new(FileType::Symlink, Permissions::new(0o777)) }
    }
}

impl NewFile<'_> {
    /// Type and permissions in one number, as mknod(2) takes them.
    pub const fn mode(&self) -> u16 {
        self.file_type.mode_bits() | self.permissions.bits()
    }
}

/// A regular file with everything that it has.
#[derive(Clone, Debug)]
pub struct WholeFile<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Who may use it.
    pub permissions: Permissions,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Attributes: not ACLs.
    pub xattrs: &'a [(Vec<u8>, Vec<u8>)],
    /// Contents.
    pub contents: &'a [u8],
}
