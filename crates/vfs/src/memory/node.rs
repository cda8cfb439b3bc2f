//! What the volume holds: files of all types, with their names, contents and attributes.

use super::contents::Contents;
use crate::{Error, FileType, Flags, InodeNumber, Result, Stat};
use std::collections::BTreeMap;

/// Bytes of the blocks in which [`Stat`] counts space.
const SECTOR_BYTES: u64 = 512;

/// A file of any type.
#[derive(Debug)]
pub(super) struct Node {
    /// Its attributes, but for those that [`Self::stat`] works out.
    pub stat: Stat,
    /// What keeps it when it has no name.
    pub references: u64,
    pub body: Body,
    /// By their full names.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub flags: Flags,
}

/// What only files of one type have.
#[derive(Debug)]
pub(super) enum Body {
    File(Contents),
    Dir(Directory),
    Symlink(Vec<u8>),
    Special,
}

impl Node {
    /// Its attributes.
    pub fn stat(&self) -> Stat {
        let (size, blocks) = match &self.body {
            Body::File(contents) => (contents.size(), contents.space_bytes() / SECTOR_BYTES),
            Body::Dir(dir) => (dir.name_bytes, 0),
            Body::Symlink(target) => (target.len() as u64, 0),
            Body::Special => (0, 0),
        };
        let is_plain = self.flags == Flags::default();
        Stat { size, blocks, project: self.flags.project, is_plain, ..self.stat.clone() }
    }

    pub fn is_dir(&self) -> bool {
        self.stat.file_type == FileType::Dir
    }

    /// Its contents, if it is a regular file.
    pub fn contents(&self) -> Result<&Contents> {
        match &self.body {
            Body::File(contents) => Ok(contents),
            body => Err(no_file(body)),
        }
    }

    /// As [`Self::contents`], to change them.
    pub fn contents_mut(&mut self) -> Result<&mut Contents> {
        match &mut self.body {
            Body::File(contents) => Ok(contents),
            body => Err(no_file(body)),
        }
    }

    /// Its entries, if it is a directory.
    pub fn dir(&self) -> Result<&Directory> {
        if let Body::Dir(dir) = &self.body { Ok(dir) } else { Err(Error::NotADirectory) }
    }

    /// As [`Self::dir`], to change them.
    pub fn dir_mut(&mut self) -> Result<&mut Directory> {
        if let Body::Dir(dir) = &mut self.body { Ok(dir) } else { Err(Error::NotADirectory) }
    }
}

fn no_file(body: &Body) -> Error {
    if let Body::Dir(_) = body { Error::IsADirectory } else { Error::Invalid("not a regular file") }
}

/// The entries of a directory. Each has a cookie of its own for as long as it lives, so that a listing goes on where it
/// stopped whatever has come and gone.
#[derive(Debug)]
pub(super) struct Directory {
    pub parent: InodeNumber,
    entries: BTreeMap<Vec<u8>, Entry>,
    names: BTreeMap<u64, Vec<u8>>,
    next_cookie: u64,
    name_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    inode: InodeNumber,
    cookie: u64,
}

/// The cookie of the first entry behind `.` and `..`.
const FIRST_COOKIE: u64 = 2;

impl Directory {
    pub fn new(parent: InodeNumber) -> Self {
        Self { parent, entries: BTreeMap::new(), names: BTreeMap::new(), next_cookie: FIRST_COOKIE, name_bytes: 0 }
    }

    pub fn get(&self, name: &[u8]) -> Option<InodeNumber> {
        self.entries.get(name).map(|entry| entry.inode)
    }

    /// Gives `inode` the name, which another one may have had.
    pub fn insert(&mut self, name: &[u8], inode: InodeNumber) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.inode = inode;
            return;
        }
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.name_bytes += name.len() as u64;
        self.entries.insert(name.to_vec(), Entry { inode, cookie });
        self.names.insert(cookie, name.to_vec());
    }

    pub fn remove(&mut self, name: &[u8]) {
        if let Some(entry) = self.entries.remove(name) {
            self.names.remove(&entry.cookie);
            self.name_bytes -= name.len() as u64;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries from a cookie on, with their cookies.
    pub fn from(&self, cookie: u64) -> impl Iterator<Item = (u64, &[u8], InodeNumber)> {
        self.names.range(cookie..).map(|(cookie, name)| (*cookie, name.as_slice(), self.entries[name].inode))
    }
}
