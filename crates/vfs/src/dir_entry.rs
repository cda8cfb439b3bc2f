//! Entries of directories.

use crate::{FileType, InodeNumber};

/// An entry of a directory, as [`Volume::list_dir`] lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Its name.
    pub name: Vec<u8>,
    /// What it names.
    pub inode: InodeNumber,
    /// What kind of file that is; `None` in images whose directories do not say.
    pub file_type: Option<FileType>,
    /// Where reading goes on after this entry.
    pub next_cookie: u64,
}

impl From<DirEntryRef<'_>> for DirEntry {
    fn from(entry: DirEntryRef<'_>) -> Self {
        let DirEntryRef { name, inode, file_type, next_cookie, .. } = entry;
        Self { name: name.to_vec(), inode, file_type, next_cookie }
    }
}

/// An entry of a directory while [`Volume::read_dir`] shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntryRef<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// What it names.
    pub inode: InodeNumber,
    /// What kind of file that is; `None` in images whose directories do not say.
    pub file_type: Option<FileType>,
    /// Reading from here starts with this entry.
    pub cookie: u64,
    /// Reading from here starts with the entry that follows.
    pub next_cookie: u64,
}
