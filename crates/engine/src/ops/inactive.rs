//! Frees inodes that have lost their last name and their last holder.
//!
//! ```text
//! link 1..n-1  blocks of the forks are freed, a bounded number in each transaction
//! link n       the inode leaves the unlinked list and the inode trees
//! ```
//! Crash behaviour: the inode is on the unlinked list until the last link, so recovery or the next mount goes on.

use super::Volume;
use super::create::single;
use super::map::{END_OF_MAP, remove_range};
use crate::attr;
use crate::data;
use crate::error::{Error, Result};
use crate::incore::{DataFork, ForkKind, ForkMap, Inode};
use crate::inode::{bmap, unlinked};
use crate::mount::{AttrPath, BlockPool};
use crate::space;
use crate::symlink;
use crate::sync::atomic::Ordering;
use crate::trans::reservation_of;
use crate::trans::{InoId, InodeFields, Reservation, Transaction};
use std::sync::Arc;
use xfskit_ondisk::{AgNumber, Corruption, FileBlock, ForkFormat, InodeNumber};

/// Whether the inode can be freed by itself: neither fork has blocks of its own.
pub(super) fn has_no_blocks(tx: &Transaction, ino: InoId) -> bool {
    let state = tx.inode(ino);
    let empty = |fork| state.map(fork).is_none_or(ForkMap::is_empty);
    state.core.blocks == 0 && empty(ForkKind::Data) && empty(ForkKind::Attr)
}

/// Whether an inode that loses its last name may go in the same transaction. With `AttrPath::Intents` its parent
/// pointer is removed first, by an intent and a transaction of its own.
pub(super) fn goes_with_its_name(tx: &Transaction, ino: InoId) -> bool {
    let by_intents = tx.mount().options.attr_path == AttrPath::Intents && tx.geometry().has_parent();
    !by_intents && has_no_blocks(tx, ino)
}

/// Frees an inode without blocks that is not on an unlinked list.
pub(super) fn free_now(tx: &mut Transaction, ino: InoId) -> Result<()> {
    let number = tx.inode(ino).core.inode;
    space::inodes::free_inode(tx, number)?;
    data::discard(tx, ino);
    tx.mount().dirty_inodes.remove(number);
    let fields = InodeFields::CORE;
    let state = tx.inode_mut(ino, fields);
    let core = &mut state.core;
    core.mode = 0;
    core.flags = 0;
    core.flags2 = 0;
    core.size = 0;
    core.links = 0;
    core.fork_offset = 0;
    core.data_format = ForkFormat::Extents;
    core.attr_format = ForkFormat::Extents;
    core.data_extents = 0;
    core.attr_extents = 0;
    core.generation = core.generation.wrapping_add(1);
    state.data = DataFork::EMPTY;
    state.dir_memory = None;
    state.attr = None;
    state.freed = true;
    Ok(())
}

impl Volume {
    /// Frees an inode if it has no name and no holder.
    pub(super) fn inactivate(&self, inode: &Arc<Inode>) -> Result<()> {
        if self.mount.options.read_only {
            return Ok(());
        }
        {
            let state = inode.state_lock().read();
            if state.freed || state.core.mode == 0 || state.core.links > 0 {
                return Ok(());
            }
        }
        let mut tx = self.begin_inactive()?;
        let result = (|| {
            let ino = tx.join_inode(inode);
            let state = tx.inode(ino);
            let held = inode.opens.load(Ordering::Acquire) > 0;
            if state.freed || state.core.links > 0 || held {
                return Ok(());
            }
            // First, for what waits may have been going to blocks that are freed now, and has not paid for others: if a
            // later link fails, the next write-out would take some.
            data::discard(&mut tx, ino);
            free_blocks(&mut tx, ino)?;
            // The links before may have used up what the inode trees need.
            let blocks = space::inode_free_blocks(&self.mount.geometry, &self.mount.limits);
            tx.top_up_blocks(blocks, BlockPool::Removal)?;
            unlinked::remove(&mut tx, ino)?;
            free_now(&mut tx, ino)
        })();
        self.located(inode.number, tx.finish(result))
    }

    /// As [`Self::inactivate`], after what the caller asked for is done: the name is gone, or the holder has let go.
    /// Where freeing is refused for want of space, by the device, or because the inode's blocks cannot be found, the
    /// inode stays on the unlinked list, and a sync or the unmount tries again.
    pub(super) fn inactivate_or_put_off(&self, inode: &Arc<Inode>) -> Result<()> {
        let error = match self.inactivate(inode) {
            Err(error @ (Error::NoSpace | Error::Io { .. } | Error::Corrupt(_))) => error,
            other => return other,
        };
        self.mount.journal.check()?;
        tracing::warn!(inode = inode.number.0, %error, "an inode without a name is freed later");
        self.put_off.lock().insert(inode.number);
        Ok(())
    }

