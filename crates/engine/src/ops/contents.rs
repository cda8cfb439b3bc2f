//! Reads and writes files, and makes what was written durable.
//!
//! Nothing is locked where a transaction begins, so a write looks first, under the inode's lock alone, for what needs
//! no transaction, and begins one only for what does.

use super::Volume;
use super::fsync::is_state_sync;
use super::map::{END_OF_MAP, link_reservation, next_link, next_link_with, written_behind_end};
use super::protected::{check_not_immutable, check_same, check_write, is_append_only};
use super::write_out::{MAX_DIRTY_FILE_BYTES, MAX_RUN_BYTES};
use crate::data::{self, Source};
use crate::error::{Error, Result};
use crate::incore::{Inode, InodeState};
use crate::mount::BlockPool;
use crate::sync::atomic::Ordering;
use crate::sync::{HeldLock, LockMode};
use crate::trans::{InoId, Transaction};
use std::ops::Range;
use std::sync::Arc;
use xfskit_ondisk::inode::{MODE_DIR, MODE_REGULAR, MODE_TYPE, flags};
use xfskit_ondisk::{FileBlock, InodeNumber};
use xfskit_vfs::Written;

/// Whole blocks of at least so many bytes go to the device at once, without waiting as dirty blocks.
const DIRECT_BYTES: u64 = 128 << 10;

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
    pub fn read_at(&self, inode: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let inode = self.mount.inode(inode)?;
        let mut tx = Transaction::read_only(&self.mount);
        let id = self.join_file(&mut tx, &inode)?;
        self.located(inode.number, data::read(&mut tx, id, offset, buffer))
    }

    /// Writes `data` at byte `offset` of a file. What it holds is what every later read finds; it is durable after
    /// [`Self::fsync`] or [`Self::sync`], at once if the file has the flag for that (`chattr +S`). A write that is
    /// larger than a few blocks is not one step for a thread that reads at the same time, and of one that fails a part
    /// may have been done; [`Self::write_some_at`] returns how much.
    ///
    /// # Errors
    /// As [`Self::read_at`]; `NoSpace`, `TooLarge`, `ReadOnly`; `NotPermitted` for an immutable file, and before the
    /// end of an append-only one.
    pub fn write_at(&self, inode: InodeNumber, offset: u64, data: &[u8]) -> Result<()> {
        self.write_now(&self.inode_to_write(inode)?, offset, data, &mut 0).map(drop)
    }

    /// Writes as much as it can, as pwrite(2): an error that comes after a first part is not returned, but the number
    /// of bytes before it. To write the rest meets the error again, if it lasts.
    ///
    /// # Errors
    /// As [`Self::write_at`]; the file may have been changed within the range all the same.
    pub fn write_some_at(&self, inode: InodeNumber, offset: u64, data: &[u8]) -> Result<usize> {
        self.write_some(&self.inode_to_write(inode)?, offset, data).map(|written| written.bytes)
    }

    /// As [`Self::write_some_at`], to an inode that was looked up, after [`Self::check_writes`].
    pub(crate) fn write_some(&self, inode: &Arc<Inode>, offset: u64, data: &[u8]) -> Result<Written> {
        let mut done = 0;
        match self.write_now(inode, offset, data, &mut done) {
            Ok(was_truncated) => Ok(Written { bytes: data.len(), was_truncated }),
            Err(error) if done == 0 => Err(error),
            Err(_) => {
                self.honour_sync(inode)?;
                Ok(Written { bytes: done, was_truncated: inode.state_lock().read().was_cut })
            }
        }
    }

    /// Whether anything can be written now.
    pub(crate) fn check_writes(&self) -> Result<()> {
        if self.mount.options.read_only {
            return Err(Error::ReadOnly);
        }
        // What waits in memory would be lost, and only an fsync would say so.
        self.mount.journal.check()
    }

    /// An inode that is about to be written.
    pub(super) fn inode_to_write(&self, inode: InodeNumber) -> Result<Arc<Inode>> {
        self.check_writes()?;
        self.mount.inode(inode)
    }

    /// Writes on behalf of a caller that asks for it now; if that fails, `done` is how many bytes were written all the
    /// same. Returns whether something waits of a file that was made shorter.
    fn write_now(&self, inode: &Arc<Inode>, offset: u64, data: &[u8], done: &mut usize) -> Result<bool> {
        let written = self.write(inode, offset, data, Writer::Caller, done);
        if *done > 0 || matches!(written, Err(Error::Io { .. } | Error::NoSpace)) {
            // A part may have been written, which whoever compares times must see.
            self.note_write(inode);
        }
        written?;
        if !data.is_empty() {
            self.note_write(inode);
        }
        let (is_sync, was_cut) = {
            let state = inode.state_lock().read();
            (is_state_sync(&state), state.was_cut)
        };
        if !is_sync {
            return Ok(was_cut);
        }
        self.fsync_of(inode).inspect_err(|_| *done = 0).map(|()| false)
    }

    /// As [`Self::write_at`] for a caller that keeps the times of files: a cache that writes later than was
    /// written. What it writes begins where its pages do, in an append-only file as well, and in any order: there it
    /// may change nothing that the file had before.
    ///
    /// # Errors
    /// As [`Self::write_at`].
    pub fn write_keeping_times(&self, inode: InodeNumber, offset: u64, data: &[u8]) -> Result<()> {
        self.write_late(&self.inode_to_write(inode)?, offset, data)
    }

    /// As [`Self::write_keeping_times`], to an inode that was looked up, after [`Self::check_writes`].
    pub(crate) fn write_late(&self, inode: &Arc<Inode>, offset: u64, data: &[u8]) -> Result<()> {
        self.write(inode, offset, data, Writer::Cache, &mut 0)?;
        self.bring_out_cut(inode);
        self.honour_sync(inode)
    }

    /// Writes after [`Self::check_writes`], and leaves the times alone. If that fails, `done` is how many bytes from
    /// the first on were written all the same.
    pub(super) fn write(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        data: &[u8],
        writer: Writer,
        done: &mut usize,
    ) -> Result<()> {
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= data::MAX_SIZE_BYTES);
        let end = end.ok_or(Error::TooLarge)?;
        if self.write_in_place(inode, offset, data, writer)? {
            return Ok(());
        }
        let block_bytes = self.mount.geometry.block_bytes() as u64;
        let (first, last) = (offset.next_multiple_of(block_bytes), end / block_bytes * block_bytes);
        let target = |offset| Target::at(offset, writer);
        if first >= last || last - first < DIRECT_BYTES {
            self.write_buffered(inode, target(offset), data)?;
        } else {
            let (head, rest) = data.split_at((first - offset) as usize);
            let (middle, tail) = rest.split_at((last - first) as usize);
            if !head.is_empty() {
                self.write_buffered(inode, target(offset), head)?;
                *done = head.len();
            }
            self.write_whole_blocks(inode, first, middle, writer, done)?;
            if !tail.is_empty() {
                self.write_buffered(inode, target(last), tail)?;
            }
        }
        // If this fails, the caller must not go on to write more: it would take memory without a bound.
        self.relieve_memory(inode).inspect_err(|_| *done = 0)
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

    /// Writes `data` at the end of a file, wherever that is by then; returns where it begins. Up to 8 MiB lie together.
    /// Of more, what other threads append may come between every 8 MiB. After an error a part of more than 8 MiB may be
    /// in the file; after `Io`, `Shutdown`, or `NoSpace` for contents that waited in memory, all of it: look at the
    /// size ([`Self::stat`]) before appending again.
    ///
    /// # Errors
    /// As [`Self::write_at`].
    pub fn append(&self, inode: InodeNumber, data: &[u8]) -> Result<u64> {
        let inode = self.inode_to_write(inode)?;
        if data.is_empty() {
            let mut tx = Transaction::read_only(&self.mount);
            let id = self.join_file(&mut tx, &inode)?;
            return Ok(tx.inode(id).size_bytes());
        }
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
