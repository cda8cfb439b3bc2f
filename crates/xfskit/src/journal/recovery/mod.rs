//! Physical recovery: brings everything that the log holds to its home.
//!
//! ```text
//! pass 1   tail ──records──▶ head   which buffers were freed, which quota was switched off; unknown items are refused
//! pass 2   tail ──records──▶ head   each transaction's items, in the order that their dependences ask for, replayed
//!                                   over the blocks in memory; intents without a done item are gathered
//! then     blocks are written and flushed; stale sectors ahead of the head are cleared and flushed
//! ```
//! What is left is intents, which are finished by transactions (see `docs/design/recovery.md`).
//!
//! Invariants: nothing is written before the whole log was read once and found good; nothing is written to the log
//! before everything is at home. So a crash anywhere leaves a log from which recovery starts again, and what was
//! brought home the first time is passed over by its LSN.
//!
//! Facts: the XFS Algorithms & Data Structures document, "Journaling Log"; the kernel's `xlog_recover_reorder_trans`
//! and the recovery of its items.

mod blocks;
mod buffers;
mod cancels;
mod directories;
mod forks;
mod inodes;
mod intents;
mod quota;
mod report;
mod stale;
mod transactions;

pub use blocks::KindOf;
pub use intents::RecoveredIntent;
pub use report::RecoveryReport;
pub use stale::clear_stale_sectors;
pub use transactions::{Gatherer, Keep, LogItemRegions, LogTransaction};

use super::place::LogPlace;
use super::records::RecordReader;
use crate::error::Result;
use blocks::Blocks;
use cancels::Cancels;
use directories::Directories;
use intents::{PendingIntents, Role, intent_id, role};
use std::sync::Arc;
use xfskit_device::BlockDevice;
use xfskit_ondisk::log_record::item_type;
use xfskit_ondisk::logged::buffer::LoggedBuffer;
use xfskit_ondisk::logged::dquot::decode_quota_off;
use xfskit_ondisk::{Geometry, Lsn, Unsupported};

/// A dirty log and what it belongs to.
pub struct DirtyLog {
    /// The log.
    pub place: LogPlace,
    /// Where its contents go.
    pub data_device: Arc<dyn BlockDevice>,
    /// The shape of the filesystem, as its superblock says before recovery.
    pub geometry: Arc<Geometry>,
    /// Whether quota records are kept, as far as the superblock at its home knows.
    pub has_quota: bool,
    /// Finds the kinds of blocks.
    pub kind_of: KindOf,
    /// Where recovery starts.
    pub tail: Lsn,
    /// Where the log ends.
    pub head: Lsn,
}

/// What recovery came to.
pub struct Recovered {
    /// Intents to finish, in the order of the log.
    pub intents: Vec<Arc<RecoveredIntent>>,
    /// What was done.
    pub report: RecoveryReport,
}

/// What becomes of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was replayed.
    Replayed,
    /// What is at home is newer, or nobody keeps it any more.
    Skipped,
    /// Its buffer was freed later.
    Cancelled,
    /// It has nothing to replay: a cancel record, an intent or a done item.
    Passed,
}

/// What became of one item.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// Which of the transactions that were complete, counted from 0 at the tail.
    pub transaction: usize,
    /// Which item of it, in the order of the log.
    pub item: usize,
    /// What became of it.
    pub outcome: Outcome,
}

/// The second pass.
struct Replay<'a> {
    blocks: Blocks,
    cancels: &'a mut Cancels,
    quota_off: u8,
    has_quota: bool,
    intents: PendingIntents,
    directories: Directories,
}

