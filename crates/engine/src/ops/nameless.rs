//! Inodes without a name and without a holder that are freed together.
//!
//! ```text
//! last reference dropped ─▶ waits, on the unlinked list ─▶ a group of one AG: one transaction
//! ```
//! A server learns that the last holder has let go after the name is gone: the kernel drops an inode when `unlink` has
//! been answered. To free each by itself costs a transaction for every removed file. An inode without blocks that waits
//! holds no space but its own slot, so it may wait for others.
//!
//! Invariant: what waits here is on its AG's unlinked list. Crash behaviour: recovery, the kernel's too, frees what is
//! on the lists; a group is one transaction, so of it all or nothing is freed.
//!
//! Locking: the list of those that wait is not locked while inodes are. A group's inodes are locked in the order of
//! their numbers, then the AG's headers. No lock of an inode that is free already is held meanwhile.

use super::Volume;
use super::create::single;
use crate::error::{Error, Result};
use crate::incore::Inode;
use crate::inode::unlinked;
use crate::mount::BlockPool;
use crate::space::{self, cluster};
use crate::sync::atomic::Ordering;
use crate::trans::{InoId, Reservation, Transaction, reservation_of};
use std::sync::Arc;
use xfskit_ondisk::InodeNumber;

/// How many wait before they are freed.
const GROUP: usize = 32;
/// A group reserves at most this part of the journal, so that others go on meanwhile, and at most what this many inodes
/// may need. They seldom need it, so the transaction goes on while there is room for one more.
const MAX_SHARE_OF_LOG: u64 = 16;
const RESERVED_INODES: u64 = 4;

impl Volume {
    /// As [`Self::drop_references`], but an inode without a name and without blocks may be freed later, together with
    /// others: when there are enough of them, by [`Self::free_waiting`], by a sync or the unmount. Until then it takes
    /// no space but its own slot, and a crash leaves it to recovery.
    ///
    /// # Errors
    /// As [`Self::drop_references`].
    pub fn drop_references_lazily(&self, inode: InodeNumber, count: u64) -> Result<()> {
        let Some(inode) = self.release_references(inode, count) else { return Ok(()) };
        if !self.may_wait(&inode) {
            return self.inactivate_or_put_off(&inode);
        }
        let is_group = {
            let mut waiting = self.waiting.lock();
            waiting.insert(inode.number);
            waiting.len() >= GROUP
        };
        if is_group { self.free_waiting() } else { Ok(()) }
    }

    /// Frees the inodes that wait since [`Self::drop_references_lazily`].
    ///
    /// # Errors
    /// `Corrupt`, `Shutdown`. What is refused for want of space, or by the device, is freed later; so is what is
    /// damaged, or keeps the log dirty.
    pub fn free_waiting(&self) -> Result<()> {
        let waiting: Vec<InodeNumber> = std::mem::take(&mut *self.waiting.lock()).into_iter().collect();
        let geometry = &self.mount.geometry;
        let ag_of = |number: &InodeNumber| geometry.split_inode(*number).map(|(ag, _)| ag);
        let mut result = Ok(());
        for group in waiting.chunk_by(|one, next| ag_of(one) == ag_of(next)) {
            // A group that is damaged keeps no other from being freed.
            result = result.and(self.free_group(group));
        }
        result
    }

    /// Whether there are inodes that have lost their names and that holders keep: the space that they take is free when
    /// those let go.
    pub fn has_nameless(&self) -> bool {
        match self.mount.nameless.now() {
            0 => false,
            count => count > self.waiting.lock().len() as u64,
        }
    }

    /// How many inodes have lost their last name since the volume was opened.
    pub fn count_nameless(&self) -> u64 {
        self.mount.nameless.ever()
    }

    /// Frees what has lost its name and its holders: what waits since [`Self::drop_references_lazily`], and what could
    /// not be freed before.
    ///
    /// # Errors
    /// As [`Self::free_waiting`]; the first refusal of what could not be freed before.
    pub fn free_nameless(&self) -> Result<()> {
        self.free_all_waiting()
    }

    /// Whether an inode that has lost its last holder can wait for others.
    fn may_wait(&self, inode: &Inode) -> bool {
        if self.mount.options.read_only {
            return false;
        }
        let state = inode.state_lock().read();
        let core = &state.core;
        // Contents that wait in memory would be written out meanwhile.
        let has_contents = core.blocks > 0 || state.dirty.is_some();
        !state.freed && core.mode != 0 && core.links == 0 && !has_contents
    }

