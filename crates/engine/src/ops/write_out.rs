//! Brings out what waits in memory: contents without a place, a size that follows them, times.
//!
//! ```text
//! fsync, sync, unmount ──────────────▶ write_out      links of a chain, the file's lock for 32 runs of each
//! operations that change the map ────▶ settle         in the chain at hand, under the file's lock
//! too much waits in memory ──────────▶ relieve_memory
//! ```
//! Invariant: an inode of which something waits is on the mount's list of dirty inodes.
//!
//! Locking, and what a crash leaves: docs/design/contents.md.

use super::Volume;
use super::map::{END_OF_MAP, link_reservation, next_link};
use super::times::has_times;
use crate::data::{self, Source};
use crate::error::{Error, Result};
use crate::incore::Inode;
use crate::mount::BlockPool;
use crate::space;
use crate::sync::{HeldLock, LockMode, Mutex};
use crate::trans::{InoId, Transaction};
use std::sync::Arc;
use xfskit_device::at_once;
use xfskit_ondisk::{FileBlock, InodeNumber};

/// Most bytes that one transaction maps.
pub(super) const MAX_RUN_BYTES: u64 = 64 << 20;
/// Most runs of dirty blocks that are brought out before readers and writers of the file get its lock.
const RUNS_UNDER_ONE_LOCK: usize = 32;
/// Dirty bytes of a file at which the writing thread writes them out.
pub(super) const MAX_DIRTY_FILE_BYTES: u64 = 8 << 20;

impl Volume {
    /// To be called when the last program that writes to a file has closed it: gives back the free blocks that were set
    /// aside for its growth, and does [`Self::bring_out_if_cut`]. Nothing becomes durable. Without it the image has
    /// less room, and a file that was emptied and written anew may be empty after a power cut.
    pub fn finish_writing(&self, inode: InodeNumber) {
        self.bring_out_if_cut(inode);
        space::alloc::close_windows(&self.mount, inode);
    }

    /// Writes out what waits in memory of a file that was made shorter since it was last synced (the kernel's
    /// `XFS_ITRUNCATED`); of another file nothing. For a caller that does not hear when a program closes a file, and
    /// calls this after each write instead of [`Self::finish_writing`]. The contents are not durable then, but become
    /// so with whatever is synced next. What cannot be written out goes on waiting, and an fsync reports it.
    /// [`Self::write_keeping_times`] does this itself.
    pub fn bring_out_if_cut(&self, inode: InodeNumber) {
        if let Some(inode) = self.mount.inodes.find(inode) {
            self.bring_out_cut(&inode);
        }
    }

    /// Brings out what waits of a file that was made shorter since it was last synced. A program may have emptied it to
    /// write it anew: the loss of the old contents becomes durable with whatever another program syncs, and the new
    /// ones must not wait longer than that. The kernel begins to write such a file when it is closed
    /// (`XFS_ITRUNCATED`).
    pub(crate) fn bring_out_cut(&self, inode: &Arc<Inode>) {
        let was_cut = inode.state_lock().read().was_cut;
        if was_cut && let Err(error) = self.write_out(inode) {
            tracing::debug!(inode = inode.number.0, %error, "contents go on waiting, for an fsync that reports this");
        }
    }

    /// All that a file had when it was made shorter, and since, was asked to be made durable.
    pub(super) fn forget_cut(inode: &Inode) {
        let was_cut = inode.state_lock().read().was_cut;
        if was_cut {
            inode.state_lock().write().was_cut = false;
        }
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
        at_once(self.queue_depth(), "write-out", waiting, |inode| {
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
    pub(super) fn write_out_some(
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
