//! Writes checkpoints as log records.
//!
//! A checkpoint is a stream of operations: start, transaction header, the regions of every item, commit. The stream is
//! cut into records of at most `record_bytes`; a payload that does not fit goes on in the next record. Where requests
//! of the device take long, the records between two flushes are written together; they are at most as many as recovery
//! takes for torn.

use super::area::LogArea;
use super::checkpoint::Checkpoint;
use super::data_device::{DataDevice, FlushFailed};
use super::grant::accounts::Overheads;
use super::head::{IN_FLIGHT_RECORDS, LogHead};
use crate::env::mix;
use crate::error::{Error, Result};
use crate::error_tags::{ErrorTags, LOG_BAD_CRC, LOG_IO_DONE};
use crate::sync::Mutex;
use std::mem::offset_of;
use std::sync::Arc;
use xfskit_device::{BlockDevice, at_once};
use xfskit_ondisk::log_record::{
    CLIENT_LOG, CLIENT_TRANSACTION, OPERATION_HEADER_BYTES, OperationHeader, RecordFields, RecordHeader,
    TransactionHeader, UNMOUNT_PAYLOAD, header_sectors, next_cycle, operation_flags, seal_record,
};
use xfskit_ondisk::{BASIC_BLOCK_BYTES, Lsn};
use zerocopy::IntoBytes;

/// What was written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Written {
    pub bytes: u64,
    pub records: u64,
}

/// When a record must be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flushed {
    /// After the flush that follows.
    Later,
    /// The same, or when it is written: a checkpoint's last record.
    MayBeAtOnce,
}

/// Most bytes of records between two flushes: half of the distance within which recovery looks for missing records.
const MAX_IN_FLIGHT_BYTES: u64 = 1 << 20;
/// Most records between two flushes: so many may be torn for recovery, the kernel's too, and no more.
const MAX_IN_FLIGHT_RECORDS: u32 = IN_FLIGHT_RECORDS as u32;

pub(super) struct LogWriter {
    place: LogArea,
    /// The data device, which may contain the log.
    data: Arc<DataDevice>,
    /// Where the next record goes.
    head: Lsn,
    previous_block: u32,
    record_bytes: usize,
    round_bytes: usize,
    uuid: [u8; 16],
    /// The record being filled, header sectors included.
    record: Vec<u8>,
    operations: u32,
    tail: Lsn,
    written: Written,
    /// Bytes of records since the last flush, and the number of these records.
    unflushed_bytes: u64,
    unflushed_records: u32,
    /// Parts of records that are sealed and not written yet: where the device's requests take long, those of a
    /// checkpoint are on their way together.
    waiting: Vec<(u64, Vec<u8>)>,
    error_tags: Arc<ErrorTags>,
}

impl LogWriter {
    pub(super) fn new(
        place: LogArea,
        data: Arc<DataDevice>,
        head: &LogHead,
        record_bytes: usize,
        round_bytes: usize,
        uuid: [u8; 16],
        error_tags: Arc<ErrorTags>,
    ) -> Self {
        Self {
            place,
            data,
            head: head.next,
            previous_block: head.last_record_block,
            record_bytes,
            round_bytes,
            uuid,
            record: Vec::with_capacity(record_bytes),
            operations: 0,
            tail: head.next,
            written: Written::default(),
            unflushed_bytes: 0,
            unflushed_records: 0,
            waiting: Vec::new(),
            error_tags,
        }
    }

    fn header_bytes(&self) -> usize {
        header_sectors(self.record_bytes) * BASIC_BLOCK_BYTES
    }

    pub(super) fn overheads(&self) -> Overheads {
        Overheads {
            header_bytes: self.header_bytes() as u64,
            payload_bytes: (self.record_bytes - self.header_bytes()) as u64,
            round_bytes: self.round_bytes as u64,
        }
    }

