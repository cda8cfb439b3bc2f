//! Images that a server of xfskit has mounted: what it shows in attributes that no listing has, and by a question.
//!
//! A command that takes an image takes the root of a mount too, where the server can answer: `xfskit parents MNT /x`.
//! The server resolves `/x` in the image, so that the answer is the one of the image itself, whatever else is mounted
//! there, and wherever a symbolic link would lead on the host. `parents` also takes a path of the host to a file on a
//! mount.
//!
//! The attributes and the question are listed in `xfskit_fuse`'s `virtual_xattrs`.

use crate::open::mounted::{dead_server, place_of, resolved};
use crate::open::paths::number_of;
use crate::output::causes::Usage;
use crate::output::causes::is_of_dead_server as is_dead;
use crate::output::error::{CommandError, Context, Result, bail, failed};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use xfskit_engine as volume;
use xfskit_fuse::{
    MountEntry, PARENTS_XATTR, PATHS_XATTR, SUPERBLOCK_XATTR, inode_at, mount_around, mount_of_root, set_label, trim,
};
use xfskit_ondisk::features::Incompat;
use xfskit_ondisk::{Corruption, RawSuperblock, crc32c};
use zerocopy::FromBytes;

/// The most bytes that an attribute may have.
const MAX_BYTES: usize = 64 << 10;
/// How often a value is read that changes between its pages.
const MAX_ROUNDS: u32 = 100;

/// The root of a mount of xfskit.
pub struct LiveMount {
    root: PathBuf,
}

/// A file on a mount of xfskit.
pub struct LiveFile {
    /// Where its attributes are asked for: the file itself, or the root.
    path: PathBuf,
    /// Its inode number, if the root is asked.
    number: Option<u64>,
    /// The mount.
    place: PathBuf,
}

impl LiveMount {
    /// The mount at a path, which is its mount point or a link to it. `None` for all else but a folder below the root:
    /// a file there may be an image itself.
    ///
    /// # Errors
    /// `Usage` for a folder below the root; a server that has ended.
    pub fn at(path: &Path) -> Result<Option<Self>> {
        let Some((real, entry)) = on_mount(path, path.canonicalize())? else { return Ok(None) };
        if real.is_dir() {
            let is_root = real == entry.place && entry.root == Path::new("/");
            return if is_root { Ok(Some(Self { root: real })) } else { Err(below_root(path, &real, &entry)) };
        }
        Ok(None)
    }

    /// The file at a path within the image, or with a number, where it is `inode:NUMBER`.
    ///
    /// # Errors
    /// As a look-up, with the path.
    pub fn file(&self, path: &OsStr) -> Result<LiveFile> {
        if let Some(number) = number_of(path) {
            return Ok(self.inode(number));
        }
        let found = inode_at(&self.root, path.as_bytes());
        let number = found.map_err(|error| explain_look_up(&self.root, path, error))?;
        Ok(self.inode(number))
    }

    /// The file with an inode number.
    pub fn inode(&self, number: u64) -> LiveFile {
        LiveFile { path: self.root.clone(), number: Some(number), place: self.root.clone() }
    }

    /// Sets the label.
    ///
    /// # Errors
    /// Those of the server.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        set_label(&self.root, label).with_context(|| self.root.display().to_string())
    }

    /// Gives all free space back to the host; returns how many bytes that were.
    ///
    /// # Errors
    /// Those of the server.
    pub fn trim(&self) -> Result<u64> {
        trim(&self.root).with_context(|| self.root.display().to_string())
    }

    /// The superblock, with the counts of now.
    ///
    /// # Errors
    /// Those of the server.
    pub fn superblock(&self) -> Result<RawSuperblock> {
        superblock(&self.root).map_err(|error| explain(&self.root, &self.root, None, error))
    }
}

