//! Opens images and finds files in them.

use crate::args::ImageArgs;
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use xfskit::device::{Access, FileDevice};
use xfskit::journal::LogState;
use xfskit::ondisk::InodeNumber;
use xfskit::{Error, Filesystem, MountOptions, Stat};

/// Opens an image for a command that only looks. A dirty journal is no obstacle, but worth a warning.
///
/// # Errors
/// As opening a device and a filesystem.
pub fn open_to_read(args: &ImageArgs) -> Result<Filesystem> {
    let filesystem = open(&args.image, args.logdev.as_deref(), MountOptions::read_only())?;
    warn_of_dirty_log(&args.image, &filesystem);
    Ok(filesystem)
}

/// Says so where an image that was opened for reading has a journal that was not replayed.
pub fn warn_of_dirty_log(image: &Path, filesystem: &Filesystem) {
    let mount = filesystem.mount();
    if mount.options.read_only && mount.log_state != LogState::Clean {
        eprintln!(
            "xfskit: warning: {}: the journal is dirty: what was done last may not show, or only in part",
            image.display()
        );
    }
}

/// Opens an image, does something, and closes it: what was done is complete when this returns.
///
/// # Errors
/// As opening; those of `action`; those of closing.
pub fn edit<T>(args: &ImageArgs, action: impl FnOnce(&Filesystem) -> Result<T>) -> Result<T> {
    let filesystem = open(&args.image, args.logdev.as_deref(), MountOptions::default())?;
    let result = action(&filesystem);
    let closed = filesystem.unmount();
    let result = result?;
    closed.with_context(|| format!("{}: closing the image", args.image.display()))?;
    Ok(result)
}

/// Opens an image.
///
/// # Errors
/// As opening a device and a filesystem.
pub fn open(image: &Path, log_device: Option<&Path>, options: MountOptions) -> Result<Filesystem> {
    let access = if options.read_only { Access::Read } else { Access::Write };
    let device = Arc::new(FileDevice::open(image, access)?);
    let opened = match log_device {
        Some(path) => Filesystem::open_with_log(device, Arc::new(FileDevice::open(path, access)?), options),
        None => Filesystem::open(device, options),
    };
    opened.with_context(|| image.display().to_string())
}

/// Finds a file; a symbolic link at the end is not followed.
///
/// # Errors
/// As a look-up, with the path.
pub fn find(filesystem: &Filesystem, path: &OsStr) -> Result<Stat> {
    filesystem.resolve(path.as_bytes(), false).with_context(|| shown(path))
}

/// Finds the directory that a new name goes into, and the name.
///
/// # Errors
/// As a look-up, with the path.
pub fn find_place<'a>(filesystem: &Filesystem, path: &'a OsStr) -> Result<(InodeNumber, &'a [u8])> {
    let find = || -> Result<_, Error> {
        let (dir, name) = xfskit::split_path(path.as_bytes())?;
        Ok((filesystem.resolve(dir, true)?.inode, name))
    };
    find().with_context(|| shown(path))
}

/// A path in messages.
pub fn shown(path: &OsStr) -> String {
    path.display().to_string()
}
