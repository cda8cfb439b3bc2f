//! Makes an inode durable, in two steps: what waits in memory is brought out, and then the journal and the device are
//! waited for.
//!
//! ```text
//! begin_fsync  ──▶ SyncPoint ─┐
//! begin_fsync  ──▶ SyncPoint ─┴─ and ──▶ await_durable     one checkpoint and one flush for both
//! ```
//! A caller that has a thread for each fsync uses [`Volume::fsync`], where threads that wait at the same time share
//! checkpoint and flush too. One that has fewer threads than fsyncs begins many and waits once.
//!
//! Crash behaviour: nothing is promised before the wait has ended.

use super::Volume;
use crate::error::{Result, caller};
use crate::incore::Inode;
use crate::item::CheckpointSeq;
use crate::journal::FlushPoint;
use std::sync::Arc;
use xfskit_ondisk::InodeNumber;
use xfskit_ondisk::inode::flags;

/// What waits of a file in memory is little up to so many bytes.
const LITTLE_BYTES: u64 = 256 << 10;

/// How much of an inode is to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncOf {
    /// Contents, names, attributes, times.
    All,
    /// The same, but when only times have changed they may wait.
    Data,
}

/// How far journal and device must come until fsyncs that have begun are done.
#[derive(Clone, Copy, Debug)]
#[must_use = "nothing is durable before Volume::await_durable"]
pub struct SyncPoint {
    /// The newest checkpoint with changes of the inodes.
    newest: Option<CheckpointSeq>,
    /// When the last one began; `None` if there is nothing to wait for.
    since: Option<FlushPoint>,
    /// Fsyncs that wait for a checkpoint.
    forces: u64,
}

impl SyncPoint {
    const NOTHING: Self = Self { newest: None, since: None, forces: 0 };

    /// The point at which this and `other` are done.
    pub fn and(self, other: Self) -> Self {
        Self {
            newest: self.newest.max(other.newest),
            since: self.since.max(other.since),
            forces: self.forces + other.forces,
        }
    }
}

impl Volume {
    /// Makes everything done to an inode durable: contents, names, attributes. What changes those logs the inode
    /// with them. Costs nothing when nothing has changed since the last checkpoint. What cannot be written out keeps
    /// nothing else from it.
    ///
    /// # Errors
    /// `NoSpace`, `Io`, `Shutdown`.
    pub fn fsync(&self, inode: InodeNumber) -> caller::Result<()> {
        self.await_durable(self.begin_fsync(inode, SyncOf::All)?)
    }

    /// As [`Self::fsync`], but when only times have changed they may wait.
    ///
    /// # Errors
    /// As [`Self::fsync`].
    pub fn fdatasync(&self, inode: InodeNumber) -> caller::Result<()> {
        self.await_durable(self.begin_fsync(inode, SyncOf::Data)?)
    }

    /// The first half of an [`fsync`](Self::fsync): what waits of an inode in memory is brought out, and the result
    /// says what is to be waited for. For callers with many files: points are joined by [`SyncPoint::and`], and one
    /// wait makes them all durable, by one checkpoint and one flush.
    ///
    /// ```
    /// # fn main() -> xfskit::volume::Result<()> {
    /// use xfskit::volume::{SyncOf, SyncPoint, Volume};
    /// use xfskit_ondisk::InodeNumber;
    ///
    /// fn sync_all(volume: &Volume, files: &[InodeNumber]) -> xfskit::volume::Result<()> {
    ///     let (mut all, mut begun) = (None::<SyncPoint>, Ok(()));
    ///     for file in files {
    ///         match volume.begin_fsync(*file, SyncOf::All) {
    ///             Ok(point) => all = Some(all.map_or(point, |all| all.and(point))),
    ///             // The others are made durable all the same.
    ///             Err(error) => begun = Err(error),
    ///         }
    ///     }
    ///     all.map_or(Ok(()), |all| volume.await_durable(all)).and(begun)
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Self::fsync`]. What could be brought out of the inode is durable then, unless the filesystem has shut down:
    /// this has waited for it.
    pub fn begin_fsync(&self, inode: InodeNumber, what: SyncOf) -> caller::Result<SyncPoint> {
        self.mount.journal.check()?;
        if self.mount.options.read_only {
            return Ok(SyncPoint::NOTHING);
        }
        let contents_alone = || SyncPoint { since: Some(self.mount.journal.flush_point()), ..SyncPoint::NOTHING };
        let Some(inode) = self.mount.inodes.find(inode) else { return Ok(contents_alone()) };
        // In this order: a thread that settles the inode pins it before it gives the lock back.
        let is_settled = what == SyncOf::Data && inode.state_lock().read().is_settled();
        if is_settled && !inode.item().is_pinned() {
            return Ok(contents_alone());
        }
        // Before, so that it is remembered if another thread cuts the file meanwhile.
        Self::forget_cut(&inode);
        let waiting = self.write_out(&inode);
        // A transaction that is committing now holds the lock; what it does came after this call.
        let since = Some(self.mount.journal.flush_point());
        let newest = inode.item().pinned_by();
        let point = SyncPoint { newest, since, forces: newest.is_some().into() };
        match waiting {
            Ok(()) => Ok(point),
            Err(error) => self.await_durable(point).and(Err(error.into())),
        }
    }

    /// The second half: waits until everything is durable that was begun for a point.
    ///
    /// # Errors
    /// `Io`, `Shutdown`: of the files of the point, each may or may not be durable.
    pub fn await_durable(&self, point: SyncPoint) -> caller::Result<()> {
        let Some(since) = point.since else { return Ok(()) };
        self.mount.journal.make_durable(point.newest, since)?;
        let others = point.forces.saturating_sub(1);
        let counters = &self.mount.counters;
        counters.log_forces.add(others);
        counters.log_forces_shared.add(others);
        Ok(())
    }

    /// Whether [`Self::begin_fsync`] of an inode returns soon: little of it waits in memory, no other thread works on
    /// it, and the device is near. Does not wait itself.
    pub fn is_fsync_soon_begun(&self, inode: InodeNumber) -> bool {
        let Some(inode) = self.mount.inodes.find(inode) else { return true };
        let Some(state) = inode.state_lock().try_read() else { return false };
        let dirty = state.dirty.as_ref().map_or(0, |dirty| dirty.count());
        self.requests_at_once() == 1 && dirty << self.mount.geometry.block_log <= LITTLE_BYTES
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
}