impl LiveFile {
    /// The file at a path of the host, if it is on a mount of xfskit. A symbolic link at the end is not followed if it
    /// is on the mount.
    ///
    /// # Errors
    /// A server that has ended.
    pub fn at(path: &Path) -> Result<Option<Self>> {
        let found = match on_mount(path, without_last_link(path))? {
            // A link on the host may lead to a file on a mount.
            None => on_mount(path, path.canonicalize())?,
            found => found,
        };
        Ok(found.map(|(real, entry)| {
            let root = mount_of_root(&entry).ok().flatten().unwrap_or(entry);
            Self { path: real, number: None, place: root.place }
        }))
    }

    /// The paths of the file from the root of the image.
    ///
    /// # Errors
    /// Those of the server.
    pub fn paths(&self) -> Result<Vec<Vec<u8>>> {
        Ok(split(&self.read(PATHS_XATTR)?))
    }

    /// The names of the file, each with the number of its directory.
    ///
    /// # Errors
    /// Those of the server.
    pub fn parents(&self) -> Result<Vec<(u64, Vec<u8>)>> {
        let parents = split(&self.read(PARENTS_XATTR)?);
        parents.iter().map(|line| decode_parent(line).context("the server's answer")).collect()
    }

    /// The whole value of an attribute, by its pages.
    fn read(&self, name: &str) -> Result<Vec<u8>> {
        let name = self.number.map_or_else(|| name.to_owned(), |number| format!("{name}.{number}"));
        for _ in 0..MAX_ROUNDS {
            if let Some(value) = self.read_pages(&name)? {
                return Ok(value);
            }
        }
        bail!("{}: its names change faster than they can be read", self.path.display())
    }

    /// `None`: the value changed between two pages.
    fn read_pages(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        let mut first_head: Option<Vec<u8>> = None;
        loop {
            let page = get(&self.path, &format!("{name}@{}", value.len()))
                .map_err(|error| explain(&self.path, &self.place, self.number, error))?;
            let end = page.iter().position(|byte| *byte == 0).context("the server's answer")?;
            let (head, part) = (&page[..end], &page[end + 1..]);
            if first_head.get_or_insert_with(|| head.to_vec()) != head {
                return Ok(None);
            }
            value.extend_from_slice(part);
            let (length, checksum) = decode_head(head).context("the server's answer")?;
            if value.len() >= length {
                return Ok((value.len() == length && crc32c([value.as_slice()]) == checksum).then_some(value));
            }
            if part.is_empty() {
                return Ok(None);
            }
        }
    }
}

/// A path with its symbolic links resolved, all but one at its end: that may be the file which is asked for. A path
/// that ends in a slash is not the link's.
fn without_last_link(path: &Path) -> std::io::Result<PathBuf> {
    let bytes = path.as_os_str().as_bytes();
    match path.file_name() {
        Some(name) if !bytes.ends_with(b"/") && !bytes.ends_with(b"/.") => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            Ok(folder.unwrap_or(Path::new(".")).canonicalize()?.join(name))
        }
        _ => path.canonicalize(),
    }
}

/// A path, resolved, and the mount of xfskit that it is on.
fn on_mount(path: &Path, real: std::io::Result<PathBuf>) -> Result<Option<(PathBuf, MountEntry)>> {
    let real = match real {
        Ok(real) => real,
        Err(error) if is_dead(&error) => resolved(path),
        // Opening it says what is wrong.
        Err(_) => return Ok(None),
    };
    // Without /proc no mount is seen, and opening the image fails.
    let Ok(Some(entry)) = mount_around(&real) else { return Ok(None) };
    match std::fs::symlink_metadata(&real) {
        Err(error) if is_dead(&error) => Err(dead_server(path, &entry.place)),
        _ => Ok(Some((real, entry))),
    }
}

/// The error of a folder that is not the root of its mount.
fn below_root(path: &Path, real: &Path, entry: &MountEntry) -> CommandError {
    let below = entry.root.join(real.strip_prefix(&entry.place).unwrap_or(Path::new("")));
    let (path, below) = (path.display(), below.display());
    let what = match mount_of_root(entry).ok().flatten() {
        Some(root) => format!("name that one and the path from its root: {} {below}", root.place.display()),
        None => "which this process does not see".into(),
    };
    Usage(format!("{path}: this is the folder {below} of an image, not the root of its mount: {what}")).into()
}

