//! Extended attributes that no file has on disk: the mount answers them, so that any program can ask what no system
//! call through FUSE tells.
//!
//! ```text
//! name                  file      value
//! xfskit.paths          any       every path of the file from the root of the image, each with a zero byte behind it
//! xfskit.parents        any       for every name: number of the directory, a space, the name, a zero byte
//! xfskit.paths.NUMBER   the root  the same of the inode with that number
//! xfskit.parents.NUMBER the root
//! ...@OFFSET            as above  of the four: a page of the value, from that byte on
//! xfskit.NAME           the root  a property of the filesystem; some can be set (`Extras::property`)
//! user.xfskit.stats     the root  the figures of the mount, as JSON
//! ```
//! A page: the bytes of the whole value, a space, its CRC-32C, a zero byte, and as many bytes of the value as an
//! attribute has room for. Both numbers are the same in all pages, unless the file got or lost a name meanwhile.
//!
//! Listings show none of them, so no program copies them. Paths show names in directories that a caller may not read,
//! so only user 0 and the user of the server get any but the figures, and only they may set properties.
//!
//! The number of the inode at a path is no attribute, whose name has 255 bytes at most, but an answer ([`inode_at`]):
//! the server resolves the path in the image, past permissions and past what else is mounted on the way.

use crate::server::{Servable, Server};
use crate::stats::stats;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use xfskit_fuse_session as fuse;
use xfskit_vfs::{Error, InodeNumber, LastLink, Result, Volume};

/// The attribute of the mount's root that contains the figures of the mount.
pub const STATS_XATTR: &str = "user.xfskit.stats";
/// Paths of a file on a mount.
pub const PATHS_XATTR: &str = "xfskit.paths";
/// Names of a file on a mount, with the numbers of their directories.
pub const PARENTS_XATTR: &str = "xfskit.parents";

const PREFIX: &str = "xfskit.";
/// Linux's `XATTR_SIZE_MAX`.
const MAX_VALUE_BYTES: usize = 64 << 10;
/// The bytes of a value that a page shows: two numbers, a space and a zero byte are before them.
const PAGE_BYTES: usize = MAX_VALUE_BYTES - 64;

/// What a virtual attribute shows.
enum Shown<'n> {
    Stats,
    Paths(InodeNumber),
    Parents(InodeNumber),
    Property(&'n str),
}

/// The attribute of a mount's root that shows a property of the filesystem.
pub fn property_xattr(name: &str) -> String {
    [PREFIX, name].concat()
}

/// The virtual attribute with a name, if there is one of that name.
fn shown(number: InodeNumber, root: InodeNumber, name: &[u8]) -> Option<Shown<'_>> {
    let is_root = number == root;
    match std::str::from_utf8(name).ok()? {
        STATS_XATTR if is_root => Some(Shown::Stats),
        PATHS_XATTR => Some(Shown::Paths(number)),
        PARENTS_XATTR => Some(Shown::Parents(number)),
        name if is_root => {
            let of = |prefix: &str| name.strip_prefix(prefix)?.strip_prefix('.')?.parse().ok().map(InodeNumber);
            let numbered = of(PATHS_XATTR).map(Shown::Paths).or_else(|| of(PARENTS_XATTR).map(Shown::Parents));
            numbered.or_else(|| name.strip_prefix(PREFIX).map(Shown::Property))
        }
        _ => None,
    }
}

/// The name of an attribute, and from where on its value is shown in pages.
fn without_page(name: &[u8]) -> Option<(&[u8], Option<usize>)> {
    let Some(at) = name.iter().position(|byte| *byte == b'@') else { return Some((name, None)) };
    let offset = std::str::from_utf8(&name[at + 1..]).ok()?.parse().ok()?;
    Some((&name[..at], Some(offset)))
}

/// A page of a value.
fn page(value: &[u8], offset: usize) -> Vec<u8> {
    let head = format!("{} {}\0", value.len(), crc32c(value));
    let rest = value.get(offset..).unwrap_or_default();
    [head.as_bytes(), &rest[..rest.len().min(PAGE_BYTES)]].concat()
}

fn crc32c(value: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, value) as u32
}

/// Whether a name is one of those that no file has on disk.
pub(crate) fn is_virtual(number: InodeNumber, root: InodeNumber, name: &[u8]) -> bool {
    name.starts_with(PREFIX.as_bytes()) || (number == root && name == STATS_XATTR.as_bytes())
}

