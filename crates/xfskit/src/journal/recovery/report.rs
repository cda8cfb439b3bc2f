//! What recovery did, for people.

use super::Outcome;
use std::fmt;
use xfskit_ondisk::Lsn;

/// What physical recovery did.
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
    /// Items that were older than what is at home.
    pub skipped: u64,
    /// Items of buffers that were freed later.
    pub cancelled: u64,
    /// Metadata blocks that were written.
    pub blocks_written: u64,
    /// Intents that were left to be finished.
    pub intents: u64,
}

impl RecoveryReport {
    pub(super) fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Replayed => self.replayed += 1,
            Outcome::Skipped => self.skipped += 1,
            Outcome::Cancelled => self.cancelled += 1,
            Outcome::Passed => {}
        }
    }
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: u64, one: &'static str, many: &'static str| if count == 1 { one } else { many };
        write!(f, "replayed {} {}", self.transactions, plural(self.transactions, "transaction", "transactions"))?;
        write!(f, " from {} KiB of journal", self.bytes / 1024)?;
        write!(f, ": {} {} replayed", self.replayed, plural(self.replayed, "item", "items"))?;
        let (skipped, cancelled) = (self.skipped, self.cancelled);
        write!(f, ", {skipped} skipped (disk already newer), {cancelled} skipped (block freed later)")?;
        write!(f, ", {} {} written", self.blocks_written, plural(self.blocks_written, "block", "blocks"))?;
        if self.intents > 0 {
            write!(f, ", {} {} to finish", self.intents, plural(self.intents, "operation", "operations"))?;
        }
        Ok(())
    }
}
