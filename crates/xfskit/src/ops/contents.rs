//! Reads and writes files, and makes what was written durable.
//!
//! Nothing is locked where a transaction begins, so a write looks first, under the inode's lock alone, for what needs
//! no transaction, and begins one only for what does.

use super::Volume;
use super::map::{END_OF_MAP, link_reservation, next_link, next_link_with, written_behind_end};
use super::protected::{check_not_immutable, check_same, check_write, is_append_only};
use super::times::has_times;
use crate::data::{self, Source};
use crate::error::{Error, Result, caller};
use crate::incore::{Inode, InodeState};
use crate::mount::BlockPool;
use crate::space;
use crate::sync::atomic::Ordering;
use crate::sync::{HeldLock, LockMode, Mutex};
use crate::trans::{InoId, Transaction};
use std::ops::Range;
use std::sync::Arc;
use xfskit_device::at_once;
use xfskit_ondisk::inode::{MODE_DIR, MODE_REGULAR, MODE_TYPE, flags};
use xfskit_ondisk::{FileBlock, InodeNumber};

/// Whole blocks of at least so many bytes go to the device at once, without waiting as dirty blocks.
const DIRECT_BYTES: u64 = 128 << 10;
/// Most bytes that one transaction maps.
const MAX_RUN_BYTES: u64 = 64 << 20;
/// Most runs of dirty blocks that are brought out before readers and writers of the file get its lock.
const RUNS_UNDER_ONE_LOCK: usize = 32;
/// Dirty bytes of a file at which the writing thread writes them out.
const MAX_DIRTY_FILE_BYTES: u64 = 8 << 20;

/// On whose behalf bytes are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Writer {
    /// A caller that asks for it now.
    Caller,
    /// A cache that writes later what its callers asked for.
    Cache,
}

/// Where bytes go.
#[derive(Clone, Copy)]
enum Target {
    /// To the end, wherever that is by then.
    End,
    /// To an offset, which an append-only file refuses before its end.
    At(u64),
    /// To an offset to which a cache writes late; the write was checked when the cache took it.
    Late(u64),
}

impl Target {
    fn at(offset: u64, writer: Writer) -> Self {
        match writer {
            Writer::Caller => Self::At(offset),
            Writer::Cache => Self::Late(offset),
        }
    }

    /// The offset, with the file locked: what a thread saw without the lock may have changed since.
    fn offset(self, state: &InodeState) -> Result<u64> {
        match self {
            Self::End => Ok(state.size_bytes()),
            Self::At(offset) => check_write(&state.core, state.size_bytes(), offset).map(|()| offset),
            Self::Late(offset) => Ok(offset),
        }
    }
}

impl Volume {
    /// Fills `buffer` with the contents of a file from byte `offset` on; returns how many there are, fewer than asked
    /// for only at the end of the file.
    ///
    /// # Errors
    /// `IsADirectory`, `Invalid` when it is no file, `Stale`, `Corrupt`, `Io`.
    pub fn read_at(&self, inode: InodeNumber, offset: u64, buffer: &mut [u8]) -> caller::Result<usize> {
        let inode = self.mount.inode(inode)?;
        let mut tx = Transaction::read_only(&self.mount);
        let id = self.join_file(&mut tx, &inode)?;
        Ok(self.located(inode.number, data::read(&mut tx, id, offset, buffer))?)
    }

    /// Writes `data` at byte `offset` of a file. What it holds is what every later read finds; it is durable after
    /// [`Self::fsync`] or [`Self::sync`], at once if the file has the flag for that (`chattr +S`). A write that is
    /// larger than a few blocks is not one step for a thread that reads at the same time, and of one that fails a part
    /// may have been done: [`Self::write_some_at`] says how much.
    ///
    /// # Errors
    /// As [`Self::read_at`]; `NoSpace`, `TooLarge`, `ReadOnly`; `NotPermitted` for an immutable file, and before the
    /// end of an append-only one.
    pub fn write_at(&self, inode: InodeNumber, offset: u64, data: &[u8]) -> caller::Result<()> {
        Ok(self.write_now(inode, offset, data, &mut 0)?)
    }

