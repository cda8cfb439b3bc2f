//! Log records: the journal as it lies on disk.
//!
//! ```text
//! record   header (512 bytes; one more for each 32 KiB of the writer's record size)  data, whole sectors
//! data     operation, operation, ...                      each: 12-byte header, payload (a multiple of 4)
//! ```
//! The first word of each 512-byte sector of data is replaced by the cycle number and kept in the header, so that every
//! sector of the log shows in which cycle it was written. Byte orders: record and operation headers are big-endian, the
//! record checksum little-endian, payloads in the writer's order, which `format` names.
//!
//! Facts: the XFS Algorithms & Data Structures document, "Journaling Log"; the kernel's `struct xlog_rec_header`,
//! `struct xlog_op_header`.

use crate::{BASIC_BLOCK_BYTES, Lsn, Verdict, crc32c, ensure};
use std::mem::offset_of;
use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian};

/// Magic number of a record header; a sector of data never starts with it because of the cycle numbers.
pub const RECORD_MAGIC: u32 = 0xfeed_babe;
/// Words of data sectors that one header sector stores.
pub const CYCLES_PER_HEADER: usize = 64;
/// Largest record, header included, in bytes.
pub const MAX_RECORD_BYTES: usize = 256 * 1024;
/// Data that one header sector describes, in bytes.
pub const HEADER_COVERS_BYTES: usize = 32 * 1024;
/// Payloads in little-endian order, as xfskit and Linux on common machines write them.
pub const FORMAT_LITTLE_ENDIAN: u32 = 1;
/// Bytes of the first header sector that the checksum covers: the kernel's structure with its padding.
const CHECKED_HEADER_BYTES: usize = 328;
/// The same for a header from a machine with 32-bit words, whose compiler pads the structure less.
const CHECKED_HEADER_BYTES_32: usize = 324;
/// Bytes of a further header sector that the checksum covers.
const CHECKED_EXTENSION_BYTES: usize = 260;
const CRC_OFFSET: usize = 32;

/// First header sector of a record (`struct xlog_rec_header`).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug)]
#[repr(C)]
#[allow(missing_docs)] // The fields carry the format document's names.
pub struct RecordHeader {
    pub magic: U32,
    pub cycle: U32,
    pub version: U32,
    /// Bytes of data, padding included, the header sectors not.
    pub length: U32,
    pub lsn: U64,
    /// Where recovery has to start when this record is the last one.
    pub tail_lsn: U64,
    pub crc: [u8; 4],
    pub previous_block: U32,
    pub operations: U32,
    pub cycle_data: [[u8; 4]; CYCLES_PER_HEADER],
    pub format: U32,
    pub uuid: [u8; 16],
    /// The writer's record size, which says how many header sectors there are.
    pub size: U32,
    pub pad: U32,
    pub reserved: [u8; 184],
}

/// Header of an operation (`struct xlog_op_header`).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug)]
#[repr(C)]
pub struct OperationHeader {
    /// The transaction (checkpoint) that the operation belongs to.
    pub transaction: U32,
    /// Bytes of payload that follow.
    pub length: U32,
    /// [`CLIENT_TRANSACTION`] or [`CLIENT_LOG`].
    pub client: u8,
    /// Bits of [`operation_flags`].
    pub flags: u8,
    /// Unused.
    pub reserved: [u8; 2],
}

impl OperationHeader {
    /// The header of a payload of `length` bytes.
    pub fn new(transaction: u32, length: usize, client: u8, flags: u8) -> Self {
        Self { transaction: transaction.into(), length: (length as u32).into(), client, flags, reserved: [0; 2] }
    }
}

/// Size of an operation header in bytes.
pub const OPERATION_HEADER_BYTES: usize = 12;
/// The operation is part of a transaction.
pub const CLIENT_TRANSACTION: u8 = 0x69;
/// The operation is the log's own: an unmount record.
pub const CLIENT_LOG: u8 = 0xaa;

/// Flags of an operation.
pub mod operation_flags {
    /// A transaction begins.
    pub const START: u8 = 0x01;
    /// A transaction is complete.
    pub const COMMIT: u8 = 0x02;
    /// The payload goes on in the next record.
    pub const CONTINUE: u8 = 0x04;
    /// The payload began in the record before.
    pub const WAS_CONTINUED: u8 = 0x08;
    /// A continued payload ends here.
    pub const END: u8 = 0x10;
    /// The log was closed in good order.
    pub const UNMOUNT: u8 = 0x20;
}

