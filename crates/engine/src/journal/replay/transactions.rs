//! Puts transactions (checkpoints) together from operations.
//!
//! ```text
//! operation   start     opens the transaction of its id
//!             payload   a region, or a part of one: it goes on in the operation that is marked as its continuation
//!             commit    the transaction is complete
//! regions     transaction header | format, contents.., of an item | format, contents.., of the next | ...
//! ```
//! Transactions may be interleaved. One that is never committed did not happen; operations of an id that was not opened
//! belong to a transaction that began before the tail, and are passed over.
//!
//! Invariant: memory stays within the size of the log: a transaction keeps its payload and 4 bytes for each region.

use crate::error::Result;
use std::collections::HashMap;
use xfskit_ondisk::log_record::{CLIENT_LOG, CLIENT_TRANSACTION, TRANSACTION_MAGIC, operation_flags as flags};
use xfskit_ondisk::logged::decode_header;
use xfskit_ondisk::{Corruption, Lsn, Verdict, ensure};

use crate::journal::records::{Operation, Record};

/// Most regions of an item: every other part of the largest buffer, and its format.
const MAX_REGIONS: u16 = 257;
const TRANSACTION_HEADER_BYTES: usize = 16;
const NAME: &str = "log operation";

/// What to keep of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Everything.
    Contents,
    /// The first region of each item.
    Formats,
}

/// A transaction as it is in the log.
#[derive(Debug)]
pub struct LogTransaction {
    /// Its number in the log.
    pub id: u32,
    /// The record in which it starts: its changes carry this LSN.
    pub start: Lsn,
    bytes: Vec<u8>,
    /// Where each region that was kept ends.
    ends: Vec<u32>,
    /// The first region of each item.
    firsts: Vec<u32>,
}

/// An item of a transaction.
#[derive(Clone, Copy)]
pub struct LogItemRegions<'a> {
    transaction: &'a LogTransaction,
    first: usize,
    last: usize,
}

impl LogTransaction {
    /// A transaction that is in no log, of items given by their regions.
    #[cfg(test)]
    pub(super) fn made_up(start: Lsn, items: impl IntoIterator<Item = Vec<Vec<u8>>>) -> Self {
        let mut made = Self { id: 1, start, bytes: Vec::new(), ends: Vec::new(), firsts: Vec::new() };
        for regions in items {
            made.firsts.push(made.ends.len() as u32);
            for region in regions {
                made.bytes.extend_from_slice(&region);
                made.ends.push(made.bytes.len() as u32);
            }
        }
        made
    }

    /// Number of items.
    pub fn item_count(&self) -> usize {
        self.firsts.len()
    }

    /// An item.
    pub fn item(&self, index: usize) -> LogItemRegions<'_> {
        let last = self.firsts.get(index + 1).map_or(self.ends.len(), |&first| first as usize);
        LogItemRegions { transaction: self, first: self.firsts[index] as usize, last }
    }

    /// The items in the order of the log.
    pub fn items(&self) -> impl Iterator<Item = LogItemRegions<'_>> {
        (0..self.item_count()).map(|index| self.item(index))
    }

    /// Bytes of all regions.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

impl<'a> LogItemRegions<'a> {
    /// The type: the first word of the first region.
    pub fn item_type(self) -> u16 {
        let format = self.format();
        u16::from_le_bytes([format[0], format[1]])
    }

    /// The first region, at least 4 bytes.
    pub fn format(self) -> &'a [u8] {
        self.region(self.first)
    }

    /// The regions after the first.
    pub fn contents(self) -> impl Iterator<Item = &'a [u8]> {
        (self.first + 1..self.last).map(move |index| self.region(index))
    }

    /// All regions.
    pub fn regions(self) -> impl Iterator<Item = &'a [u8]> {
        (self.first..self.last).map(move |index| self.region(index))
    }

    fn region(self, index: usize) -> &'a [u8] {
        let transaction = self.transaction;
        let start = if index == 0 { 0 } else { transaction.ends[index - 1] as usize };
        &transaction.bytes[start..transaction.ends[index] as usize]
    }
}

/// Puts transactions together from records in their order.
pub struct Gatherer {
    keep: Keep,
    open: HashMap<u32, Open>,
}

struct Open {
    transaction: LogTransaction,
    has_header: bool,
    /// The last region goes on in another operation.
    is_partial: bool,
    /// Regions of the current item that have not been read yet.
    wanted: u16,
}

impl Gatherer {
    /// Nothing is open yet.
    pub fn new(keep: Keep) -> Self {
        Self { keep, open: HashMap::new() }
    }

