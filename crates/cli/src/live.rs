//! Files on a mount of xfskit: what the server shows in attributes that no listing has.
//!
//! A command that takes an image takes a mount of one too, where the server can answer: `xfskit parents MNT/x`. The
//! attributes are listed in `xfskit_fuse`'s `virtual_xattrs`.

use crate::exit::Usage;
use anyhow::{Context, Result, anyhow};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};
use xfskit::ondisk::RawSuperblock;
use xfskit_fuse::{MountEntry, PARENTS_XATTR, PATHS_XATTR, SUPERBLOCK_XATTR, mount_around};
use zerocopy::FromBytes;

/// The most bytes that an attribute may have.
const MAX_BYTES: usize = 64 << 10;

/// A file on a mount of xfskit.
pub struct LiveFile {
    path: PathBuf,
    entry: MountEntry,
}

impl LiveFile {
    /// The file at a path, if it is on a mount of xfskit. A symbolic link at the end is not followed.
    pub fn at(path: &Path) -> Option<Self> {
        let absolute = std::path::absolute(path).ok()?;
        // The last name stays as it is: it may be a symbolic link on the mount.
        let real = match (absolute.parent(), absolute.file_name()) {
            (Some(parent), Some(name)) => parent.canonicalize().ok()?.join(name),
            _ => absolute,
        };
        let entry = mount_around(&real).ok()??;
        Some(Self { path: real, entry })
    }

    /// The folder at a path, if it is on a mount of xfskit. A file there is none: it may be an image itself.
    pub fn folder(path: &Path) -> Option<Self> {
        let real = path.canonicalize().ok().filter(|real| real.is_dir())?;
        let entry = mount_around(&real).ok()??;
        Some(Self { path: real, entry })
    }

    /// The file at a path within the image that is mounted.
    pub fn within(self, path: &OsStr) -> Self {
        let names = Path::new(path).components().filter(|part| matches!(part, Component::Normal(_)));
        let path = names.fold(self.entry.place.clone(), |path, name| path.join(name));
        Self { path, entry: self.entry }
    }

    /// The paths of the file from the root of the image.
    pub fn paths(&self) -> Result<Vec<Vec<u8>>> {
        Ok(split(&self.read(&self.path, PATHS_XATTR)?))
    }

    /// The names of the file, each with the number of its directory.
    pub fn parents(&self) -> Result<Vec<(u64, Vec<u8>)>> {
        let parents = split(&self.read(&self.path, PARENTS_XATTR)?);
        parents.iter().map(|line| decode_parent(line).context("the server's answer")).collect()
    }

    /// The paths of the inode with a number.
    pub fn paths_of(&self, inode: u64) -> Result<Vec<Vec<u8>>> {
        Ok(split(&self.read(&self.entry.place, &format!("{PATHS_XATTR}.{inode}"))?))
    }

    /// The superblock, with the counts of now.
    pub fn superblock(&self) -> Result<RawSuperblock> {
        let bytes = self.read(&self.entry.place, SUPERBLOCK_XATTR)?;
        let (raw, _) =
            RawSuperblock::read_from_prefix(&bytes).map_err(|_| anyhow!("the server's answer is too short"))?;
        Ok(raw)
    }

    fn read(&self, path: &Path, name: &str) -> Result<Vec<u8>> {
        let mut value = vec![0; MAX_BYTES];
        let length = rustix::fs::lgetxattr(path, name, &mut value).map_err(|error| self.explain(path, error))?;
        value.truncate(length);
        Ok(value)
    }

    fn explain(&self, path: &Path, error: Errno) -> anyhow::Error {
        let (shown, place) = (path.display(), self.entry.place.display());
        match error {
            Errno::PERM => anyhow!("{shown}: only root and the user who mounted {place} may ask"),
            Errno::TOOBIG | Errno::RANGE => anyhow!(
                "{shown}: its names are longer than a mount can show: ask the image itself, after 'xfskit umount \
                 {place}'"
            ),
            Errno::OPNOTSUPP | Errno::NODATA => {
                anyhow!("{shown}: the server at {place} is older than this command; unmount, and mount again")
            }
            error => anyhow::Error::from(std::io::Error::from(error)).context(shown.to_string()),
        }
    }
}

/// The parts of a value, each of which ends with a zero byte.
fn split(value: &[u8]) -> Vec<Vec<u8>> {
    value.split_inclusive(|byte| *byte == 0).map(|part| part[..part.len() - 1].to_vec()).collect()
}

/// A directory's number, a space, and a name.
fn decode_parent(line: &[u8]) -> Option<(u64, Vec<u8>)> {
    let space = line.iter().position(|byte| *byte == b' ')?;
    let number = std::str::from_utf8(&line[..space]).ok()?.parse().ok()?;
    Some((number, line[space + 1..].to_vec()))
}

/// The error of a command that was given one operand, which is not on a mount of xfskit.
pub fn path_is_missing(image: &Path) -> anyhow::Error {
    let shown = image.display();
    Usage(format!("{shown}: not on a mount of xfskit; for an image, name the path in it as well: {shown} /PATH")).into()
}