fn get(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; MAX_BYTES];
    let length = rustix::fs::lgetxattr(path, name, &mut value)?;
    value.truncate(length);
    Ok(value)
}

fn superblock(root: &Path) -> Result<RawSuperblock, Errno> {
    let bytes = get(root, SUPERBLOCK_XATTR)?;
    RawSuperblock::read_from_prefix(&bytes).map(|(raw, _)| raw).map_err(|_| Errno::PROTO)
}

/// The error of a look-up, as a look-up in the image has it.
fn explain_look_up(root: &Path, path: &OsStr, error: std::io::Error) -> CommandError {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    let error = match code {
        Some(Errno::NOENT) => volume::Error::NotFound,
        Some(Errno::NOTDIR) => volume::Error::NotADirectory,
        Some(Errno::LOOP) => volume::Error::TooManySymlinks,
        Some(Errno::NAMETOOLONG) if path.len() > xfskit_fuse::protocol::QUESTION_BYTES => {
            return failed!("{}: too long a path to ask a server for: use inode:NUMBER", path.display());
        }
        Some(Errno::NAMETOOLONG) => volume::Error::NameTooLong,
        Some(code) => return explain(root, root, None, code),
        None => return CommandError::from(error).context(root.display().to_string()),
    };
    CommandError::from(error).at(path)
}

/// The error of a request to a server: of a file at `path` or, if its number was asked for, with that number.
fn explain(path: &Path, place: &Path, number: Option<u64>, error: Errno) -> CommandError {
    let (shown, at) = (path.display(), place.display());
    // A file that was asked for by its number is named by the caller.
    let of_file = |error: volume::Error| match number {
        Some(_) => CommandError::from(error),
        None => CommandError::from(error).context(shown.to_string()),
    };
    match error {
        Errno::PERM => failed!("{shown}: only root and the user who mounted {at} may ask"),
        Errno::STALE if number.is_some() => volume::Error::Stale(number.unwrap_or_default()).into(),
        Errno::NOTCONN => dead_server(path, place),
        Errno::UCLEAN => {
            let damage = Corruption::new("image", "what the server reads").found("damage, which the server has logged");
            of_file(volume::Error::from(damage))
        }
        Errno::OPNOTSUPP | Errno::NODATA | Errno::NOTTY => match superblock(place) {
            Ok(raw) if !Incompat::from_bits_truncate(raw.incompat.get()).contains(Incompat::PARENT) => {
                let what = "parent pointers: the image was made without them (mkfs with -n parent=1)";
                of_file(volume::Error::NotSupported(what))
            }
            _ => failed!("{shown}: the server at {at} is older than this command; unmount, and mount again"),
        },
        error => CommandError::from(std::io::Error::from(error)).context(shown.to_string()),
    }
}

/// The parts of a value, each of which ends with a zero byte.
fn split(value: &[u8]) -> Vec<Vec<u8>> {
    value.split_inclusive(|byte| *byte == 0).map(|part| part[..part.len() - 1].to_vec()).collect()
}

/// The length of a value and its checksum, from the head of a page.
fn decode_head(head: &[u8]) -> Option<(usize, u32)> {
    let (length, checksum) = std::str::from_utf8(head).ok()?.split_once(' ')?;
    Some((length.parse().ok()?, checksum.parse().ok()?))
}

/// A directory's number, a space, and a name.
fn decode_parent(line: &[u8]) -> Option<(u64, Vec<u8>)> {
    let space = line.iter().position(|byte| *byte == b' ')?;
    let number = std::str::from_utf8(&line[..space]).ok()?.parse().ok()?;
    Some((number, line[space + 1..].to_vec()))
}

/// The error of a command that was given one operand, which is not on a mount of xfskit.
pub fn path_is_missing(image: &Path) -> CommandError {
    let shown = image.display();
    Usage(match place_of(image) {
        Some(place) => {
            format!("{shown}: it is mounted on {place}: name a file there, or the mount and a path: {place} /PATH")
        }
        None => format!("{shown}: not on a mount of xfskit; for an image, name the path in it as well: {shown} /PATH"),
    })
    .into()
}
