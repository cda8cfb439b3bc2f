//! Files in an open image, by the paths that a command was given.

use crate::output::causes::Usage;
use crate::output::error::{Context, Result};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use xfskit_engine::{Error, LastLink, Stat, Volume};
use xfskit_ondisk::InodeNumber;

/// Refuses to remove or move a path whose last name is not that of an entry.
///
/// # Errors
/// `Usage` if it is `.`, `..` or the root, where the operation would affect another directory than the user named.
pub fn check_last_name(path: &OsStr) -> Result<()> {
    let last = path.as_bytes().split(|&byte| byte == b'/').rfind(|part| !part.is_empty());
    match last {
        Some(b"." | b"..") => Err(Usage("'.' and '..' are never removed or moved".into())).at(path),
        None => Err(Usage(format!("{:?}: the root is never removed or moved", shown(path))).into()),
        Some(_) => Ok(()),
    }
}

/// Finds a file; a symbolic link at the end is not followed.
///
/// # Errors
/// As a look-up, with the path.
pub fn find(filesystem: &Volume, path: &OsStr) -> Result<Stat> {
    resolve(filesystem, path, LastLink::Keep).at(path)
}

/// The number in `inode:NUMBER`.
pub fn number_of(path: &OsStr) -> Option<u64> {
    path.to_str()?.strip_prefix("inode:")?.parse().ok()
}

/// Finds a file by its path, or by its number where that is `inode:NUMBER`; a file of that name in the root is
/// `/inode:NUMBER`.
///
/// # Errors
/// As a look-up; `Stale` for the number of no inode in use.
pub fn resolve(filesystem: &Volume, path: &OsStr, last: LastLink) -> Result<Stat, Error> {
    match number_of(path).map(InodeNumber) {
        // The other calls accept only inodes that are in use.
        Some(number) if !filesystem.is_in_use(number)? => Err(Error::Stale(number.0)),
        Some(number) => filesystem.stat(number),
        None => filesystem.resolve(path.as_bytes(), last),
    }
}

/// The directory for a new file, and its name.
///
/// # Errors
/// As a look-up, with the path; `NotADirectory` for one that ends in a slash.
pub fn find_place<'a>(filesystem: &Volume, path: &'a OsStr) -> Result<(InodeNumber, &'a [u8])> {
    if path.as_bytes().ends_with(b"/") {
        return Err(Error::NotADirectory).at(path);
    }
    find_dir_place(filesystem, path)
}

/// As [`find_place`], for a new directory, whose path may end in a slash.
///
/// # Errors
/// As a look-up, with the path.
pub fn find_dir_place<'a>(filesystem: &Volume, path: &'a OsStr) -> Result<(InodeNumber, &'a [u8])> {
    let find = || -> Result<_, Error> {
        let (dir, name) = xfskit_engine::split_path(path.as_bytes())?;
        Ok((filesystem.resolve(dir, LastLink::Follow)?.inode, name))
    };
    find().at(path)
}

/// A path in messages.
pub fn shown(path: &OsStr) -> String {
    path.display().to_string()
}

/// The path of a directory from the root of its image, found without parent pointers: by the names in the directories
/// above it. It begins with a slash, and is empty for the root.
pub fn path_of_dir(filesystem: &Volume, dir: InodeNumber) -> Result<Vec<u8>, Error> {
    let mut names = Vec::new();
    let (mut at, mut seen) = (dir, std::collections::HashSet::new());
    while at != filesystem.root() && seen.insert(at) {
        let above = filesystem.lookup(at, b"..")?.inode;
        let entry = filesystem.list_dir(above)?.into_iter().find(|entry| entry.inode == at).ok_or(Error::NotFound)?;
        names.push(entry.name);
        at = above;
    }
    Ok(names.iter().rev().flat_map(|name| [b"/", name.as_slice()].concat()).collect())
}