    /// As [`Self::write_at`], but an error that comes after a part was written is not returned: returned is how many
    /// bytes were written, as by the system's `pwrite`. To write the rest meets the error again, if it lasts.
    ///
    /// # Errors
    /// As [`Self::write_at`]; nothing counts as written then.
    pub fn write_some_at(&self, inode: InodeNumber, offset: u64, data: &[u8]) -> caller::Result<usize> {
        let mut done = 0;
        match self.write_now(inode, offset, data, &mut done) {
            Ok(()) => Ok(data.len()),
            Err(error) if done == 0 => Err(error.into()),
            Err(_) => {
                self.honour_sync(&self.mount.inode(inode)?)?;
                Ok(done)
            }
        }
    }

    /// Writes on behalf of a caller that asks for it now; if that fails, `done` is how many bytes were written all the
    /// same.
    fn write_now(&self, inode: InodeNumber, offset: u64, data: &[u8], done: &mut usize) -> Result<()> {
        let written = self.write(inode, offset, data, Writer::Caller, done);
        if *done > 0 || matches!(written, Err(Error::Io { .. } | Error::NoSpace)) {
            // A part may have been written, which whoever compares times must see.
            self.note_write(&self.mount.inode(inode)?);
        }
        let inode = written?;
        if !data.is_empty() {
            self.note_write(&inode);
        }
        self.honour_sync(&inode).inspect_err(|_| *done = 0)
    }

    /// As [`Self::write_at`] for a caller that keeps the times of files: a cache that writes later than was
    /// written. What it writes begins where its pages do, in an append-only file as well, and in any order: there it
    /// may change nothing that the file had before.
    ///
    /// # Errors
    /// As [`Self::write_at`].
    pub fn write_keeping_times(&self, inode: InodeNumber, offset: u64, data: &[u8]) -> caller::Result<()> {
        let inode = self.write(inode, offset, data, Writer::Cache, &mut 0)?;
        self.bring_out_cut(&inode);
        Ok(self.honour_sync(&inode)?)
    }

    /// Whether each change of a file's contents is durable when the call returns (`chattr +S`).
    ///
    /// # Errors
    /// `Stale`, `Corrupt`, `Io`.
    pub fn is_synchronous(&self, inode: InodeNumber) -> caller::Result<bool> {
        let inode = self.mount.inode(inode)?;
        let is_sync = inode.state_lock().read().core.flags & flags::SYNC != 0;
        Ok(is_sync)
    }

    /// Makes a change of contents durable, of a file whose writes are synchronous, before the call returns.
    pub(super) fn honour_sync(&self, inode: &Arc<Inode>) -> Result<()> {
        let is_sync = inode.state_lock().read().core.flags & flags::SYNC != 0;
        if is_sync { Ok(self.fsync(inode.number)?) } else { Ok(()) }
    }

