//! Journals that are put together by hand: what no writer is likely to leave, and the kernel recovers all the same.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use xfskit_device::{Access, FileDevice};
use xfskit_engine::journal::replay::{Gatherer, Keep, LogTransaction};
use xfskit_engine::journal::{LogState, RecordReader};
use xfskit_engine::open::FoundLog;
use xfskit_ondisk::log_record::{
    CLIENT_TRANSACTION, HEADER_COVERS_BYTES, OperationHeader, RecordFields, TransactionHeader, header_sectors,
    operation_flags as flags, seal_record,
};
use xfskit_ondisk::logged::buffer::{BufferFormat, CHUNK_BYTES, FORMAT_BYTES};
use xfskit_ondisk::{BASIC_BLOCK_BYTES, DiskAddress, Lsn};
use zerocopy::IntoBytes;

/// The regions of an item.
pub type Item = Vec<Vec<u8>>;

/// A journal that is to be written behind the records of an image.
#[derive(Default)]
pub struct Journal {
    records: Vec<(Vec<u8>, u32)>,
    data: Vec<u8>,
    operations: u32,
}

impl Journal {
    /// Adds an operation, in a new record if it does not fit.
    pub fn operation(&mut self, id: u32, flags: u8, payload: &[u8]) {
        let header = OperationHeader::new(id, payload.len(), CLIENT_TRANSACTION, flags);
        if self.data.len() + size_of::<OperationHeader>() + payload.len() > HEADER_COVERS_BYTES {
            self.end_record();
        }
        self.data.extend_from_slice(header.as_bytes());
        self.data.extend_from_slice(payload);
        self.operations += 1;
    }

    /// Opens a transaction that will have some items.
    pub fn begin(&mut self, id: u32, items: &[Item]) {
        self.operation(id, flags::START, &[]);
        let regions: usize = items.iter().map(Vec::len).sum();
        self.operation(id, 0, TransactionHeader::of_checkpoint(id, regions as u32).as_bytes());
    }

    /// Adds a whole transaction.
    pub fn transaction(&mut self, id: u32, items: &[Item]) {
        self.begin(id, items);
        items.iter().flatten().for_each(|region| self.operation(id, 0, region));
        self.operation(id, flags::COMMIT, &[]);
    }

    /// Ends the record: what follows has another LSN.
    pub fn end_record(&mut self) {
        self.records.push((std::mem::take(&mut self.data), std::mem::take(&mut self.operations)));
    }

    /// Writes the journal behind the head of the image's log, where recovery will start. Returns the LSNs of its
    /// records.
    pub fn write(mut self, image: &Path) -> Vec<Lsn> {
        if self.operations > 0 {
            self.end_record();
        }
        let device = Arc::new(FileDevice::open(image, Access::Read).expect("an image"));
        let log = FoundLog::find(device, None).expect("a log");
        let file = std::fs::File::options().write(true).open(image).expect("an image");
        let (tail, mut previous) = (log.head.next, log.head.last_record_block);
        let (mut next, mut places) = (tail, Vec::new());
        for (data, operations) in self.records {
            let mut record = vec![0; header_sectors(log.head.record_bytes as usize) * BASIC_BLOCK_BYTES];
            record.extend(data);
            record.resize(record.len().next_multiple_of(BASIC_BLOCK_BYTES), 0);
            let fields = RecordFields {
                lsn: next,
                tail_lsn: tail,
                previous_block: previous,
                operations,
                record_bytes: log.head.record_bytes,
                uuid: log.uuid,
            };
            seal_record(&mut record, &fields, None);
            let at = log.place.offset + u64::from(next.block()) * BASIC_BLOCK_BYTES as u64;
            file.write_all_at(&record, at).expect("room for a record");
            places.push(next);
            previous = next.block();
            next = Lsn::new(next.cycle(), next.block() + (record.len() / BASIC_BLOCK_BYTES) as u32);
        }
        places
    }
}

/// The items of the transactions in an image's dirty log.
pub fn logged_items(image: &Path) -> Vec<Vec<Item>> {
    let device = Arc::new(FileDevice::open(image, Access::Read).expect("an image"));
    let log = FoundLog::find(device, None).expect("a log");
    let LogState::Dirty { tail } = log.state else { panic!("a clean log") };
    let blocks = log.place.distance(tail.block(), log.head.next.block());
    let mut records = RecordReader::new(&log.place, log.uuid, tail, blocks);
    let (mut gatherer, mut all) = (Gatherer::new(Keep::Contents), Vec::new());
    while let Some(record) = records.read_next().expect("a sound log") {
        let commit = |transaction: LogTransaction| {
            all.push(transaction.items().map(|item| item.regions().map(<[u8]>::to_vec).collect()).collect());
            Ok(())
        };
        gatherer.take(&record, commit).expect("sound transactions");
    }
    all
}

/// An item that carries parts of a buffer: for each, its offset and its bytes.
pub fn buffer(address: DiskAddress, basic_blocks: u16, kind: u16, flags: u16, parts: &[(usize, &[u8])]) -> Item {
    const TYPE_SHIFT: u16 = xfskit_ondisk::log_record::buffer_flags::TYPE_SHIFT;
    let mut map = vec![0u32; (usize::from(basic_blocks) * BASIC_BLOCK_BYTES / CHUNK_BYTES).div_ceil(32)];
    for (offset, bytes) in parts {
        (offset / CHUNK_BYTES..(offset + bytes.len()) / CHUNK_BYTES).for_each(|bit| map[bit / 32] |= 1 << (bit % 32));
    }
    let mut format = vec![0; FORMAT_BYTES + 4 * map.len()];
    let flags = flags | kind << TYPE_SHIFT;
    let regions = 1 + parts.len() as u16;
    BufferFormat { address, basic_blocks, flags, regions }.encode(&map, &mut format);
    [format].into_iter().chain(parts.iter().map(|(_, bytes)| bytes.to_vec())).collect()
}
