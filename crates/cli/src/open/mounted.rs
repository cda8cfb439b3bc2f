//! Messages for an image that is mounted by a server of xfskit, and for a path that is not an image but a file on such
//! a mount.
//!
//! No command reads an image that a server writes: the contents on disk are older than those of the mount, and may
//! change while they are read. These functions look only at `/proc` and the name of the image, never at the image or
//! the mount.

use crate::output::causes::Mounted;
use crate::output::error::{CommandError, Kind};
use std::path::{Path, PathBuf};
use xfskit_device::{Names, OpenError};
use xfskit_fuse::{mount_around, mounts_of};

/// The error of an image or device that could not be opened. If a mount by xfskit is the reason, it says what to do.
pub fn explain_open(path: &Path, error: OpenError) -> CommandError {
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
pub fn explain(path: &Path, error: CommandError) -> CommandError {
    let resolved = resolved(path);
    let Ok(Some(entry)) = mount_around(&resolved) else { return error };
    let (named, place, image) = (path.display(), entry.place.display(), entry.source.display());
    if matches!(error.kind(), Kind::Disconnected) {
        return dead_server(path, &entry.place);
    }
    let within = entry.root.join(resolved.strip_prefix(&entry.place).unwrap_or(&resolved));
    let message = format!(
        "{named}: this is {} on {place}, where xfskit has mounted {image}, and no image; use ls and cat on it, or \
         after 'xfskit umount {place}' name the image and the path in it: {image} {}",
        within.display(),
        within.display()
    );
    let kind = match error.kind() {
        // Nothing more is to be said than that this is no image.
        Kind::Missing => Kind::Missing,
        Kind::NotAnImage => Kind::Usage,
        // An image may be a file on a mount, and damaged.
        _ => return error.context(message),
    };
    CommandError::new(kind, anyhow::Error::msg(message))
}

/// The error of a path on a mount whose server has ended.
pub fn dead_server(path: &Path, place: &Path) -> CommandError {
    let (path, place) = (path.display(), place.display());
    let cure = format!("has ended without unmounting; 'xfskit umount {place}' takes it away");
    let message = format!("{path}: the server of the mount on {place} {cure}");
    CommandError::new(Kind::Disconnected, anyhow::Error::msg(message))
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
