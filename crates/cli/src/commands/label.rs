//! `xfskit xattr label`: gives files the labels that a file of contexts has for their paths, as setfiles does.

use crate::interrupt;
use crate::open::paths::{find_place, path_of_dir, shown};
use crate::output::error::{Context, Result, for_each};
use crate::output::screen::{Output, say};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use xfskit_engine::{Caller, Error, FileType, LastLink, SetMode, Stat, Volume};
use xfskit_transfer::{FileContexts, FileKind, ImageWalk};

const LABEL: &[u8] = b"security.selinux";

/// Whether changes are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// Each one.
    Changes,
    /// None.
    Nothing,
}

/// Labels each path with everything below it. A file with several names has the label of the first one that is met.
///
/// # Errors
/// Those of all paths.
pub fn run(
    output: &Output,
    filesystem: &Volume,
    paths: &[OsString],
    contexts: &FileContexts,
    report: Report,
) -> Result<()> {
    let mut done = HashSet::new();
    for_each(paths, |path| {
        let start = filesystem.resolve(path.as_bytes(), LastLink::Keep).at(path)?;
        let above = path_in_image(filesystem, path, &start).at(path)?;
        for found in ImageWalk::new(filesystem, start.inode, &above).found() {
            interrupt::check()?;
            let found = found?;
            if found.stat.links > 1 && !found.is_dir() && !done.insert(found.stat.inode) {
                continue;
            }
            let shown = || shown(OsStr::from_bytes(&found.path));
            if let Some(label) = contexts.label(&found.path, kind(found.stat.file_type))?
                && set(filesystem, &found.stat, &label).at(OsStr::from_bytes(&found.path))?
                && report == Report::Changes
            {
                say!(output, "{} {}", shown(), String::from_utf8_lossy(label.strip_suffix(b"\0").unwrap_or(&label)));
            }
        }
        Ok(())
    })
}

/// The path of a file from the root of its image, whatever links led to it.
fn path_in_image(filesystem: &Volume, path: &OsStr, start: &Stat) -> Result<Vec<u8>> {
    if start.file_type.is_dir() {
        let path = path_of_dir(filesystem, start.inode)?;
        return Ok(if path.is_empty() { b"/".to_vec() } else { path });
    }
    let (dir, name) = find_place(filesystem, path)?;
    Ok([path_of_dir(filesystem, dir)?.as_slice(), b"/", name].concat())
}

/// Sets a label; false if the file has it already.
fn set(filesystem: &Volume, stat: &Stat, label: &[u8]) -> Result<bool, Error> {
    match filesystem.get_xattr(stat.inode, LABEL) {
        Ok(own) if own == label => return Ok(false),
        Ok(_) | Err(Error::NoAttribute) => {}
        Err(error) => return Err(error),
    }
    filesystem.set_xattr(stat.inode, LABEL, label, SetMode::Any, &Caller::root())?;
    Ok(true)
}

fn kind(file_type: FileType) -> FileKind {
    match file_type {
        FileType::Dir => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::CharDevice => FileKind::Char,
        FileType::BlockDevice => FileKind::Block,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        _ => FileKind::File,
    }
}