    /// Writes, and leaves the times alone. If that fails, `done` is how many bytes from the first on were written all
    /// the same.
    pub(super) fn write(
        &self,
        inode: InodeNumber,
        offset: u64,
        data: &[u8],
        writer: Writer,
        done: &mut usize,
    ) -> Result<Arc<Inode>> {
        if self.mount.options.read_only {
            return Err(Error::ReadOnly);
        }
        // What waits in memory would be lost, and only an fsync would say so.
        self.mount.journal.check()?;
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= data::MAX_SIZE_BYTES);
        let end = end.ok_or(Error::TooLarge)?;
        let inode = self.mount.inode(inode)?;
        if self.write_in_place(&inode, offset, data, writer)? {
            return Ok(inode);
        }
        let block_bytes = self.mount.geometry.block_bytes() as u64;
        let (first, last) = (offset.next_multiple_of(block_bytes), end / block_bytes * block_bytes);
        let target = |offset| Target::at(offset, writer);
        if first >= last || last - first < DIRECT_BYTES {
            self.write_buffered(&inode, target(offset), data)?;
        } else {
            let (head, rest) = data.split_at((first - offset) as usize);
            let (middle, tail) = rest.split_at((last - first) as usize);
            if !head.is_empty() {
                self.write_buffered(&inode, target(offset), head)?;
                *done = head.len();
            }
            self.write_whole_blocks(&inode, first, middle, writer, done)?;
            if !tail.is_empty() {
                self.write_buffered(&inode, target(last), tail)?;
            }
        }
        // If this fails, the caller must not go on to write more: it would take memory without a bound.
        self.relieve_memory(&inode).inspect_err(|_| *done = 0)?;
        Ok(inode)
    }

    /// Writes many whole blocks, and counts in `done` the bytes that it has written.
    fn write_whole_blocks(
        &self,
        inode: &Arc<Inode>,
        first: u64,
        data: &[u8],
        writer: Writer,
        done: &mut usize,
    ) -> Result<()> {
        let before = *done;
        match self.write_direct(inode, first, data, writer, done) {
            // It asks for space for every block; some may have theirs already.
            Err(Error::NoSpace) => {
                let written = *done - before;
                self.write_in_pieces(inode, first + written as u64, &data[written..], writer, done)
            }
            other => other,
        }
    }

    /// Writes `data` at the end of a file, wherever that is by then; returns where it was.
    ///
    /// # Errors
    /// As [`Self::write_at`].
    pub fn append(&self, inode: InodeNumber, data: &[u8]) -> caller::Result<u64> {
        if self.mount.options.read_only {
            return Err(Error::ReadOnly.into());
        }
        self.mount.journal.check()?;
        let inode = self.mount.inode(inode)?;
        let mut offset = None;
        // Together they may be more than fits the memory that one file may take.
        for part in data.chunks(MAX_DIRTY_FILE_BYTES as usize) {
            let at = self.write_buffered(&inode, Target::End, part)?;
            offset.get_or_insert(at);
            self.note_write(&inode);
            self.relieve_memory(&inode)?;
        }
        self.honour_sync(&inode)?;
        Ok(offset.unwrap_or_default())
    }

    /// No caller has the file open to write: the free blocks that were set aside for its growth are given back.
    /// Contents that wait in memory stay there, but for those of a file that was made shorter before.
    pub fn finish_writing(&self, inode: InodeNumber) {
        self.bring_out_if_cut(inode);
        space::alloc::close_windows(&self.mount, inode);
    }

    /// Brings out contents that wait in memory, if they are those of a file that was made shorter before: for a caller
    /// that does not hear when a program closes a file, and calls this after each write instead of
    /// [`Self::finish_writing`]. They are not durable then, but become so with whatever is synced next. What cannot be
    /// brought out goes on waiting, and an fsync reports it.
    pub fn bring_out_if_cut(&self, inode: InodeNumber) {
        if let Some(inode) = self.mount.inodes.find(inode) {
            self.bring_out_cut(&inode);
        }
    }

    /// Brings out what waits of a file that was made shorter since it was last synced. A program may have emptied it to
    /// write it anew: the loss of the old contents becomes durable with whatever another program syncs, and the new
    /// ones must not wait longer than that. The kernel begins to write such a file when it is closed
    /// (`XFS_ITRUNCATED`).
    fn bring_out_cut(&self, inode: &Arc<Inode>) {
        let was_cut = inode.state_lock().read().was_cut;
        if was_cut && let Err(error) = self.write_out(inode) {
            tracing::debug!(inode = inode.number.0, %error, "contents go on waiting, for an fsync that reports this");
        }
    }

    /// All that a file had when it was made shorter, and since, was asked to be made durable.
    fn forget_cut(inode: &Inode) {
        let was_cut = inode.state_lock().read().was_cut;
        if was_cut {
            inode.state_lock().write().was_cut = false;
        }
    }

    /// Makes everything done to an inode durable: contents, names, attributes. What changes those logs the inode
    /// with them. Costs nothing when nothing has changed since the last checkpoint. What cannot be written out keeps
    /// nothing else from it.
    ///
    /// # Errors
    /// `NoSpace`, `Io`, `Shutdown`.
    pub fn fsync(&self, inode: InodeNumber) -> caller::Result<()> {
        self.mount.journal.check()?;
        if self.mount.options.read_only {
            return Ok(());
        }
        let Some(inode) = self.mount.inodes.find(inode) else { return Ok(self.mount.journal.flush_contents()?) };
        // Before, so that it is remembered if another thread cuts the file meanwhile.
        Self::forget_cut(&inode);
        let waiting = self.write_out(&inode);
        let since = self.mount.journal.flush_point();
        // A transaction that is committing now holds the lock; what it does came after this call.
        self.mount.journal.make_durable(inode.item().pinned_by(), since)?;
        Ok(waiting?)
    }

    /// As [`Self::fsync`], but when only times have changed they may wait.
    ///
    /// # Errors
    /// As [`Self::fsync`].
    pub fn fdatasync(&self, inode: InodeNumber) -> caller::Result<()> {
        let only_times = self.mount.inodes.find(inode).is_some_and(|inode| {
            let settled = inode.state_lock().read().is_settled();
            settled && !inode.item().is_pinned()
        });
        if only_times { Ok(self.mount.journal.flush_contents()?) } else { self.fsync(inode) }
    }

    /// Brings out everything that waits in memory; not durable yet. What cannot be brought out keeps nothing else from
    /// it.
    pub(super) fn write_out_all(&self) -> Result<()> {
        let waiting = self.mount.dirty_inodes.all();
        waiting.iter().for_each(|inode| Self::forget_cut(inode));
        let times = self.write_out_times(&waiting);
        times.and(self.write_out_each(waiting, || true))
    }

    /// Brings out what waits of many inodes, as long as `is_wanted`: of many at a time where the device's requests take
    /// long. What cannot be brought out keeps nothing else from it.
    fn write_out_each(&self, waiting: Vec<Arc<Inode>>, is_wanted: impl Fn() -> bool + Sync) -> Result<()> {
        let failed = Mutex::new(Vec::new());
        at_once(self.requests_at_once(), "write-out", waiting, |inode| {
            if is_wanted()
                && let Err(error) = self.write_out(&inode)
            {
                failed.lock().push((inode, error));
            }
        });
        // What many transactions set aside at the same time may be more than there is; for one there is room.
        let again = |(inode, error)| match error {
            Error::NoSpace => self.write_out(&inode),
            other => Err(other),
        };
        failed.into_inner().into_iter().map(again).fold(Ok(()), Result::and)
    }

    /// Forgets everything that still waits in memory, and gives its space back: the superblock is about to say what is
    /// free.
    pub(super) fn discard_all(&self) {
        for inode in self.mount.dirty_inodes.all() {
            let mut tx = Transaction::read_only(&self.mount);
            let id = tx.join_locked(&inode, HeldLock::lock(inode.state_lock(), LockMode::Exclusive));
            data::discard(&mut tx, id);
        }
    }

    /// A regular file, locked and joined.
    pub(super) fn join_file(&self, tx: &mut Transaction, inode: &Arc<Inode>) -> Result<InoId> {
        let id = self.join(tx, inode)?;
        check_file(tx, id).map(|()| id)
    }

    /// Joins a file for changes in memory: its lock is exclusive, and there is no transaction to commit.
    fn join_in_memory(&self, tx: &mut Transaction, inode: &Arc<Inode>) -> Result<InoId> {
        let id = tx.join_locked(inode, HeldLock::lock(inode.state_lock(), LockMode::Exclusive));
        super::check_in_use(tx, id)?;
        check_not_immutable(&tx.inode(id).core)?;
        check_file(tx, id).map(|()| id)
    }

    /// Remembers that the contents change now, and that the journal has not logged that.
    pub(super) fn note_write(&self, inode: &Arc<Inode>) {
        if inode.note_write(self.mount.env.now()) {
            self.mount.dirty_inodes.add(inode);
        }
    }

    /// Asks whether the file may be written, and does it if that takes no transaction.
    fn write_in_place(&self, inode: &Arc<Inode>, offset: u64, data: &[u8], writer: Writer) -> Result<bool> {
        let mut tx = Transaction::read_only(&self.mount);
        let id = self.join_file(&mut tx, inode)?;
        let state = tx.inode(id);
        let append_only = is_append_only(&state.core);
        check_write(&state.core, state.size_bytes(), if writer == Writer::Cache { u64::MAX } else { offset })?;
        let received = state.received_bytes.load(Ordering::Acquire);
        if writer == Writer::Cache && append_only {
            let mut old = vec![0; received.saturating_sub(offset).min(data.len() as u64) as usize];
            self.located(inode.number, data::read(&mut tx, id, offset, &mut old))?;
            check_same(&old, data)?;
        }
        if data.is_empty() {
            return Ok(true);
        }
        let is_written = self.located(inode.number, data::write_in_place(&mut tx, id, offset, data))?;
        if is_written && append_only {
            tx.inode(id).note_received(offset, offset + data.len() as u64);
        }
        Ok(is_written)
    }

    /// Writes into memory what has no place yet. Returns where.
    fn write_buffered(&self, inode: &Arc<Inode>, target: Target, data: &[u8]) -> Result<u64> {
        let mut tx = Transaction::read_only(&self.mount);
        let mut id = self.join_in_memory(&mut tx, inode)?;
        let size = tx.inode(id).size_bytes();
        let grows = target.offset(tx.inode(id))? + data.len() as u64 > size;
        while grows && written_behind_end(&mut tx, id, size)?.is_some() {
            drop(tx);
            self.free_behind_end(inode)?;
            tx = Transaction::read_only(&self.mount);
            id = self.join_in_memory(&mut tx, inode)?;
        }
        let offset = target.offset(tx.inode(id))?;
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > data::MAX_SIZE_BYTES) {
            return Err(Error::TooLarge);
        }
        let result = data::extend(&mut tx, id, offset).and_then(|()| data::buffer(&mut tx, id, offset, data));
        // Also after an error something may wait.
        self.mount.dirty_inodes.add(inode);
        self.located(inode.number, result)?;
        tx.inode(id).note_received(offset, offset + data.len() as u64);
        Ok(offset)
    }

    /// As [`Self::write_buffered`], for more than may wait in memory; counts in `done` the bytes that it has written.
    fn write_in_pieces(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        data: &[u8],
        writer: Writer,
        done: &mut usize,
    ) -> Result<()> {
        let mut at = offset;
        for piece in data.chunks(DIRECT_BYTES as usize) {
            self.write_buffered(inode, Target::at(at, writer), piece)?;
            // As in `write`.
            self.relieve_memory(inode).inspect_err(|_| *done = 0)?;
            *done += piece.len();
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Writes whole blocks to the places that they have or get now; counts in `done` the bytes that it has written.
    fn write_direct(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        data: &[u8],
        writer: Writer,
        done: &mut usize,
    ) -> Result<()> {
        let block_log = self.mount.geometry.block_log;
        let (first, end) = (offset >> block_log, (offset + data.len() as u64) >> block_log);
        let before = *done;
        let mut at = first;
        while at < end {
            self.free_behind_end(inode)?;
            let run = at..end.min(at + (MAX_RUN_BYTES >> block_log));
            let reservation = link_reservation(&self.mount).with_more_blocks(run.end - run.start);
            let mut tx = self.begin(reservation)?;
            let result = (|| {
                let id = self.join_file(&mut tx, inode)?;
                Target::at(at << block_log, writer).offset(tx.inode(id))?;
                let size = tx.inode(id).size_bytes();
                if written_behind_end(&mut tx, id, size)?.is_some() {
                    // A truncation of another thread has failed half-way meanwhile.
                    return Ok(at);
                }
                self.settle_for(&mut tx, id, offset, &run)?;
                let bytes = &data[((at - first) << block_log) as usize..];
                let next = data::write_out_run(&mut tx, id, run.clone(), Source::Bytes(bytes))?;
                tx.inode(id).note_received(at << block_log, next << block_log);
                Ok(next)
            })();
            at = self.located(inode.number, tx.finish(result))?;
            *done = before + ((at - first) << block_log) as usize;
        }
        Ok(())
    }

    /// Gets a joined file ready for a write of the whole blocks of `run`, a part of one that begins at byte `offset`.
    /// Dirty blocks among them are written out under the lock, in links of the chain at hand; where the size moves, all
    /// dirty blocks of the file are. Threads that dirty other blocks wait for the lock meanwhile, so they cannot keep
    /// this one from its write.
    fn settle_for(&self, tx: &mut Transaction, id: InoId, offset: u64, run: &Range<u64>) -> Result<()> {
        let blocks = run.end - run.start;
        if run.end << self.mount.geometry.block_log <= tx.inode(id).core.size {
            let first = |state: &InodeState| state.dirty.as_ref()?.first_run(FileBlock(run.start), 1);
            let mut is_first = true;
            while let Some(dirty) = first(tx.inode(id)).filter(|dirty| dirty.start < run.end) {
                self.write_out_some(tx, id, FileBlock(dirty.start), (END_OF_MAP, 0))?;
                next_link(tx, BlockPool::Reserve)?;
                is_first = false;
            }
            return if is_first { Ok(()) } else { next_link_with(tx, blocks) };
        }
        loop {
            let is_settled = tx.inode(id).is_settled();
            if is_settled {
                data::extend(tx, id, offset)?;
            }
            // Zeros behind the old end may have to be written out, too.
            if tx.inode(id).is_settled() {
                return Ok(());
            }
            if is_settled {
                self.mount.dirty_inodes.add(tx.inode_handle(id));
            }
            self.settle(tx, id)?;
            next_link_with(tx, blocks)?;
        }
    }

    /// Writes out what waits of an inode: all that waited when this was called, however fast other threads add to it.
    ///
    /// # Errors
    /// `NoSpace`, `Corrupt`, `Io`, `Shutdown`; what could not be written out still waits.
    pub(super) fn write_out(&self, inode: &Arc<Inode>) -> Result<()> {
        let (end, size) = {
            let state = inode.state_lock().read();
            (state.dirty.as_ref().map_or(FileBlock(0), |dirty| dirty.end()), state.size_bytes())
        };
        let mut at = FileBlock(0);
        while !self.forget_if_clean(inode) {
            let mut tx = self.begin_write_out(inode)?;
            let id = tx.join_inode(inode);
            // An inode that was freed meanwhile has nothing to write out: the next turn of the loop sees that.
            let next = if tx.inode(id).freed { Ok(at) } else { self.write_out_runs(&mut tx, id, at, (end, size)) };
            at = self.located(inode.number, tx.finish(next))?;
            if at >= end {
                self.forget_if_clean(inode);
                break;
            }
        }
        Ok(())
    }

    /// Contents have paid for their blocks, and may take kept ones for the trees; times need none.
    fn begin_write_out(&self, inode: &Inode) -> Result<Transaction<'_>> {
        let reservation = link_reservation(&self.mount).with_pool(BlockPool::Reserve);
        match self.begin(reservation) {
            Err(Error::NoSpace) if inode.state_lock().read().is_settled() => self.begin(reservation.with_blocks(0)),
            other => other,
        }
    }

    /// Takes an inode of which nothing waits off the list of those; says whether that is so.
    fn forget_if_clean(&self, inode: &Arc<Inode>) -> bool {
        let state = inode.state_lock().read();
        let is_clean = state.freed || state.is_settled() && !has_times(inode, &state);
        if is_clean {
            self.mount.dirty_inodes.remove(inode.number);
            // A thread that writes in place notes its time without the exclusive lock, so it may have done so since.
            if !state.freed && inode.noted_write().is_some() {
                self.mount.dirty_inodes.add(inode);
            }
        }
        is_clean
    }

    /// As [`Self::write_out_some`] for some runs, each in a link of the chain at hand. Threads that write to the same
    /// file take its lock as soon as it is free, and one that waits for it gets it after half a millisecond or so; to
    /// wait once for each of thousands of runs would take seconds.
    fn write_out_runs(
        &self,
        tx: &mut Transaction,
        id: InoId,
        from: FileBlock,
        goal: (FileBlock, u64),
    ) -> Result<FileBlock> {
        self.expect_tree_blocks(tx, id)?;
        let mut at = self.write_out_some(tx, id, from, goal)?;
        for _ in 1..RUNS_UNDER_ONE_LOCK {
            if at >= goal.0 {
                break;
            }
            next_link(tx, BlockPool::Reserve)?;
            at = self.write_out_some(tx, id, at, goal)?;
        }
        Ok(at)
    }

    /// Brings out the first dirty run at or behind `from`, and times, and the size if it was the last; what `goal`
    /// wants is all blocks in front of one, and then the size up to a byte. Says where to go on.
    fn write_out_some(
        &self,
        tx: &mut Transaction,
        id: InoId,
        from: FileBlock,
        goal: (FileBlock, u64),
    ) -> Result<FileBlock> {
        let most = MAX_RUN_BYTES >> self.mount.geometry.block_log;
        let run = tx.inode(id).dirty.as_ref().and_then(|dirty| dirty.first_run(from, most));
        let next = match run {
            Some(run) => FileBlock(data::write_out_run(tx, id, run, Source::Dirty)?),
            None => FileBlock(u64::MAX),
        };
        data::write_out_core(tx, id, if next >= goal.0 { goal.1 } else { 0 });
        Ok(next)
    }

    /// Sees to it that a transaction that may have begun with fewer blocks has those for the trees, if anything of the
    /// file waits.
    fn expect_tree_blocks(&self, tx: &mut Transaction, id: InoId) -> Result<()> {
        if tx.inode(id).is_settled() {
            return Ok(());
        }
        tx.top_up_blocks(link_reservation(&self.mount).blocks, BlockPool::Reserve)
    }

    /// Brings out all that waits of a joined file, in links of the chain at hand.
    pub(super) fn settle(&self, tx: &mut Transaction, id: InoId) -> Result<()> {
        self.expect_tree_blocks(tx, id)?;
        while !tx.inode(id).is_settled() {
            self.write_out_some(tx, id, FileBlock(0), (END_OF_MAP, 0))?;
            next_link(tx, BlockPool::Reserve)?;
        }
        Ok(())
    }

    /// Brings contents out when too much of them waits, of this file or of all.
    pub(super) fn relieve_memory(&self, inode: &Arc<Inode>) -> Result<()> {
        let waits = |inode: &Inode| inode.state_lock().read().dirty.as_ref().map_or(0, |dirty| dirty.count());
        if waits(inode) << self.mount.geometry.block_log >= MAX_DIRTY_FILE_BYTES {
            self.write_out(inode)?;
        }
        let (dirty, most) = (&self.mount.dirty_inodes, self.mount.options.cache_bytes as u64 / 4);
        if dirty.bytes() < most {
            return Ok(());
        }
        // One thread brings out for all, unless memory grows in spite of that.
        let turn = if dirty.bytes() < 2 * most { dirty.try_take_turn() } else { Some(dirty.take_turn()) };
        let Some(_turn) = turn else { return Ok(()) };
        if dirty.bytes() < most {
            return Ok(());
        }
        let waiting = dirty.all();
        let times = self.write_out_times(&waiting);
        let result = times.and(self.write_out_each(waiting, || dirty.bytes() >= most / 2));
        // Another file's error is returned by its own fsync, unless memory would grow without a bound.
        if dirty.bytes() < 2 * most { Ok(()) } else { result }
    }
}

/// Checks that an inode is a regular file whose contents are within reach.
fn check_file(tx: &Transaction, id: InoId) -> Result<()> {
    let core = &tx.inode(id).core;
    // An image with a realtime device is refused as a whole.
    ensure_on_disk!(core.flags & flags::REALTIME == 0, "inode", "contents on a device that is there");
    match core.mode & MODE_TYPE {
        MODE_REGULAR => Ok(()),
        MODE_DIR => Err(Error::IsADirectory),
        _ => Err(Error::Invalid("not a regular file")),
    }
}