/// Payload of an unmount record, little-endian.
pub const UNMOUNT_PAYLOAD: [u8; 8] = [0x6e, 0x55, 0, 0, 0, 0, 0, 0];

/// Header of a transaction, its first payload (`struct xfs_trans_header`).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug)]
#[repr(C)]
pub struct TransactionHeader {
    magic: little_endian::U32,
    kind: little_endian::U32,
    id: little_endian::U32,
    regions: little_endian::U32,
}

impl TransactionHeader {
    /// The header of a checkpoint: its number, and the number of its items' regions.
    pub fn of_checkpoint(id: u32, regions: u32) -> Self {
        let (magic, kind) = (TRANSACTION_MAGIC, TRANSACTION_CHECKPOINT);
        Self { magic: magic.into(), kind: kind.into(), id: id.into(), regions: regions.into() }
    }
}

const _: () = assert!(size_of::<RecordHeader>() == BASIC_BLOCK_BYTES && offset_of!(RecordHeader, crc) == CRC_OFFSET);
const _: () = assert!(size_of::<OperationHeader>() == OPERATION_HEADER_BYTES);
const _: () = assert!(size_of::<TransactionHeader>() == 16);

/// Magic number of a transaction's header, "TRAN".
pub const TRANSACTION_MAGIC: u32 = 0x5452_414e;
/// The only type of transaction that current writers use.
pub const TRANSACTION_CHECKPOINT: u32 = 40;

/// Types of log items: the first word of each item's first payload.
pub mod item_type {
    /// Extents to free.
    pub const EFI: u16 = 0x1236;
    /// Extents freed.
    pub const EFD: u16 = 0x1237;
    /// An inode.
    pub const INODE: u16 = 0x123b;
    /// A buffer.
    pub const BUFFER: u16 = 0x123c;
    /// A quota record.
    pub const DQUOT: u16 = 0x123d;
    /// Quota switched off.
    pub const QUOTAOFF: u16 = 0x123e;
    /// A new chunk of inodes.
    pub const ICREATE: u16 = 0x123f;
    /// Reverse mappings to update.
    pub const RUI: u16 = 0x1240;
    /// Reverse mappings updated.
    pub const RUD: u16 = 0x1241;
    /// Reference counts to update.
    pub const CUI: u16 = 0x1242;
    /// Reference counts updated.
    pub const CUD: u16 = 0x1243;
    /// Extent maps to update.
    pub const BUI: u16 = 0x1244;
    /// Extent maps updated.
    pub const BUD: u16 = 0x1245;
    /// Attributes to update.
    pub const ATTRI: u16 = 0x1246;
    /// Attributes updated.
    pub const ATTRD: u16 = 0x1247;
    /// Mappings to exchange.
    pub const XMI: u16 = 0x1248;
    /// Mappings exchanged.
    pub const XMD: u16 = 0x1249;
    /// The first of the items of realtime devices.
    pub const FIRST_REALTIME: u16 = 0x124a;
    /// The last of them.
    pub const LAST_REALTIME: u16 = 0x124f;
}

/// Flags of a logged buffer; its type stands in the bits from 11 on.
pub mod buffer_flags {
    /// The buffer contains inodes, of which only the unlinked list links are logged.
    pub const INODES: u16 = 1 << 0;
    /// The blocks were freed: older copies in the log are void.
    pub const CANCEL: u16 = 1 << 1;
    /// Shift of the buffer's type.
    pub const TYPE_SHIFT: u16 = 11;
}

/// Header sectors of a record of `record_bytes` bytes.
pub fn header_sectors(record_bytes: usize) -> usize {
    record_bytes.div_ceil(HEADER_COVERS_BYTES).max(1)
}

/// The cycle number that a sector of the log carries.
pub fn sector_cycle(sector: &[u8]) -> u32 {
    let word = |at: usize| u32::from_be_bytes([sector[at], sector[at + 1], sector[at + 2], sector[at + 3]]);
    if word(0) == RECORD_MAGIC { word(4) } else { word(0) }
}

/// The cycle after `cycle`; the one that equals the magic number is left out.
pub fn next_cycle(cycle: u32) -> u32 {
    let next = cycle.wrapping_add(1);
    if next == RECORD_MAGIC { next + 1 } else { next }
}

/// The cycle before `cycle`; before the first, 0, which means a log that was never written.
pub fn previous_cycle(cycle: u32) -> u32 {
    let before = cycle.saturating_sub(1);
    if before == RECORD_MAGIC { before - 1 } else { before }
}