impl DirtyLog {
    /// Replays the log onto the device and makes it durable there. The log itself stays as it is. `tell` hears of every
    /// item of every transaction what became of it.
    ///
    /// # Errors
    /// `Corrupt` where the log makes no sense or makes something of a block that fails its checks; `Unsupported` for
    /// items of features that are not supported; `Io`.
    pub fn replay(&self, tell: &mut dyn FnMut(Told)) -> Result<Recovered> {
        let mut report = RecoveryReport { tail: self.tail, head: self.head, ..RecoveryReport::default() };
        let (mut cancels, quota_off) = self.first_pass(&mut report)?;
        let mut replay = Replay {
            blocks: self.blocks(),
            cancels: &mut cancels,
            quota_off,
            has_quota: self.has_quota,
            intents: PendingIntents::default(),
            directories: Directories::default(),
        };
        let mut gatherer = Gatherer::new(Keep::Contents);
        let mut transactions = 0;
        let mut records = self.records();
        while let Some(record) = records.read_next()? {
            gatherer.take(&record, |transaction| {
                let ordinal = transactions;
                transactions += 1;
                replay.transaction(&transaction, &mut |item, outcome| {
                    report.count(outcome);
                    tell(Told { transaction: ordinal, item, outcome });
                })
            })?;
        }
        report.uncommitted = gatherer.uncommitted() as u64;
        replay.blocks.write_pieces(&replay.directories)?;
        replay.blocks.write_all()?;
        replay.blocks.expect_mended()?;
        replay.blocks.flush()?;
        report.blocks_written = replay.blocks.written;
        let intents = replay.intents.into_list();
        report.intents = intents.len() as u64;
        Ok(Recovered { intents, report })
    }

    fn records(&self) -> RecordReader<'_> {
        let blocks = self.place.distance(self.tail.block(), self.head.block());
        RecordReader::new(&self.place, self.geometry.uuid, self.tail, blocks)
    }

    fn blocks(&self) -> Blocks {
        let log_bytes = u64::from(self.place.basic_blocks) * 512;
        let log = match self.geometry.log_start {
            Some(_) => self.place.offset..self.place.offset + log_bytes,
            None => 0..0,
        };
        Blocks::new(Arc::clone(&self.data_device), Arc::clone(&self.geometry), self.kind_of, log)
    }

    /// Reads the whole log once: finds what was freed and what was switched off, and refuses what nobody here knows.
    fn first_pass(&self, report: &mut RecoveryReport) -> Result<(Cancels, u8)> {
        let (mut cancels, mut quota_off) = (Cancels::default(), 0);
        let mut gatherer = Gatherer::new(Keep::Formats);
        let mut records = self.records();
        while let Some(record) = records.read_next()? {
            report.records += 1;
            gatherer.take(&record, |transaction| {
                report.transactions += 1;
                for item in transaction.items() {
                    match item.item_type() {
                        item_type::BUFFER => {
                            let buffer = LoggedBuffer::decode(item.format())?;
                            if buffer.is_cancel() {
                                cancels.add(buffer.address, buffer.basic_blocks);
                            }
                        }
                        item_type::QUOTAOFF => quota_off |= decode_quota_off(item.format())?,
                        other => check_known(other)?,
                    }
                }
                Ok(())
            })?;
        }
        report.bytes = u64::from(self.place.distance(self.tail.block(), self.head.block())) * 512;
        Ok((cancels, quota_off))
    }
}

/// Refuses items that recovery does not know: leaving one out would lose what it says.
fn check_known(kind: u16) -> Result<()> {
    let known = matches!(kind, item_type::INODE | item_type::ICREATE | item_type::DQUOT) || role(kind).is_some();
    if known {
        return Ok(());
    }
    if (item_type::FIRST_REALTIME..=item_type::LAST_REALTIME).contains(&kind) {
        return Err(Unsupported::Feature("realtime (the journal holds items of a realtime section)").into());
    }
    Err(Unsupported::LogItem(kind).into())
}

