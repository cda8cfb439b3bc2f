//! The master boot record, with logical partitions.
//!
//! ```text
//! sector 0          signature of the disk 440..444, four entries of 16 bytes at 446, 55 aa at 510
//! an entry          status 1, CHS 3, type 1, CHS 3, first sector 4, number of sectors 4
//! extended (5, f, 85)   a chain: each sector has two entries, the logical partition (counted from this sector) and the
//!                       next sector of the chain (counted from the first sector of the extended partition)
//! ```
//! Many boot sectors end with 55 aa, too: a table is one only if every entry has a status that exists and one entry is
//! in use. Sectors are those of 512 bytes, since the table does not say their size.
//!
//! Bounds: at most [`MOST_LOGICAL`] logical partitions. A chain that leaves its extended partition or comes back to a
//! sector ends there, with a warning.
//!
//! Source of facts: fdisk(8), and the tables that sfdisk makes.

use crate::bytes::{head, u32_at};
use crate::partition::{Partition, Table, TableKind};
use std::collections::HashSet;
use std::io;
use xfskit_device::BlockDevice;
use xfskit_device::probe::{Kind, holds_kind};

const SECTOR_BYTES: u64 = 512;
/// The type of the partition that stands for a GPT.
pub(crate) const PROTECTIVE: u8 = 0xee;
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
const MOST_LOGICAL: usize = 256;

/// Whether the type of a partition, as [`Partition::kind`] has it, is that of an extended one.
pub(crate) fn is_extended(kind: &str) -> bool {
    u8::from_str_radix(kind, 16).is_ok_and(|kind| EXTENDED.contains(&kind))
}

/// An entry; one that is not in use has type 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    number: u32,
    pub(crate) kind: u8,
    first: u32,
    count: u32,
}

impl Entry {
    fn is_used(&self) -> bool {
        self.kind != 0 && self.count != 0
    }

    fn is_extended(&self) -> bool {
        EXTENDED.contains(&self.kind)
    }

    /// As a partition whose first sector is counted from sector `base` of the disk.
    fn partition(&self, number: u32, base: u64, signature: u32) -> Partition {
        Partition {
            number,
            offset: (base + u64::from(self.first)) * SECTOR_BYTES,
            length: u64::from(self.count) * SECTOR_BYTES,
            kind: format!("{:02x}", self.kind),
            name: None,
            uuid: (signature != 0).then(|| format!("{signature:08x}-{number:02x}")),
        }
    }
}

/// The four entries of a sector that ends with 55 aa.
fn decode_entries(sector: &[u8]) -> Option<[Entry; 4]> {
    if sector.len() != 512 || sector[510..] != [0x55, 0xaa] {
        return None;
    }
    let entry = |index: usize| {
        let at = 446 + 16 * index;
        let (first, count) = (u32_at(sector, at + 8), u32_at(sector, at + 12));
        Entry { number: index as u32 + 1, kind: sector[at + 4], first, count }
    };
    Some(std::array::from_fn(entry))
}

/// The entries in use of a first sector, if it is a table.
pub(crate) fn decode_first(sector: &[u8]) -> Option<Vec<Entry>> {
    let entries = decode_entries(sector)?;
    // Exactly these: boot code may have other words that begin a FAT, such as `MSWIN4.1`, over a table in use.
    let is_filesystem = ["FAT12   ", "FAT16   "].iter().any(|name| &sector[54..62] == name.as_bytes())
        || &sector[82..90] == b"FAT32   "
        || [Kind::Ntfs, Kind::Exfat, Kind::Xfs].iter().any(|kind| holds_kind(sector, *kind));
    let has_status = (0..4).all(|index| matches!(sector[446 + 16 * index], 0 | 0x80));
    let used: Vec<Entry> = entries.into_iter().filter(Entry::is_used).collect();
    let starts = used.iter().all(|entry| entry.first > 0);
    (!is_filesystem && has_status && starts && !used.is_empty()).then_some(used)
}

/// The table of a disk with the given signature and primary entries.
pub(crate) fn read_table(disk: &dyn BlockDevice, signature: u32, primary: &[Entry]) -> io::Result<Table> {
    let id = (signature != 0).then(|| format!("{signature:08x}"));
    let mut table = Table { kind: TableKind::Mbr, id, partitions: Vec::new(), warnings: Vec::new() };
    for entry in primary {
        table.partitions.push(entry.partition(entry.number, 0, signature));
    }
    for entry in primary.iter().filter(|entry| entry.is_extended()) {
        read_logical(disk, entry, signature, &mut table)?;
    }
    Ok(table)
}

/// Follows the chain of an extended partition.
fn read_logical(disk: &dyn BlockDevice, extended: &Entry, signature: u32, table: &mut Table) -> io::Result<()> {
    let base = u64::from(extended.first);
    let end = base + u64::from(extended.count);
    let mut visited = HashSet::new();
    let mut at = base;
    let mut number = table.partitions.iter().map(|partition| partition.number).max().unwrap_or(0).max(4);
    loop {
        if !visited.insert(at) || visited.len() > MOST_LOGICAL {
            table.warnings.push(format!("the chain of logical partitions does not end (sector {at})"));
            return Ok(());
        }
        let Some(entries) = decode_entries(&head(disk, at * SECTOR_BYTES, 512)?) else {
            table.warnings.push(format!("the chain of logical partitions is broken at sector {at}"));
            return Ok(());
        };
        let links = entries.iter().filter(|entry| entry.is_used());
        for entry in links.clone().filter(|entry| !entry.is_extended()) {
            let first = at + u64::from(entry.first);
            number += 1;
            if first + u64::from(entry.count) > end {
                table.warnings.push(format!("partition {number} is left out: it leaves the extended partition"));
                continue;
            }
            table.partitions.push(entry.partition(number, at, signature));
        }
        let Some(next) = links.clone().find(|entry| entry.is_extended()) else { return Ok(()) };
        at = base + u64::from(next.first);
        if at >= end {
            table.warnings.push(format!("the chain of logical partitions leaves the extended partition (sector {at})"));
            return Ok(());
        }
    }
}
