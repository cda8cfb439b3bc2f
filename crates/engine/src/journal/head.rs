//! Finds the end of the log on disk, and where recovery has to start.
//!
//! Every sector of the log carries the number of the pass (cycle) in which it was written, so the log is a run of
//! sectors of pass n followed by a run of pass n - 1 (or 0 in a new one), and the head is where they meet. Writes that
//! were in flight when the power failed may have arrived in part: `docs/design/recovery.md` says how the head is found
//! then.
//!
//! Facts: the kernel's `xlog_find_head`, `xlog_verify_head` and `xlog_verify_tail`.

use super::area::LogArea;
use super::records::record_blocks;
use crate::error::Result;
use xfskit_ondisk::log_record::{
    FORMAT_LITTLE_ENDIAN, HEADER_COVERS_BYTES, MAX_RECORD_BYTES, OPERATION_HEADER_BYTES, RECORD_MAGIC, RecordHeader,
    open_record, operation_flags, previous_cycle, sector_cycle, verify_header,
};
use xfskit_ondisk::{BASIC_BLOCK_BYTES, Corruption, Lsn};
use zerocopy::FromBytes;

/// Most sectors that a writer may have had in flight when the power failed: eight of the largest records.
pub(super) const IN_FLIGHT_BLOCKS: u32 = 8 * 256 * 1024 / 512;
/// Most records that a writer may have had in flight then. One that is further back was durable before those behind it
/// were written; that it is not whole is damage, and the kernel recovers no such log.
pub(super) const IN_FLIGHT_RECORDS: usize = 8;
/// Sectors before the edge that contain all records which may be missing or torn, and a whole record before them.
const MAX_WINDOW_BLOCKS: u32 = 2 * IN_FLIGHT_BLOCKS;
/// Most blocks of the record with which xfsprogs formats a log: the largest stripe unit.
const MAX_FORMATTED_BLOCKS: u32 = 256 * 1024 / 512;

/// Where writing goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogHead {
    /// Place of the next record.
    pub next: Lsn,
    /// Block of the newest record.
    pub last_record_block: u32,
    /// Record size of its writer. The kernel assumes one size for all records that it reads together, so the next
    /// writer must keep it.
    pub record_bytes: u32,
    /// Whose record it is.
    pub owner: RecordOwner,
    /// Blocks behind it that were written later, and are no whole record: writes that were in flight when the power
    /// failed, or damage.
    pub torn_blocks: u32,
}

impl LogHead {
    /// The bytes of the torn blocks.
    pub fn torn_bytes(&self) -> u64 {
        u64::from(self.torn_blocks) * BASIC_BLOCK_BYTES as u64
    }
}

/// To which filesystem a record belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordOwner {
    /// To the one whose UUID it carries.
    Own,
    /// To any: it carries a UUID of zeros, as the record before a change of the UUID does. The records before it may
    /// carry another UUID than those behind it; it was flushed before the first of those was written, and those before
    /// it were durable. Of a filesystem whose UUID is zeros, all records are so.
    Any,
}

/// The UUID that a record must carry, as [`verify_header`] asks for it: the filesystem's, unless it belongs to any.
fn uuid_for<'a>(header: &RecordHeader, uuid: &'a [u8; 16]) -> &'a [u8; 16] {
    if header.uuid == NO_UUID { &NO_UUID } else { uuid }
}

const NO_UUID: [u8; 16] = [0; 16];

/// Whether a header, right otherwise or not, is of a record that this filesystem's writers may have written.
fn is_readable(header: &RecordHeader, uuid: &[u8; 16]) -> bool {
    let is_known = matches!(header.version.get(), 1 | 2) && header.format.get() == FORMAT_LITTLE_ENDIAN;
    is_known && header.uuid == *uuid_for(header, uuid)
}

/// Whether the log is clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogState {
    /// It was closed in good order.
    Clean,
    /// From this LSN on it contains changes that may not be written in place yet.
    Dirty {
        /// Where recovery starts.
        tail: Lsn,
    },
}