    /// Takes a record and calls `commit` with each transaction that it completes.
    ///
    /// # Errors
    /// `Corrupt` for operations that make no sense; those of `commit`.
    pub fn take(&mut self, record: &Record<'_>, mut commit: impl FnMut(LogTransaction) -> Result<()>) -> Result<()> {
        for operation in record.operations() {
            if let Some(transaction) = self.operation(record.lsn, &operation?)? {
                commit(transaction)?;
            }
        }
        Ok(())
    }

    /// Number of transactions that were not committed.
    pub fn uncommitted(&self) -> usize {
        self.open.len()
    }

    /// The transactions that were not committed, as far as they are in the log.
    pub fn rest(self) -> impl Iterator<Item = LogTransaction> {
        self.open.into_values().map(|mut open| {
            open.transaction.drop_unfinished(open.wanted);
            open.transaction
        })
    }

    fn operation(&mut self, lsn: Lsn, operation: &Operation<'_>) -> Verdict<Option<LogTransaction>> {
        let (id, client) = (operation.header.transaction.get(), operation.header.client);
        ensure!(matches!(client, CLIENT_TRANSACTION | CLIENT_LOG), NAME, "a known client", "{client:#04x}");
        let bits = operation.header.flags;
        if bits & flags::START != 0 {
            ensure!(
                bits == flags::START && operation.payload.is_empty() && !self.open.contains_key(&id),
                NAME,
                "a transaction is opened once, and by an operation of its own",
                "{id:#010x}, flags {bits:#04x}"
            );
            self.open.insert(id, Open::new(id, lsn));
            return Ok(None);
        }
        let Some(open) = self.open.get_mut(&id) else { return Ok(None) };
        match bits & !flags::END {
            flags::COMMIT => {
                let open = self.open.remove(&id).expect("it was found");
                ensure!(
                    open.wanted == 0 && !open.is_partial,
                    NAME,
                    "a transaction is whole when it is committed",
                    "{id:#010x}"
                );
                return Ok(Some(open.transaction));
            }
            flags::UNMOUNT => drop(self.open.remove(&id)),
            0 => open.add(operation.payload, Part::Whole, self.keep)?,
            flags::CONTINUE => open.add(operation.payload, Part::First, self.keep)?,
            flags::WAS_CONTINUED => open.add(operation.payload, Part::Last, self.keep)?,
            both if both == flags::CONTINUE | flags::WAS_CONTINUED => {
                open.add(operation.payload, Part::Middle, self.keep)?;
            }
            _ => return Err(Corruption::new(NAME, "known flags").found(format_args!("{bits:#04x}"))),
        }
        Ok(None)
    }
}

/// Which part of a region an operation carries.
#[derive(Clone, Copy)]
enum Part {
    Whole,
    First,
    Middle,
    Last,
}

impl LogTransaction {
    fn region_start(&self) -> usize {
        self.ends.last().map_or(0, |&end| end as usize)
    }

    /// Drops an item of which regions are missing, and the part of a region that goes on elsewhere.
    fn drop_unfinished(&mut self, wanted: u16) {
        if wanted > 0 {
            let first = self.firsts.pop().expect("an unfinished item has begun");
            self.ends.truncate(first as usize);
        }
        self.bytes.truncate(self.region_start());
    }
}

impl Open {
    fn new(id: u32, start: Lsn) -> Self {
        let transaction = LogTransaction { id, start, bytes: Vec::new(), ends: Vec::new(), firsts: Vec::new() };
        Self { transaction, has_header: false, is_partial: false, wanted: 0 }
    }

    fn add(&mut self, payload: &[u8], part: Part, keep: Keep) -> Verdict {
        ensure!(
            matches!(part, Part::Middle | Part::Last) == self.is_partial,
            NAME,
            "a region that goes on is continued, and no other",
            "transaction {:#010x}",
            self.transaction.id
        );
        self.transaction.bytes.extend_from_slice(payload);
        self.is_partial = matches!(part, Part::First | Part::Middle);
        if self.is_partial { Ok(()) } else { self.region_is_whole(keep) }
    }

