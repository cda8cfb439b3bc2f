//! The end of a transaction: format what changed, hand it to the journal, let go.

use super::deferred::Turn;
use super::log_buffer::log_buffer;
use super::log_inode::log_inode;
use super::scratch;
use super::{HeldBuffer, InodeFields, Transaction};
use crate::error::{Error, Result};
use crate::error_tags::{LOG_DONE, LOG_INTENT, ROLL};
use crate::item::CheckpointSeq;
use crate::journal::{Grant, OrderedWrite};
use crate::mount::SUPERBLOCK_KIND;
use crate::value::ValueBlocks;
use std::mem::offset_of;
use std::ops::Range;
use std::sync::Arc;
use xfskit_ondisk::features::VersionFlags;
use xfskit_ondisk::logged::buffer::buffer_type;
use xfskit_ondisk::{DiskAddress, RawSuperblock};

impl Transaction<'_> {
    /// Makes the changes part of the journal's next checkpoint and drops all locks. They are durable when that
    /// checkpoint is; a synchronous transaction waits for it.
    ///
    /// # Errors
    /// `Shutdown` or `Io`.
    pub fn commit(mut self) -> Result<CheckpointSeq> {
        let sync = self.sync;
        let mount = self.mount;
        if !self.dirty {
            mount.counters.empty_transactions.increment();
            return Ok(mount.journal.current());
        }
        // What was taken back is told when all the rest is done.
        let (updates, taken_back) = match self.finish_deferred(Turn::First) {
            Err(Error::NoSpace) if mount.journal.check().is_ok() => (Ok(()), true),
            other => (other, false),
        };
        let frees = updates.and_then(|()| self.finish_deferred(Turn::Last));
        let seq = frees.and_then(|()| self.commit_link());
        let seq = match seq {
            Ok(seq) => seq,
            Err(error) => {
                self.cancel(&error);
                return Err(error);
            }
        };
        self.dirty = false;
        let values = std::mem::take(&mut self.ordered_writes);
        drop(self);
        mount.journal.write_values(values);
        mount.journal.after_commit()?;
        mount.trim_inodes()?;
        if sync {
            mount.journal.force(seq)?;
        }
        if taken_back { Err(Error::NoSpace) } else { Ok(seq) }
    }

    /// Commits this link of the chain and goes on with a new one. Inodes and held buffers stay locked; everything else
    /// is let go.
    ///
    /// # Errors
    /// `Shutdown` or `Io`.
    pub fn roll(&mut self) -> Result<()> {
        if self.dirty {
            if !self.grant.as_mut().is_none_or(Grant::try_next_link) {
                self.relog_inodes();
                self.relog_deferred();
            }
            self.commit_link()?;
            self.mount.stop_if_tagged(ROLL)?;
        }
        for slot in &mut self.buffers {
            match slot {
                Some(held) if held.hold => {
                    held.dirty.clear();
                    held.ordered = false;
                }
                _ => *slot = None,
            }
        }
        for held in &mut self.inodes {
            held.dirty = InodeFields::empty();
        }
        self.dirty = false;
        self.mount.journal.write_values(std::mem::take(&mut self.ordered_writes));
        // A chain that left this to others could gather a checkpoint as long as the log, and would wait for itself.
        self.mount.journal.after_commit()?;
        match &mut self.grant {
            Some(grant) => grant.next_link(),
            None => Ok(()),
        }
    }

    /// The next link has to wait for log space with its inodes locked, and what is locked is not written back. They
    /// move to the head of the log, so that none of them is the tail for which the link would wait.
    fn relog_inodes(&mut self) {
        for held in &mut self.inodes {
            if held.dirty.is_empty() && held.inode.item().lock().in_ail.get().is_some() {
                held.dirty = InodeFields::CORE;
            }
        }
    }

    /// Ends a transaction that failed. One that changed something shuts the filesystem down: memory and journal would
    /// disagree from here on. An ordinary refusal must come before the first change, which debug builds see to.
    pub fn cancel(self, error: &Error) {
        if self.dirty {
            debug_assert!(!error.is_refusal(), "refused after the first change: {error}");
            self.mount.journal.shut_down(format!("an operation failed half-way: {error}"));
        }
    }

    /// Does work that later links of a chain owe to the earlier ones. If it fails the filesystem shuts down, whether
    /// this link has changed something or not: what is committed is half of an operation, and only recovery can do the
    /// rest.
    ///
    /// # Errors
    /// The work's own.
    pub fn in_later_link<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        work(self).inspect_err(|error| {
            self.mount.journal.shut_down(format!("an operation failed between two transactions: {error}"));
        })
    }

    /// Ends a transaction with `result`: commits it, or cancels it and passes the error on.
    ///
    /// # Errors
    /// The result's own, or the commit's.
    pub fn finish<T>(self, result: Result<T>) -> Result<T> {
        match result {
            Ok(value) => self.commit().map(|_| value),
            Err(error) => {
                self.cancel(&error);
                Err(error)
            }
        }
    }

    /// Writes some bytes of a value's blocks at `address` of the data device before the checkpoint that carries this
    /// transaction. The blocks must be new and must not have been freed by a transaction that is not durable.
    pub fn write_before_checkpoint(&mut self, address: DiskAddress, value: &Arc<ValueBlocks>, range: Range<usize>) {
        self.dirty = true;
        self.ordered_writes.push(OrderedWrite::new(address.bytes(), value, range));
    }

    /// Fills `out` from blocks that are written by [`Self::write_before_checkpoint`], whether that was done yet or not.
    ///
    /// # Errors
    /// `Io`.
    pub fn read_unlogged(&self, address: DiskAddress, out: &mut [u8]) -> Result<()> {
        let start = address.bytes();
        // A write that waits no longer is on the device, so that is read second.
        for gap in self.mount.journal.copy_waiting(start, out) {
            let offset = start + gap.start as u64;
            self.mount.device.read(offset, &mut out[gap]).map_err(|source| Error::Io { offset, source })?;
        }
        for own in &self.ordered_writes {
            own.copy_to(start, out);
        }
        Ok(())
    }

    fn commit_link(&mut self) -> Result<CheckpointSeq> {
        self.mount.journal.check()?;
        let announces_attrs = self.announce_attrs()?;
        self.log_deferred();
        if !self.items.is_empty() {
            if self.items.iter().any(|item| item.item.is_intent()) {
                self.mount.error_tags.fail(LOG_INTENT)?;
            }
            if self.items.iter().any(|item| item.finishes.is_some()) {
                self.mount.error_tags.fail(LOG_DONE)?;
            }
        }
        let stale = self.stale_inode_clusters();
        let grant = self.grant.as_mut().expect("a writing transaction has log space");
        let (items, buffers, inodes) = (&mut self.items, &mut self.buffers, &mut self.inodes);
        let geometry = &self.mount.geometry;
        let seq = self.mount.journal.commit(grant, &self.ordered_writes, |batch| {
            // Intents and done items first, so that recovery meets them in the order in which they were made.
            items.drain(..).for_each(|item| batch.log_copy(item.item, item.copy, item.finishes));
            buffers.iter().flatten().for_each(|held| log_buffer(batch, held));
            let changed = inodes.iter_mut().filter(|held| !held.dirty.is_empty());
            changed.for_each(|held| log_inode(batch, held, geometry));
        });
        if announces_attrs {
            self.mount.note_attrs_announced();
        }
        if !stale.is_empty() {
            stale.into_iter().for_each(|cluster| self.mount.inodes.cluster_freed(cluster, seq));
            self.mount.inodes.prune_freed(&self.mount.journal);
        }
        self.apply_counters(seq);
        Ok(seq)
    }

    /// With the first inode that has an attr fork the superblock says that there are such, as it does for the kernel;
    /// says whether this link does that. Its buffer is locked last, by a transaction that waits for nothing more while
    /// it holds it.
    fn announce_attrs(&mut self) -> Result<bool> {
        let has_attrs = |held: &super::HeldInode| !held.dirty.is_empty() && held.state.attr.is_some();
        if self.mount.announces_attrs() || !self.inodes.iter().any(has_attrs) {
            return Ok(false);
        }
        let id = self.read(DiskAddress(0), self.geometry().sector_bytes(), &SUPERBLOCK_KIND)?;
        let version = self.get_as::<RawSuperblock>(id, 0).version.get() | VersionFlags::ATTR.bits();
        let at = offset_of!(RawSuperblock, version);
        self.edit(id, at..at + 2).copy_from_slice(&version.to_be_bytes());
        Ok(true)
    }

    /// Disk addresses of the inode clusters that this transaction freed.
    fn stale_inode_clusters(&self) -> Vec<DiskAddress> {
        let is_cluster = |held: &&HeldBuffer| held.invalidated && held.content.kind().log_type == buffer_type::INODES;
        self.buffers.iter().flatten().filter(is_cluster).map(|held| held.buffer.key().address()).collect()
    }

    fn apply_counters(&mut self, seq: CheckpointSeq) {
        let space = &self.mount.space;
        if self.freed_blocks != 0 {
            space.give_back_blocks(std::mem::take(&mut self.freed_blocks));
        }
        if (self.inode_count_delta, self.free_inode_delta) != (0, 0) {
            space.count_inodes(std::mem::take(&mut self.inode_count_delta), std::mem::take(&mut self.free_inode_delta));
        }
        for freed in self.freed_extents.drain(..) {
            self.mount.ags[freed.ag.0 as usize].extent_freed(freed.block, freed.count, seq);
        }
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.dirty {
            self.mount.journal.shut_down("a transaction was given up half-way");
        }
        if self.exclusive && self.blocks_left > 0 {
            self.mount.space.give_back_blocks(self.blocks_left);
        }
        self.count_hold_times();
        scratch::give_back(&mut self.buffers, &mut self.inodes);
    }
}
