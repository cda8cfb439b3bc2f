//! Checkpoints put together from operations: regions that go on in the next record are joined, and regions are
//! gathered into items.

use super::items::Item;
use super::records::Record;
use std::collections::BTreeMap;
use xfskit::ondisk::Lsn;
use xfskit::ondisk::log_record::{TRANSACTION_MAGIC, operation_flags as flags};

/// A checkpoint, which the format calls a transaction.
pub struct Checkpoint {
    /// Its number in the log.
    pub id: u32,
    /// Where it starts.
    pub start: Lsn,
    /// Where it was committed; `None` if the log ends before.
    pub commit: Option<Lsn>,
    /// What it logs.
    pub items: Vec<Item>,
}

/// Puts checkpoints together from records in their order.
#[derive(Default)]
pub struct Gatherer {
    open: BTreeMap<u32, Open>,
}

struct Open {
    checkpoint: Checkpoint,
    /// A region that goes on in the next operation.
    partial: Vec<u8>,
    /// Regions of the item that is being gathered, and how many it has.
    regions: Vec<Vec<u8>>,
    wanted: usize,
}

impl Gatherer {
    /// Takes a record; returns the checkpoints that it completes.
    pub fn take(&mut self, record: &Record) -> Vec<Checkpoint> {
        let mut done = Vec::new();
        for operation in record.operations() {
            if operation.is_log() {
                continue;
            }
            let id = operation.header.transaction.get();
            let open = self.open.entry(id).or_insert_with(|| Open::new(id, record.lsn()));
            if operation.has(flags::COMMIT) {
                if let Some(mut open) = self.open.remove(&id) {
                    open.finish_item();
                    open.checkpoint.commit = Some(record.lsn());
                    done.push(open.checkpoint);
                }
            } else if !operation.has(flags::START) {
                open.take(operation.payload, operation.has(flags::CONTINUE) && !operation.has(flags::END));
            }
        }
        done
    }

    /// What was not committed.
    pub fn rest(self) -> Vec<Checkpoint> {
        self.open.into_values().map(|open| open.checkpoint).collect()
    }
}

impl Open {
    fn new(id: u32, start: Lsn) -> Self {
        let checkpoint = Checkpoint { id, start, commit: None, items: Vec::new() };
        Self { checkpoint, partial: Vec::new(), regions: Vec::new(), wanted: 0 }
    }

    fn take(&mut self, payload: &[u8], goes_on: bool) {
        self.partial.extend_from_slice(payload);
        if goes_on {
            return;
        }
        let region = std::mem::take(&mut self.partial);
        if self.regions.is_empty() {
            if region.starts_with(&TRANSACTION_MAGIC.to_le_bytes()) {
                return;
            }
            self.wanted = Item::region_count(&region);
        }
        self.regions.push(region);
        if self.regions.len() >= self.wanted {
            self.finish_item();
        }
    }

    fn finish_item(&mut self) {
        if !self.regions.is_empty() {
            self.checkpoint.items.push(Item::decode(std::mem::take(&mut self.regions)));
        }
    }
}
