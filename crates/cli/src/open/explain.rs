//! What is wrong with an image that cannot be opened.

use super::mounted::explain;
use crate::output::causes::NotAnImage;
use crate::output::error::CommandError;
use std::path::Path;
use std::sync::Arc;
use xfskit::rescue::{Loss, Search, rescue};
use xfskit_device::BlockDevice;
use xfskit_device::probe::{Kind, known_contents};
use xfskit_engine::Error;
use xfskit_mkfs::{Extent, first_data};
use xfskit_ondisk::Corruption;
use xfskit_vfs::SuperblockFault;

/// The error of an image that cannot be opened. A file in another known format is reported as such, not as damaged.
pub fn named(path: &Path, device: &dyn BlockDevice, error: CommandError) -> CommandError {
    match known_contents(device) {
        Ok(Some(Kind::Xfs)) => error,
        Ok(Some(what)) => explain(path, NotAnImage(what).into()),
        Ok(None) if first_data(device, Extent::Disk).is_ok_and(|data| data.is_none()) => {
            explain(path, NotAnImage(Kind::Zeros).into())
        }
        _ => explain(path, error),
    }
}

/// The error of a first superblock that its copies contradict: an unsupported version is damage, too.
pub fn superblock_damage(error: Error) -> CommandError {
    match error {
        Error::Superblock { fault: SuperblockFault::Unsupported, why } => {
            Error::from(Corruption::new("superblock", "the version of its copies").found(why)).into()
        }
        error => error.into(),
    }
}

/// What the user can do about an image that cannot be opened for writing because its first superblock is lost, if a
/// copy exists.
pub fn with_copy(device: &Arc<dyn BlockDevice>, error: &Error) -> Option<String> {
    if !matches!(error, Error::Superblock { .. }) {
        return None;
    }
    let rescued = rescue(Arc::clone(device), Search::LikelyPlaces).ok()??;
    let copy = rescued.losses.iter().find_map(|loss| match loss {
        Loss::FirstSuperblock { copy } => Some(*copy),
        Loss::End { .. } => None,
    })?;
    Some(format!(
        "the first superblock is damaged or gone, and AG {copy} has a copy: xfs_repair puts it back; commands that \
         only read, and mount -o ro, work with the copy"
    ))
}
