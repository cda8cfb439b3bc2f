//! The journal: log records, grant space, the committed item list (CIL), checkpoints and the active item list (AIL).
//!
//! ```text
//! commit ──▶ CIL (newest copy of each item) ──push──▶ checkpoint: records in the log ──flush──▶ AIL ──write-back──▶ home
//!              ▲ relogged items replace their copy                        tail of the log = oldest item of the AIL
//! ```
//! Invariants
//! - Write-ahead: an object goes to its home only when every checkpoint that holds it is durable (it is unpinned).
//! - `taken + (head - tail) <= size`: space granted to running transactions, plus what the CIL will write, plus what
//!   the log holds and still needs, never exceeds the log, so the head never meets the tail.
//! - Before the first record of a checkpoint is written, the device is flushed if anything was written back since the
//!   last flush, for the record's tail says that those write-backs are durable.
//! - Checkpoints are written one at a time and in the order of their numbers; a checkpoint counts as durable when the
//!   flush after its commit record has returned, and only then are its items unpinned and put into the AIL.
//!
//! Crash behaviour: a checkpoint whose commit record is not in the log did not happen. What was flushed did.
//!
//! Locking: `writer` (one checkpoint at a time) > AIL or CIL shards > item state; `writer` > values. No lock of a
//! buffer or an inode is waited for here, so a thread may push the journal while it holds some.

mod ail;
mod checkpoint;
mod cil;
mod copies;
mod grant;
mod head;
mod place;
mod pool;
mod records;
pub mod recovery;
mod shard;
mod tail;
mod values;
mod writer;

pub use ail::Ail;
pub use copies::{RegionEnds, Regions};
pub use grant::Grant;
pub use head::{LogHead, LogState, find_head};
pub use place::{HostSpace, LogPlace};
pub use records::{Operation, Record, RecordReader};
pub use recovery::{Outcome, RecoveredIntent, RecoveryReport};
pub use shard::Batch;
pub use tail::{WriteBack, WrittenBack};
pub use values::OrderedWrite;

use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::error_tags::ErrorTags;
use crate::item::CheckpointSeq;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, thread_slot};
use cil::Cil;
use grant::{Claim, GrantSpace};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;
use values::Values;
use writer::LogWriter;
use xfskit_device::BlockDevice;
use xfskit_ondisk::{DiskAddress, Geometry, Lsn};

/// How the journal is written.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// Leave out intents whose done items come in the same checkpoint.
    pub whiteouts: bool,
    /// Memory for metadata, of which copies that serve the next checkpoint take a part.
    pub cache_bytes: u64,
    /// Bytes of the log that the host has space for, if not for all.
    pub room_bytes: Option<u64>,
    /// Places that are to fail.
    pub error_tags: Arc<ErrorTags>,
}

/// Checkpoints that fit the room which the host has for the log: what the first of them carry is durable where the room
/// ends.
const CHECKPOINTS_IN_ROOM: u64 = 4;

/// The journal of a mounted filesystem.
pub struct Journal {
    data_device: Arc<dyn BlockDevice>,
    counters: Arc<Counters>,
    options: JournalOptions,
    cil: Cil,
    ail: Ail,
    space: GrantSpace,
    writer: Mutex<LogWriter>,
    /// The newest checkpoint that is durable.
    durable: AtomicU64,
    /// Something was written to the data device since its last flush.
    unflushed: Arc<AtomicBool>,
    shutdown: Mutex<Option<String>>,
    is_shut_down: AtomicBool,
    space_freed: Condvar,
    waiting: Mutex<()>,
    write_back: Mutex<Option<Arc<dyn WriteBack>>>,
    /// The size at which a commit pushes the CIL.
    push_bytes: u64,
    /// The slot of the thread whose commit pushed it last.
    last_pusher: AtomicUsize,
    /// Charged bytes of the gathering checkpoint from which on somebody is to look whether the last one left the log
    /// too full.
    look_due_at: AtomicU64,
    uuid: [u8; 16],
    /// Values that wait for their checkpoint.
    values: Values,
    /// Somebody suffers from what the gathering checkpoint holds back.
    push_wanted: AtomicBool,
    /// Recovered intents are being finished; they alone hold the tail.
    recovering: AtomicBool,
    /// The last write-back met a block that the device refuses, and said so.
    write_back_fails: AtomicBool,
}

/// The part of what pushes the CIL that others have time for.
const LEFT_TO_OTHERS: u64 = 16;
const NOT_DUE: u64 = u64::MAX;
/// The part of the cache's bytes that the memory for copies may keep besides.
const POOL_SHARE: u64 = 8;

