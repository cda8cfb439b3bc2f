//! Extended attributes that no file has on disk: the mount answers them, so that any program can ask what no system
//! call through FUSE tells.
//!
//! ```text
//! name                  file      value
//! xfskit.paths          any       every path of the file from the root of the image, each with a zero byte behind it
//! xfskit.parents        any       for every name: number of the directory, a space, the name, a zero byte
//! xfskit.paths.NUMBER   the root  the same of the inode with that number
//! xfskit.parents.NUMBER the root
//! xfskit.superblock     the root  the superblock, with the counts of now
//! xfskit.larp           the root  always or never; can be set
//! user.xfskit.stats     the root  the figures of the mount, as JSON
//! ```
//! Listings show none of them, so no program copies them. Paths show names in directories that a caller may not read,
//! so only user 0 and the user of the server get any but the figures, and only they may set `xfskit.larp`.

use crate::server::Server;
use crate::stats::stats;
use xfskit::ondisk::InodeNumber;
use xfskit::volume::{AttrLogging, Error, Result, Volume};
use zerocopy::IntoBytes;

/// The attribute of the mount's root that contains the figures of the mount.
pub const STATS_XATTR: &str = "user.xfskit.stats";
/// Paths of a file on a mount.
pub const PATHS_XATTR: &str = "xfskit.paths";
/// Names of a file on a mount, with the numbers of their directories.
pub const PARENTS_XATTR: &str = "xfskit.parents";
/// The attribute of the mount's root that contains the superblock.
pub const SUPERBLOCK_XATTR: &str = "xfskit.superblock";
/// The attribute of the mount's root that says whether attributes are logged.
pub const LARP_XATTR: &str = "xfskit.larp";

const PREFIX: &[u8] = b"xfskit.";

/// What a virtual attribute shows.
enum Shown {
    Stats,
    Paths(InodeNumber),
    Parents(InodeNumber),
    Superblock,
    Larp,
}

/// The virtual attribute with a name, if there is one of that name.
fn shown(number: InodeNumber, root: InodeNumber, name: &[u8]) -> Option<Shown> {
    let is_root = number == root;
    match std::str::from_utf8(name).ok()? {
        STATS_XATTR if is_root => Some(Shown::Stats),
        SUPERBLOCK_XATTR if is_root => Some(Shown::Superblock),
        LARP_XATTR if is_root => Some(Shown::Larp),
        PATHS_XATTR => Some(Shown::Paths(number)),
        PARENTS_XATTR => Some(Shown::Parents(number)),
        name if is_root => {
            let of = |prefix: &str| name.strip_prefix(prefix)?.strip_prefix('.')?.parse().ok().map(InodeNumber);
            of(PATHS_XATTR).map(Shown::Paths).or_else(|| of(PARENTS_XATTR).map(Shown::Parents))
        }
        _ => None,
    }
}

/// Whether a name is one of those that no file has on disk.
pub(crate) fn is_virtual(number: InodeNumber, root: InodeNumber, name: &[u8]) -> bool {
    name.starts_with(PREFIX) || (number == root && name == STATS_XATTR.as_bytes())
}

/// Whether a caller may see more than the figures: user 0, and the user of the server.
fn is_owner(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// The value of a virtual attribute.
///
/// # Errors
/// `NotPermitted`; `NotSupported` for a name that there is not; `Stale` for the number of no inode in use.
pub(crate) fn get(server: &Server, fs: &Volume, number: InodeNumber, name: &[u8], uid: u32) -> Result<Vec<u8>> {
    let what = shown(number, server.root(), name).ok_or(Error::NotSupported("no such attribute of a mount"))?;
    match what {
        Shown::Stats => Ok(stats(fs, &server.commit_failures(), server.requests()).into_bytes()),
        _ if !is_owner(uid) => Err(Error::NotPermitted),
        Shown::Superblock => Ok(fs.superblock().as_bytes().to_vec()),
        Shown::Larp => Ok(fs.attr_logging().name().into()),
        Shown::Paths(of) | Shown::Parents(of) if !fs.is_in_use(of)? => Err(Error::Stale(of.0)),
        Shown::Paths(of) => Ok(fs.paths(of)?.into_iter().flat_map(|path| [path, vec![0]].concat()).collect()),
        Shown::Parents(of) => {
            let mut parents = fs.parents(of)?;
            parents.sort();
            Ok(parents.iter().flat_map(|(dir, name)| [format!("{} ", dir.0).as_bytes(), name, &[0]].concat()).collect())
        }
    }
}

/// Sets a virtual attribute: `xfskit.larp` of the root can be set, for updates that begin from now on.
///
/// # Errors
/// `NotPermitted`, for all others too; `Invalid` for another value than `always` and `never`.
pub(crate) fn set(
    server: &Server,
    fs: &Volume,
    number: InodeNumber,
    (name, value): (&[u8], &[u8]),
    uid: u32,
) -> Result<()> {
    let Some(Shown::Larp) = shown(number, server.root(), name).filter(|_| is_owner(uid)) else {
        return Err(Error::NotPermitted);
    };
    let logging = std::str::from_utf8(value.trim_ascii()).ok().and_then(AttrLogging::from_name);
    fs.set_attr_logging(logging.ok_or(Error::Invalid("larp is always or never"))?);
    Ok(())
}
