//! The tests of an expression.

use super::numbers::{Age, Count, Perm, SizeTest};
use super::owners::{List, Owners};
use crate::args::glob::Glob;
use crate::commands::attributes::label;
use crate::open::paths::{number_of, path_of_dir, resolve};
use crate::output::error::{Context, Result};
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use xfskit_engine::FileType;
use xfskit_engine::{Error, LastLink, Stat, Volume};
use xfskit_ondisk::{InodeNumber, Timestamp};
use xfskit_transfer::Found;

/// One of the times of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    Accessed,
    Made,
    Changed,
    Modified,
}

impl Time {
    pub(super) fn of(self, stat: &Stat) -> Timestamp {
        match self {
            Self::Accessed => stat.atime,
            Self::Made => stat.birth_time,
            Self::Changed => stat.ctime,
            Self::Modified => stat.mtime,
        }
    }
}

/// A time that others are compared with.
#[derive(Clone, Debug)]
pub enum Reference {
    At(Timestamp),
    /// One of a file's in the image.
    Of(OsString, Time),
}

/// A user or a group.
#[derive(Clone, Debug)]
pub enum Owner {
    Number(Count),
    /// One that the image knows.
    Named(String),
    /// One that the image does not know.
    Unknown,
}

/// A kind of file, or that of what a link leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    Kept,
    Followed,
}

/// A test.
#[derive(Clone, Debug)]
pub enum Test {
    Always(bool),
    Name(Glob),
    Path(Glob),
    LinkTarget(Glob),
    Kind(Links, Vec<FileType>),
    Size(SizeTest),
    Empty,
    Perm(Perm),
    Owner(List, Owner),
    LinkCount(Count),
    Inode(Count),
    /// Of a path in the image.
    SameFile(OsString),
    Newer(Time, Reference),
    Age(Time, Age),
    Xattr(Glob),
    Label(Glob),
}

/// A file that a search has found.
pub struct Entry<'a> {
    pub found: &'a Found,
    /// The path with which the search began, and how many names are behind it.
    pub start: &'a [u8],
    pub depth: usize,
}

impl<'a> Entry<'a> {
    /// Its attributes.
    pub(super) fn stat(&self) -> &'a Stat {
        &self.found.stat
    }

    /// The path without slashes at its end; one slash for the root.
    fn trimmed(&self) -> &'a [u8] {
        let path = &self.found.path;
        let end = path.iter().rposition(|&byte| byte != b'/').map_or(1.min(path.len()), |last| last + 1);
        &path[..end]
    }

    /// Its last name; a slash for the root.
    pub(super) fn name(&self) -> &'a [u8] {
        let path = self.trimmed();
        if path == b"/" { path } else { path.rsplit(|&byte| byte == b'/').next().unwrap_or_default() }
    }

    /// What is before the last name, and before the slash.
    pub(super) fn dir(&self) -> &'a [u8] {
        let path = self.trimmed();
        path.iter().rposition(|&byte| byte == b'/').map_or(b".", |slash| &path[..slash])
    }

    /// The path behind that with which the search began.
    pub(super) fn below(&self) -> &'a [u8] {
        let rest = &self.found.path[self.start.len().min(self.found.path.len())..];
        rest.strip_prefix(b"/").unwrap_or(rest)
    }

    /// What a symbolic link leads to.
    pub(super) fn followed(&self, filesystem: &Volume) -> Result<Stat, Error> {
        match (number_of(OsStr::from_bytes(self.start)), self.found.dir) {
            (None, _) => filesystem.resolve(&self.found.path, LastLink::Follow),
            (Some(_), Some(dir)) => {
                let dir = path_of_dir(filesystem, dir)?;
                filesystem.resolve(&[&dir, &b"/"[..], self.name()].concat(), LastLink::Follow)
            }
            // The search began with the link, and which directory it is in is not known.
            (Some(_), None) => Err(Error::NotFound),
        }
    }

    /// The label of SELinux, without the zero byte behind it.
    pub(super) fn label(&self, filesystem: &Volume) -> Result<Option<Vec<u8>>> {
        label(filesystem, self.stat().inode).at(self.path())
    }

    /// The path.
    pub fn path(&self) -> &OsStr {
        OsStr::from_bytes(&self.found.path)
    }
}

