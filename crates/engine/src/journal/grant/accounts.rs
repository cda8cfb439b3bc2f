//! Grant space: how much each transaction may write to the log.
//!
//! `taken` is what running transactions were granted plus what the CIL and the checkpoint being written were charged.
//! `head - tail` is what the log contains. A link's commit turns its grant into a charge; writing the checkpoint turns
//! the charge into log contents; write-back of the oldest items frees those.
//!
//! Space that a transaction took and did not need stays with its thread for the next one ([`Credits`]). It counts as
//! taken. A thread that finds no space collects it, and as long as a thread seeks space no thread keeps any.
//!
//! Invariants: `taken + (head - tail)` is never more than the size of the log; the sum of charges is never less than
//! the records that the charged items take.
//!
//! Locking: none; nothing here waits.

use crate::credits::Credits;
use crate::sync::Padded;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use xfskit_ondisk::Lsn;

/// What records cost beyond their payload.
#[derive(Clone, Copy, Debug)]
pub(in crate::journal) struct Overheads {
    /// Header sectors of a record, in bytes.
    pub header_bytes: u64,
    /// Payload of a record, in bytes.
    pub payload_bytes: u64,
    /// Granularity of records, in bytes.
    pub round_bytes: u64,
}

impl Overheads {
    /// Most bytes that `payload` bytes of operations can take in the log, spread over as many records as it takes.
    fn in_log(&self, payload: u64) -> u64 {
        let records = payload.div_ceil(self.payload_bytes);
        payload + records * (self.header_bytes + OPERATION)
    }

    /// What every checkpoint costs: start, header and commit operations, two partly filled records.
    pub(in crate::journal) fn per_checkpoint(&self) -> u64 {
        2 * (self.header_bytes + self.round_bytes) + 4 * OPERATION + 16
    }
}

const OPERATION: u64 = 12;

/// The kind of chain that asks for log space. Some space is reserved for chains that have begun, since other threads
/// wait for their locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::journal) enum Claim {
    /// A new chain, which holds no locks yet. It gets nothing while a chain that has begun waits.
    New,
    /// A chain that has used up the links it reserved, and holds locks. It may also take the space that new chains must
    /// leave.
    Rolling,
}

/// The share of the log that new chains leave to those that have begun.
const KEPT_FOR_ROLLING: u64 = 8;

pub(in crate::journal) struct GrantSpace {
    log_bytes: u64,
    overheads: Overheads,
    head: AtomicU64,
    tail: AtomicU64,
    /// Chains that have begun and wait for space.
    rolling_waiters: AtomicU32,
    /// Threads that wait for space, or push to get it.
    seekers: AtomicU32,
    taken: Padded<AtomicU64>,
    /// What threads took and did not need, kept for their next transactions: a part of `taken`.
    credits: Credits,
}

/// The part of a log that a thread may keep for its next transactions.
const CREDIT_SHARE: u64 = 128;
/// Bytes kept free in a log of any size, as long as they are not more than half of it.
const RELIEF_BYTES: u64 = 8 << 20;
/// In smaller logs threads keep no credits.
const MIN_BYTES_FOR_CREDIT: u64 = 32 << 20;
/// Most bytes that a checkpoint gathers before it is pushed, as in the kernel.
const MAX_PUSH_BYTES: u64 = 32 << 20;

impl GrantSpace {
    pub(in crate::journal) fn new(log_bytes: u64, overheads: Overheads, head: Lsn) -> Self {
        Self {
            log_bytes,
            overheads,
            head: AtomicU64::new(head.0),
            tail: AtomicU64::new(head.0),
            rolling_waiters: AtomicU32::new(0),
            seekers: AtomicU32::new(0),
            taken: Padded::default(),
            credits: Credits::new(if log_bytes < MIN_BYTES_FOR_CREDIT { 0 } else { log_bytes / CREDIT_SHARE }),
        }
    }

    /// Bytes to grant for one link that may dirty `bytes` bytes.
    pub(in crate::journal) fn unit_bytes(&self, bytes: u32) -> u64 {
        self.overheads.in_log(u64::from(bytes)) + self.overheads.per_checkpoint()
    }