/// Finds the head of the log and whether it is clean.
///
/// # Errors
/// `Corrupt` when there is no valid record where one must be; `Io`.
pub fn find_head(place: &LogArea, uuid: &[u8; 16]) -> Result<(LogHead, LogState)> {
    let size = place.basic_blocks;
    let (first, last) = (cycle_at(place, 0)?, cycle_at(place, size - 1)?);
    if first == 0 {
        return Err(Corruption::new("log", "written by mkfs")
            .at(place.address(0))
            .found("its first sector is zero")
            .into());
    }
    let edge = if first == last { size } else { find_edge(place, first)? };
    // In its first pass the log has nothing before its start. In a later one its end may still carry cycle 0: the last
    // writes there did not arrive.
    let most = if first == 1 { edge } else { size }.min(MAX_WINDOW_BLOCKS);
    let last = if first == last { last } else { previous_cycle(first) };
    // Zeros follow the record with which xfsprogs formats a log, and no write was in flight. Only that record has no
    // checksum.
    if edge <= MAX_FORMATTED_BLOCKS {
        let start = Window::read(place, edge, edge, first, last)?;
        if start.is_header(0) && start.header(0).crc == [0; 4] && start.is_whole(0, edge as usize, uuid) {
            return finish(place, uuid, &start, 0);
        }
    }
    for blocks in [IN_FLIGHT_BLOCKS.min(most), most] {
        let window = Window::read(place, edge, blocks, first, last)?;
        if let Some(newest) = window.newest_record(uuid)? {
            return finish(place, uuid, &window, newest);
        }
    }
    Err(Corruption::new("log", "a whole record before its head")
        .at(place.address(edge % size))
        .found(format_args!("block {edge}"))
        .into())
}

fn cycle_at(place: &LogArea, block: u32) -> Result<u32> {
    let mut sector = Vec::new();
    place.read(block, 1, &mut sector)?;
    Ok(sector_cycle(&sector))
}

/// The first block whose cycle is before `first`, by bisection. Blocks near the start may be of the next pass: they
/// were in flight together with the end of the log, and block 0 did not arrive.
fn find_edge(place: &LogArea, first: u32) -> Result<u32> {
    let (mut low, mut high) = (0, place.basic_blocks - 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if cycle_at(place, middle)? >= first { low = middle } else { high = middle }
    }
    Ok(high)
}

/// The newest record, and the head that follows it.
fn finish(place: &LogArea, uuid: &[u8; 16], window: &Window<'_>, newest: usize) -> Result<(LogHead, LogState)> {
    let header = window.header(newest);
    let blocks = record_blocks(&header);
    let lsn = window.lsn(newest);
    let record_bytes = header.size.get().clamp(HEADER_COVERS_BYTES as u32, MAX_RECORD_BYTES as u32);
    let owner = if header.uuid == NO_UUID { RecordOwner::Any } else { RecordOwner::Own };
    let torn_blocks = window.written_behind(newest + blocks as usize);
    let next = place.after(lsn, blocks);
    let head = LogHead { next, last_record_block: lsn.block(), record_bytes, owner, torn_blocks };
    // Only a crafted log uses all cycle numbers. 0 is the cycle of sectors that were never written.
    ensure_on_disk!(head.next.cycle() != 0, "log", "cycle numbers are not used up", "the last is {:#x}", lsn.cycle());
    if is_unmount(&header, window.record(newest, blocks)) {
        return Ok((head, LogState::Clean));
    }
    ensure_on_disk!(header.uuid == *uuid, "log record header", "uuid of this filesystem", "zeros");
    let tail = find_tail(place, uuid, head.next, Lsn(header.tail_lsn.get()))?;
    Ok((head, LogState::Dirty { tail }))
}

/// Whether a record says that the log was closed in good order.
fn is_unmount(header: &RecordHeader, record: &[u8]) -> bool {
    let flags = record.len() - header.length.get() as usize + OPERATION_HEADER_BYTES - 3;
    let is_set = record.get(flags).is_some_and(|flags| flags & operation_flags::UNMOUNT != 0);
    is_set && header.operations.get() == 1
}