impl Test {
    /// Looks up in the image what the test compares with.
    ///
    /// # Errors
    /// Those of a look-up; `Usage` for the name of an owner that the image does not know.
    pub(super) fn bind(&mut self, filesystem: &Volume, owners: &mut Owners) -> Result<()> {
        let find = |path: &OsString| resolve(filesystem, path, LastLink::Keep).at(path);
        match self {
            Self::SameFile(path) => *self = Self::Inode(Count::exactly(find(path)?.inode.0)),
            Self::Newer(_, reference) => {
                if let Reference::Of(path, time) = reference {
                    *reference = Reference::At(time.of(&find(path)?));
                }
            }
            Self::Owner(list, owner) => match owner {
                Owner::Named(name) => {
                    let number = owners.number(filesystem, *list, name)?;
                    *owner = Owner::Number(Count::exactly(number.into()));
                }
                Owner::Unknown => drop(owners.knows(filesystem, *list, 0)?),
                Owner::Number(_) => {}
            },
            _ => {}
        }
        Ok(())
    }

    /// Whether a file passes.
    ///
    /// # Errors
    /// Those of reading what the test asks for.
    pub fn holds(&self, filesystem: &Volume, owners: &mut Owners, entry: &Entry<'_>) -> Result<bool> {
        let stat = entry.stat();
        Ok(match self {
            Self::Always(holds) => *holds,
            Self::Name(glob) => glob.matches(entry.name()),
            Self::Path(glob) => glob.matches(&entry.found.path),
            Self::Kind(Links::Kept, kinds) => kinds.contains(&stat.file_type),
            Self::Kind(Links::Followed, kinds) => kinds.contains(&followed_type(filesystem, entry)?),
            Self::Size(size) => size.holds(stat.size),
            Self::Perm(perm) => perm.holds(stat.permissions.bits(), stat.file_type.is_dir()),
            Self::Owner(list, owner) => {
                let number = if *list == List::Users { stat.uid } else { stat.gid };
                match owner {
                    Owner::Number(count) => count.holds(number.into()),
                    Owner::Named(_) => false,
                    Owner::Unknown => !owners.knows(filesystem, *list, number)?,
                }
            }
            Self::LinkCount(count) => count.holds(stat.links.into()),
            Self::Inode(count) => count.holds(stat.inode.0),
            Self::SameFile(_) => false,
            Self::Newer(time, Reference::At(reference)) => time.of(stat) > *reference,
            Self::Newer(_, Reference::Of(..)) => false,
            Self::Age(time, age) => age.holds(time.of(stat)),
            Self::Empty | Self::LinkTarget(_) | Self::Xattr(_) | Self::Label(_) => {
                self.holds_inside(filesystem, entry)?
            }
        })
    }

    /// As [`Self::holds`], for the tests that read more than the inode.
    fn holds_inside(&self, filesystem: &Volume, entry: &Entry<'_>) -> Result<bool> {
        let (stat, inode) = (entry.stat(), entry.stat().inode);
        let read = || -> Result<bool, Error> {
            Ok(match self {
                Self::Empty if stat.file_type.is_dir() => is_empty_dir(filesystem, inode)?,
                Self::Empty => stat.file_type.is_file() && stat.size == 0,
                Self::LinkTarget(glob) => stat.file_type.is_symlink() && glob.matches(&filesystem.read_link(inode)?),
                Self::Xattr(glob) => filesystem.list_xattrs(inode)?.iter().any(|name| glob.matches(name)),
                Self::Label(glob) => label(filesystem, inode)?.is_some_and(|label| glob.matches(&label)),
                _ => false,
            })
        };
        read().at(entry.path())
    }
}

fn is_empty_dir(filesystem: &Volume, dir: InodeNumber) -> Result<bool, Error> {
    let mut is_empty = true;
    filesystem.read_dir(dir, 0, |entry| {
        is_empty = entry.name == b"." || entry.name == b"..";
        if is_empty { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(is_empty)
}

/// The type of what a link leads to; that of the link where it leads nowhere.
fn followed_type(filesystem: &Volume, entry: &Entry<'_>) -> Result<FileType> {
    if !entry.stat().file_type.is_symlink() {
        return Ok(entry.stat().file_type);
    }
    match entry.followed(filesystem) {
        Ok(stat) => Ok(stat.file_type),
        Err(Error::NotFound | Error::NotADirectory | Error::TooManySymlinks) => Ok(FileType::Symlink),
        Err(error) => Err(error).at(entry.path()),
    }
}
