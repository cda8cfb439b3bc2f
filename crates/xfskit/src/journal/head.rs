//! Finds the end of the log on disk.
//!
//! Every sector of the log carries the number of the pass (cycle) in which it was written, so the log is a run of
//! sectors of cycle n followed by a run of cycle n - 1 (or 0 in a new one), and the head is where they meet.

use super::LogPlace;
use crate::error::{Error, Result};
use xfskit_ondisk::log_record::{
    HEADER_COVERS_BYTES, MAX_RECORD_BYTES, OPERATION_HEADER_BYTES, RECORD_MAGIC, RecordHeader, header_sectors,
    next_cycle, open_record, operation_flags, sector_cycle, verify_header,
};
use xfskit_ondisk::{BASIC_BLOCK_BYTES, Corruption, DiskAddress, Lsn};
use zerocopy::FromBytes;

/// Most sectors that a writer may have had in flight when the power failed: eight of the largest records.
pub(super) const IN_FLIGHT_BLOCKS: u32 = 8 * 256 * 1024 / 512;

/// Where writing goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogHead {
    /// Place of the next record.
    pub next: Lsn,
    /// Block of the newest record.
    pub last_record_block: u32,
    /// Record size of its writer. The kernel takes the size for the same in all records that it looks at together, so
    /// a writer must go on with it.
    pub record_bytes: u32,
}

/// What the log holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogState {
    /// It was closed in good order.
    Clean,
    /// It holds work that may not be at home yet, from this LSN on.
    Dirty {
        /// Where recovery starts.
        tail: Lsn,
    },
}

/// Reads `blocks` sectors of the log from `block`; a run may not reach around the end.
pub(crate) fn read_blocks(place: &LogPlace, block: u32, blocks: u32) -> Result<Vec<u8>> {
    let mut bytes = vec![0; blocks as usize * BASIC_BLOCK_BYTES];
    let offset = place.offset + u64::from(block) * BASIC_BLOCK_BYTES as u64;
    place.device.read(offset, &mut bytes).map_err(|source| Error::Io { offset, source })?;
    Ok(bytes)
}

/// Where a block of the log lies on its device.
fn address_of(place: &LogPlace, block: u32) -> DiskAddress {
    DiskAddress(place.offset / BASIC_BLOCK_BYTES as u64 + u64::from(block))
}

fn cycle_at(place: &LogPlace, block: u32) -> Result<u32> {
    Ok(sector_cycle(&read_blocks(place, block, 1)?))
}

/// Finds the head of the log and whether it is clean.
///
/// # Errors
/// `Corrupt` when there is no valid record where one must be; `Io`.
pub fn find_head(place: &LogPlace, uuid: &[u8; 16]) -> Result<(LogHead, LogState)> {
    let size = place.basic_blocks;
    let (first, last) = (cycle_at(place, 0)?, cycle_at(place, size - 1)?);
    if first == 0 {
        return Err(Corruption::new("log", "written by mkfs")
            .at(address_of(place, 0))
            .found("its first sector is zero")
            .into());
    }
    let edge = if first == last { size } else { find_edge(place, first)? };
    let (edge, expected) = find_hole(place, edge, first, last)?;
    let Some((record_block, header)) = find_last_record(place, edge, uuid)? else {
        return Err(Corruption::new("log", "a record before its head")
            .at(address_of(place, edge))
            .found(format_args!("block {edge}"))
            .into());
    };
    let headers = if header.version.get() == 2 { header_sectors(header.size.get() as usize) as u32 } else { 1 };
    let blocks = headers + header.length.get() / BASIC_BLOCK_BYTES as u32;
    let end = u64::from(record_block) + u64::from(blocks);
    let next = if edge >= size { Lsn::new(next_cycle(expected), 0) } else { Lsn::new(expected, edge) };
    let record_bytes = header.size.get().clamp(HEADER_COVERS_BYTES as u32, MAX_RECORD_BYTES as u32);
    let head = LogHead { next, last_record_block: record_block, record_bytes };
    let whole = end == u64::from(edge);
    if whole && header.operations.get() == 1 && is_unmount(place, record_block, blocks)? {
        return Ok((head, LogState::Clean));
    }
    Ok((head, LogState::Dirty { tail: Lsn(header.tail_lsn.get()) }))
}

