//! How long transactions hold locks that other threads wait for, if `MountOptions::lock_times` asks for it.
//!
//! A time runs from the first lock of a kind until the transaction is over and has dropped all its locks; a chain
//! counts as one. Without the option the clock is not read.

use super::Transaction;
use xfskit_ondisk::Timestamp;

/// When the first lock of a kind was taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HoldTimes {
    ag: Option<Timestamp>,
    inode: Option<Timestamp>,
}

fn nanoseconds(time: Timestamp) -> u64 {
    (time.seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(time.nanoseconds.into())
}

impl Transaction<'_> {
    fn lock_time(&self) -> Option<Timestamp> {
        (self.is_writable() && self.mount.options.lock_times).then(|| self.mount.env.now())
    }

    /// An AG header was locked.
    pub(crate) fn note_ag_lock(&mut self) {
        if self.hold_times.ag.is_none() {
            self.hold_times.ag = self.lock_time();
        }
    }

    /// An inode was locked.
    pub(super) fn note_inode_lock(&mut self) {
        if self.hold_times.inode.is_none() {
            self.hold_times.inode = self.lock_time();
        }
    }

    /// The transaction is over.
    pub(super) fn count_hold_times(&self) {
        let HoldTimes { ag, inode } = self.hold_times;
        if ag.is_none() && inode.is_none() {
            return;
        }
        let now = nanoseconds(self.mount.env.now());
        let since = |begin: Option<Timestamp>| begin.map_or(0, |begin| now.saturating_sub(nanoseconds(begin)));
        self.mount.counters.ag_lock_nanoseconds.add(since(ag));
        self.mount.counters.inode_lock_nanoseconds.add(since(inode));
    }
}