/// The last sectors before the edge, in the order in which they were written.
struct Window<'p> {
    place: &'p LogArea,
    bytes: Vec<u8>,
    /// The block that the window starts with.
    start: u32,
    /// Blocks before this one are of the pass `first`, the others of the pass `last`.
    edge: u32,
    first: u32,
    last: u32,
}

impl<'p> Window<'p> {
    fn read(place: &'p LogArea, edge: u32, blocks: u32, first: u32, last: u32) -> Result<Self> {
        let start = if edge >= blocks { edge - blocks } else { place.basic_blocks + edge - blocks };
        let mut bytes = Vec::new();
        place.read(start % place.basic_blocks, blocks, &mut bytes)?;
        Ok(Self { place, bytes, start: start % place.basic_blocks, edge, first, last })
    }

    fn blocks(&self) -> usize {
        self.bytes.len() / BASIC_BLOCK_BYTES
    }

    fn sector(&self, index: usize) -> &[u8] {
        &self.bytes[index * BASIC_BLOCK_BYTES..(index + 1) * BASIC_BLOCK_BYTES]
    }

    /// The place of a sector, with the cycle that it must have.
    fn lsn(&self, index: usize) -> Lsn {
        let block = (self.start + index as u32) % self.place.basic_blocks;
        Lsn::new(if block < self.edge { self.first } else { self.last }, block)
    }

    fn header(&self, index: usize) -> RecordHeader {
        RecordHeader::read_from_prefix(self.sector(index)).expect("a sector is as long as a header").0
    }

    /// Whether a record of this pass starts with a sector. The first word of all other sectors of a record is the pass.
    fn is_header(&self, index: usize) -> bool {
        let sector = self.sector(index);
        sector[..4] == RECORD_MAGIC.to_be_bytes() && sector_cycle(sector) == self.lsn(index).cycle()
    }

    fn record(&self, index: usize, blocks: u32) -> &[u8] {
        &self.bytes[index * BASIC_BLOCK_BYTES..][..blocks as usize * BASIC_BLOCK_BYTES]
    }

    /// The first sector that was in flight and is missing; the end if there is none.
    fn find_hole(&self) -> usize {
        let from = self.blocks().saturating_sub(IN_FLIGHT_BLOCKS as usize);
        // A later cycle is no hole: records that were in flight behind the head may have overwritten the oldest ones.
        let missing = |&index: &usize| sector_cycle(self.sector(index)) < self.lsn(index).cycle();
        (from..self.blocks()).find(missing).unwrap_or(self.blocks())
    }

    /// Whether a sector contains no record, only the mark of its pass (see `replay/stale.rs`). The marks are flushed
    /// before the next record is written, so no write before a mark was in flight.
    fn is_stale_mark(&self, index: usize) -> bool {
        let header = self.header(index);
        header.length.get() == 0 && header.operations.get() == 0 && header.lsn.get() == self.lsn(index).0
    }

