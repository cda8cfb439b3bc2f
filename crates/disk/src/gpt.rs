//! The GUID partition table.
//!
//! ```text
//! sector 0      protective MBR: a partition of type ee
//! sector 1      header: "EFI PART" 8, revision 4, header size 4, its CRC 4, 0 4, own sector 8, other header 8,
//!               first and last usable sector 8 8, GUID 16; of the entries: first sector 8, number 4, size 4, CRC 4
//! sector 2 ..   entries: type 16, GUID 16, first and last sector 8 8, attributes 8, name 72 (UTF-16)
//! last sectors  the same entries, and a header whose "own sector" is the last one
//! ```
//! The size of a sector is not in the table, so the header is looked for with 512 and with 4096 bytes. Both checksums
//! must be right. Where those of the first copy are not, the copy at the end is used, and a warning says so.
//!
//! Bounds: the entries take at most [`MOST_ENTRY_BYTES`]. An entry whose sectors lie outside of the usable ones is left
//! out, with a warning.
//!
//! Source of facts: the UEFI specification, section 5.3.

use crate::bytes::{crc32, guid_text, head, printable, u32_at, u64_at};
use crate::partition::{Partition, Table, TableKind};
use std::io;
use xfskit_device::BlockDevice;

const SIGNATURE: &[u8] = b"EFI PART";
const HEADER_BYTES: usize = 92;
const SECTOR_BYTES: [u64; 2] = [512, 4096];
/// 64 times what every known program makes: 128 entries of 128 bytes.
const MOST_ENTRY_BYTES: u64 = 1 << 20;
const ENTRY_BYTES: u32 = 128;
const MOST_WARNINGS: usize = 16;

/// A header whose checksum is right.
struct Header {
    other_sector: u64,
    usable: std::ops::RangeInclusive<u64>,
    id: Option<String>,
    entries_sector: u64,
    entry_count: u32,
    entry_bytes: u32,
    entries_crc: u32,
}

/// Why a copy of the table is not used.
type Damage = &'static str;

/// The table of a disk; none if there is no header at either end. `is_announced` says that the disk has a protective
/// MBR.
pub(crate) fn read_table(disk: &dyn BlockDevice, is_announced: bool) -> io::Result<Option<Table>> {
    let mut damage = None;
    for sector_bytes in SECTOR_BYTES {
        let last = (disk.size_bytes() / sector_bytes).saturating_sub(1);
        let first = match read_copy(disk, sector_bytes, 1)? {
            Some(Ok(table)) => return Ok(Some(announced(table, is_announced))),
            other => other,
        };
        let why = match &first {
            Some(Err((why, _))) => *why,
            _ => "its header is gone",
        };
        // The place that a header names, if its own checksum is right; otherwise the end of the disk.
        let named = if let Some(Err((_, Some(header)))) = &first { Some(header.other_sector) } else { None };
        for sector in named.into_iter().chain([last]) {
            match read_copy(disk, sector_bytes, sector)? {
                Some(Ok(mut table)) => {
                    table
                        .warnings
                        .insert(0, format!("the first copy of the table is damaged ({why}): the backup is used"));
                    return Ok(Some(announced(table, is_announced)));
                }
                Some(Err(_)) => damage = Some((sector_bytes, why)),
                None if first.is_some() => damage = Some((sector_bytes, why)),
                None => {}
            }
        }
    }
    // Both copies are damaged: a table without partitions tells why none is found.
    Ok(damage.map(|(sector_bytes, why)| Table {
        kind: TableKind::Gpt { sector_bytes: sector_bytes as u32 },
        id: None,
        partitions: Vec::new(),
        warnings: vec![format!("both copies of the table are damaged (the first: {why})")],
    }))
}

fn announced(mut table: Table, is_announced: bool) -> Table {
    if !is_announced {
        table.warnings.push("the protective MBR in the first sector is gone".into());
    }
    table
}

type Copy = Result<Table, (Damage, Option<Header>)>;

