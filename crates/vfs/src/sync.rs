//! What is to be durable.

/// How much of an inode is to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncKind {
    /// Contents, names, attributes, times: what `fsync` makes durable.
    Full,
    /// The same, but times that have changed alone may wait: what `fdatasync` makes durable.
    Data,
}

/// Fsyncs that have begun, and what they still wait for.
///
/// It is good for the volume that gave it, for as long as that is open. To drop it undoes nothing and waits for
/// nothing: what was begun becomes durable with whatever is synced next. To wait for it twice does no harm. The default
/// is that of no fsync at all. Only the volume knows what its numbers mean.
#[derive(Clone, Copy, Debug, Default)]
#[must_use = "nothing is durable before it is waited for"]
pub struct SyncPoint {
    /// The number of the mount.
    pub volume: Option<u64>,
    /// The newest transaction, or group of them, with changes of the inodes.
    pub transaction: Option<u64>,
    /// The flush after which the last one began; `None` if there is nothing to wait for.
    pub flush: Option<u64>,
    /// Fsyncs that wait for a transaction.
    pub waiters: u64,
}

/// No mount has this number.
const OF_SEVERAL: u64 = u64::MAX;

impl SyncPoint {
    /// Both: the fsyncs of this one and of `other`. Points of two volumes cannot be waited for together.
    pub fn and(self, other: Self) -> Self {
        let volume = match (self.volume, other.volume) {
            (Some(one), Some(another)) if one != another => Some(OF_SEVERAL),
            (one, another) => one.or(another),
        };
        Self {
            volume,
            transaction: self.transaction.max(other.transaction),
            flush: self.flush.max(other.flush),
            waiters: self.waiters + other.waiters,
        }
    }
}