/// The first block whose cycle is not `first`, by bisection.
fn find_edge(place: &LogPlace, first: u32) -> Result<u32> {
    let (mut low, mut high) = (0, place.basic_blocks - 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if cycle_at(place, middle)? == first { low = middle } else { high = middle }
    }
    Ok(high)
}

/// Looks back from the edge for sectors that were in flight and did not arrive; the head is before the first of
/// them. Returns the head and the cycle at it.
fn find_hole(place: &LogPlace, edge: u32, first: u32, last: u32) -> Result<(u32, u32)> {
    let window = edge.min(IN_FLIGHT_BLOCKS);
    let start = edge - window;
    let bytes = read_blocks(place, start, window)?;
    for (index, sector) in bytes.chunks_exact(BASIC_BLOCK_BYTES).enumerate() {
        if sector_cycle(sector) != first {
            return Ok((start + index as u32, first));
        }
    }
    if window < IN_FLIGHT_BLOCKS && first != last && last != 0 {
        // The window reaches around the end of the log, into the pass before.
        let rest = (IN_FLIGHT_BLOCKS - window).min(place.basic_blocks - edge);
        let start = place.basic_blocks - rest;
        let bytes = read_blocks(place, start, rest)?;
        for (index, sector) in bytes.chunks_exact(BASIC_BLOCK_BYTES).enumerate() {
            if sector_cycle(sector) != last {
                return Ok((start + index as u32, last));
            }
        }
    }
    Ok((edge, first))
}

/// The newest record header before `edge`, looking around the end of the log.
fn find_last_record(place: &LogPlace, edge: u32, uuid: &[u8; 16]) -> Result<Option<(u32, RecordHeader)>> {
    const STEP: u32 = 256;
    let size = place.basic_blocks;
    let mut looked = 0;
    let mut end = if edge == 0 { size } else { edge };
    while looked < (2 * IN_FLIGHT_BLOCKS).min(size) {
        let count = STEP.min(end);
        let bytes = read_blocks(place, end - count, count)?;
        for index in (0..count).rev() {
            let sector = &bytes[index as usize * BASIC_BLOCK_BYTES..][..BASIC_BLOCK_BYTES];
            if sector[..4] == RECORD_MAGIC.to_be_bytes()
                && let Ok((header, _)) = RecordHeader::read_from_prefix(sector)
                && header.lsn.get() as u32 == end - count + index
            {
                let log_bytes = u64::from(size) * BASIC_BLOCK_BYTES as u64;
                verify_header(&header, uuid, log_bytes).map_err(|e| e.at(address_of(place, end - count + index)))?;
                return Ok(Some((end - count + index, header)));
            }
        }
        looked += count;
        end -= count;
        if end == 0 {
            end = size;
        }
    }
    Ok(None)
}

fn is_unmount(place: &LogPlace, block: u32, blocks: u32) -> Result<bool> {
    if block + blocks > place.basic_blocks {
        return Ok(false);
    }
    let mut record = read_blocks(place, block, blocks)?;
    let Ok((header, _)) = RecordHeader::read_from_prefix(&record) else { return Ok(false) };
    let headers = if header.version.get() == 2 { header_sectors(header.size.get() as usize) } else { 1 };
    // mkfs.xfs leaves the checksum of its unmount record at zero.
    if header.crc != [0; 4] && open_record(&mut record).is_err() {
        return Ok(false);
    }
    let flags = record.get(headers * BASIC_BLOCK_BYTES + OPERATION_HEADER_BYTES - 3);
    Ok(flags.is_some_and(|flags| flags & operation_flags::UNMOUNT != 0))
}
