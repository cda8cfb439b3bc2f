//! The journal: log records, grant space, the committed item list (CIL), checkpoints and the active item list (AIL).
//!
//! ```text
//! commit ──▶ CIL (newest copy of each item) ──push──▶ checkpoint: records in the log ─flush─▶ AIL ─write-back─▶ place
//!              ▲ relogged items replace their copy                        tail of the log = oldest item of the AIL
//! ```
//! Invariants
//! - Write-ahead: an object is written in place only when every checkpoint that contains it is durable (it is
//!   unpinned).
//! - `taken + (head - tail) <= size`: space granted to running transactions, plus what the CIL will write, plus what
//!   the log contains and still needs, never exceeds the log, so the head never meets the tail.
//! - Before the first record of a checkpoint is written, the device is flushed if anything was written since the last
//!   flush that the records rely on: metadata written back, for the record's tail says that it is durable; values;
//!   contents of new blocks.
//! - Checkpoints are written one at a time and in the order of their numbers; a checkpoint counts as durable when the
//!   flush after its commit record has returned, and only then are its items unpinned and put into the AIL.
//!
//! Crash behaviour: a checkpoint whose commit record is not in the log did not happen. One that was flushed did.
//!
//! Locking: a turn of `writer` (one checkpoint at a time) > AIL or CIL shards > item state; a turn > values. No lock of
//! a buffer or an inode is waited for here, so a thread may push the journal while it holds some.

mod ail;
mod area;
mod checkpoint;
mod cil;
mod copies;
mod data_device;
mod grant;
mod head;
mod pool;
mod push_policy;
mod records;
pub mod replay;
mod shard;
mod shutdown;
mod tail;
mod turns;
mod values;
mod writer;

pub use ail::Ail;
pub use area::{HostSpace, LogArea};
pub use copies::{RegionEnds, Regions};
pub use data_device::FlushPoint;
pub use grant::Grant;
pub use head::{LogHead, LogState, RecordOwner, find_head};
pub use records::{Operation, Record, RecordReader};
pub use replay::{ItemOutcome, RecoveredIntent, RecoveryReport};
pub use shard::Batch;
pub use tail::{WriteBack, WrittenBack};
pub use values::OrderedWrite;

use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::error_tags::ErrorTags;
use crate::item::CheckpointSeq;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use checkpoint::Checkpoint;
use cil::Cil;
use data_device::{DataDevice, FlushFailed, FlushFor};
use grant::log_space::{LogSpace, MakeRoom};
use push_policy::PushPolicy;
use shutdown::Shutdown;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;
use tail::Tail;
use turns::Turns;
use values::Values;
use writer::LogWriter;
use xfskit_device::BlockDevice;
use xfskit_ondisk::{DiskAddress, Geometry, Lsn};

/// How the journal is written.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// Leave out intents whose done items are in the same checkpoint.
    pub whiteouts: bool,
    /// Memory for metadata, of which copies that serve the next checkpoint take a part.
    pub cache_bytes: u64,
    /// Bytes of the log that the host has space for, if not for all.
    pub room_bytes: Option<u64>,
    /// Places that are to fail.
    pub error_tags: Arc<ErrorTags>,
}

/// Checkpoints that fit the space which the host has for the log, so that the first of them are durable when the space
/// ends.
const CHECKPOINTS_IN_ROOM: u64 = 4;

/// The journal of a mounted filesystem.
pub struct Journal {
    counters: Arc<Counters>,
    /// Leave out intents whose done items are in the same checkpoint.
    whiteouts: bool,
    /// What the next checkpoint carries.
    cil: Cil,
    /// When the next checkpoint is written.
    policy: PushPolicy,
    /// Values that wait for their checkpoint.
    values: Values,
    /// Writes one checkpoint in a turn.
    writer: Turns<LogWriter>,
    /// The newest checkpoint that is durable.
    durable: AtomicU64,
    /// What must be written back before the tail moves.
    tail: Tail,
    /// The device to which it is written.
    data: Arc<DataDevice>,
    /// Log space, and the threads that wait for it.
    space: LogSpace,
    shutdown: Shutdown,
}

