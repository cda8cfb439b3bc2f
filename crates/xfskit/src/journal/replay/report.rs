//! What recovery did, for reports to users.

use std::fmt;
use xfskit_ondisk::Lsn;

/// What replay did with an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemOutcome {
    /// It was replayed.
    Replayed,
    /// The block on the device is newer, or the item is of a quota that is not kept any more.
    Skipped,
    /// Its buffer was freed later.
    Cancelled,
    /// It has nothing to replay: a cancel record, an intent or a done item.
    Passed,
}

/// The outcome of one item.
#[derive(Clone, Copy, Debug)]
pub struct ReplayedItem {
    /// The number of its transaction, counted from 0 at the tail, among those that were complete.
    pub transaction: usize,
    /// The number of the item in the transaction, from 0, in the order of the log.
    pub item: usize,
    /// What became of it.
    pub outcome: ItemOutcome,
}

/// What the replay did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Where recovery started.
    pub tail: Lsn,
    /// Where the log ends.
    pub head: Lsn,
    /// Records that were read.
    pub records: u64,
    /// Bytes of the log between tail and head.
    pub bytes: u64,
    /// Transactions (checkpoints) that were complete.
    pub transactions: u64,
    /// Transactions that were never committed, and did not happen.
    pub uncommitted: u64,
    /// Items that were replayed.
    pub replayed: u64,
    /// Items that were older than the block on the device, or of a quota that is not kept any more.
    pub skipped: u64,
    /// Items of buffers that were freed later.
    pub cancelled: u64,
    /// Metadata blocks that were written.
    pub blocks_written: u64,
    /// Intents that were left to be finished.
    pub intents: u64,
    /// Bytes behind the head that were written and are no whole record: they count as never written. Writes that were
    /// in flight when the power failed look like this, and so does damage.
    pub torn_bytes: u64,
}

impl RecoveryReport {
    pub(super) fn count(&mut self, outcome: ItemOutcome) {
        match outcome {
            ItemOutcome::Replayed => self.replayed += 1,
            ItemOutcome::Skipped => self.skipped += 1,
            ItemOutcome::Cancelled => self.cancelled += 1,
            ItemOutcome::Passed => {}
        }
    }
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: u64, one: &'static str, many: &'static str| if count == 1 { one } else { many };
        let torn = |f: &mut fmt::Formatter<'_>| match self.torn_bytes {
            0 => Ok(()),
            bytes => write!(
                f,
                ", {} KiB behind its end are no whole record and count as never written",
                bytes.div_ceil(1024)
            ),
        };
        if self.transactions == 0 && self.torn_bytes > 0 && self.records == 0 {
            write!(f, "the journal had nothing to replay")?;
            return torn(f);
        }
        write!(f, "replayed {} {}", self.transactions, plural(self.transactions, "transaction", "transactions"))?;
        write!(f, " from {} KiB of journal", self.bytes / 1024)?;
        write!(f, ": {} {} replayed", self.replayed, plural(self.replayed, "item", "items"))?;
        let (skipped, cancelled) = (self.skipped, self.cancelled);
        write!(f, ", {skipped} skipped (disk already newer), {cancelled} skipped (block freed later)")?;
        write!(f, ", {} {} written", self.blocks_written, plural(self.blocks_written, "block", "blocks"))?;
        if self.intents > 0 {
            write!(f, ", {} {} to finish", self.intents, plural(self.intents, "operation", "operations"))?;
        }
        torn(f)
    }
}