    /// The device that contains the log.
    pub(super) fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.place.device
    }

    pub(super) fn head(&self) -> Lsn {
        self.head
    }

    /// Writes a checkpoint whose records name `tail`. The device is not flushed.
    pub(super) fn write_checkpoint(&mut self, checkpoint: &Checkpoint, tail: Lsn) -> Result<Written> {
        self.tail = tail;
        self.written = Written::default();
        // An error before has shut the journal down.
        debug_assert!(self.waiting.is_empty(), "records of another checkpoint");
        let id = transaction_id(self.head);
        self.operation(id, operation_flags::START, &[])?;
        let header = TransactionHeader::of_checkpoint(id, checkpoint.region_count() as u32);
        self.operation(id, 0, header.as_bytes())?;
        checkpoint.regions(|region| self.operation(id, 0, region))?;
        self.operation(id, operation_flags::COMMIT, &[])?;
        self.write_record(Flushed::MayBeAtOnce)?;
        self.write_waiting()?;
        Ok(self.written)
    }

    /// Records carry this UUID from here on.
    pub(super) fn set_uuid(&mut self, uuid: [u8; 16]) {
        self.uuid = uuid;
    }

    /// Writes an unmount record: the log contains nothing that recovery needs.
    pub(super) fn write_unmount(&mut self) -> Result<Written> {
        self.tail = self.head;
        self.written = Written::default();
        self.put_operation(0xb0c0_d0d0, CLIENT_LOG, operation_flags::UNMOUNT, &UNMOUNT_PAYLOAD);
        self.write_record(Flushed::Later)?;
        self.write_waiting()?;
        Ok(self.written)
    }

    /// Makes the records durable, and with them all that was written to their device before.
    pub(super) fn flush(&mut self) -> Result<()> {
        if self.unflushed_bytes == 0 && self.nothing_else_waits() {
            return Ok(());
        }
        self.write_waiting()?;
        let flushed = self.data.flush_log(&self.place.device);
        flushed.map_err(|FlushFailed(source)| Error::of_flush(source))?;
        self.unflushed_bytes = 0;
        self.unflushed_records = 0;
        Ok(())
    }

    /// Adds an operation, over as many records as its payload takes.
    fn operation(&mut self, id: u32, flags: u8, mut payload: &[u8]) -> Result<()> {
        let mut flags = flags;
        loop {
            let room = self.room();
            if room >= OPERATION_HEADER_BYTES + payload.len() {
                let last = if flags & operation_flags::WAS_CONTINUED != 0 { operation_flags::END } else { 0 };
                self.put_operation(id, CLIENT_TRANSACTION, flags | last, payload);
                return Ok(());
            }
            if room >= OPERATION_HEADER_BYTES + 4 {
                let (fits, rest) = payload.split_at(room - OPERATION_HEADER_BYTES);
                self.put_operation(id, CLIENT_TRANSACTION, flags | operation_flags::CONTINUE, fits);
                payload = rest;
                flags = operation_flags::WAS_CONTINUED;
            }
            self.write_record(Flushed::Later)?;
        }
    }

    /// Bytes that the record being filled can still take.
    fn room(&mut self) -> usize {
        if self.record.is_empty() {
            self.record.resize(self.header_bytes(), 0);
        }
        self.record_bytes - self.record.len()
    }

    fn put_operation(&mut self, id: u32, client: u8, flags: u8, payload: &[u8]) {
        if self.record.is_empty() {
            self.record.resize(self.header_bytes(), 0);
        }
        // The header is appended in one piece, for speed: there are as many operations as regions, and most are short.
        let header = OperationHeader::new(id, payload.len(), client, flags);
        self.record.extend_from_slice(header.as_bytes());
        self.record.extend_from_slice(payload);
        self.operations += 1;
    }

    /// Whether no write to the log's device waits for a flush, but for records.
    fn nothing_else_waits(&self) -> bool {
        !self.data.is(&self.place.device) || self.data.is_flushed()
    }

    /// Seals the record being filled and writes it at the head, around the end of the log if need be.
    fn write_record(&mut self, flushed: Flushed) -> Result<()> {
        let length = self.record.len().next_multiple_of(self.round_bytes);
        self.record.resize(length, 0);
        let sectors = length / BASIC_BLOCK_BYTES;
        let size = self.place.basic_blocks as usize;
        let until_end = size - self.head.block() as usize;
        let fields = RecordFields {
            lsn: self.head,
            tail_lsn: self.tail,
            previous_block: self.previous_block,
            operations: self.operations,
            record_bytes: self.record_bytes as u32,
            uuid: self.uuid,
        };
        // Recovery looks for records that did not arrive, or in part, near the head only.
        let is_full = self.unflushed_bytes + length as u64 > MAX_IN_FLIGHT_BYTES;
        if is_full || self.unflushed_records >= MAX_IN_FLIGHT_RECORDS {
            self.flush()?;
        }
        let is_whole_in_one = self.unflushed_bytes == 0 && sectors <= until_end;
        let at_once = flushed == Flushed::MayBeAtOnce && is_whole_in_one && self.supports_fua();
        if !at_once {
            self.unflushed_bytes += length as u64;
            self.unflushed_records += 1;
        }
        seal_record(&mut self.record, &fields, (until_end < sectors).then_some(until_end));
        self.error_tags.fail(LOG_IO_DONE)?;
        let bad_checksum = self.error_tags.strikes(LOG_BAD_CRC);
        if bad_checksum {
            self.record[offset_of!(RecordHeader, crc)] ^= 1;
        }
        let first = sectors.min(until_end) * BASIC_BLOCK_BYTES;
        if at_once {
            let offset = self.offset(self.head.block());
            let written = self.place.device.write_fua(offset, &self.record);
            written.map_err(|source| Error::Io { offset, source })?;
        } else {
            self.write_at(self.head.block(), 0..first)?;
        }
        if first < length {
            self.write_at(0, first..length)?;
        }
        self.previous_block = self.head.block();
        let next = self.head.block() as usize + sectors;
        self.head = if next >= size {
            Lsn::new(next_cycle(self.head.cycle()), (next - size) as u32)
        } else {
            Lsn::new(self.head.cycle(), next as u32)
        };
        if bad_checksum {
            let source = std::io::Error::other("error tag log_bad_crc");
            self.write_waiting()?;
            return Err(Error::Io { offset: self.place.offset, source });
        }
        self.written.bytes += length as u64;
        self.written.records += 1;
        self.record.clear();
        self.operations = 0;
        Ok(())
    }

    fn write_at(&mut self, block: u32, range: std::ops::Range<usize>) -> Result<()> {
        let offset = self.offset(block);
        if self.place.device.hints().queue_depth > 1 {
            self.waiting.push((offset, self.record[range].to_vec()));
            return Ok(());
        }
        self.place.device.write(offset, &self.record[range]).map_err(|source| Error::Io { offset, source })
    }

    /// Writes the records that wait. They may reach the device in any order, as without a flush between them they may
    /// in any case.
    fn write_waiting(&mut self) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        let (device, result) = (&self.place.device, Mutex::new(Ok(())));
        at_once(device.hints().queue_depth, "log", waiting, |(offset, bytes)| {
            if let Err(source) = device.write(offset, &bytes) {
                *result.lock() = Err(Error::Io { offset, source });
            }
        });
        result.into_inner()
    }

    /// Where a block of the log lies on its device, in bytes.
    fn offset(&self, block: u32) -> u64 {
        self.place.offset + u64::from(block) * BASIC_BLOCK_BYTES as u64
    }

    /// Whether a durable write spares a flush: where other writes wait for one, it would be one request more.
    fn supports_fua(&self) -> bool {
        self.place.device.hints().supports_fua && self.nothing_else_waits()
    }
}

/// The number by which the operations of a checkpoint belong together. It is derived from the place where the
/// checkpoint starts, so no two checkpoints in the live part of the log have the same number, whichever mounts wrote
/// them. Otherwise recovery would take the remains of one that was cut off for the beginning of another.
fn transaction_id(start: Lsn) -> u32 {
    (mix(start.0) as u32).max(1)
}