/// Which thread wrote the checkpoint that a caller waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WrittenBy {
    /// The caller.
    Caller,
    /// Another one.
    Others,
}

/// A checkpoint that has left the CIL. Dropped before it is durable, which only an error or a panic does, it shuts the
/// filesystem down.
struct Unfinished<'a>(&'a Journal);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.0.shut_down("a checkpoint was not written to its end");
    }
}

/// The fraction of the cache's bytes that the memory for copies may take in addition.
const POOL_SHARE: u64 = 8;
/// Rounds of checkpoint and write-back after which objects that are still locked are assumed to stay locked.
const MAX_QUIESCE_ROUNDS: usize = 1000;

impl Journal {
    /// A journal that goes on writing at `head`.
    pub fn new(
        place: LogArea,
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
        let data = Arc::new(DataDevice::new(data_device, Arc::clone(&counters)));
        let (log_data, error_tags) = (Arc::clone(&data), Arc::clone(&options.error_tags));
        let writer = LogWriter::new(place, log_data, head, record_bytes, round, geometry.uuid, error_tags);
        let space = LogSpace::new(log_bytes, writer.overheads(), head.next);
        let max_push_bytes = options.room_bytes.map_or(u64::MAX, |room| room / CHECKPOINTS_IN_ROOM);
        let push_bytes = space.accounts().push_bytes().min(max_push_bytes);
        Self {
            whiteouts: options.whiteouts,
            cil: Cil::new(push_bytes, options.cache_bytes / POOL_SHARE),
            policy: PushPolicy::new(push_bytes),
            values: Values::new(Arc::clone(&data), Arc::clone(&counters)),
            writer: Turns::new(writer),
            durable: AtomicU64::new(0),
            tail: Tail::new(Arc::clone(&counters)),
            data,
            space,
            shutdown: Shutdown::default(),
            counters,
        }
    }

    /// Takes over the intents that recovery has to finish, before any commit. Each keeps the tail of the log at or
    /// before its own place until its done item is durable.
    pub fn adopt_intents(&self, intents: &[Arc<RecoveredIntent>]) {
        for intent in intents {
            self.tail.ail().insert(intent.lsn, Arc::clone(&intent.item) as _);
        }
        if let Some(tail) = self.tail.lsn() {
            self.space.accounts().start_at(tail);
        }
    }

    /// Sets the code that writes objects back.
    pub fn set_write_back(&self, write_back: Arc<dyn WriteBack>) {
        self.tail.set_write_back(write_back);
    }

    /// A flag to set whenever something is written to the data device that a record of the log may rely on.
    pub fn ordered_flag(&self) -> Arc<AtomicBool> {
        self.data.ordered_flag()
    }

    /// Contents were written to blocks that their file has already, below its end: no record of the log relies on that.
    pub fn note_in_place(&self) {
        self.data.note_in_place();
    }

    /// Contents that were written in place so far are durable before the transaction that the caller commits next: it
    /// makes them replace something.
    pub fn order_in_place(&self) {
        self.data.order_in_place();
    }

    /// Whether everything that was written to the data device is durable.
    pub fn is_flushed(&self) -> bool {
        self.data.is_flushed()
    }

    /// Now: [`Self::make_durable`] covers what was written before.
    pub fn flush_point(&self) -> FlushPoint {
        self.data.now()
    }

    /// Stops the journal: nothing is written any more, and every operation fails with the reason.
    pub fn shut_down(&self, reason: impl Into<String>) {
        self.shutdown.shut_down(reason.into());
        self.space.wake_waiters();
    }

    /// Fails when the journal was shut down.
    ///
    /// # Errors
    /// `Shutdown` with the reason.
    pub fn check(&self) -> Result<()> {
        self.shutdown.check()
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
        let charge = self.cil.commit(&self.counters, self.space.accounts(), self.whiteouts, |batch| {
            batch.write_before(values);
            fill(batch);
        });
        grant.spend_link(charge.charge_bytes);
        self.counters.transactions.increment();
        charge.seq
    }

