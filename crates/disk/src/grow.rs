//! Gives a partition the free space behind it.
//!
//! ```text
//! GPT   1. the backup, at the end of the disk: entries, header   ─ flush ─   the first copy is as before
//!       2. the first copy: entries, header                       ─ flush ─   the backup is the new table
//!       3. the protective MBR, and the place of the old backup   ─ flush ─   both are the new table
//! MBR   the first sector, which a disk writes as a whole         ─ flush ─
//! ```
//! After a power failure at any place there is a copy of the table with right checksums, with the old size of the
//! partition or the new one. Where the first copy was cut in the middle, its checksums are wrong, and every program
//! uses the backup.
//!
//! Refused: a table whose first copy is damaged already (a program that mends tables comes first), logical partitions,
//! whose extended partition would have to grow before, and whatever is no partition.
//!
//! Source of facts: the UEFI specification, section 5.3; sfdisk --verify.

use crate::bytes::{crc32, head, u32_at, u64_at};
use crate::disks::{Disk, Disks};
use crate::error::{DiskError, PartFault};
use crate::mbr::{PROTECTIVE, decode_first};
use crate::operand::Part;
use crate::partition::{Partition, TableKind};
use std::io;
use xfskit_device::BlockDevice;

const MBR_SECTOR: u64 = 512;
const FIRST_ENTRY: usize = 446;
const ENTRY_BYTES: usize = 16;
/// MBR counts sectors in 32 bits.
const MOST_MBR_SECTORS: u64 = u32::MAX as u64;
/// The geometry that MBR's old addresses are in.
const HEADS: u64 = 255;
const TRACK_SECTORS: u64 = 63;
const MOST_CYLINDERS: u64 = 1024;

/// A partition, and how large it may become.
struct Growable<'a> {
    disk: &'a Disk,
    device: &'a dyn BlockDevice,
    partition: &'a Partition,
    kind: TableKind,
    most_bytes: u64,
}

impl Disks {
    /// How large a partition can become, in bytes: up to the next one, or to the end of the disk.
    ///
    /// # Errors
    /// `Part` for what cannot grow, with what a person can do; I/O errors.
    pub fn most_bytes(&self, part: &Part) -> Result<u64, DiskError> {
        self.growable(part).map(|growable| growable.most_bytes)
    }

    /// Changes the table so that a partition has `size_bytes`, which is durable when this returns. The table's backup
    /// moves to the end of the disk. The devices that were chosen before keep their sizes: open the disk again.
    ///
    /// # Errors
    /// As [`Self::most_bytes`]; `Part` for a size that is smaller than that of now, larger than there is room for, or
    /// no multiple of the table's sectors. With an I/O error the partition has its old size or the new one.
    pub fn grow(&self, part: &Part, size_bytes: u64) -> Result<(), DiskError> {
        let growable = self.growable(part)?;
        let sector_bytes = match growable.kind {
            TableKind::Gpt { sector_bytes } => u64::from(sector_bytes),
            TableKind::Mbr => MBR_SECTOR,
        };
        let refuse = |why: &str| Err(self.refuse(part, PartFault::Unusable, why));
        if size_bytes < growable.partition.length {
            return refuse("a partition is made larger only");
        }
        if size_bytes > growable.most_bytes {
            return refuse(&format!("there is room for {} bytes only", growable.most_bytes));
        }
        if !size_bytes.is_multiple_of(sector_bytes) {
            return refuse(&format!("the size is no multiple of {sector_bytes}, the table's sectors"));
        }
        let done = match growable.kind {
            TableKind::Gpt { .. } => grow_gpt(&growable, sector_bytes, size_bytes),
            TableKind::Mbr => grow_mbr(&growable, size_bytes),
        };
        done.map_err(|source| DiskError::io(&growable.disk.path, source))
    }

    fn growable(&self, part: &Part) -> Result<Growable<'_>, DiskError> {
        let refuse = |why: &str| self.refuse(part, PartFault::Unusable, why);
        let found = self.find(part, crate::Unnamed::OnlyXfs)?;
        let Part::Partition(number) = found.part else {
            return Err(refuse("only partitions grow here (a logical volume: lvextend; a whole disk: its file)"));
        };
        let mut all = self.disks.iter().filter_map(|disk| {
            let table = disk.table.as_ref()?;
            Some((disk, table, table.partitions.iter().find(|partition| partition.number == number)?))
        });
        let Some((disk, table, partition)) = all.next() else { return Err(refuse("there is no such partition")) };
        if !table.warnings.is_empty() {
            return Err(refuse(&format!("{}: mend the table first, with sfdisk or sgdisk", table.warnings[0])));
        }
        if table.kind == TableKind::Mbr && number > 4 {
            return Err(refuse("a logical partition: the extended one has to grow first, with sfdisk -N"));
        }
        let device = disk.whole.device.as_ref().map_err(|why| refuse(why))?;
        let failed = |source| DiskError::io(&disk.path, source);
        let last = end_of_usable(&**device, table.kind).map_err(failed)?;
        // A logical partition lies in the extended one.
        let others = table.partitions.iter().filter(|other| table.kind != TableKind::Mbr || other.number <= 4);
        let next = others.map(|other| other.offset).filter(|&offset| offset > partition.offset).min();
        let end = next.unwrap_or(u64::MAX).min(last);
        let most_bytes = end.saturating_sub(partition.offset).max(partition.length);
        Ok(Growable { disk, device: &**device, partition, kind: table.kind, most_bytes })
    }
}