/// Fills a sector of the log that belongs to no record with an empty header, whose cycle number makes recovery take the
/// sector for an older pass.
pub fn stamp_stale_sector(sector: &mut [u8], lsn: Lsn, tail_lsn: Lsn, uuid: &[u8; 16]) {
    let header = RecordHeader {
        magic: RECORD_MAGIC.into(),
        cycle: lsn.cycle().into(),
        version: 2.into(),
        length: 0.into(),
        lsn: lsn.0.into(),
        tail_lsn: tail_lsn.0.into(),
        crc: [0; 4],
        previous_block: u32::MAX.into(),
        operations: 0.into(),
        cycle_data: [[0; 4]; CYCLES_PER_HEADER],
        format: FORMAT_LITTLE_ENDIAN.into(),
        uuid: *uuid,
        size: 0.into(),
        pad: 0.into(),
        reserved: [0; 184],
    };
    sector[..BASIC_BLOCK_BYTES].copy_from_slice(header.as_bytes());
}

/// The fields of a record's header, without the checksum and the cycle words.
#[derive(Clone, Debug)]
pub struct RecordFields {
    /// Where the record starts.
    pub lsn: Lsn,
    /// Where recovery starts.
    pub tail_lsn: Lsn,
    /// Block of the record before.
    pub previous_block: u32,
    /// Number of operations.
    pub operations: u32,
    /// The writer's record size in bytes.
    pub record_bytes: u32,
    /// The filesystem's UUID.
    pub uuid: [u8; 16],
}

