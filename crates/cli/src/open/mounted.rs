//! Messages for an image that is mounted by a server of xfskit, and for a path that is not an image but a file on such
//! a mount.
//!
//! No command reads an image that a server writes: the contents on disk are older than those of the mount, and may
//! change while they are read. These functions look only at `/proc` and the name of the image, never at the image or
//! the mount.

use crate::output::exit::{Mounted, NotAnImage, OnMount, UNREADABLE, USAGE};
use anyhow::Error;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use xfskit_check::CheckError;
use xfskit_device::{Names, OpenError};
use xfskit_engine as volume;
use xfskit_fuse::{mount_around, mounts_of};
use xfskit_vfs::SuperblockFault;

/// The error of an image or device that could not be opened. If a mount by xfskit is the reason, it says what to do.
pub fn explain_open(path: &Path, error: OpenError) -> Error {
    let OpenError::Busy(in_use) = &error else { return explain(path, error.into()) };
    let Some(place) = place_of(path) else { return error.into() };
    Mounted { image: path.display().to_string(), holders: Names(in_use.holders()).to_string(), place }.into()
}

/// The mount point of an image that a server of xfskit has mounted.
pub fn place_of(image: &Path) -> Option<String> {
    let image = image.canonicalize().unwrap_or_else(|_| image.into());
    Some(mounts_of(&image).ok()?.believed.first()?.place.display().to_string())
}

/// The error of a file that is not an image. If the file is on a mount by xfskit, the error says so.
pub fn explain(path: &Path, error: Error) -> Error {
    let resolved = resolved(path);
    let Ok(Some(entry)) = mount_around(&resolved) else { return error };
    let (named, place, image) = (path.display(), entry.place.display(), entry.source.display());
    if error.chain().any(is_of_dead_server) {
        return dead_server(path, &entry.place);
    }
    let within = entry.root.join(resolved.strip_prefix(&entry.place).unwrap_or(&resolved));
    let message = format!(
        "{named}: this is {} on {place}, where xfskit has mounted {image}, and no image; use ls and cat on it, or \
         after 'xfskit umount {place}' name the image and the path in it: {image} {}",
        within.display(),
        within.display()
    );
    match code_of_other_contents(&error) {
        Some(code) => OnMount { message, code }.into(),
        // An image may be a file on a mount, and damaged.
        None => error.context(message),
    }
}

/// The exit code of an error that says no more than that this is no image.
fn code_of_other_contents(error: &Error) -> Option<u8> {
    let is_other =
        |error: &volume::Error| matches!(error, volume::Error::Superblock { fault: SuperblockFault::OtherFormat, .. });
    error.chain().find_map(|cause| match cause.downcast_ref() {
        Some(OpenError::NotAnImage { .. } | OpenError::Missing(_) | OpenError::NoFolder(_)) => Some(UNREADABLE),
        _ if cause.is::<NotAnImage>() || cause.downcast_ref().is_some_and(is_other) => Some(USAGE),
        _ => None,
    })
}

/// The error of a path on a mount whose server has ended.
pub fn dead_server(path: &Path, place: &Path) -> Error {
    let (path, place) = (path.display(), place.display());
    let cure = format!("has ended without unmounting; 'xfskit umount {place}' takes it away");
    OnMount { message: format!("{path}: the server of the mount on {place} {cure}"), code: UNREADABLE }.into()
}

/// Whether a cause is, or contains, the error of the system that a server has ended.
fn is_of_dead_server(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.downcast_ref().is_some_and(is_dead)
        || matches!(cause.downcast_ref(), Some(OpenError::Io { source, .. }) if is_dead(source))
        || matches!(cause.downcast_ref(), Some(volume::Error::Io { source, .. }) if is_dead(source))
        || matches!(cause.downcast_ref(), Some(CheckError::Io(source)) if is_dead(source))
}

/// Whether the reason is a server that has ended.
pub fn is_dead(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error())
}

/// A path without symbolic links, as far as it exists and the servers of its mounts answer.
pub fn resolved(path: &Path) -> PathBuf {
    let Ok(absolute) = std::path::absolute(path) else { return path.into() };
    let existing = absolute.ancestors().find_map(|part| Some((part, part.canonicalize().ok()?)));
    match existing {
        Some((part, real)) => absolute.strip_prefix(part).map_or_else(|_| real.clone(), |rest| real.join(rest)),
        None => absolute,
    }
}
