//! Where the journal ends, and whether it is clean. No metadata may have an LSN beyond the end, and the superblock's
//! counters must be right if the journal is clean.
//!
//! Every sector of the log starts with its cycle, the number of the pass that wrote it. So the log is a run of sectors
//! of cycle n and one of cycle n - 1. The record before the edge between them is the newest; the log is clean if this
//! record contains only an unmount operation. A log with torn writes at its edge is dirty in any case, so how far they
//! reach does not matter here.

use std::io;
use xfskit_device::BlockDevice;
use xfskit_ondisk::log_record::{
    MAX_RECORD_BYTES, OPERATION_HEADER_BYTES, RECORD_MAGIC, RecordHeader, header_sectors, open_record, operation_flags,
    sector_cycle,
};
use xfskit_ondisk::{BASIC_BLOCK_BYTES, Geometry, Lsn};
use zerocopy::FromBytes;

/// The state of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogView {
    /// No metadata may have a greater LSN.
    pub(crate) newest: Lsn,
    /// It ends with an unmount record.
    pub(crate) clean: bool,
}

struct Log<'a> {
    device: &'a dyn BlockDevice,
    offset: u64,
    sectors: u32,
}

impl Log<'_> {
    fn read(&self, sector: u32, count: u32) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count as usize * BASIC_BLOCK_BYTES];
        self.device.read(self.offset + u64::from(sector) * BASIC_BLOCK_BYTES as u64, &mut bytes)?;
        Ok(bytes)
    }

    fn cycle(&self, sector: u32) -> io::Result<u32> {
        Ok(sector_cycle(&self.read(sector, 1)?))
    }

    /// The first sector that does not have cycle `first`, which is that of sector 0.
    fn edge(&self, first: u32) -> io::Result<u32> {
        let (mut low, mut high) = (0, self.sectors);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.cycle(middle)? == first { low = middle } else { high = middle }
        }
        Ok(high)
    }

    /// `count` sectors from `sector` on, around the end of the log if need be.
    fn read_around(&self, sector: u32, count: u32) -> io::Result<Vec<u8>> {
        let here = count.min(self.sectors - sector);
        let mut bytes = self.read(sector, here)?;
        if here < count {
            bytes.extend(self.read(0, count - here)?);
        }
        Ok(bytes)
    }

    /// The sector and the header of the newest record, which ends at or before `edge`. The record may wrap around the
    /// end of the log.
    fn newest_record(&self, edge: u32) -> io::Result<Option<(u32, RecordHeader)>> {
        let most = ((MAX_RECORD_BYTES / BASIC_BLOCK_BYTES) as u32 + 8).min(self.sectors);
        let (mut step, mut seen) = (4, 0);
        while seen < most {
            let count = step.min(most - seen);
            let first = (edge + self.sectors - seen - count) % self.sectors;
            let bytes = self.read_around(first, count)?;
            for (index, sector) in bytes.chunks_exact(BASIC_BLOCK_BYTES).enumerate().rev() {
                let place = (first + index as u32) % self.sectors;
                if sector.starts_with(&RECORD_MAGIC.to_be_bytes())
                    && let Ok((header, _)) = RecordHeader::read_from_prefix(sector)
                    && header.lsn.get() as u32 == place
                {
                    return Ok(Some((place, header)));
                }
            }
            seen += count;
            step = 128;
        }
        Ok(None)
    }

    fn is_unmount(&self, at: u32, header: &RecordHeader, edge: u32) -> io::Result<bool> {
        let headers = if header.version.get() == 2 { header_sectors(header.size.get() as usize) } else { 1 };
        let sectors = headers as u64 + u64::from(header.length.get()) / BASIC_BLOCK_BYTES as u64;
        let distance = if edge > at { edge - at } else { edge + self.sectors - at };
        if header.operations.get() != 1 || sectors != u64::from(distance) {
            return Ok(false);
        }
        let mut record = self.read_around(at, distance)?;
        // mkfs.xfs leaves the checksum of its own record at zero.
        if header.crc != [0; 4] && open_record(&mut record).is_err() {
            return Ok(false);
        }
        let flags = record.get(headers * BASIC_BLOCK_BYTES + OPERATION_HEADER_BYTES - 3);
        Ok(flags.is_some_and(|flags| flags & operation_flags::UNMOUNT != 0))
    }
}

/// Looks at the journal on `device`, which starts at byte `offset`.
///
/// # Errors
/// The device's error.
pub(crate) fn look(device: &dyn BlockDevice, offset: u64, geometry: &Geometry) -> io::Result<LogView> {
    let log = Log { device, offset, sectors: geometry.basic_blocks(geometry.log_blocks) as u32 };
    let (first, last) = (log.cycle(0)?, log.cycle(log.sectors - 1)?);
    let edge = if first == last { log.sectors } else { log.edge(first)? };
    let clean = match log.newest_record(edge)? {
        Some((at, header)) => log.is_unmount(at, &header, edge)?,
        None => false,
    };
    // Writes at the edge of a dirty log may be torn, so only its cycle is certain.
    let block = if clean { edge } else { log.sectors };
    Ok(LogView { newest: Lsn::new(first, block), clean })
}
