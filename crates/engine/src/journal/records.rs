//! Reads the records of the log in their order.
//!
//! The log is a ring: a record may go around its end. Positions here count blocks on from the start of the walk and
//! never wrap, so that a walk ends, whatever the log contains.
//!
//! Every record that is read is checked: its header, its place (the LSN that it must have), its checksum.

use super::area::LogArea;
use crate::error::{Error, Result};
use xfskit_ondisk::log_record::{
    OperationHeader, RecordHeader, header_sectors, next_cycle, open_record, verify_header,
};
use xfskit_ondisk::{BASIC_BLOCK_BYTES, Corruption, DiskAddress, Lsn};
use zerocopy::FromBytes;

/// Blocks that are read at once.
const WINDOW_BLOCKS: u32 = 2048;

impl LogArea {
    /// Reads `blocks` sectors of the log from `block`, around its end if need be.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn read(&self, block: u32, blocks: u32, bytes: &mut Vec<u8>) -> Result<()> {
        bytes.resize(blocks as usize * BASIC_BLOCK_BYTES, 0);
        let first = blocks.min(self.basic_blocks - block);
        let (before, after) = bytes.split_at_mut(first as usize * BASIC_BLOCK_BYTES);
        for (block, part) in [(block, before), (0, after)] {
            if !part.is_empty() {
                let offset = self.offset + u64::from(block) * BASIC_BLOCK_BYTES as u64;
                self.device.read(offset, part).map_err(|source| Error::Io { offset, source })?;
            }
        }
        Ok(())
    }

    /// Every place where a record of any pass starts, the oldest first.
    ///
    /// # Errors
    /// `Io`.
    pub fn record_starts(&self, uuid: &[u8; 16]) -> Result<Vec<Lsn>> {
        let (mut starts, mut bytes) = (Vec::new(), Vec::new());
        let log_bytes = u64::from(self.basic_blocks) * BASIC_BLOCK_BYTES as u64;
        for start in (0..self.basic_blocks).step_by(WINDOW_BLOCKS as usize) {
            self.read(start, WINDOW_BLOCKS.min(self.basic_blocks - start), &mut bytes)?;
            for (block, sector) in (start..).zip(bytes.chunks_exact(BASIC_BLOCK_BYTES)) {
                let (header, _) = RecordHeader::read_from_prefix(sector).expect("a sector is as long as a header");
                let lsn = Lsn(header.lsn.get());
                if lsn.block() == block && verify_header(&header, uuid, log_bytes).is_ok() {
                    starts.push(lsn);
                }
            }
        }
        starts.sort();
        Ok(starts)
    }

    /// Where a block of the log lies on its device.
    pub(super) fn address(&self, block: u32) -> DiskAddress {
        DiskAddress(self.offset / BASIC_BLOCK_BYTES as u64 + u64::from(block))
    }

    /// The place `blocks` blocks after `lsn`.
    pub(super) fn after(&self, lsn: Lsn, blocks: u32) -> Lsn {
        let block = lsn.block() + blocks;
        if block < self.basic_blocks {
            Lsn::new(lsn.cycle(), block)
        } else {
            Lsn::new(next_cycle(lsn.cycle()), block - self.basic_blocks)
        }
    }

    /// Blocks from one place forward to another.
    pub fn distance(&self, from: u32, to: u32) -> u32 {
        if to >= from { to - from } else { self.basic_blocks - from + to }
    }
}

/// A record as it was read.
pub struct Record<'a> {
    /// Where it starts.
    pub lsn: Lsn,
    /// Where recovery would start if it were the newest.
    pub tail: Lsn,
    /// Number of operations, as its header says.
    pub operation_count: u32,
    /// The operations, padded to whole sectors.
    pub data: &'a [u8],
}

/// An operation.
#[derive(Clone)]
pub struct Operation<'a> {
    /// Its header.
    pub header: OperationHeader,
    /// Its payload.
    pub payload: &'a [u8],
}

