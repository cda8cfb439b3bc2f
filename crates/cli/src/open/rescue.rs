//! Images that have lost their first superblock or their end.

use super::session::Session;
use crate::output::error::{Context, Result};
use std::path::Path;
use std::sync::Arc;
use xfskit::rescue::{Loss, Search, rescue};
use xfskit_device::BlockDevice;
use xfskit_device::probe::{Kind, known_contents};

/// Whether warnings about an image are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warnings {
    /// They are.
    Printed,
    /// Not printed: the image is opened a second time, or the command prints none of its contents.
    Left,
}

/// A part of a disk, and what its files have of the host's storage, if they are of this host.
pub struct OpenPart {
    /// The part as a device.
    pub device: Arc<dyn BlockDevice>,
    /// What its files have of the host's storage.
    pub stored_bytes: Option<u64>,
}

/// An image that has lost its first superblock or its end, as far as it can be read; and what is lost.
///
/// # Errors
/// Those of reading it.
pub fn rescued(
    session: &Session,
    path: &Path,
    part: OpenPart,
    warnings: Warnings,
) -> Result<(Arc<dyn BlockDevice>, Vec<Loss>)> {
    let OpenPart { device, stored_bytes } = part;
    let search = match known_contents(&*device) {
        // A partition table overwrites the first sector of a disk, which may contain an image.
        Ok(Some(Kind::Mbr)) => Search::LikelyPlaces,
        Ok(Some(Kind::Xfs) | None) | Err(_) => extent_of_search(stored_bytes),
        Ok(Some(_)) => return Ok((device, Vec::new())),
    };
    let Some(rescued) = rescue(Arc::clone(&device), search).with_context(|| path.display().to_string())? else {
        return Ok((device, Vec::new()));
    };
    for loss in rescued.losses.iter().filter(|_| warnings == Warnings::Printed) {
        session.messages().report(&format!("{}: warning: {loss}{}", path.display(), cure(loss)));
    }
    session.is_incomplete.set(true);
    Ok((rescued.device, rescued.losses))
}

/// How much of an image is searched for a copy of its superblock. The tables of a virtual disk, and a server, may say
/// any size, and that there is data everywhere: what the files have of the host's storage is what there is to read.
fn extent_of_search(stored_bytes: Option<u64>) -> Search {
    const QUESTIONS_TO_SERVER: u64 = 1024;
    let (stored_bytes, most_questions) = match stored_bytes {
        Some(bytes) => (bytes, u64::MAX),
        None => (0, QUESTIONS_TO_SERVER),
    };
    Search::Within { most_bytes: most_read_of(stored_bytes), most_questions }
}

/// How much is read of a disk whose files have so many bytes of the host's storage.
pub fn most_read_of(stored_bytes: u64) -> u64 {
    /// A cluster may be compressed, and a piece that is read may hold little data.
    const TIMES: u64 = 64;
    const LEAST_BYTES: u64 = 1 << 30;
    LEAST_BYTES.saturating_add(stored_bytes.saturating_mul(TIMES))
}

/// What the user can do about a loss.
fn cure(loss: &Loss) -> &'static str {
    match loss {
        Loss::FirstSuperblock { .. } => {
            ". Nothing writes to the image until xfs_repair has put the first one back; make a copy of the image before"
        }
        Loss::End { .. } => ". The end has to come back from where the image was copied",
    }
}