/// Finishes a record in place: `record` is the header sectors (zeros) and the data, whole sectors. `split` is the
/// number of sectors of the whole record that lie before the end of the log, when the record wraps around it; those
/// behind it carry the next cycle.
pub fn seal_record(record: &mut [u8], fields: &RecordFields, split: Option<usize>) {
    let headers = header_sectors(fields.record_bytes as usize);
    assert!(record.len().is_multiple_of(BASIC_BLOCK_BYTES) && record.len() > headers * BASIC_BLOCK_BYTES);
    let cycle_of = |sector: usize| match split {
        Some(split) if sector >= split => next_cycle(fields.lsn.cycle()),
        _ => fields.lsn.cycle(),
    };
    let (head, data) = record.split_at_mut(headers * BASIC_BLOCK_BYTES);
    let header = RecordHeader {
        magic: RECORD_MAGIC.into(),
        cycle: fields.lsn.cycle().into(),
        version: 2.into(),
        length: (data.len() as u32).into(),
        lsn: fields.lsn.0.into(),
        tail_lsn: fields.tail_lsn.0.into(),
        crc: [0; 4],
        previous_block: fields.previous_block.into(),
        operations: fields.operations.into(),
        cycle_data: [[0; 4]; CYCLES_PER_HEADER],
        format: FORMAT_LITTLE_ENDIAN.into(),
        uuid: fields.uuid,
        size: fields.record_bytes.into(),
        pad: 0.into(),
        reserved: [0; 184],
    };
    head[..BASIC_BLOCK_BYTES].copy_from_slice(header.as_bytes());
    for extension in 1..headers {
        let at = extension * BASIC_BLOCK_BYTES;
        head[at..at + 4].copy_from_slice(&cycle_of(extension).to_be_bytes());
    }
    for (index, sector) in data.chunks_exact_mut(BASIC_BLOCK_BYTES).enumerate() {
        let word = word_offset(index);
        head[word..word + 4].copy_from_slice(&sector[..4]);
        sector[..4].copy_from_slice(&cycle_of(headers + index).to_be_bytes());
    }
    let crc = record_checksum(record, headers);
    record[CRC_OFFSET..CRC_OFFSET + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Where the header sectors store the first word of data sector `index`.
fn word_offset(index: usize) -> usize {
    let within = 4 * (index % CYCLES_PER_HEADER);
    match index / CYCLES_PER_HEADER {
        0 => 44 + within,
        extension => extension * BASIC_BLOCK_BYTES + 4 + within,
    }
}

/// The checksum of a sealed record, its own field taken as zero.
pub fn record_checksum(record: &[u8], headers: usize) -> u32 {
    checksum_of(record, headers, CHECKED_HEADER_BYTES)
}

fn checksum_of(record: &[u8], headers: usize, header_bytes: usize) -> u32 {
    let header = [&record[..CRC_OFFSET], &[0; 4], &record[CRC_OFFSET + 4..header_bytes]];
    let data = &record[headers * BASIC_BLOCK_BYTES..];
    // Further header sectors count as far as the data uses them.
    let extensions = (1..header_sectors(data.len()).min(headers)).map(|extension| {
        let at = extension * BASIC_BLOCK_BYTES;
        &record[at..at + CHECKED_EXTENSION_BYTES]
    });
    crc32c(header.into_iter().chain(extensions).chain([data]))
}

/// Verifies a header sector by itself and against the place it was read from.
///
/// # Errors
/// A corruption of the "log record header".
pub fn verify_header(header: &RecordHeader, uuid: &[u8; 16], log_bytes: u64) -> Verdict {
    const NAME: &str = "log record header";
    ensure!(header.magic.get() == RECORD_MAGIC, NAME, "magic number", "{:#010x}", header.magic);
    ensure!(matches!(header.version.get(), 1 | 2), NAME, "version 1 or 2", "{}", header.version);
    ensure!(
        header.format.get() == FORMAT_LITTLE_ENDIAN,
        NAME,
        "written by a little-endian machine",
        "format {}",
        header.format
    );
    ensure!(header.uuid == *uuid, NAME, "uuid of this filesystem");
    let length = header.length.get();
    ensure!(
        length > 0
            && u64::from(length) <= log_bytes
            && length <= MAX_RECORD_BYTES as u32 * 2
            && length.is_multiple_of(512),
        NAME,
        "length",
        "{length} bytes"
    );
    let size = header.size.get();
    let size_fits = (16 * 1024..=MAX_RECORD_BYTES as u32).contains(&size) && size.is_multiple_of(512);
    ensure!(size_fits || header.version.get() == 1, NAME, "record size is whole sectors to 256 KiB", "{size}");
    Ok(())
}

/// Restores the first words of the data sectors of a record that was read.
///
/// # Errors
/// A corruption of the "log record" when its checksum is wrong or it is shorter than its header says.
pub fn open_record(record: &mut [u8]) -> Verdict {
    const NAME: &str = "log record";
    let Ok((header, _)) = RecordHeader::read_from_prefix(record) else {
        return Err(crate::Corruption::new(NAME, "a whole header"));
    };
    let headers = if header.version.get() == 2 { header_sectors(header.size.get() as usize) } else { 1 };
    let length = headers * BASIC_BLOCK_BYTES + header.length.get() as usize;
    ensure!(record.len() >= length, NAME, "whole", "{} of {length} bytes", record.len());
    let stored = u32::from_le_bytes(header.crc);
    let computed = record_checksum(&record[..length], headers);
    let is_right = stored == computed || stored == checksum_of(&record[..length], headers, CHECKED_HEADER_BYTES_32);
    ensure!(is_right, NAME, "checksum", "{stored:#010x} instead of {computed:#010x}");
    for index in 0..header.length.get() as usize / BASIC_BLOCK_BYTES {
        let at = (headers + index) * BASIC_BLOCK_BYTES;
        let word = word_offset(index);
        ensure!(word + 4 <= headers * BASIC_BLOCK_BYTES, NAME, "header sectors cover the data", "sector {index}");
        let (head, data) = record.split_at_mut(headers * BASIC_BLOCK_BYTES);
        let at = at - headers * BASIC_BLOCK_BYTES;
        data[at..at + 4].copy_from_slice(&head[word..word + 4]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_opens_to_what_was_sealed_even_when_it_wraps() {
        assert_eq!(size_of::<RecordHeader>(), BASIC_BLOCK_BYTES);
        let headers = header_sectors(MAX_RECORD_BYTES);
        let mut record = vec![0u8; 100 * BASIC_BLOCK_BYTES];
        for (at, byte) in record.iter_mut().enumerate().skip(headers * BASIC_BLOCK_BYTES) {
            *byte = (at % 251) as u8;
        }
        let original = record.clone();
        let fields = RecordFields {
            lsn: Lsn::new(7, 4000),
            tail_lsn: Lsn::new(6, 4100),
            previous_block: 3900,
            operations: 5,
            record_bytes: MAX_RECORD_BYTES as u32,
            uuid: [3; 16],
        };
        seal_record(&mut record, &fields, Some(50));
        assert_eq!(sector_cycle(&record), 7);
        assert_eq!(sector_cycle(&record[49 * 512..]), 7);
        assert_eq!(sector_cycle(&record[50 * 512..]), 8);
        let sealed = record.clone();
        open_record(&mut record).unwrap();
        assert_eq!(record[headers * 512..], original[headers * 512..]);
        let mut torn = sealed;
        torn[99 * 512 + 10] ^= 1;
        assert!(open_record(&mut torn).unwrap_err().to_string().contains("checksum"));
    }
}