    /// The newest record that arrived whole; `None` if the window does not show it.
    fn newest_record(&self, uuid: &[u8; 16]) -> Result<Option<usize>> {
        let log_bytes = u64::from(self.place.basic_blocks) * BASIC_BLOCK_BYTES as u64;
        let mut end = self.find_hole();
        let mut headers: Vec<usize> = (0..end).filter(|&index| self.is_header(index)).collect();
        let marked = headers.iter().rposition(|&index| self.is_stale_mark(index)).map_or(0, |last| last + 1);
        headers.drain(..marked);
        // What is before a whole record of any filesystem may carry another UUID, and was not in flight.
        let of_any = headers.iter().rposition(|&index| self.is_whole_of_any(index, uuid));
        headers.drain(..of_any.unwrap_or(0));
        let mut damage = None;
        let all = headers.len();
        while let Some(&newest) = headers.last() {
            let header = self.header(newest);
            match verify_header(&header, uuid_for(&header, uuid), log_bytes) {
                Ok(()) if newest + record_blocks(&header) as usize == end => break,
                Ok(()) => {}
                Err(e) => {
                    let e = e.at(self.place.address(self.lsn(newest).block()));
                    // No more of them can have been in flight.
                    let is_too_old = all - headers.len() >= IN_FLIGHT_RECORDS;
                    if is_too_old || !is_readable(&header, uuid) {
                        return Err(e.into());
                    }
                    // It is a record of this filesystem, whose header is as damaged as its contents may be.
                    damage.get_or_insert(e);
                }
            }
            end = newest;
            headers.pop();
        }
        let oldest = end.saturating_sub(IN_FLIGHT_BLOCKS as usize);
        let recent = headers.partition_point(|&header| header < oldest);
        let recent = recent.max(headers.len().saturating_sub(IN_FLIGHT_RECORDS)).max(self.first_since_tail(&headers));
        // The end of the log: where the first record starts that is not whole, or whose header is not one any more.
        let mut record_end = end;
        for at in recent..headers.len() {
            let (start, next) = (headers[at], headers.get(at + 1).copied().unwrap_or(end));
            let own_end = start + record_blocks(&self.header(start)) as usize;
            let is_whole = own_end <= next && self.is_whole(start, own_end, uuid);
            if is_whole && own_end == next {
                continue;
            }
            headers.truncate(at + usize::from(is_whole));
            record_end = if is_whole { own_end } else { start };
            break;
        }
        let Some(&newest) = headers.last() else { return damage.map_or(Ok(None), |e| Err(e.into())) };
        // One that is further back was durable before those behind it were written, so that it is wrong is damage.
        let header = self.header(newest);
        let wrong = |e: Box<Corruption>| e.at(self.place.address(self.lsn(newest).block()));
        verify_header(&header, uuid_for(&header, uuid), log_bytes).map_err(wrong)?;
        if newest + record_blocks(&header) as usize != record_end {
            let (blocks, apart) = (record_blocks(&header), record_end - newest);
            let found = format!("{blocks} blocks, and the next one starts after {apart}");
            return Err(wrong(Corruption::new("log record", "it ends where the next one starts").found(found)).into());
        }
        Ok(Some(newest))
    }

    /// The first of the headers that is not before the tail which the last one names: what is before it was in its
    /// place, and so durable in the log, when that one was written.
    fn first_since_tail(&self, headers: &[usize]) -> usize {
        let Some((&newest, before)) = headers.split_last() else { return 0 };
        let tail = Lsn(self.header(newest).tail_lsn.get());
        before.partition_point(|&header| self.lsn(header) < tail)
    }

    /// Sectors from `index` on that are of this pass, and no mark of it.
    fn written_behind(&self, index: usize) -> u32 {
        let is_written = |&index: &usize| {
            let is_mark = self.is_header(index) && self.is_stale_mark(index);
            sector_cycle(self.sector(index)) >= self.lsn(index).cycle() && !is_mark
        };
        (index..self.blocks()).filter(is_written).count() as u32
    }

    /// Whether a whole unmount record that belongs to any filesystem starts at `index`.
    fn is_whole_of_any(&self, index: usize, uuid: &[u8; 16]) -> bool {
        let header = self.header(index);
        let blocks = record_blocks(&header);
        let is_whole = header.uuid == NO_UUID && self.is_whole(index, index + blocks as usize, uuid);
        is_whole && is_unmount(&header, self.record(index, blocks))
    }

    /// Whether the record that starts at `index` fills the place up to `end` and has the right checksum.
    fn is_whole(&self, index: usize, end: usize, uuid: &[u8; 16]) -> bool {
        let log_bytes = u64::from(self.place.basic_blocks) * BASIC_BLOCK_BYTES as u64;
        let header = self.header(index);
        let is_ours = verify_header(&header, uuid_for(&header, uuid), log_bytes).is_ok();
        let is_ours = is_ours && header.lsn.get() == self.lsn(index).0;
        if !is_ours || index + record_blocks(&header) as usize != end || end > self.blocks() {
            return false;
        }
        // mkfs.xfs and xfs_repair leave the checksum of their unmount record at zero.
        header.crc == [0; 4] || open_record(&mut self.record(index, record_blocks(&header)).to_vec()).is_ok()
    }
}