impl Replay<'_> {
    /// Replays the items of a transaction: new inode chunks and buffers first, for others change what they make; then
    /// inodes and everything else; then the links of unlinked lists, which would be lost under an inode that is
    /// replayed after them; cancel records last, for the items before them are still cancelled.
    fn transaction(&mut self, transaction: &LogTransaction, tell: &mut dyn FnMut(usize, Outcome)) -> Result<()> {
        let mut groups: [Vec<usize>; 4] = Default::default();
        for (index, item) in transaction.items().enumerate() {
            groups[group_of(item)?].push(index);
        }
        for index in groups.into_iter().flatten() {
            self.blocks.relieve()?;
            tell(index, self.item(transaction.start, transaction.item(index))?);
        }
        Ok(())
    }

    fn item(&mut self, lsn: Lsn, item: LogItemRegions<'_>) -> Result<Outcome> {
        match item.item_type() {
            item_type::BUFFER => self.buffer(lsn, item),
            item_type::INODE => self.inode(lsn, item),
            item_type::ICREATE => self.new_inodes(item),
            item_type::DQUOT => self.dquot(lsn, item),
            kind => {
                match role(kind) {
                    Some(Role::Intent) => self.intents.add(lsn, item)?,
                    Some(Role::Done(intent)) => self.intents.finish(intent, intent_id(item.format())?),
                    None => {}
                }
                Ok(Outcome::Passed)
            }
        }
    }
}

/// In which turn an item of a transaction is replayed.
fn group_of(item: LogItemRegions<'_>) -> Result<usize> {
    Ok(match item.item_type() {
        item_type::ICREATE => 0,
        item_type::BUFFER => {
            let buffer = LoggedBuffer::decode(item.format())?;
            match (buffer.is_cancel(), buffer.is_inodes()) {
                (true, _) => 3,
                (false, true) => 2,
                (false, false) => 0,
            }
        }
        _ => 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_image::TestImage;
    use xfskit_ondisk::log_record::buffer_flags;
    use xfskit_ondisk::logged::buffer::buffer_type;

    const ITEMS: u64 = 10_000;
    const BASIC_BLOCKS: u16 = 64;

    /// Replays a transaction that says little of many blocks of 32 KiB; `check` sees how many bytes are in memory.
    fn replay_little_of_much(arguments: &[(char, &str)], flags: u16, check: impl Fn(&Blocks)) {
        let image = TestImage::new(400, arguments);
        let mount = image.mount();
        let item = |number: u64| {
            let mut format = vec![0; 24];
            let words = [item_type::BUFFER, 2, flags, BASIC_BLOCKS].map(u16::to_le_bytes);
            format[..8].copy_from_slice(&words.concat());
            format[8..16].copy_from_slice(&((1 + number) * u64::from(BASIC_BLOCKS)).to_le_bytes());
            (format[16], format[20]) = (1, 1);
            vec![format, vec![1; 128]]
        };
        let items = (0..ITEMS).chain(0..ITEMS / 10).map(item);
        let transaction = LogTransaction::made_up(Lsn::new(1, 1), items);
        let device = Arc::clone(&image.device) as Arc<dyn BlockDevice>;
        let mut replay = Replay {
            blocks: Blocks::new(device, Arc::clone(&mount.geometry), |_| None, 0..0),
            cancels: &mut Cancels::default(),
            quota_off: 0,
            has_quota: false,
            intents: PendingIntents::default(),
            directories: Directories::default(),
        };
        let mut outcomes = 0;
        replay
            .transaction(&transaction, &mut |_, outcome| outcomes += u64::from(outcome == Outcome::Replayed))
            .unwrap();
        assert_eq!(outcomes, ITEMS + ITEMS / 10);
        check(&replay.blocks);
    }

    fn assert_bounded(blocks: &Blocks) {
        let most = blocks::MAX_BYTES + usize::from(BASIC_BLOCKS) * 512;
        assert!(blocks.bytes() <= most, "{} bytes are in memory", blocks.bytes());
    }

    /// Links of unlinked lists, in inodes that something else would have to mend.
    #[test]
    fn one_transaction_takes_no_more_memory_than_many() {
        let flags = buffer_type::INODES << buffer_flags::TYPE_SHIFT | buffer_flags::INODES;
        replay_little_of_much(&[], flags, |blocks| {
            assert_bounded(blocks);
            assert!(blocks.expect_mended().is_err());
        });
    }

    /// What may be pieces of directory blocks cannot be stamped before everything else is at home.
    #[test]
    fn pieces_of_directory_blocks_do_not_gather_in_memory() {
        let flags = directories::DIRECTORY_TYPES.start() << buffer_flags::TYPE_SHIFT;
        replay_little_of_much(&[('b', "size=32768"), ('n', "size=65536")], flags, assert_bounded);
    }
}