/// The byte behind the last one that a partition may have.
fn end_of_usable(disk: &dyn BlockDevice, kind: TableKind) -> io::Result<u64> {
    Ok(match kind {
        TableKind::Gpt { sector_bytes } => {
            let sector_bytes = u64::from(sector_bytes);
            let header = Header::read(disk, sector_bytes)?;
            (disk.size_bytes() / sector_bytes).saturating_sub(1 + header.entries_sectors(sector_bytes)) * sector_bytes
        }
        TableKind::Mbr => disk.size_bytes().min(MOST_MBR_SECTORS * MBR_SECTOR) / MBR_SECTOR * MBR_SECTOR,
    })
}

/// The first header of a GPT, whose checksums were verified when the disk was opened.
struct Header {
    sector: Vec<u8>,
}

impl Header {
    fn read(disk: &dyn BlockDevice, sector_bytes: u64) -> io::Result<Self> {
        Ok(Self { sector: head(disk, sector_bytes, sector_bytes as usize)? })
    }

    fn entries_bytes(&self) -> usize {
        u32_at(&self.sector, 80) as usize * u32_at(&self.sector, 84) as usize
    }

    fn entries_sectors(&self, sector_bytes: u64) -> u64 {
        (self.entries_bytes() as u64).div_ceil(sector_bytes)
    }

    /// The header of a copy: where it lies, where the other one lies, where its entries begin, and their checksum.
    fn of_copy(&self, own: u64, other: u64, last_usable: u64, entries_sector: u64, entries: &[u8]) -> Vec<u8> {
        let mut sector = self.sector.clone();
        let mut put = |at: usize, value: &[u8]| sector[at..at + value.len()].copy_from_slice(value);
        put(16, &[0; 4]);
        for (at, value) in [(24, own), (32, other), (48, last_usable), (72, entries_sector)] {
            put(at, &value.to_le_bytes());
        }
        put(88, &crc32(entries).to_le_bytes());
        let size = u32_at(&sector, 12) as usize;
        let crc = crc32(&sector[..size]);
        sector[16..20].copy_from_slice(&crc.to_le_bytes());
        sector
    }
}

fn grow_gpt(growable: &Growable<'_>, sector_bytes: u64, size_bytes: u64) -> io::Result<()> {
    let disk = growable.device;
    let header = Header::read(disk, sector_bytes)?;
    let (old_backup, entries_sector) = (u64_at(&header.sector, 32), u64_at(&header.sector, 72));
    let mut entries = head(disk, entries_sector * sector_bytes, header.entries_bytes())?;
    let entry_bytes = u32_at(&header.sector, 84) as usize;
    let entry = (growable.partition.number as usize - 1) * entry_bytes;
    let end = (growable.partition.offset + size_bytes) / sector_bytes;
    entries[entry + 40..entry + 48].copy_from_slice(&(end - 1).to_le_bytes());
    let last = disk.size_bytes() / sector_bytes - 1;
    let backup_entries = last - header.entries_sectors(sector_bytes);
    let first = header.of_copy(1, last, backup_entries - 1, entries_sector, &entries);
    let backup = header.of_copy(last, 1, backup_entries - 1, backup_entries, &entries);

    disk.write(backup_entries * sector_bytes, &entries)?;
    disk.write(last * sector_bytes, &backup)?;
    disk.flush()?;
    disk.write(entries_sector * sector_bytes, &entries)?;
    disk.write(sector_bytes, &first)?;
    disk.flush()?;

    protect(disk, last)?;
    if old_backup < backup_entries && old_backup > 1 {
        // A program that searches the disk for tables would find it.
        disk.write(old_backup * sector_bytes, &vec![0; sector_bytes as usize])?;
    }
    disk.flush()
}

/// Gives the protective MBR the size of the disk, unless it has other partitions too.
fn protect(disk: &dyn BlockDevice, last_sector: u64) -> io::Result<()> {
    let mut sector = head(disk, 0, MBR_SECTOR as usize)?;
    let is_plain = sector[FIRST_ENTRY + 4] == PROTECTIVE
        && u32_at(&sector, FIRST_ENTRY + 8) == 1
        && sector[FIRST_ENTRY + ENTRY_BYTES..FIRST_ENTRY + 4 * ENTRY_BYTES].iter().all(|byte| *byte == 0);
    if is_plain && decode_first(&sector).is_some() {
        let sectors = last_sector.min(MOST_MBR_SECTORS) as u32;
        sector[FIRST_ENTRY + 12..FIRST_ENTRY + 16].copy_from_slice(&sectors.to_le_bytes());
        disk.write(0, &sector)?;
    }
    Ok(())
}

fn grow_mbr(growable: &Growable<'_>, size_bytes: u64) -> io::Result<()> {
    let disk = growable.device;
    let mut sector = head(disk, 0, MBR_SECTOR as usize)?;
    let entry = FIRST_ENTRY + (growable.partition.number as usize - 1) * ENTRY_BYTES;
    let sectors = size_bytes / MBR_SECTOR;
    let last = growable.partition.offset / MBR_SECTOR + sectors - 1;
    sector[entry + 5..entry + 8].copy_from_slice(&old_address(last));
    let sectors = u32::try_from(sectors).map_err(|_| io::Error::other("more sectors than MBR can count"))?;
    sector[entry + 12..entry + 16].copy_from_slice(&sectors.to_le_bytes());
    disk.write(0, &sector)?;
    disk.flush()
}

/// Head, sector and cylinder of a sector; the last that can be said for those behind it.
fn old_address(sector: u64) -> [u8; 3] {
    let cylinder = sector / (HEADS * TRACK_SECTORS);
    if cylinder >= MOST_CYLINDERS {
        return [0xfe, 0xff, 0xff];
    }
    let (head, within) = (sector / TRACK_SECTORS % HEADS, sector % TRACK_SECTORS + 1);
    [head as u8, within as u8 | (cylinder >> 2) as u8 & 0xc0, cylinder as u8]
}