/// The first whole record from `tail` on. The torn records at the head may have overwritten records at the tail, which
/// the log did not need any more.
fn find_tail(place: &LogArea, uuid: &[u8; 16], head: Lsn, tail: Lsn) -> Result<Lsn> {
    let log_bytes = u64::from(place.basic_blocks) * BASIC_BLOCK_BYTES as u64;
    let wrong = |tail: Lsn| {
        let found = format!("{}:{}", tail.cycle(), tail.block());
        Corruption::new("log", "a whole record at its tail").at(place.address(head.block())).found(found)
    };
    let is_behind = tail.cycle() == head.cycle() && tail < head
        || tail.cycle() == previous_cycle(head.cycle()) && tail.block() > head.block();
    if tail.block() >= place.basic_blocks || !is_behind {
        return Err(wrong(tail).into());
    }
    let mut at = tail;
    let mut bytes = Vec::new();
    while at < head {
        place.read(at.block(), 1, &mut bytes)?;
        let (header, _) = RecordHeader::read_from_prefix(&bytes).expect("a sector is as long as a header");
        let blocks = record_blocks(&header);
        if header.lsn.get() == at.0
            && verify_header(&header, uuid, log_bytes).is_ok()
            && blocks <= place.distance(at.block(), head.block())
        {
            place.read(at.block(), blocks, &mut bytes)?;
            if header.crc == [0; 4] || open_record(&mut bytes).is_ok() {
                return Ok(at);
            }
        }
        if place.distance(head.block(), at.block()) > IN_FLIGHT_BLOCKS {
            return Err(wrong(tail).into());
        }
        at = place.after(at, 1);
    }
    Err(wrong(tail).into())
}

#[cfg(test)]
mod tests {
    use crate::mount::MountOptions;
    use crate::test_image::TestImage;
    use std::sync::Arc;
    use xfskit_device::BlockDevice;
    use xfskit_ondisk::BASIC_BLOCK_BYTES;
    use xfskit_ondisk::log_record::RecordHeader;
    use zerocopy::{FromBytes, IntoBytes};

    /// A clean log whose last record ends with the log, in the last pass that has a number. The next checkpoint would
    /// be in pass 0, which no record can have.
    #[test]
    fn a_log_without_another_pass_is_refused() {
        const LAST: u32 = u32::MAX;
        let image = TestImage::new(300, &[('l', "size=16m")]);
        let mount = image.mount();
        let (start, blocks) =
            (mount.geometry.log_start.unwrap(), mount.geometry.basic_blocks(mount.geometry.log_blocks));
        let offset = mount.geometry.fs_block_address(start).unwrap().bytes();
        drop(mount);
        let mut record = vec![0; 2 * BASIC_BLOCK_BYTES];
        image.device.read(offset, &mut record).unwrap();
        let (mut header, _) = RecordHeader::read_from_prefix(&record).unwrap();
        header.cycle = LAST.into();
        header.lsn = (u64::from(LAST) << 32 | (blocks as u64 - 2)).into();
        header.tail_lsn = header.lsn;
        record[..header.as_bytes().len()].copy_from_slice(header.as_bytes());
        record[BASIC_BLOCK_BYTES..BASIC_BLOCK_BYTES + 4].copy_from_slice(&LAST.to_be_bytes());
        let mut log = [LAST.to_be_bytes().to_vec(), vec![0; BASIC_BLOCK_BYTES - 4]].concat().repeat(blocks);
        let end = log.len() - record.len();
        log[end..].copy_from_slice(&record);
        image.device.write(offset, &log).unwrap();
        let error =
            crate::mount::Mount::open(Arc::clone(&image.device) as _, None, MountOptions::default()).err().unwrap();
        assert!(error.is_damage() && error.to_string().contains("cycle numbers"), "{error}");
    }
}
