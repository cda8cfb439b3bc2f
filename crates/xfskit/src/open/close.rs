//! Closing a filesystem.

use crate::error::Result;
use crate::mount::{Mount, SUPERBLOCK_KIND};
use crate::trans::reservation_of;
use std::sync::Arc;
use xfskit_ondisk::{DiskAddress, RawSuperblock};

impl Mount {
    /// Writes everything back to its place on the device and closes the log in good order. No operation may run any
    /// more.
    ///
    /// # Errors
    /// `Io`, `Shutdown`: the log then stays dirty, and recovery finishes the work.
    pub fn unmount(self: &Arc<Self>) -> Result<()> {
        let _claims = std::mem::take(&mut *self.claims.lock());
        if self.options.read_only {
            return Ok(());
        }
        self.journal.quiesce()?;
        self.superblock.lock().log_incompat = 0.into();
        self.log_superblock()?;
        self.journal.quiesce()?;
        self.journal.write_unmount()
    }

    /// As [`Self::unmount`], unless nothing has changed and the log was clean: then the image stays as it is.
    ///
    /// # Errors
    /// As [`Self::unmount`].
    pub fn unmount_if_changed(self: &Arc<Self>) -> Result<()> {
        if self.has_changed() { self.unmount() } else { Ok(()) }
    }

    /// Whether anything was committed or replayed since the opening.
    pub(crate) fn has_changed(&self) -> bool {
        self.counters.transactions.get() > 0 || self.recovery.is_some()
    }

    /// Logs the superblock with its counters as they are now.
    fn log_superblock(self: &Arc<Self>) -> Result<()> {
        let mut tx = self.transaction(reservation_of(self.reservations.sb))?;
        let id = tx.read(DiskAddress(0), self.geometry.sector_bytes(), &SUPERBLOCK_KIND)?;
        let raw = self.superblock();
        // The transaction has reserved no blocks, so the counters are exact.
        *tx.edit_as::<RawSuperblock>(id, 0) = RawSuperblock { crc: tx.get_as::<RawSuperblock>(id, 0).crc, ..raw };
        tx.commit()?;
        Ok(())
    }
}
