//! Entries of directories.

use crate::{Error, FileType, InodeNumber};

/// An entry of a directory, as a filesystem lists it.
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

/// An entry of a directory while a filesystem shows it.
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

/// What a directory has lost with blocks that cannot be used.
#[derive(Debug)]
pub struct LostNames {
    /// What is wrong with the first of these blocks.
    pub error: Error,
    /// How many blocks are lost.
    pub blocks: u64,
    /// How many names they had; `None` if the index of the directory does not say that either.
    pub names: Option<u64>,
}

impl std::fmt::Display for LostNames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let blocks = match self.blocks {
            1 => "a block of the directory is lost".into(),
            count => format!("{count} blocks of the directory are lost"),
        };
        match self.names {
            Some(1) => write!(f, "{blocks}, and 1 name with it"),
            Some(names) => write!(f, "{blocks}, and {names} names with it"),
            None => write!(f, "{blocks}, with nobody knows how many names"),
        }
    }
}
