//! What is about to grow.

use super::files::open_disks;
use super::session::Session;
use super::unread::is_plain;
use crate::operand::decode;
use crate::output::error::Result;
use std::path::Path;
use std::sync::Arc;
use xfskit_device::{Access, BlockDevice, FileDevice};
use xfskit_disk::{DiskError, Disks, Part, Unnamed};

/// What is about to grow.
pub enum Growing {
    /// A file or a block device as it is; a file can be made longer.
    File(FileDevice),
    /// A part of a disk, a virtual disk, or an export.
    Part(GrowingPart),
}

/// A part of a disk that is about to grow.
pub struct GrowingPart {
    disks: Disks,
    /// The part as a device, in its size of now.
    pub device: Arc<dyn BlockDevice>,
    part: Part,
    /// The bytes that the part can have where it is.
    pub most_bytes: u64,
}

impl GrowingPart {
    /// Makes a partition larger, durably. The device of before keeps its size.
    ///
    /// # Errors
    /// As [`Disks::grow`].
    pub fn grow(self, size_bytes: u64) -> Result<(), DiskError> {
        self.disks.grow(&self.part, size_bytes)
    }
}

/// Opens what is to grow, with its lock.
///
/// # Errors
/// As opening the files of an operand.
pub fn open_to_grow(session: &Session, operand: &Path) -> Result<Growing> {
    let decoded = decode(operand)?;
    let disks = open_disks(session, &decoded, Access::Write)?;
    let chosen = disks.find(&decoded.part, Unnamed::OnlyXfs)?;
    let (device, part) = (chosen.device, chosen.part);
    if part == Part::Whole && is_plain(operand)? {
        // Locks of one file exclude each other, within this program too.
        drop((disks, device));
        return Ok(Growing::File(session.open_device(operand, Access::Write)?));
    }
    // What cannot grow keeps its size.
    let most_bytes = match part {
        Part::Partition(_) => disks.most_bytes(&part)?,
        _ => device.size_bytes(),
    };
    Ok(Growing::Part(GrowingPart { disks, device, part, most_bytes }))
}
