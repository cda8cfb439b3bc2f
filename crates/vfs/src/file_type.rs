//! What kind of file an inode is, and who may use it: the two halves of a mode.

use crate::mode::{MODE_BLOCK, MODE_CHAR, MODE_DIR, MODE_FIFO, MODE_REGULAR, MODE_SOCKET, MODE_SYMLINK, MODE_TYPE};
use std::fmt;

const PERMISSIONS: u16 = 0o7777;

/// What kind of file it is.
///
/// ```
/// use xfskit_vfs::FileType;
///
/// assert_eq!(FileType::of_mode(0o040_755), Some(FileType::Dir));
/// assert_eq!(FileType::of_mode(0o755), None);
/// assert_eq!(FileType::Dir.mode_bits(), 0o040_000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileType {
    /// A regular file, which has contents.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A device that is read and written in blocks.
    BlockDevice,
    /// Any other device.
    CharDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl FileType {
    /// Whether it is a regular file.
    pub const fn is_file(self) -> bool {
        matches!(self, Self::File)
    }

    /// Whether it is a directory.
    pub const fn is_dir(self) -> bool {
        matches!(self, Self::Dir)
    }

    /// Whether it is a symbolic link.
    pub const fn is_symlink(self) -> bool {
        matches!(self, Self::Symlink)
    }

    /// Whether it is a device of either kind.
    pub const fn is_device(self) -> bool {
        matches!(self, Self::BlockDevice | Self::CharDevice)
    }

    /// The type that a mode names, as stat(2) gives it; `None` if it names none, or one that does not exist.
    pub const fn of_mode(mode: u16) -> Option<Self> {
        Some(match mode & MODE_TYPE {
            MODE_REGULAR => Self::File,
            MODE_DIR => Self::Dir,
            MODE_SYMLINK => Self::Symlink,
            MODE_BLOCK => Self::BlockDevice,
            MODE_CHAR => Self::CharDevice,
            MODE_FIFO => Self::Fifo,
            MODE_SOCKET => Self::Socket,
            _ => return None,
        })
    }

    /// The bits of a mode that name this type, as stat(2) gives them.
    pub const fn mode_bits(self) -> u16 {
        match self {
            Self::File => MODE_REGULAR,
            Self::Dir => MODE_DIR,
            Self::Symlink => MODE_SYMLINK,
            Self::BlockDevice => MODE_BLOCK,
            Self::CharDevice => MODE_CHAR,
            Self::Fifo => MODE_FIFO,
            Self::Socket => MODE_SOCKET,
        }
    }
}

/// Who may read, write and execute, with the set-user-id, set-group-id and sticky bits: a mode without a type.
///
/// ```
/// use xfskit_vfs::Permissions;
///
/// let permissions = Permissions::new(0o100_644);
/// assert_eq!(permissions.bits(), 0o644);
/// assert_eq!(permissions.to_string(), "0644");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Permissions(u16);

impl Permissions {
    /// Permissions from a mode, as chmod(1) takes one; bits that say a type are left out.
    pub const fn new(mode: u16) -> Self {
        Self(mode & PERMISSIONS)
    }

    /// All bits that a caller gave: [`Self::has_other_bits`] says whether they are permissions.
    pub(crate) const fn unchecked(bits: u16) -> Self {
        Self(bits)
    }

    /// Whether there are bits beyond the twelve.
    pub const fn has_other_bits(self) -> bool {
        self.0 & !PERMISSIONS != 0
    }

    /// The twelve bits.
    pub const fn bits(self) -> u16 {
        self.0 & PERMISSIONS
    }
}

impl fmt::Display for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl fmt::Debug for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Permissions({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_is_found_in_its_own_bits_and_sixteen_bit_patterns_name_seven() {
        let found: Vec<_> = (0..16).filter_map(|bits: u16| FileType::of_mode(bits << 12)).collect();
        assert_eq!(found.len(), 7);
        for file_type in found {
            assert_eq!(FileType::of_mode(file_type.mode_bits() | 0o7777), Some(file_type));
            assert_eq!(FileType::of_mode(file_type.mode_bits()), Some(file_type));
        }
    }
}