/// The copy of the table whose header is in `sector`; none if there is no header.
fn read_copy(disk: &dyn BlockDevice, sector_bytes: u64, sector: u64) -> io::Result<Option<Copy>> {
    let Some(offset) = sector.checked_mul(sector_bytes) else { return Ok(None) };
    let bytes = head(disk, offset, sector_bytes as usize)?;
    if bytes.len() < sector_bytes as usize || !bytes.starts_with(SIGNATURE) {
        return Ok(None);
    }
    let header = match decode_header(&bytes, sector) {
        Ok(header) => header,
        Err(why) => return Ok(Some(Err((why, None)))),
    };
    let length = u64::from(header.entry_count) * u64::from(header.entry_bytes);
    if length > MOST_ENTRY_BYTES {
        return Ok(Some(Err(("it has too many entries", Some(header)))));
    }
    let Some(offset) = header.entries_sector.checked_mul(sector_bytes) else {
        return Ok(Some(Err(("its entries lie past the end of the disk", Some(header)))));
    };
    let entries = head(disk, offset, length as usize)?;
    if entries.len() < length as usize {
        return Ok(Some(Err(("its entries lie past the end of the disk", Some(header)))));
    }
    if crc32(&entries) != header.entries_crc {
        return Ok(Some(Err(("the checksum of its entries is wrong", Some(header)))));
    }
    Ok(Some(Ok(decode_entries(&entries, &header, sector_bytes))))
}

fn decode_header(bytes: &[u8], sector: u64) -> Result<Header, Damage> {
    let size = u32_at(bytes, 12) as usize;
    if !(HEADER_BYTES..=bytes.len()).contains(&size) {
        return Err("the size of its header is wrong");
    }
    let mut checked = bytes[..size].to_vec();
    checked[16..20].fill(0);
    if crc32(&checked) != u32_at(bytes, 16) {
        return Err("the checksum of its header is wrong");
    }
    if u64_at(bytes, 24) != sector {
        return Err("its header belongs to another sector");
    }
    let entry_bytes = u32_at(bytes, 84);
    if entry_bytes < ENTRY_BYTES || !entry_bytes.is_multiple_of(8) {
        return Err("the size of its entries is wrong");
    }
    Ok(Header {
        other_sector: u64_at(bytes, 32),
        usable: u64_at(bytes, 40)..=u64_at(bytes, 48),
        id: guid_text(&bytes[56..72]),
        entries_sector: u64_at(bytes, 72),
        entry_count: u32_at(bytes, 80),
        entry_bytes,
        entries_crc: u32_at(bytes, 88),
    })
}

fn decode_entries(entries: &[u8], header: &Header, sector_bytes: u64) -> Table {
    let kind = TableKind::Gpt { sector_bytes: sector_bytes as u32 };
    let mut table = Table { kind, id: header.id.clone(), partitions: Vec::new(), warnings: Vec::new() };
    for (number, entry) in (1..).zip(entries.chunks_exact(header.entry_bytes as usize)) {
        let Some(kind) = guid_text(&entry[..16]) else { continue };
        let (first, last) = (u64_at(entry, 32), u64_at(entry, 40));
        let place = || Some((first.checked_mul(sector_bytes)?, (last - first + 1).checked_mul(sector_bytes)?));
        let usable =
            first <= last && header.usable.contains(&first) && header.usable.contains(&last) && last < u64::MAX;
        let Some((offset, length)) = usable.then(place).flatten() else {
            if table.warnings.len() < MOST_WARNINGS {
                table.warnings.push(format!("partition {number} is left out: it does not lie in the usable sectors"));
            }
            continue;
        };
        let units: Vec<u16> =
            entry[56..128].chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
        let name = String::from_utf16_lossy(units.split(|&unit| unit == 0).next().unwrap_or(&[]));
        table.partitions.push(Partition {
            number,
            offset,
            length,
            kind,
            name: Some(printable(&name)).filter(|name| !name.is_empty()),
            uuid: guid_text(&entry[16..32]),
        });
    }
    table
}