    /// Frees all that waits to be freed, before the volume is closed.
    ///
    /// # Errors
    /// As [`Self::free_put_off`].
    pub(super) fn free_all_waiting(&self) -> Result<()> {
        let freed = self.free_waiting();
        freed.and(self.free_put_off())
    }

    /// Frees the inodes whose freeing was refused before; what is refused again still waits.
    ///
    /// # Errors
    /// The first refusal.
    pub(super) fn free_put_off(&self) -> Result<()> {
        let waiting = std::mem::take(&mut *self.put_off.lock());
        let mut result = Ok(());
        for number in waiting {
            match self.mount.inode(number).and_then(|inode| self.inactivate(&inode)) {
                // It was freed by another holder that let go.
                Ok(()) | Err(Error::Stale(_)) => {}
                Err(error) => {
                    self.put_off.lock().insert(number);
                    result = result.and(Err(error));
                }
            }
        }
        result
    }

    fn begin_inactive(&self) -> Result<Transaction<'_>> {
        let mount = &self.mount;
        let truncate = reservation_of(mount.reservations.itruncate);
        let free = reservation_of(mount.reservations.ifree);
        let least = space::inode_free_blocks(&mount.geometry, &mount.limits)
            + space::free_blocks_needed(&mount.geometry, &mount.limits);
        let both = Reservation { log_bytes: truncate.log_bytes + free.log_bytes, ..truncate };
        let both = Reservation { log_count: 2, ..single(both) }.with_pool(BlockPool::Removal);
        self.begin_or_remove(both.with_blocks(least + u64::from(mount.limits.data_levels)), least)
    }

    /// Frees what a crash left on the unlinked lists. All lists are read before anything is freed, so that an image
    /// with a damaged one is refused as it is. An inode whose own blocks cannot be found stays: all other files can be
    /// used, and the kernel mounts such an image, too. One that cannot be freed for want of space waits until others
    /// are.
    pub(super) fn clean_orphans(&self) -> Result<()> {
        let mut orphans = Vec::new();
        for ag in (0..self.mount.geometry.ag_count).map(AgNumber) {
            let mut tx = Transaction::read_only(&self.mount);
            let listed = unlinked::list(&mut tx, ag);
            orphans.extend(space::below_agi(&tx, ag, listed)?);
        }
        for &number in &orphans {
            self.check_orphan(number)?;
            self.mount.nameless.add();
        }
        for number in orphans {
            let inode = self.mount.inode(number)?;
            match self.inactivate(&inode) {
                Err(error @ Error::Corrupt(_)) if self.mount.journal.check().is_ok() => {
                    tracing::warn!(inode = number.0, %error, "an inode without a name cannot be freed; run xfs_repair");
                }
                Err(error @ Error::NoSpace) if self.mount.journal.check().is_ok() => {
                    tracing::warn!(inode = number.0, %error, "an inode without a name is freed later");
                    self.put_off.lock().insert(number);
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// Checks that what is on an unlinked list is an inode in use without a name.
    fn check_orphan(&self, number: InodeNumber) -> Result<()> {
        // On the list and free: the list is wrong, and freeing it again would be worse.
        let wrong = || Error::from(Corruption::new("unlinked list", "inodes in use without a name").of(number.0));
        let inode = self.mount.inode(number).map_err(|error| match error {
            Error::Stale(_) => wrong(),
            other => other,
        });
        let links = self.located(number, inode)?.state_lock().read().core.links;
        if links == 0 { Ok(()) } else { self.located(number, Err(wrong())) }
    }
}

/// Frees the blocks of both forks, rolling the transaction between portions.
fn free_blocks(tx: &mut Transaction, ino: InoId) -> Result<()> {
    if has_no_blocks(tx, ino) {
        return Ok(());
    }
    if tx.inode(ino).core.is_symlink() {
        symlink::remove(tx, ino)?;
    } else {
        free_data(tx, ino)?;
    }
    if tx.inode(ino).attr.is_some() {
        attr::remove_all(tx, ino)?;
    }
    // The inode is freed by a link that holds no AG yet, so that it may wait for the inode's.
    tx.roll()
}

/// Unmaps the data fork, some extents in each link.
fn free_data(tx: &mut Transaction, ino: InoId) -> Result<()> {
    let core = &tx.inode(ino).core;
    let (number, is_dir) = (core.inode, core.is_dir());
    let is_empty = bmap::extents(tx, ino, ForkKind::Data)?.is_empty();
    ensure_on_disk!(is_empty || !is_dir, "directory", "empty when it is removed", "inode {number}");
    remove_range(tx, ino, FileBlock(0)..END_OF_MAP)?;
    if !is_dir {
        tx.inode_mut(ino, InodeFields::CORE).core.size = 0;
    }
    Ok(())
}
