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

use super::{SyncKind, SyncPoint, Volume};
use crate::error::{Error, Result};
use crate::incore::{Inode, InodeState};
use crate::item::CheckpointSeq;
use crate::journal::FlushPoint;
use std::sync::Arc;
use xfskit_ondisk::InodeNumber;
use xfskit_ondisk::inode::flags;

/// What waits of a file in memory is little up to so many bytes.
const LITTLE_BYTES: u64 = 256 << 10;

impl Volume {
    /// Makes everything done to an inode durable: contents, names, attributes. What changes those logs the inode
    /// with them. Costs nothing when nothing has changed since the last checkpoint. What cannot be written out keeps
    /// nothing else from it. A number that names no inode in use is not refused: of it nothing waits.
    ///
    /// # Errors
    /// `NoSpace`, `Io`, `Shutdown`.
    pub fn fsync(&self, inode: InodeNumber) -> Result<()> {
        self.await_durable(self.begin_fsync(inode, SyncKind::Full)?)
    }

    /// As [`Self::fsync`], but when only times have changed they may wait.
    ///
    /// # Errors
    /// As [`Self::fsync`].
    pub fn fdatasync(&self, inode: InodeNumber) -> Result<()> {
        self.await_durable(self.begin_fsync(inode, SyncKind::Data)?)
    }

    /// The first half of an [`fsync`](Self::fsync), for callers with many files: writes out what waits of an inode in
    /// memory, and returns what is to be waited for. Points are joined by [`SyncPoint::and`], and one
    /// [`Self::await_durable`] makes all of them durable, by one checkpoint and one flush. Covered is what was done
    /// before this call; what is done between it and the wait may or may not be.
    ///
    /// ```
    /// use xfskit_engine::{Caller, NewFile, SyncKind, SyncPoint};
    /// # let device = std::sync::Arc::new(xfskit_device::MemoryDevice::new(32 << 20));
    /// # let filesystem = xfskit::create_on(device, &xfskit::MkfsOptions::new().small())?;
    /// # let volume = filesystem.volume();
    ///
    /// let mut both = SyncPoint::default();
    /// for name in [b"table", b"index"] {
    ///     let file = volume.create(volume.root(), name, &NewFile::file(0o644), &Caller::root())?.inode;
    ///     volume.append(file, b"row")?;
    ///     both = both.and(volume.begin_fsync(file, SyncKind::Full)?);
    /// }
    /// volume.await_durable(both)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Self::fsync`]. What could be written out of the inode is durable then, unless the filesystem has shut down:
    /// this has waited for it. Points that were returned before are as good as ever: wait for them.
    pub fn begin_fsync(&self, inode: InodeNumber, what: SyncKind) -> Result<SyncPoint> {
        match self.mount.inodes.find(inode) {
            Some(inode) => self.begin_fsync_of(&inode, what),
            None => self.mount.journal.check().map(|()| self.contents_alone()),
        }
    }

    /// What is to be waited for where nothing of an inode waits in memory.
    fn contents_alone(&self) -> SyncPoint {
        let flush = (!self.mount.options.read_only).then(|| self.mount.journal.flush_point().0);
        SyncPoint { volume: Some(self.mount.number), flush, ..SyncPoint::default() }
    }

    /// As [`Self::begin_fsync`], of an inode that was looked up.
    pub(crate) fn begin_fsync_of(&self, inode: &Arc<Inode>, what: SyncKind) -> Result<SyncPoint> {
        self.mount.journal.check()?;
        if self.mount.options.read_only {
            return Ok(self.contents_alone());
        }
        // In this order: a thread that settles the inode pins it before it gives the lock back.
        let is_settled = what == SyncKind::Data && inode.state_lock().read().is_settled();
        if is_settled && !inode.item().is_pinned() {
            return Ok(self.contents_alone());
        }
        // Before, so that it is remembered if another thread cuts the file meanwhile.
        Self::forget_cut(inode);
        let waiting = self.write_out(inode);
        // A transaction that is committing now holds the lock; what it does came after this call.
        let flush = Some(self.mount.journal.flush_point().0);
        let newest = inode.item().pinned_by();
        let (volume, transaction) = (Some(self.mount.number), newest.map(|seq| seq.0));
        let point = SyncPoint { volume, transaction, flush, waiters: newest.is_some().into() };
        match waiting {
            Ok(()) => Ok(point),
            Err(error) => self.await_durable(point).and(Err(error)),
        }
    }

    /// The second half: waits until everything is durable that was begun for a point.
    ///
    /// # Errors
    /// `Io`, `Shutdown`: of the files of the point, each may or may not be durable. `Invalid` for a point of another
    /// volume, or of two.
    pub fn await_durable(&self, point: SyncPoint) -> Result<()> {
        if point.volume.is_some_and(|volume| volume != self.mount.number) {
            return Err(Error::Invalid("these fsyncs were begun on another volume"));
        }
        let Some(flush) = point.flush else { return Ok(()) };
        self.mount.journal.make_durable(point.transaction.map(CheckpointSeq), FlushPoint(flush))?;
        let others = point.waiters.saturating_sub(1);
        let counters = &self.mount.counters;
        counters.log_forces.add(others);
        counters.log_forces_shared.add(others);
        Ok(())
    }

    /// Whether [`Self::begin_fsync`] of an inode takes short, so that a thread that must answer others may call it: at
    /// most 256 KiB of it wait in memory, no other thread has it locked, and the device's requests take short
    /// ([`Self::queue_depth`] is 1). A hint, which another thread may make wrong at once; does not wait itself.
    pub fn is_fsync_soon_begun(&self, inode: InodeNumber) -> bool {
        self.mount.inodes.find(inode).is_none_or(|inode| self.is_fsync_of_soon_begun(&inode))
    }

    /// As [`Self::is_fsync_soon_begun`], of an inode that was looked up.
    pub(crate) fn is_fsync_of_soon_begun(&self, inode: &Inode) -> bool {
        let Some(state) = inode.state_lock().try_read() else { return false };
        let dirty = state.dirty.as_ref().map_or(0, |dirty| dirty.count());
        self.queue_depth() == 1 && dirty << self.mount.geometry.block_log <= LITTLE_BYTES
    }

    /// Whether each change of a file's contents is durable when the call returns (`chattr +S`).
    ///
    /// # Errors
    /// `Stale`, `Corrupt`, `Io`.
    pub fn is_synchronous(&self, inode: InodeNumber) -> Result<bool> {
        Ok(is_sync(&*self.mount.inode(inode)?))
    }

    /// As [`Self::fsync`], of an inode that was looked up.
    pub(super) fn fsync_of(&self, inode: &Arc<Inode>) -> Result<()> {
        self.await_durable(self.begin_fsync_of(inode, SyncKind::Full)?)
    }

    /// Makes a change of contents durable, of a file whose writes are synchronous, before the call returns.
    pub(super) fn honour_sync(&self, inode: &Arc<Inode>) -> Result<()> {
        if is_sync(inode) { self.fsync_of(inode) } else { Ok(()) }
    }
}

fn is_sync(inode: &Inode) -> bool {
    is_state_sync(&inode.state_lock().read())
}

/// Whether writes to a file are synchronous.
pub(super) fn is_state_sync(state: &InodeState) -> bool {
    state.core.flags & flags::SYNC != 0
}
