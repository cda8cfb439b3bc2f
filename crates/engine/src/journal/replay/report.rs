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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_counts_one_and_many() {
        let none = RecoveryReport::default();
        let nothing = "replayed 0 transactions from 0 KiB of journal: 0 items replayed, \
                       0 skipped (disk already newer), 0 skipped (block freed later), 0 blocks written";
        assert_eq!(none.to_string(), nothing);
        let mut one = RecoveryReport { transactions: 1, records: 1, bytes: 2048, blocks_written: 1, ..none.clone() };
        one.intents = 1;
        for outcome in [ItemOutcome::Replayed, ItemOutcome::Passed] {
            one.count(outcome);
        }
        let text = "replayed 1 transaction from 2 KiB of journal: 1 item replayed, 0 skipped (disk already newer), \
                    0 skipped (block freed later), 1 block written, 1 operation to finish";
        assert_eq!(one.to_string(), text);
        for outcome in [ItemOutcome::Skipped, ItemOutcome::Cancelled, ItemOutcome::Cancelled] {
            one.count(outcome);
        }
        let many = RecoveryReport { transactions: 2, replayed: 2, blocks_written: 2, intents: 2, ..one };
        let text = "replayed 2 transactions from 2 KiB of journal: 2 items replayed, 1 skipped (disk already newer), \
                    2 skipped (block freed later), 2 blocks written, 2 operations to finish";
        assert_eq!(many.to_string(), text);
        // Records that are not whole, behind a journal with something to replay, behind a clean one, and behind one
        // with nothing but the rest of a transaction.
        let torn = ", 2 KiB behind its end are no whole record and count as never written";
        assert_eq!(RecoveryReport { torn_bytes: 1025, ..many.clone() }.to_string(), format!("{many}{torn}"));
        let clean = RecoveryReport { torn_bytes: 2048, ..none.clone() };
        assert_eq!(clean.to_string(), format!("the journal had nothing to replay{torn}"));
        let rest = RecoveryReport { torn_bytes: 2048, records: 1, ..none };
        assert_eq!(rest.to_string(), format!("{nothing}{torn}"));
    }
}