impl Record<'_> {
    /// The operations in their order; an error where one reaches past the end of the record.
    pub fn operations(&self) -> impl Iterator<Item = Result<Operation<'_>, Box<Corruption>>> {
        let (mut rest, mut left) = (self.data, self.operation_count);
        std::iter::from_fn(move || {
            if left == 0 || rest.is_empty() {
                return None;
            }
            left -= 1;
            let found = OperationHeader::read_from_prefix(rest).ok().and_then(|(header, after)| {
                let (payload, after) = after.split_at_checked(header.length.get() as usize)?;
                rest = after;
                Some(Operation { header, payload })
            });
            if found.is_none() {
                left = 0;
            }
            Some(found.ok_or_else(|| Corruption::new("log operation", "ends within its record")))
        })
    }
}

/// Blocks of a record, header sectors included, as its header says.
pub(super) fn record_blocks(header: &RecordHeader) -> u32 {
    let headers = if header.version.get() == 2 { header_sectors(header.size.get() as usize) as u32 } else { 1 };
    headers + header.length.get().div_ceil(BASIC_BLOCK_BYTES as u32)
}

/// Walks over records.
pub struct RecordReader<'p> {
    place: &'p LogArea,
    uuid: [u8; 16],
    /// Where the next record starts.
    next: Lsn,
    /// Blocks left to walk.
    left: u32,
    window: Vec<u8>,
    /// Where the unread part of the window starts in it.
    at: usize,
}

impl<'p> RecordReader<'p> {
    /// A walk from the record at `from` over `blocks` blocks.
    pub fn new(place: &'p LogArea, uuid: [u8; 16], from: Lsn, blocks: u32) -> Self {
        Self { place, uuid, next: from, left: blocks, window: Vec::new(), at: 0 }
    }

    /// Where the next record starts.
    pub fn next(&self) -> Lsn {
        self.next
    }

    /// The next record; `None` at the end of the walk.
    ///
    /// # Errors
    /// `Io`; `Corrupt`, which names the block, when there is no whole record where one must start.
    pub fn read_next(&mut self) -> Result<Option<Record<'_>>> {
        if self.left == 0 {
            return Ok(None);
        }
        let (place, lsn) = (self.place, self.next);
        let at = |corruption: Box<Corruption>| corruption.at(place.address(lsn.block()));
        self.fill(1)?;
        let sector = &self.window[self.at..];
        let (header, _) = RecordHeader::read_from_prefix(sector).expect("the window holds a whole sector");
        let log_bytes = u64::from(place.basic_blocks) * BASIC_BLOCK_BYTES as u64;
        verify_header(&header, &self.uuid, log_bytes).map_err(at)?;
        let blocks = record_blocks(&header);
        let found = Lsn(header.lsn.get());
        if found != lsn || blocks > self.left {
            let text = format!("LSN {}:{}, {blocks} of {} blocks", found.cycle(), found.block(), self.left);
            return Err(at(Corruption::new("log record", "stands in its place").found(text)).into());
        }
        self.fill(blocks)?;
        let length = blocks as usize * BASIC_BLOCK_BYTES;
        let start = self.at;
        let record = &mut self.window[start..start + length];
        // mkfs.xfs and xfs_repair set no checksum in the record that they write, and do not replace its words by the
        // cycle.
        if header.crc != [0; 4] {
            open_record(record).map_err(at)?;
        }
        self.at += length;
        self.left -= blocks;
        self.next = place.after(lsn, blocks);
        let headers = length - header.length.get() as usize;
        let data = &self.window[start + headers..start + length];
        Ok(Some(Record { lsn, tail: Lsn(header.tail_lsn.get()), operation_count: header.operations.get(), data }))
    }

    /// Makes the window contain `blocks` blocks from the next record on.
    fn fill(&mut self, blocks: u32) -> Result<()> {
        if self.window.len() - self.at >= blocks as usize * BASIC_BLOCK_BYTES {
            return Ok(());
        }
        let count = blocks.max(WINDOW_BLOCKS).min(self.left);
        self.place.read(self.next.block(), count, &mut self.window)?;
        self.at = 0;
        Ok(())
    }
}
