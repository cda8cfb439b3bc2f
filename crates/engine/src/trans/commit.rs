//! The end of a transaction: format what changed, give it to the journal, drop the locks.

use super::deferred::Turn;
use super::{Transaction, scratch};
use crate::error::{Error, Result};
use crate::error_tags::ROLL;
use crate::item::CheckpointSeq;
use crate::journal::Grant;
use crate::mount::SUPERBLOCK_KIND;
use std::mem::offset_of;
use xfskit_ondisk::features::VersionFlags;
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
        // That work was taken back is reported when all other work is done.
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
        let values = std::mem::take(&mut self.values);
        drop(self);
        mount.journal.write_values(values);
        mount.journal.after_commit()?;
        mount.trim_inodes()?;
        if sync {
            mount.journal.force(seq)?;
        }
        if taken_back { Err(Error::NoSpace) } else { Ok(seq) }
    }

    /// Commits this link of the chain and goes on with a new one. Inodes stay locked; the locks of
    /// buffers are dropped.
    ///
    /// # Errors
    /// `Shutdown` or `Io`.
    pub fn roll(&mut self) -> Result<()> {
        if self.dirty {
            if !self.grant.as_mut().is_none_or(Grant::try_next_link) {
                self.inodes.relog();
                self.relog_deferred();
            }
            self.commit_link()?;
            self.mount.stop_if_tagged(ROLL)?;
        }
        self.buffers.clear();
        self.inodes.begin_next_link();
        self.dirty = false;
        self.mount.journal.write_values(std::mem::take(&mut self.values));
        // A chain that left this to other threads could gather a checkpoint as large as the log, and would wait for
        // itself.
        self.mount.journal.after_commit()?;
        match &mut self.grant {
            Some(grant) => grant.next_link(),
            None => Ok(()),
        }
    }

    /// Ends a transaction that failed. One that changed something shuts the filesystem down: memory and journal would
    /// disagree from here on. An ordinary refusal must precede the first change; debug builds check this.
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

    fn commit_link(&mut self) -> Result<CheckpointSeq> {
        self.mount.journal.check()?;
        let announces_attrs = self.announce_attrs()?;
        self.log_deferred();
        self.items.fail_if_tagged(&self.mount.error_tags)?;
        let freed_clusters = self.buffers.freed_inode_clusters();
        let grant = self.grant.as_mut().expect("a writing transaction has log space");
        let (items, buffers, inodes) = (&mut self.items, &self.buffers, &mut self.inodes);
        let geometry = &self.mount.geometry;
        let seq = self.mount.journal.commit(grant, &self.values, |batch| {
            items.log_all_to(batch);
            buffers.log_all_to(batch);
            inodes.log_all_to(batch, geometry);
        });
        if announces_attrs {
            self.mount.note_attrs_announced();
        }
        if !freed_clusters.is_empty() {
            freed_clusters.into_iter().for_each(|cluster| self.mount.inodes.cluster_freed(cluster, seq));
            self.mount.inodes.prune_freed(&self.mount.journal);
        }
        self.counts.apply(self.mount, seq);
        Ok(seq)
    }

    /// Sets the superblock's flag for attr forks with the first inode that has one, as the kernel does. Returns whether
    /// this link sets it. The superblock's buffer is locked last: the transaction waits for no other lock while it
    /// holds it.
    fn announce_attrs(&mut self) -> Result<bool> {
        if self.mount.announces_attrs() || !self.inodes.changes_attrs() {
            return Ok(false);
        }
        let id = self.read(DiskAddress(0), self.geometry().sector_bytes(), &SUPERBLOCK_KIND)?;
        let version = self.get_as::<RawSuperblock>(id, 0).version.get() | VersionFlags::ATTR.bits();
        let at = offset_of!(RawSuperblock, version);
        self.edit(id, at..at + 2).copy_from_slice(&version.to_be_bytes());
        Ok(true)
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.dirty {
            self.mount.journal.shut_down("a transaction was given up half-way");
        }
        self.counts.give_back_rest(self.mount);
        self.count_hold_times();
        scratch::give_back(&mut self.buffers, &mut self.inodes);
    }
}