impl Journal {
    /// A journal that goes on writing at `head`.
    pub fn new(
        place: LogPlace,
        data_device: Arc<dyn BlockDevice>,
        geometry: &Geometry,
        head: &LogHead,
        counters: Arc<Counters>,
        options: JournalOptions,
    ) -> Self {
        let log_bytes = u64::from(place.basic_blocks) * 512;
        let record_bytes = (head.record_bytes as usize).max(geometry.log_stripe_unit_bytes as usize);
        // Whole stripe units, whatever the last writer's size was.
        let unit = (geometry.log_stripe_unit_bytes as usize).max(512);
        let record_bytes = (record_bytes / unit).max(1) * unit;
        let round = (geometry.log_stripe_unit_bytes as usize).max(512);
        let writer = LogWriter::new(place, head, record_bytes, round, geometry.uuid, Arc::clone(&options.error_tags));
        let space = GrantSpace::new(log_bytes, writer.overheads(), head.next);
        let most = options.room_bytes.map_or(u64::MAX, |room| room / CHECKPOINTS_IN_ROOM);
        let push_bytes = space.push_bytes().min(most);
        let pool_bytes = options.cache_bytes / POOL_SHARE;
        let unflushed = Arc::new(AtomicBool::new(false));
        let values = Values::new(Arc::clone(&data_device), Arc::clone(&counters), Arc::clone(&unflushed));
        Self {
            data_device,
            counters,
            options,
            cil: Cil::new(push_bytes, pool_bytes),
            ail: Ail::new(),
            space,
            writer: Mutex::new(writer),
            durable: AtomicU64::new(0),
            unflushed,
            shutdown: Mutex::new(None),
            is_shut_down: AtomicBool::new(false),
            space_freed: Condvar::new(),
            waiting: Mutex::new(()),
            write_back: Mutex::new(None),
            push_bytes,
            last_pusher: AtomicUsize::new(usize::MAX),
            look_due_at: AtomicU64::new(NOT_DUE),
            uuid: geometry.uuid,
            values,
            push_wanted: AtomicBool::new(false),
            recovering: AtomicBool::new(false),
            write_back_fails: AtomicBool::new(false),
        }
    }

    /// Takes over intents that recovery left, before anything else is done: each keeps the tail of the log where it
    /// stands until its done item is durable.
    pub fn adopt_intents(&self, intents: &[Arc<RecoveredIntent>]) {
        for intent in intents {
            self.ail.insert(intent.lsn, Arc::clone(&intent.item) as _);
        }
        if let Some(tail) = self.ail.tail() {
            self.space.start_at(tail);
        }
    }

    /// Names who writes objects back.
    pub fn set_write_back(&self, write_back: Arc<dyn WriteBack>) {
        *self.write_back.lock() = Some(write_back);
    }

