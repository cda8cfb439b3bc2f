//! Records of the log and the operations in them.

use anyhow::{Context, Result};
use std::path::Path;
use std::sync::Arc;
use xfskit::device::{Access, BlockDevice, FileDevice};
use xfskit::journal::{LogHead, LogPlace, LogState, find_head};
use xfskit::ondisk::log_record::{
    CLIENT_LOG, OPERATION_HEADER_BYTES, OperationHeader, RECORD_MAGIC, RecordHeader, header_sectors, open_record,
    operation_flags as flags, verify_header,
};
use xfskit::ondisk::{BASIC_BLOCK_BYTES, Geometry, Lsn, Superblock};
use xfskit::{Error, Result as EngineResult};
use zerocopy::FromBytes;

const SUPERBLOCK_BYTES: u64 = 32 * 1024;
const SCAN_BLOCKS: u32 = 2048;

/// The log of an image.
pub struct Journal {
    place: LogPlace,
    uuid: [u8; 16],
    /// Where writing would go on.
    pub head: LogHead,
    /// Whether it was closed in good order.
    pub state: LogState,
}

/// A record.
pub struct Record {
    /// Its first block in the log.
    pub block: u32,
    /// The header as it lies on disk.
    pub header: RecordHeader,
    /// The data, whole sectors, the first words put back.
    pub data: Vec<u8>,
    /// What is wrong with it, if something is; the data is then as it lies on disk.
    pub damage: Option<String>,
    blocks: u32,
}

/// An operation.
pub struct Operation<'a> {
    /// Its header.
    pub header: OperationHeader,
    /// Its payload.
    pub payload: &'a [u8],
}