    /// Frees inodes of one AG, as many in a transaction as it has room for. Where that is refused before anything has
    /// changed, they are freed one by one.
    fn free_group(&self, group: &[InodeNumber]) -> Result<()> {
        let (mut left, mut result) = (Vec::with_capacity(group.len()), Ok(()));
        for number in group {
            match self.mount.inode(*number) {
                Ok(inode) => left.push(inode),
                // Another holder has let go of it since, and freed it.
                Err(Error::Stale(_)) => {}
                Err(error) => result = result.and(self.put_off_one(*number, error)),
            }
        }
        while !left.is_empty() {
            match self.free_some(&left) {
                Ok(rest) => left = rest,
                Err(error) => {
                    let is_refused = matches!(error, Error::NoSpace | Error::Io { .. } | Error::Corrupt(_))
                        && self.mount.journal.check().is_ok();
                    let free = |inode: &Arc<Inode>| match is_refused {
                        true => self.inactivate_or_put_off(inode),
                        false => Err(Error::Stale(inode.number.0)),
                    };
                    // What is not freed now is tried again by a sync, and keeps the log dirty if that fails.
                    let failed: Vec<InodeNumber> =
                        left.iter().filter(|inode| free(inode).is_err()).map(|inode| inode.number).collect();
                    self.put_off.lock().extend(failed);
                    return if is_refused { result } else { result.and(Err(error)) };
                }
            }
        }
        result
    }

    /// Leaves an inode that cannot be read now to a sync.
    fn put_off_one(&self, number: InodeNumber, error: Error) -> Result<()> {
        self.put_off.lock().insert(number);
        match error {
            Error::Io { .. } => Ok(()),
            error => Err(error),
        }
    }

    /// Frees some of these inodes in one transaction, the first in any case; those that are not dealt with are
    /// returned.
    fn free_some(&self, inodes: &[Arc<Inode>]) -> Result<Vec<Arc<Inode>>> {
        let mount = &self.mount;
        let each = single(reservation_of(mount.reservations.ifree));
        let (_, log_bytes) = mount.journal.usage();
        let reserved = (log_bytes / MAX_SHARE_OF_LOG / u64::from(each.log_bytes).max(1)).clamp(1, RESERVED_INODES);
        let blocks = space::inode_free_blocks(&mount.geometry, &mount.limits) * inodes.len() as u64;
        let all = Reservation { log_bytes: each.log_bytes * reserved as u32, ..each };
        let mut tx = self.begin(all.with_blocks(blocks).with_pool(BlockPool::Removal))?;
        let joined: Vec<InoId> = inodes.iter().map(|inode| tx.join_inode(inode)).collect();
        let still: Vec<Still> = inodes.iter().zip(&joined).map(|(inode, ino)| still(&tx, inode, *ino)).collect();
        if still.iter().any(|still| *still != Still::Waits) {
            // Their locks are let go before an AG is waited for: a create that has the AG may take the number of one
            // that was freed, and wait for its lock.
            tx.commit()?;
            let of = |wanted: Still| inodes.iter().zip(&still).filter(move |(_, still)| **still == wanted);
            of(Still::HasBlocks).try_for_each(|(inode, _)| self.inactivate_or_put_off(inode))?;
            return Ok(of(Still::Waits).map(|(inode, _)| Arc::clone(inode)).collect());
        }
        let result = free_while_there_is_room(&mut tx, &joined, all.log_bytes - each.log_bytes);
        let count = tx.finish(result)?;
        Ok(inodes[count..].to_vec())
    }
}

/// What has become of an inode that waited.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Still {
    Waits,
    /// It got blocks from a holder that came by its number, and has let go.
    HasBlocks,
    /// It was freed, has a name, or a holder that will free it.
    NotHere,
}

fn still(tx: &Transaction, inode: &Inode, ino: InoId) -> Still {
    let state = tx.inode(ino);
    let is_held = inode.opens.load(Ordering::Acquire) > 0;
    if state.freed || state.core.mode == 0 || state.core.links > 0 || is_held {
        Still::NotHere
    } else if super::inactive::has_no_blocks(tx, ino) {
        Still::Waits
    } else {
        Still::HasBlocks
    }
}

/// Frees the first of these inodes, and others until the transaction has taken so many bytes of the log; how many.
fn free_while_there_is_room(tx: &mut Transaction, inodes: &[InoId], most_bytes: u32) -> Result<usize> {
    // What cannot be read is refused before the first change.
    for ino in inodes {
        let number = tx.inode(*ino).core.inode;
        let (buffer, _) = cluster::read(tx, number)?;
        tx.release(buffer);
    }
    let mut count = 0;
    for ino in inodes {
        if count > 0 && tx.log_bytes_so_far() > u64::from(most_bytes) {
            break;
        }
        unlinked::remove(tx, *ino)?;
        super::inactive::free_now(tx, *ino)?;
        count += 1;
    }
    Ok(count)
}