    fn region_is_whole(&mut self, keep: Keep) -> Verdict {
        let transaction = &mut self.transaction;
        let start = transaction.region_start();
        let region = &transaction.bytes[start..];
        if region.is_empty() {
            return Ok(());
        }
        if !self.has_header {
            let is_header = region.len() == TRANSACTION_HEADER_BYTES && region[..4] == TRANSACTION_MAGIC.to_le_bytes();
            ensure!(is_header, "log transaction", "starts with its header", "{} bytes", region.len());
            self.has_header = true;
            transaction.bytes.clear();
            return Ok(());
        }
        if self.wanted == 0 {
            let (item_type, regions) = decode_header(region)?;
            ensure!(
                (1..=MAX_REGIONS).contains(&regions),
                "log item",
                "number of regions",
                "{regions} in an item of type {item_type:#06x}"
            );
            self.wanted = regions;
            transaction.firsts.push(transaction.ends.len() as u32);
        } else if keep == Keep::Formats {
            transaction.bytes.truncate(start);
            self.wanted -= 1;
            return Ok(());
        }
        self.wanted -= 1;
        transaction.ends.push(transaction.bytes.len() as u32);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xfskit_ondisk::log_record::{OperationHeader, TransactionHeader};
    use zerocopy::IntoBytes;

    const ID: u32 = 7;

    fn add(gatherer: &mut Gatherer, flags: u8, payload: &[u8]) {
        let header = OperationHeader::new(ID, payload.len(), CLIENT_TRANSACTION, flags);
        let committed = gatherer.operation(Lsn(1), &Operation { header, payload }).unwrap();
        assert!(committed.is_none());
    }

    /// Of a transaction without an end its whole items are left.
    #[test]
    fn the_rest_of_the_log_is_whole_items() {
        let format = |regions: u8| [0x3c, 0x12, regions, 0, 0, 0, 0, 0];
        // What follows an item of two regions, and the items and bytes that are left then.
        type Operations<'a> = &'a [(u8, &'a [u8])];
        let cases: [(Operations<'_>, usize, usize); 5] = [
            (&[], 1, 12),
            (&[(0, &format(1))], 2, 20),
            (&[(0, &format(2))], 1, 12),
            (&[(flags::CONTINUE, &[0x3c, 0x12])], 1, 12),
            (&[(0, &format(3)), (0, &[1; 4]), (flags::CONTINUE, &[1; 4])], 1, 12),
        ];
        for (operations, items, bytes) in cases {
            let mut gatherer = Gatherer::new(Keep::Contents);
            add(&mut gatherer, flags::START, &[]);
            add(&mut gatherer, 0, TransactionHeader::of_checkpoint(ID, 2).as_bytes());
            add(&mut gatherer, 0, &format(2));
            add(&mut gatherer, 0, &[9; 4]);
            for (flags, payload) in operations {
                add(&mut gatherer, *flags, payload);
            }
            assert_eq!(gatherer.uncommitted(), 1);
            let rest: Vec<_> = gatherer.rest().collect();
            assert_eq!(rest.iter().map(|left| (left.item_count(), left.bytes())).collect::<Vec<_>>(), [(items, bytes)]);
            assert_eq!(rest[0].item(0).contents().collect::<Vec<_>>(), [[9; 4]]);
        }
    }

    /// As by the kernel (`xlog_recover_add_to_trans`, `xlog_recover_process_trans`).
    #[test]
    fn headers_and_flags_that_make_no_sense_are_refused() {
        let whole = TransactionHeader::of_checkpoint(ID, 2);
        let other_magic = [&[0; 4], &whole.as_bytes()[4..]].concat();
        for (flags, payload) in
            [(0x40, &[][..]), (flags::COMMIT | flags::CONTINUE, &[]), (0, &other_magic), (0, &whole.as_bytes()[..12])]
        {
            let mut gatherer = Gatherer::new(Keep::Contents);
            add(&mut gatherer, flags::START, &[]);
            let header = OperationHeader::new(ID, payload.len(), CLIENT_TRANSACTION, flags);
            assert!(gatherer.operation(Lsn(1), &Operation { header, payload }).is_err(), "{flags:#x}, {payload:?}");
        }
    }

    /// Unknown flags are refused in the middle of a region, too.
    #[test]
    fn a_region_goes_on_by_its_flags_alone() {
        let mut gatherer = Gatherer::new(Keep::Contents);
        add(&mut gatherer, flags::START, &[]);
        add(&mut gatherer, flags::CONTINUE, &TransactionHeader::of_checkpoint(ID, 2).as_bytes()[..8]);
        let header = OperationHeader::new(ID, 0, CLIENT_TRANSACTION, 0x40 | flags::WAS_CONTINUED);
        assert!(gatherer.operation(Lsn(1), &Operation { header, payload: &[] }).is_err());
    }

    #[test]
    fn an_unmount_ends_what_is_open() {
        let mut gatherer = Gatherer::new(Keep::Contents);
        add(&mut gatherer, flags::START, &[]);
        add(&mut gatherer, flags::UNMOUNT, &[]);
        assert_eq!(gatherer.uncommitted(), 0);
    }
}