impl Journal {
    /// Opens the log of an image. The filesystem itself is not opened: its log can be looked at even if it is damaged.
    pub fn open(image: &Path, log_device: Option<&Path>) -> Result<Self> {
        let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(image, Access::Read)?);
        let mut sector = vec![0; device.size_bytes().min(SUPERBLOCK_BYTES) as usize];
        device.read(0, &mut sector).map_err(|source| Error::Io { offset: 0, source })?;
        let superblock = Superblock::decode(&sector).with_context(|| image.display().to_string())?;
        let geometry = Geometry::new(&superblock);
        let basic_blocks = geometry.log_blocks << (geometry.block_log - 9);
        let place = match (geometry.log_start, log_device) {
            (Some(start), _) => {
                let offset = geometry.fs_block_address(start).context("the log lies outside the device")?.bytes();
                LogPlace { device, offset, basic_blocks }
            }
            (None, Some(path)) => {
                LogPlace { device: Arc::new(FileDevice::open(path, Access::Read)?), offset: 0, basic_blocks }
            }
            (None, None) => {
                return Err(crate::exit::Usage("the log is external: name its device with --logdev".into()).into());
            }
        };
        let uuid = geometry.meta_uuid;
        let (head, state) = find_head(&place, &uuid).with_context(|| image.display().to_string())?;
        Ok(Self { place, uuid, head, state })
    }

    /// Size in basic blocks.
    pub fn blocks(&self) -> u32 {
        self.place.basic_blocks
    }

    /// The records that recovery would look at: from the tail to the head. Of a clean log, the last one.
    pub fn live_records(&self) -> EngineResult<Vec<Record>> {
        let start = match self.state {
            LogState::Clean => self.head.last_record_block,
            LogState::Dirty { tail } => tail.block(),
        };
        let end = self.head.next.block() % self.blocks();
        let mut records = Vec::new();
        let mut at = start;
        let mut passed = 0;
        while let Some(record) = self.record_at(at)? {
            passed += record.blocks;
            at = (at + record.blocks) % self.blocks();
            records.push(record);
            if at == end || passed >= self.blocks() {
                break;
            }
        }
        Ok(records)
    }

    /// Every record that can still be found, the oldest first.
    pub fn all_records(&self) -> EngineResult<Vec<Record>> {
        let mut records = Vec::new();
        let mut at = 0;
        while at < self.blocks() {
            let count = SCAN_BLOCKS.min(self.blocks() - at);
            let bytes = self.read(at, count)?;
            for (index, sector) in bytes.chunks_exact(BASIC_BLOCK_BYTES).enumerate() {
                if sector[..4] == RECORD_MAGIC.to_be_bytes()
                    && let Some(record) = self.record_at(at + index as u32)?
                {
                    records.push(record);
                }
            }
            at += count;
        }
        records.sort_by_key(|record| record.header.lsn.get());
        Ok(records)
    }

    /// The record at a block; `None` where there is none.
    fn record_at(&self, block: u32) -> EngineResult<Option<Record>> {
        if block >= self.blocks() {
            return Ok(None);
        }
        let sector = self.read(block, 1)?;
        let Ok((header, _)) = RecordHeader::read_from_prefix(&sector) else { return Ok(None) };
        let log_bytes = u64::from(self.blocks()) * BASIC_BLOCK_BYTES as u64;
        if verify_header(&header, &self.uuid, log_bytes).is_err() || Lsn(header.lsn.get()).block() != block {
            return Ok(None);
        }
        let headers = if header.version.get() == 2 { header_sectors(header.size.get() as usize) } else { 1 };
        let blocks = headers as u32 + header.length.get() / BASIC_BLOCK_BYTES as u32;
        if blocks > self.blocks() {
            return Ok(None);
        }
        let first = blocks.min(self.blocks() - block);
        let mut bytes = self.read(block, first)?;
        bytes.extend(self.read(0, blocks - first)?);
        // mkfs.xfs leaves the checksum of its record at zero, and its words in place.
        let unchecked = header.crc == [0; 4];
        let damage = if unchecked { None } else { open_record(&mut bytes).err().map(|error| error.to_string()) };
        let data = bytes.split_off(headers * BASIC_BLOCK_BYTES);
        Ok(Some(Record { block, header, data, damage, blocks }))
    }

    fn read(&self, block: u32, count: u32) -> EngineResult<Vec<u8>> {
        let mut bytes = vec![0; count as usize * BASIC_BLOCK_BYTES];
        let offset = self.place.offset + u64::from(block) * BASIC_BLOCK_BYTES as u64;
        self.place.device.read(offset, &mut bytes).map_err(|source| Error::Io { offset, source })?;
        Ok(bytes)
    }
}

impl Record {
    /// Where it starts.
    pub fn lsn(&self) -> Lsn {
        Lsn(self.header.lsn.get())
    }

    /// The operations, as far as they can be read.
    pub fn operations(&self) -> Vec<Operation<'_>> {
        let mut operations = Vec::new();
        let mut rest = self.data.as_slice();
        for _ in 0..self.header.operations.get() {
            let Ok((header, after)) = OperationHeader::read_from_prefix(rest) else { break };
            let length = header.length.get() as usize;
            let Some((payload, after)) = after.split_at_checked(length) else { break };
            operations.push(Operation { header, payload });
            rest = after;
        }
        debug_assert_eq!(size_of::<OperationHeader>(), OPERATION_HEADER_BYTES);
        operations
    }
}

impl Operation<'_> {
    /// Whether it has a flag.
    pub fn has(&self, flag: u8) -> bool {
        self.header.flags & flag != 0
    }

    /// The flags by name.
    pub fn flag_names(&self) -> Vec<&'static str> {
        let names = [
            (flags::START, "start"),
            (flags::COMMIT, "commit"),
            (flags::CONTINUE, "continues"),
            (flags::WAS_CONTINUED, "continued"),
            (flags::END, "end"),
            (flags::UNMOUNT, "unmount"),
        ];
        names.iter().filter(|(flag, _)| self.has(*flag)).map(|(_, name)| *name).collect()
    }

    /// Whether the operation is the log's own.
    pub fn is_log(&self) -> bool {
        self.header.client == CLIENT_LOG
    }
}
