//! Why a mount could not be made, or failed.

use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};
use xfskit_engine::Error;

/// Why a mount could not be made, or failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The mount point is not a folder, or cannot be used.
    #[error("{path}: {source}")]
    MountPoint {
        /// The mount point.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A mount whose server has ended is already there.
    #[error(
        "{0}: the server of the mount here has ended without unmounting; 'xfskit umount {0}' or 'fusermount3 -u {0}' \
             takes that mount away"
    )]
    DeadMount(PathBuf),
    /// This machine has no FUSE, or this user may not use it.
    #[error("/dev/fuse cannot be used: {0} ({hint})", hint = fuse_hint(.0))]
    NoFuse(io::Error),
    /// Any other error of the kernel or fusermount3.
    #[error("cannot mount: {0}")]
    Mount(io::Error),
    /// The connection to the kernel failed during the mount.
    #[error("the connection to the kernel failed: {0}")]
    Connection(io::Error),
    /// The image could not be closed in good order.
    #[error("closing the image: {0}")]
    Close(#[from] Error),
}

impl MountError {
    /// The error for a mount point that cannot be used.
    pub fn of_mount_point(path: &Path, source: io::Error) -> Self {
        match source.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()) {
            true => Self::DeadMount(path.into()),
            false => Self::MountPoint { path: path.into(), source },
        }
    }
}

/// A hint why `/dev/fuse` cannot be opened.
fn fuse_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "a matter of permission, not of a missing module: its mode, or what this container or user may open"
        }
        _ => "is the fuse module loaded, and this container given the device?",
    }
}