    /// Bytes to charge for `payload` bytes added to a checkpoint, `first` for the one that opens it.
    pub(in crate::journal) fn charge(&self, payload: u64, first: bool) -> u64 {
        let opening = if first { self.opening() } else { 0 };
        // One more than the exact share, so that rounding never makes the sum smaller than the records.
        self.refund(payload) + 1 + opening
    }

    /// Bytes that every checkpoint is charged, whatever it contains.
    pub(in crate::journal) fn opening(&self) -> u64 {
        self.overheads.per_checkpoint()
    }

    /// `payload` bytes and their share of what records cost, rounded down: what is refunded when a checkpoint does not
    /// contain them any more.
    pub(in crate::journal) fn refund(&self, payload: u64) -> u64 {
        payload + payload * (self.overheads.header_bytes + OPERATION) / self.overheads.payload_bytes
    }

    /// What a checkpoint gathers before it is written. A quarter of the log: a block that is changed often is logged
    /// once in each checkpoint, so checkpoints of twice the size halve the log bytes of the leaves of large
    /// directories. The kernel takes an eighth, and no more than 32 MiB; a small log takes an eighth here, too, where
    /// little more fits beside a checkpoint that is being written.
    pub(in crate::journal) fn push_bytes(&self) -> u64 {
        let share = if self.log_bytes < MIN_BYTES_FOR_CREDIT { 8 } else { 4 };
        (self.log_bytes / share).min(MAX_PUSH_BYTES)
    }

    fn distance(&self) -> u64 {
        let head = Lsn(self.head.load(Ordering::Acquire));
        let tail = Lsn(self.tail.load(Ordering::Acquire));
        let blocks = if head.cycle() == tail.cycle() {
            u64::from(head.block()).saturating_sub(u64::from(tail.block()))
        } else {
            self.log_bytes / 512 - u64::from(tail.block()) + u64::from(head.block())
        };
        blocks * 512
    }

    /// Keeps a few records free so that an unmount record always fits and the head never reaches the tail.
    fn capacity(&self) -> u64 {
        self.log_bytes - 2 * (self.overheads.header_bytes + self.overheads.round_bytes)
    }

    /// Bytes that may be in use after space was granted to `claim`.
    fn limit(&self, claim: Claim) -> u64 {
        match claim {
            Claim::New => self.capacity() - self.capacity() / KEPT_FOR_ROLLING,
            Claim::Rolling => self.capacity(),
        }
    }

    pub(in crate::journal) fn largest_request(&self) -> u64 {
        self.limit(Claim::New)
    }

    pub(in crate::journal) fn try_take(&self, need: u64, claim: Claim) -> bool {
        if claim == Claim::New && self.rolling_waiters.load(Ordering::Acquire) > 0 {
            return false;
        }
        self.credits.take(need)
            || self.take_shared(need, claim)
            || (self.collect_credits() && self.take_shared(need, claim))
    }

    /// Whether the contents of the log leave no room for `need` bytes, whatever other threads give back.
    pub(in crate::journal) fn is_filled(&self, need: u64, claim: Claim) -> bool {
        need + self.distance() > self.limit(claim)
    }

    fn take_shared(&self, need: u64, claim: Claim) -> bool {
        let taken = self.taken.fetch_add(need, Ordering::AcqRel) + need;
        if taken + self.distance() <= self.limit(claim) {
            return true;
        }
        self.taken.fetch_sub(need, Ordering::AcqRel);
        false
    }

    /// Gives back what threads keep. Returns whether they kept anything.
    fn collect_credits(&self) -> bool {
        let credits = self.credits.collect();
        self.taken.fetch_sub(credits, Ordering::AcqRel);
        credits > 0
    }

    /// The calling thread seeks space during `seek`: meanwhile threads keep no credits.
    pub(super) fn while_seeking<T>(&self, seek: impl FnOnce() -> T) -> T {
        self.seekers.fetch_add(1, Ordering::AcqRel);
        let result = seek();
        self.seekers.fetch_sub(1, Ordering::AcqRel);
        result
    }

