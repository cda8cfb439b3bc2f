//! What names an image, and files in it; and values that several commands take.

use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// What is said of commands that a mount can answer.
pub const LIVE_NOTES: &str = "\
Where the image is mounted by xfskit, name the mount point instead of the image: the server answers. Only root and the \
user who mounted it may ask.";

/// An image.
#[derive(Debug, Args)]
pub struct ImageArgs {
    /// Image file or block device, or a part of a disk, as in disk.qcow2#3 (see xfskit --help)
    pub image: PathBuf,
    /// Device of an external journal
    #[arg(long, value_name = "DEVICE")]
    pub logdev: Option<PathBuf>,
}

/// An image that is only looked at.
#[derive(Debug, Args)]
pub struct ReadArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Do not replay a dirty journal, not even in memory: show the image as it is on disk, without what only the
    /// journal holds
    #[arg(long = "norecovery")]
    pub no_recovery: bool,
}

/// A file in an image that is only looked at.
#[derive(Debug, Args)]
pub struct PathArgs {
    #[command(flatten)]
    pub read: ReadArgs,
    /// Path within the image, or inode:NUMBER
    #[arg(default_value = "/")]
    pub path: OsString,
}

/// Files in an image that are changed.
#[derive(Debug, Args)]
pub struct PathsArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Paths within the image
    #[arg(required = true)]
    pub paths: Vec<OsString>,
}

/// A mount point.
#[derive(Debug, Args)]
pub struct MountPointArgs {
    /// Where an image is mounted
    pub mount_point: PathBuf,
}

/// A number of threads.
pub fn parse_threads(text: &str) -> Result<std::num::NonZeroUsize, String> {
    text.parse().map_err(|_| "expected a number of threads, 1 at least".into())
}

/// Permissions.
pub fn parse_octal(text: &str) -> Result<u16, String> {
    match u16::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err("expected an octal number up to 7777".into()),
    }
}
