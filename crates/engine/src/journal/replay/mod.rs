//! Replay, the first half of recovery: writes everything that the log contains to its place on the device.
//!
//! ```text
//! pass 1   tail ──records──▶ head   which buffers were freed, which quota was switched off; unknown items are refused
//! pass 2   tail ──records──▶ head   each transaction's items, in the order of their dependences, are replayed
//!                                   onto the blocks in memory; intents without a done item are gathered
//! then     blocks are written and flushed; stale sectors ahead of the head are cleared and flushed
//! ```
//! Only intents are left, which transactions finish ([`crate::finish`], the second half; `docs/design/recovery.md`).
//!
//! Invariants: nothing is written before the whole log was read once and found good; nothing is written to the log
//! before everything is on the device. So a crash anywhere leaves a log from which recovery starts again, and by their
//! LSNs it skips blocks that were written the first time.
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
mod second_pass;
mod stale;
mod transactions;

pub use blocks::KindOf;
pub use intents::RecoveredIntent;
pub use report::{ItemOutcome, RecoveryReport, ReplayedItem};
pub use stale::clear_stale_sectors;
pub use transactions::{Gatherer, Keep, LogItemRegions, LogTransaction};

use crate::error::Result;
use crate::journal::area::LogArea;
use crate::journal::records::RecordReader;
use blocks::Blocks;
use cancels::Cancels;
use directories::Directories;
use intents::{PendingIntents, role};
use second_pass::Replay;
use std::sync::Arc;
use xfskit_device::BlockDevice;
use xfskit_ondisk::log_record::item_type;
use xfskit_ondisk::logged::buffer::LoggedBuffer;
use xfskit_ondisk::logged::dquot::decode_quota_off;
use xfskit_ondisk::{Geometry, Lsn, Unsupported};

/// A dirty log and what it belongs to.
pub struct DirtyLog {
    /// The log.
    pub place: LogArea,
    /// Where its contents go.
    pub data_device: Arc<dyn BlockDevice>,
    /// The shape of the filesystem, as its superblock says before recovery.
    pub geometry: Arc<Geometry>,
    /// Whether quota records are kept, as the superblock on the device says.
    pub has_quota: bool,
    /// Finds the kinds of blocks.
    pub kind_of: KindOf,
    /// Where recovery starts.
    pub tail: Lsn,
    /// Where the log ends.
    pub head: Lsn,
}

/// The result of the replay.
pub struct Replayed {
    /// Intents to finish, in the order of the log.
    pub intents: Vec<Arc<RecoveredIntent>>,
    /// What was done.
    pub report: RecoveryReport,
}

impl DirtyLog {
    /// Replays the log onto the device and makes it durable there. The log itself stays as it is. `each` is called for
    /// every item of every transaction, with its outcome.
    ///
    /// # Errors
    /// `Corrupt` where the log makes no sense, or where a block fails its checks after the replay; `Unsupported` for
    /// items of features that are not supported; `Io`.
    pub fn replay(&self, each: &mut dyn FnMut(ReplayedItem)) -> Result<Replayed> {
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
                    each(ReplayedItem { transaction: ordinal, item, outcome });
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
        Ok(Replayed { intents, report })
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

    /// Reads the whole log once: finds what was freed and what was switched off, and refuses items of unknown types.
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

/// Refuses items that recovery does not know: without them changes would be lost.
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