    /// A flag to set whenever something is written to the data device.
    pub fn unflushed_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.unflushed)
    }

    /// Stops everything: nothing is written any more, and every operation answers with the reason.
    pub fn shut_down(&self, reason: impl Into<String>) {
        let mut shutdown = self.shutdown.lock();
        if shutdown.is_none() {
            let reason = reason.into();
            tracing::error!(%reason, "the filesystem is shut down");
            *shutdown = Some(reason);
            self.is_shut_down.store(true, Ordering::Release);
        }
        drop(shutdown);
        self.wake_waiters();
    }

    /// Fails when the journal was shut down.
    ///
    /// # Errors
    /// `Shutdown` with the reason.
    pub fn check(&self) -> Result<()> {
        if !self.is_shut_down.load(Ordering::Acquire) {
            return Ok(());
        }
        let reason = self.shutdown.lock().clone().unwrap_or_default();
        Err(Error::Shutdown(reason))
    }

    fn wake_waiters(&self) {
        let _guard = self.waiting.lock();
        self.space_freed.notify_all();
    }

    /// Commits in one step what `fill` logs, and `values` before it. The grant's link pays for it. Returns the
    /// checkpoint that will carry it. Once no lock of an AG is held any more, the values go to [`Self::write_values`].
    pub fn commit(
        &self,
        grant: &mut Grant<'_>,
        values: &[OrderedWrite],
        fill: impl FnOnce(&mut Batch<'_>),
    ) -> CheckpointSeq {
        values.iter().for_each(|write| self.values.add(write));
        let outcome = self.cil.commit(&self.counters, &self.space, self.options.whiteouts, |batch| {
            batch.write_before(values);
            fill(batch);
        });
        grant.spend_link(&self.space, outcome.charge_bytes);
        self.counters.transactions.increment();
        outcome.seq
    }

    /// Writes values that were committed. What cannot be written goes on waiting: whoever writes the checkpoint meets
    /// the error again, before anything of the checkpoint is in the log.
    pub fn write_values(&self, values: Vec<OrderedWrite>) {
        for write in values.iter().take_while(|_| self.check().is_ok()) {
            if let Err(error) = self.values.write(write) {
                tracing::warn!(%error, "a value is left to the checkpoint");
            }
        }
    }

    /// Called after a commit: writes a checkpoint when enough has gathered, or moves the tail when a checkpoint has
    /// left little of the log free.
    ///
    /// # Errors
    /// As [`Self::force`].
    pub fn after_commit(&self) -> Result<()> {
        // Somebody who is writing already will find us at the next look.
        if self.is_push_due()
            && let Some(mut writer) = self.writer.try_lock()
            && self.is_push_due()
        {
            self.last_pusher.store(thread_slot(), Ordering::Relaxed);
            self.push(&mut writer)?;
            self.look_due_at.store(self.cil.charged_bytes(), Ordering::Relaxed);
        }
        if self.is_for_me(self.look_due_at.load(Ordering::Relaxed))
            && self.look_due_at.swap(NOT_DUE, Ordering::Relaxed) != NOT_DUE
        {
            self.relieve()?;
        }
        Ok(())
    }

    /// Whether the gathering checkpoint carries a cancel record for blocks that start at `address`. Nothing new may be
    /// committed there into the same checkpoint.
    pub fn holds_cancel(&self, address: DiskAddress) -> bool {
        self.cil.holds_cancel(address)
    }

    fn is_push_due(&self) -> bool {
        self.is_for_me(self.push_bytes) || self.push_wanted.load(Ordering::Relaxed)
    }

    /// Whether this thread is to do what is due when the gathering checkpoint is charged `due_at` bytes. Who pushed the
    /// CIL last leaves that to others for a while, so that threads that do the same work also share what the journal
    /// makes of it.
    fn is_for_me(&self, due_at: u64) -> bool {
        let charged = self.cil.charged_bytes();
        charged >= due_at
            && (charged - due_at >= self.push_bytes / LEFT_TO_OTHERS
                || self.last_pusher.load(Ordering::Relaxed) != thread_slot())
    }

    /// The next commit writes a checkpoint, however little has gathered: too much waits for it to be durable.
    pub fn want_push(&self) {
        self.push_wanted.store(true, Ordering::Relaxed);
    }

    /// The number of the checkpoint that gathers commits now.
    pub fn current(&self) -> CheckpointSeq {
        self.cil.current()
    }

    /// Makes checkpoint `seq` and all before it durable; waits.
    ///
    /// # Errors
    /// `Io` or `Shutdown`: what was not acknowledged before is in doubt.
    pub fn force(&self, seq: CheckpointSeq) -> Result<()> {
        self.check()?;
        self.counters.log_forces.increment();
        if self.durable.load(Ordering::Acquire) >= seq.0 {
            self.counters.log_forces_shared.increment();
            return Ok(());
        }
        let mut writer = self.writer.lock();
        if self.durable.load(Ordering::Acquire) >= seq.0 {
            self.counters.log_forces_shared.increment();
            return Ok(());
        }
        self.push(&mut writer)
    }

    /// Makes everything committed so far durable.
    ///
    /// # Errors
    /// As [`Self::force`].
    pub fn force_all(&self) -> Result<()> {
        self.check()?;
        let mut writer = self.writer.lock();
        self.push(&mut writer)
    }

    /// The newest durable checkpoint.
    pub fn durable(&self) -> CheckpointSeq {
        CheckpointSeq(self.durable.load(Ordering::Acquire))
    }

    /// Writes the gathered checkpoint, waits until it is durable, and hands its items to the AIL.
    fn push(&self, writer: &mut LogWriter) -> Result<()> {
        self.check()?;
        self.push_wanted.store(false, Ordering::Relaxed);
        let mut checkpoint = self.cil.switch(&self.counters);
        // A look at the tail that nobody has taken yet is not put off by a checkpoint that somebody forces.
        let _ = self
            .look_due_at
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |due_at| (due_at != NOT_DUE).then_some(0));
        if checkpoint.is_empty() {
            self.space.settle(checkpoint.charged_bytes, self.space.head());
            self.durable.fetch_max(checkpoint.seq.0, Ordering::AcqRel);
            return Ok(());
        }
        let result = self.write_checkpoint(writer, &checkpoint);
        if let Err(error) = result {
            self.shut_down(format!("the journal could not be written: {error}"));
            return Err(error);
        }
        let start = result?;
        // The items are in the AIL before the head moves behind them: whoever finds the AIL empty takes the head for
        // the tail.
        let freed = self.ail.insert_checkpoint(start, checkpoint.entry_count(), checkpoint.take_entries());
        for intent in &checkpoint.finished {
            self.ail.remove(intent);
        }
        self.space.settle(checkpoint.charged_bytes, writer.head());
        self.space.set_tail(self.ail.tail().unwrap_or(writer.head()));
        self.durable.fetch_max(checkpoint.seq.0, Ordering::AcqRel);
        self.counters.checkpoints.increment();
        self.wake_waiters();
        self.cil.recycle(checkpoint);
        let write_back = self.write_back.lock().clone();
        if let Some(write_back) = write_back.filter(|_| !freed.is_empty()) {
            write_back.let_go(freed);
        }
        Ok(())
    }

    fn write_checkpoint(&self, writer: &mut LogWriter, checkpoint: &checkpoint::Checkpoint) -> Result<Lsn> {
        // The tail is read before the flush: what left the AIL up to here was written, and the flush makes it durable.
        let start = writer.head();
        let tail = self.ail.tail().map_or(start, |tail| tail.min(start));
        checkpoint.ordered_writes.iter().try_for_each(|write| self.values.write(write))?;
        if self.unflushed.swap(false, Ordering::AcqRel) {
            self.flush_data()?;
        }
        let written = writer.write_checkpoint(checkpoint, tail)?;
        let charged = checkpoint.charged_bytes;
        debug_assert!(written.bytes <= charged, "a checkpoint took {} bytes and was charged {charged}", written.bytes);
        self.counters.log_bytes.add(written.bytes);
        self.counters.log_records.add(written.records);
        writer.flush()?;
        self.counters.device_flushes.increment();
        Ok(start)
    }

    /// Copies what waits to be written to the device from `offset` on; says which parts of `out` are the device's.
    pub fn copy_waiting(&self, offset: u64, out: &mut [u8]) -> SmallVec<[Range<usize>; 1]> {
        self.values.copy_waiting(offset, out)
    }

    /// Makes contents durable that were written in place.
    ///
    /// # Errors
    /// `Io`, `Shutdown`.
    pub fn flush_contents(&self) -> Result<()> {
        // Under the writer's lock: a checkpoint may have taken the flag and not flushed yet, or in vain.
        let _writer = self.writer.lock();
        self.check()?;
        if self.unflushed.swap(false, Ordering::AcqRel) { self.flush_data() } else { Ok(()) }
    }

    /// Flushes the data device. One that refuses may have lost what was written to it, and a later flush that succeeds
    /// would not say so: nothing can be called durable any more.
    fn flush_data(&self) -> Result<()> {
        self.counters.device_flushes.increment();
        self.data_device.flush().map_err(|source| {
            self.shut_down(format!("the device did not flush, what was written to it may be lost: {source}"));
            Error::Io { offset: 0, source }
        })
    }

    /// The list of items on their way home.
    pub fn ail(&self) -> &Ail {
        &self.ail
    }

    /// Reserves log space for a chain of `links` links of `bytes` each; waits for space.
    ///
    /// # Errors
    /// `Shutdown`; `Invalid` when the log is too small for the request; `Io` when the log is full of metadata that the
    /// device does not take to its place.
    pub fn reserve(&self, bytes: u32, links: u32) -> Result<Grant<'_>> {
        self.check()?;
        let unit = self.space.unit_bytes(bytes);
        let links = u64::from(links.max(1));
        // What recovery finishes are chains that had begun.
        let claim = if self.is_recovering() { Claim::Rolling } else { Claim::New };
        self.take_space(unit * links, claim)?;
        Ok(Grant::new(self, unit, links))
    }

    /// Says that recovered intents are being finished, or that they are. Nobody else uses the journal meanwhile: what
    /// cannot be had at once cannot be had by waiting.
    pub fn set_recovering(&self, recovering: bool) {
        self.recovering.store(recovering, Ordering::Release);
    }

    fn is_recovering(&self) -> bool {
        self.recovering.load(Ordering::Acquire)
    }

    /// Writes the unmount record, after [`Self::quiesce`].
    ///
    /// # Errors
    /// `Io`.
    pub fn write_unmount(&self) -> Result<()> {
        let mut writer = self.writer.lock();
        self.check()?;
        let written = writer.write_unmount()?;
        self.counters.log_bytes.add(written.bytes);
        self.counters.log_records.add(written.records);
        writer.flush()
    }

    /// The share of the log in use, as (used and granted, size), in bytes.
    pub fn usage(&self) -> (u64, u64) {
        self.space.usage()
    }

    /// The UUID that records carry.
    pub fn uuid(&self) -> &[u8; 16] {
        &self.uuid
    }
}