    /// Writes values that were committed. A value that cannot be written keeps waiting: the thread that writes the
    /// checkpoint tries it again, before anything of the checkpoint is in the log.
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
        // If another thread is writing a checkpoint already, this is left to the next commit.
        if self.is_push_due()
            && let Some(mut writer) = self.writer.try_take()
            && self.is_push_due()
        {
            self.policy.push_begins();
            self.push(&mut writer)?;
            self.policy.push_ended(self.cil.charged_bytes());
        }
        if self.policy.take_look(self.cil.charged_bytes()) && self.space.accounts().is_relief_due() {
            self.push_tail_as_far_as_possible(self.space.accounts().relief_target())?;
        }
        Ok(())
    }

    fn is_push_due(&self) -> bool {
        self.policy.is_push_due(self.cil.charged_bytes())
    }

    /// Whether the gathering checkpoint carries a cancel record for blocks that start at `address`. Nothing new may be
    /// committed there into the same checkpoint.
    pub fn holds_cancel(&self, address: DiskAddress) -> bool {
        self.cil.holds_cancel(address)
    }

    /// Makes the next commit write a checkpoint, however little has gathered: a thread needs it durable.
    pub fn want_push(&self) {
        self.policy.want_push();
    }

    /// The number of the checkpoint that gathers commits now.
    pub fn current(&self) -> CheckpointSeq {
        self.cil.current()
    }

    /// Makes checkpoint `seq` and all before it durable; waits.
    ///
    /// # Errors
    /// `Io` or `Shutdown`: changes that were not acknowledged before may or may not be durable.
    pub fn force(&self, seq: CheckpointSeq) -> Result<()> {
        self.count_force(seq).map(drop)
    }

    fn count_force(&self, seq: CheckpointSeq) -> Result<WrittenBy> {
        self.check()?;
        self.counters.log_forces.increment();
        let writer = self.write_up_to(seq)?;
        if writer == WrittenBy::Others {
            self.counters.log_forces_shared.increment();
        }
        Ok(writer)
    }

    /// Makes an inode's changes durable, which are in checkpoints up to `newest`, and contents that were written before
    /// `since`; waits.
    ///
    /// # Errors
    /// As [`Self::force`].
    pub fn make_durable(&self, newest: Option<CheckpointSeq>, since: FlushPoint) -> Result<()> {
        let writer = newest.map(|seq| self.count_force(seq)).transpose()?;
        self.check()?;
        // The flush of its own records covers the contents, and is shared with no other thread.
        if writer == Some(WrittenBy::Caller) && self.data.has_flushed(since) {
            return Ok(());
        }
        self.flush_data(since, FlushFor::AllWrites)
    }

    /// Makes everything committed so far durable.
    ///
    /// # Errors
    /// As [`Self::force`].
    pub fn force_all(&self) -> Result<()> {
        self.check()?;
        self.write_up_to(self.current()).map(drop)
    }

    /// Waits until checkpoint `seq` is durable, or for a turn to write it.
    fn write_up_to(&self, seq: CheckpointSeq) -> Result<WrittenBy> {
        match self.writer.take_unless(|| self.durable() >= seq) {
            Some(mut writer) => self.push(&mut writer).map(|()| WrittenBy::Caller),
            None => Ok(WrittenBy::Others),
        }
    }

    /// The newest durable checkpoint.
    pub fn durable(&self) -> CheckpointSeq {
        CheckpointSeq(self.durable.load(Ordering::Acquire))
    }

    /// Writes the gathered checkpoint, waits until it is durable, and puts its items into the AIL.
    fn push(&self, writer: &mut LogWriter) -> Result<()> {
        self.check()?;
        self.policy.checkpoint_closes();
        // From here on the checkpoint is in no list: if this thread panics, none of the next ones may be written.
        let unfinished = Unfinished(self);
        let mut checkpoint = self.cil.switch(&self.counters);
        self.policy.checkpoint_opened();
        let accounts = self.space.accounts();
        if checkpoint.is_empty() {
            accounts.settle(checkpoint.charged_bytes, accounts.head());
            self.durable.fetch_max(checkpoint.seq.0, Ordering::AcqRel);
            std::mem::forget(unfinished);
            return Ok(());
        }
        let result = self.write_checkpoint(writer, &checkpoint);
        if let Err(error) = result {
            self.shut_down(format!("the journal could not be written: {error}"));
            return Err(error);
        }
        let start = result?;
        // The items enter the AIL before the head moves past them: a thread that finds the AIL empty uses the head as
        // the tail.
        let ail = self.tail.ail();
        let freed = ail.insert_checkpoint(start, checkpoint.entry_count(), checkpoint.take_entries());
        checkpoint.finished.iter().for_each(|intent| ail.remove(intent));
        accounts.settle(checkpoint.charged_bytes, writer.head());
        accounts.set_tail(ail.tail().unwrap_or(writer.head()));
        self.durable.fetch_max(checkpoint.seq.0, Ordering::AcqRel);
        self.counters.checkpoints.increment();
        self.space.wake_waiters();
        self.cil.recycle(checkpoint);
        self.tail.drop_freed(freed);
        std::mem::forget(unfinished);
        Ok(())
    }

    fn write_checkpoint(&self, writer: &mut LogWriter, checkpoint: &Checkpoint) -> Result<Lsn> {
        // The tail is read before the flush: items that left the AIL until now were written, and the flush makes them
        // durable.
        let start = writer.head();
        let tail = self.tail.lsn().map_or(start, |tail| tail.min(start));
        let values = checkpoint.ordered_writes.iter().try_for_each(|write| self.values.write(write));
        values.inspect_err(|error| self.shut_down(format!("an attribute's value could not be written: {error}")))?;
        let what = if self.data.is(writer.device()) { FlushFor::Ordered } else { FlushFor::AllWrites };
        self.flush_data(self.data.now(), what)?;
        let written = writer.write_checkpoint(checkpoint, tail)?;
        let charged = checkpoint.charged_bytes;
        debug_assert!(written.bytes <= charged, "a checkpoint took {} bytes and was charged {charged}", written.bytes);
        self.counters.log_bytes.add(written.bytes);
        self.counters.log_records.add(written.records);
        writer.flush()?;
        Ok(start)
    }

    /// Copies values that wait to be written to the device from `offset` on. Returns the parts of `out` that the caller
    /// must read from the device.
    pub fn copy_waiting(&self, offset: u64, out: &mut [u8]) -> SmallVec<[Range<usize>; 1]> {
        self.values.copy_waiting(offset, out)
    }

    /// Makes durable what was written to the data device before the call.
    ///
    /// # Errors
    /// `Io`, `Shutdown`.
    pub fn flush_contents(&self) -> Result<()> {
        self.make_durable(None, self.flush_point())
    }

    /// Flushes the data device, if there are writes before `since` that need it. A device that refuses shuts the
    /// filesystem down.
    fn flush_data(&self, since: FlushPoint, what: FlushFor) -> Result<()> {
        self.data.flush(since, what).map_err(|FlushFailed(source)| {
            let error = Error::of_flush(source);
            self.shut_down(error.to_string());
            error
        })
    }

    /// The list of items that wait for write-back.
    pub fn ail(&self) -> &Ail {
        self.tail.ail()
    }

    /// Writes back everything in the AIL up to `target`. A block that the device refuses stays in the AIL, and the tail
    /// of the log before it: it is durable in the log, and the next push tries again. Returns how many items left the
    /// AIL.
    ///
    /// # Errors
    /// `Io`: at least one block could not be written back; the journal goes on. `Corrupt`: a block in memory did not
    /// pass its verifier; the journal is then shut down.
    pub fn push_tail(&self, target: Lsn) -> Result<usize> {
        self.check()?;
        let Some(WrittenBack { left, failed }) = self.tail.write_back(target) else { return Ok(0) };
        if let Some(error) = &failed
            && !matches!(error, Error::Io { .. })
        {
            self.shut_down(format!("metadata could not be written back: {error}"));
        } else {
            let accounts = self.space.accounts();
            let head = accounts.head();
            accounts.set_tail(self.tail.lsn().unwrap_or(head));
            self.space.wake_waiters();
        }
        failed.map_or(Ok(left), Err)
    }

    /// As [`Self::push_tail`], for callers that can do without the space: a block that the device refuses is no error.
    ///
    /// # Errors
    /// `Corrupt`, `Shutdown`.
    pub fn push_tail_as_far_as_possible(&self, target: Lsn) -> Result<()> {
        match self.push_tail(target) {
            Ok(_) | Err(Error::Io { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Writes everything to its place on the device: checkpoint, write-back of all items, flush. The log then contains
    /// nothing that is still needed.
    ///
    /// # Errors
    /// `Io`, after which the journal is shut down: blocks that the device refuses are in the log, for recovery;
    /// `Shutdown`; `WouldBlock` when objects stay locked.
    pub fn quiesce(&self) -> Result<()> {
        for _ in 0..MAX_QUIESCE_ROUNDS {
            self.force_all()?;
            if let Err(error) = self.push_tail(Lsn(u64::MAX)) {
                self.shut_down(format!("metadata could not be written back: {error}"));
                return Err(error);
            }
            if self.tail.lsn().is_none() && self.cil.is_empty() {
                return self.flush_contents();
            }
        }
        self.shut_down("metadata stayed locked while everything was to be written back");
        self.check()
    }

    /// Reserves log space for a chain of `links` links of `bytes` each; waits for space.
    ///
    /// # Errors
    /// `Shutdown`; `Invalid` when the log is too small for the request; `Io` when the log is full of metadata that the
    /// device refuses to write in place.
    pub fn reserve(&self, bytes: u32, links: u32) -> Result<Grant<'_>> {
        self.check()?;
        Grant::take(&self.space, self, bytes, links)
    }

    /// Sets whether recovered intents are being finished. No other thread uses the journal meanwhile, so waiting would
    /// free no space.
    pub fn set_recovering(&self, recovering: bool) {
        self.space.set_recovering(recovering);
    }

    /// Writes the unmount record, after [`Self::quiesce`].
    ///
    /// # Errors
    /// `Io`.
    pub fn write_unmount(&self) -> Result<()> {
        self.write_unmount_with(None)
    }

    /// As [`Self::write_unmount`], for a filesystem whose UUID is about to change: the record belongs to the filesystem
    /// with either.
    ///
    /// # Errors
    /// `Io`.
    pub fn write_unmount_of_any(&self) -> Result<()> {
        self.write_unmount_with(Some([0; 16]))
    }

    /// As [`Self::write_unmount`], for a filesystem that has another UUID now.
    ///
    /// # Errors
    /// `Io`.
    pub fn write_unmount_as(&self, uuid: [u8; 16]) -> Result<()> {
        self.write_unmount_with(Some(uuid))
    }

    /// Writes an unmount record, with a UUID if it is another than that of the records before it.
    fn write_unmount_with(&self, uuid: Option<[u8; 16]>) -> Result<()> {
        let mut writer = self.writer.take();
        self.check()?;
        if let Some(uuid) = uuid {
            writer.set_uuid(uuid);
        }
        let written = writer.write_unmount().and_then(|written| writer.flush().map(|()| written));
        // Nothing may be written behind a record of which it is not known whether it arrived.
        let refused = |error: &Error| self.shut_down(format!("the end of the journal could not be written: {error}"));
        let written = written.inspect_err(refused)?;
        self.counters.log_bytes.add(written.bytes);
        self.counters.log_records.add(written.records);
        // The log may go on behind it.
        self.space.accounts().settle(0, writer.head());
        Ok(())
    }

    /// The share of the log in use, as (used and granted, size), in bytes.
    pub fn usage(&self) -> (u64, u64) {
        self.space.accounts().usage()
    }
}

impl MakeRoom for Journal {
    fn check(&self) -> Result<()> {
        Self::check(self)
    }

    fn write_checkpoint(&self) -> Result<()> {
        self.force_all()
    }

    fn write_back(&self, target: Lsn) -> Result<()> {
        self.push_tail(target).map(drop)
    }

    fn shut_down(&self, reason: String) {
        Self::shut_down(self, reason);
    }
}
