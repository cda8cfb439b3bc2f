//! The partition table of a disk, of either kind.

use crate::bytes::{head, u32_at};
use crate::partition::Table;
use crate::{gpt, mbr};
use std::io;
use xfskit_device::BlockDevice;
use xfskit_device::probe::{Kind, holds_kind};

/// The partition table of a disk, if it has one.
///
/// # Errors
/// Any I/O error. A table that is damaged beyond use is none, with a warning in the result.
pub fn table(disk: &dyn BlockDevice) -> io::Result<Option<Table>> {
    let sector = head(disk, 0, 512)?;
    let mbr = mbr::decode_first(&sector);
    let only_protective = match &mbr {
        Some(entries) => entries.iter().any(|entry| entry.kind == mbr::PROTECTIVE),
        // A table whose first sector was overwritten is found by its header.
        None => sector.len() == 512 && !holds_boot_sector(&sector),
    };
    if only_protective && let Some(found) = gpt::read_table(disk, mbr.is_some())? {
        return Ok(Some(found));
    }
    match mbr {
        Some(entries) => mbr::read_table(disk, u32_at(&sector, 440), &entries).map(Some),
        None => Ok(None),
    }
}

/// Whether the first sector is that of a filesystem, so that a table behind it is left over.
fn holds_boot_sector(sector: &[u8]) -> bool {
    sector[510..512] == [0x55, 0xaa] || [Kind::Xfs, Kind::Luks].iter().any(|kind| holds_kind(sector, *kind))
}