    /// A chain that has begun waits during `wait`: meanwhile new chains get nothing.
    pub(super) fn while_rolling_waits<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.rolling_waiters.fetch_add(1, Ordering::AcqRel);
        let result = wait();
        self.rolling_waiters.fetch_sub(1, Ordering::AcqRel);
        result
    }

    /// A link was charged `bytes` bytes more than it was granted.
    pub(super) fn overdraw(&self, bytes: u64) {
        self.taken.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Takes space back; returns whether a waiting thread may now find enough.
    pub(in crate::journal) fn give_back(&self, bytes: u64) -> bool {
        if self.seekers.load(Ordering::Acquire) == 0 && self.credits.keep(bytes) {
            return false;
        }
        let before = self.taken.fetch_sub(bytes, Ordering::AcqRel);
        assert!(before >= bytes, "more log space was given back than was taken");
        before + self.distance() > self.capacity() / 2
    }

    /// A checkpoint that was charged `charged` bytes was written up to `head`.
    pub(in crate::journal) fn settle(&self, charged: u64, head: Lsn) {
        self.head.store(head.0, Ordering::Release);
        let before = self.taken.fetch_sub(charged, Ordering::AcqRel);
        assert!(before >= charged, "a checkpoint was charged more than was taken");
    }

    pub(in crate::journal) fn head(&self) -> Lsn {
        Lsn(self.head.load(Ordering::Acquire))
    }

    /// The log is in use from `tail` on; before any space was granted.
    pub(in crate::journal) fn start_at(&self, tail: Lsn) {
        self.tail.store(tail.0, Ordering::Release);
    }

    pub(in crate::journal) fn set_tail(&self, tail: Lsn) {
        self.tail.fetch_max(tail.0, Ordering::AcqRel);
    }

    pub(in crate::journal) fn usage(&self) -> (u64, u64) {
        (self.taken.load(Ordering::Acquire).saturating_sub(self.credits.total()) + self.distance(), self.log_bytes)
    }

    /// Whether so little is free that the tail should move before a thread has to wait. The later it moves, the more
    /// items were logged again meanwhile, and need not be written back.
    pub(in crate::journal) fn is_relief_due(&self) -> bool {
        self.log_bytes - self.usage().0.min(self.log_bytes) < self.relief_bytes()
    }

    /// A fifth of the log, or half of a small one, and about what the next checkpoint takes at least. New chains may
    /// not have the last eighth, so some wait all the same. But earlier write-back writes more, because it also writes
    /// items that would be logged again in the meantime.
    fn relief_bytes(&self) -> u64 {
        let checkpoint = self.push_bytes() + self.push_bytes() / 4;
        (self.log_bytes / 5).max(RELIEF_BYTES.min(self.log_bytes / 2)).max(checkpoint)
    }

    /// The LSN `bytes` bytes after the tail.
    fn after_tail(&self, bytes: u64) -> Lsn {
        let tail = Lsn(self.tail.load(Ordering::Acquire));
        let size = self.log_bytes / 512;
        let block = u64::from(tail.block()) + (bytes / 512).min(size - 1);
        if block >= size {
            Lsn::new(tail.cycle() + 1, (block - size) as u32)
        } else {
            Lsn::new(tail.cycle(), block as u32)
        }
    }

    /// How far write-back should go to make room for `need` bytes: at least a quarter of the log, so that waiting
    /// is rare.
    pub(in crate::journal) fn target_for(&self, need: u64) -> Lsn {
        let (used, _) = self.usage();
        let over = (used + need).saturating_sub(self.limit(Claim::New));
        self.after_tail(over.max(self.log_bytes / 4))
    }

    /// How far write-back goes when the tail moves before a thread has to wait: as far as the next checkpoint needs.
    pub(in crate::journal) fn relief_target(&self) -> Lsn {
        self.after_tail((self.relief_bytes() / 2).max(self.push_bytes()))
    }
}
