//! What to say when an image is mounted by a server of ours, or what was named is not an image but a file on such a
//! mount.
//!
//! No command reads an image that a server writes: what is on disk is older than what the mount shows, and may be read
//! half changed. Only `/proc` and the name of the image are looked at, never the image or the mount.

use crate::exit::Mounted;
use anyhow::Error;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use xfskit::device::{Names, OpenError};
use xfskit_fuse::{mount_around, mounts_of};

/// The error of an image or device that could not be opened, with what to do where a mount of ours is the reason.
pub fn explain_open(path: &Path, error: OpenError) -> Error {
    let OpenError::Busy(in_use) = &error else { return explain(path, error.into()) };
    let Some(place) = place_of(path) else { return error.into() };
    Mounted { image: path.display().to_string(), holders: Names(in_use.holders()).to_string(), place }.into()
}

/// Where a server of ours has an image mounted.
pub fn place_of(image: &Path) -> Option<String> {
    let image = image.canonicalize().unwrap_or_else(|_| image.into());
    Some(mounts_of(&image).ok()?.first()?.place.display().to_string())
}

/// The error of what is no image, with what it is where it lies on a mount of ours.
pub fn explain(path: &Path, error: Error) -> Error {
    let resolved = resolved(path);
    let Ok(Some(entry)) = mount_around(&resolved) else { return error };
    let (named, place, image) = (path.display(), entry.place.display(), entry.source.display());
    if is_dead(&error) {
        let cure = "to be taken away by 'xfskit umount";
        return error
            .context(format!("{named}: this is on the mount of a server of xfskit that has ended, {cure} {place}'"));
    }
    let within = resolved.strip_prefix(&entry.place).unwrap_or(&resolved);
    let within = Path::new("/").join(within);
    error.context(format!(
        "{named}: this is {} on {place}, where xfskit has mounted {image}, and no image; use ls and cat on it, or \
         after 'xfskit umount {place}' name the image and the path in it: {image} {}",
        within.display(),
        within.display()
    ))
}

/// Whether a server that does not live is the reason.
fn is_dead(error: &Error) -> bool {
    let code = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>()?.raw_os_error());
    code == Some(Errno::NOTCONN.raw_os_error())
}

/// A path without symbolic links, as far as it exists and the servers of its mounts live.
fn resolved(path: &Path) -> PathBuf {
    let Ok(absolute) = std::path::absolute(path) else { return path.into() };
    let existing = absolute.ancestors().find_map(|part| Some((part, part.canonicalize().ok()?)));
    match existing {
        Some((part, real)) => absolute.strip_prefix(part).map_or_else(|_| real.clone(), |rest| real.join(rest)),
        None => absolute,
    }
}