/// Whether a caller may see more than the figures: user 0, and the user of the server.
pub(crate) fn is_owner(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// The value of a virtual attribute.
///
/// # Errors
/// `NotPermitted`; `NotSupported` for a name that there is not; `Stale` for the number of no inode in use.
pub(crate) fn get<V: Servable>(
    server: &Server<V>,
    fs: &V,
    number: InodeNumber,
    name: &[u8],
    uid: u32,
) -> Result<Vec<u8>> {
    let missing = Error::NotSupported("no such attribute of a mount");
    let Some((name, offset)) = without_page(name) else { return Err(missing) };
    let Some(what) = shown(number, server.root(), name) else { return Err(missing) };
    let value = match what {
        _ if offset.is_some() && !matches!(what, Shown::Paths(_) | Shown::Parents(_)) => return Err(missing),
        Shown::Stats => stats(fs, server)?.into_bytes(),
        Shown::Property(name) => match fs.property(name) {
            None => return Err(missing),
            Some(_) if !is_owner(uid) => return Err(Error::NotPermitted),
            Some(value) => value,
        },
        _ if !is_owner(uid) => return Err(Error::NotPermitted),
        Shown::Paths(of) | Shown::Parents(of) if !fs.is_in_use(of)? => return Err(Error::Stale(of.0)),
        Shown::Paths(of) => fs.paths(of)?.into_iter().flat_map(|path| [path, vec![0]].concat()).collect(),
        Shown::Parents(of) => {
            let mut parents = fs.parents(of)?;
            parents.sort();
            let lines = parents.iter().map(|(dir, name)| [format!("{} ", dir.0).as_bytes(), name, &[0]].concat());
            lines.flatten().collect()
        }
    };
    Ok(match offset {
        Some(offset) => page(&value, offset),
        None => value,
    })
}

/// The questions that are no paths, for they begin with a zero byte. This one makes everything durable,
/// and ends the journal clean.
const MAKE_DURABLE: &[u8] = b"\0sync";
/// This one gives all free space back to the host; the answer is the number of bytes.
const TRIM: &[u8] = b"\0trim";
/// This one sets the label, which follows.
const SET_LABEL: &[u8] = b"\0label=";

/// Whether a question asks for everything to be durable and in its place, by one who may ask.
pub(crate) fn asks_for_an_end(question: &[u8], uid: u32) -> bool {
    question == MAKE_DURABLE && is_owner(uid)
}

/// Answers a question by its ioctl: the number of the inode at a path from the root of the image. A symbolic link at
/// the end is not followed, as [`LastLink::Keep`] has it. [`TRIM`] and [`SET_LABEL`] are answered when that is
/// done; [`MAKE_DURABLE`] by the server, which lets nothing else run meanwhile.
///
/// # Errors
/// `NotPermitted`; those of [`Volume::resolve`], [`Volume::sync`], [`Volume::trim_within`] and [`Volume::set_label`].
pub(crate) fn answer(fs: &impl Volume, path: &[u8], uid: u32) -> Result<Vec<u8>> {
    if !is_owner(uid) {
        return Err(Error::NotPermitted);
    }
    if path == TRIM {
        return Ok(fs.trim_within(0..u64::MAX, 0)?.to_ne_bytes().to_vec());
    }
    if let Some(label) = path.strip_prefix(SET_LABEL) {
        return fs.set_label(label).map(|()| vec![0; 8]);
    }
    Ok(fs.resolve(path, LastLink::Keep)?.inode.0.to_ne_bytes().to_vec())
}

/// Asks the server of a mount for the number of the inode at a path from the root of the image. `root` is the mount's.
/// The server resolves the path: it does not matter what the caller may search, and what else is mounted there.
///
/// # Errors
/// `NOTTY` from what is no root of a mount of xfskit, and from an older server; `NAMETOOLONG` for a path of more than
/// [`fuse::QUESTION_BYTES`]; those of opening the root, and of the look-up.
pub fn inode_at(root: &Path, path: &[u8]) -> std::io::Result<u64> {
    Ok(u64::from_ne_bytes(fuse::ask(File::open(root)?.as_fd(), path)?))
}

/// Makes everything durable that has reached the server of a mount, whose root is `root`, writes it to its place and
/// ends the journal clean.
///
/// # Errors
/// As [`inode_at`]; those of making it durable.
pub fn make_durable(root: &Path) -> std::io::Result<()> {
    fuse::ask(File::open(root)?.as_fd(), MAKE_DURABLE)?;
    Ok(())
}

/// Has the server of a mount, whose root is `root`, give all free space back to the host. Returns how many bytes that
/// were.
///
/// # Errors
/// As [`inode_at`]; those of [`Volume::trim_within`].
pub fn trim(root: &Path) -> std::io::Result<u64> {
    Ok(u64::from_ne_bytes(fuse::ask(File::open(root)?.as_fd(), TRIM)?))
}

/// Has the server of a mount, whose root is `root`, set the label of its image.
///
/// # Errors
/// As [`inode_at`]; those of [`Volume::set_label`].
pub fn set_label(root: &Path, label: &[u8]) -> std::io::Result<()> {
    fuse::ask(File::open(root)?.as_fd(), &[SET_LABEL, label].concat())?;
    Ok(())
}

/// Sets a virtual attribute: a property of the filesystem, where it can be set.
///
/// # Errors
/// `NotPermitted`, for all others too; those of [`Extras::set_property`](xfskit_vfs::Extras::set_property).
pub(crate) fn set<V: Servable>(
    server: &Server<V>,
    fs: &V,
    number: InodeNumber,
    (name, value): (&[u8], &[u8]),
    uid: u32,
) -> Result<()> {
    match shown(number, server.root(), name) {
        Some(Shown::Property(name)) if is_owner(uid) => fs.set_property(name, value),
        _ => Err(Error::NotPermitted),
    }
}
