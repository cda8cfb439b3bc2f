//! Types of files, as inodes and entries of directories name them.

use super::{FileType, Permissions};
use xfskit_ondisk::dir;
use xfskit_ondisk::inode::FileMode;

/// The type of an inode that was read; the verifier refuses an inode whose mode names none.
pub(super) fn type_of_inode(mode: u16) -> FileType {
    FileType::of_mode(mode).unwrap_or(FileType::File)
}

/// The type that a directory's entry names; `None` if it names none.
pub(super) fn type_of_entry(file_type: dir::FileType) -> Option<FileType> {
    Some(match file_type {
        dir::FileType::Regular => FileType::File,
        dir::FileType::Directory => FileType::Dir,
        dir::FileType::Symlink => FileType::Symlink,
        dir::FileType::BlockDevice => FileType::BlockDevice,
        dir::FileType::CharDevice | dir::FileType::Whiteout => FileType::CharDevice,
        dir::FileType::Fifo => FileType::Fifo,
        dir::FileType::Socket => FileType::Socket,
        dir::FileType::Unknown => return None,
    })
}

/// The mode of an inode that is to be made.
pub(super) fn mode_of(file_type: FileType, permissions: Permissions) -> FileMode {
    FileMode::new(file_type.mode_bits() | permissions.bits()).expect("every FileType is a type of file on disk")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_of_file_has_a_mode_on_disk() {
        for file_type in (0..16).filter_map(|bits: u16| FileType::of_mode(bits << 12)) {
            assert_eq!(mode_of(file_type, Permissions::new(0o7644)).bits(), file_type.mode_bits() | 0o7644);
        }
    }
}
