//! Closing a filesystem.

use super::read_superblock;
use crate::error::{Error, Result};
use crate::mount::{Mount, SUPERBLOCK_KIND};
use crate::trans::reservation_of;
use std::sync::Arc;
use xfskit_ondisk::features::Incompat;
use xfskit_ondisk::{DiskAddress, RawSuperblock};

/// What tells a filesystem from its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The UUID that others know it by.
    pub uuid: [u8; 16],
    /// The UUID that its metadata carries.
    pub meta_uuid: [u8; 16],
}

impl Identity {
    /// That of a filesystem.
    pub fn of(raw: &RawSuperblock) -> Self {
        let has_own = raw.incompat.get() & Incompat::META_UUID.bits() != 0;
        Self { uuid: raw.uuid, meta_uuid: if has_own { raw.meta_uuid } else { raw.uuid } }
    }

    /// Puts it into a superblock. The field for the metadata's UUID is used, and its feature announced, only where the
    /// two differ.
    fn put_into(self, raw: &mut RawSuperblock) {
        let differs = self.uuid != self.meta_uuid;
        let others = raw.incompat.get() & !Incompat::META_UUID.bits();
        raw.incompat = (others | if differs { Incompat::META_UUID.bits() } else { 0 }).into();
        raw.uuid = self.uuid;
        raw.meta_uuid = if differs { self.meta_uuid } else { [0; 16] };
    }
}

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
        self.empty_log()?;
        self.journal.write_unmount()
    }

    /// As [`Self::unmount`], but operations go on afterwards: the log is clean until the next one.
    ///
    /// # Errors
    /// As [`Self::unmount`].
    pub fn end_log(self: &Arc<Self>) -> Result<()> {
        if self.options.read_only {
            return Ok(());
        }
        self.empty_log()?;
        self.journal.write_unmount()
    }

    /// As [`Self::unmount`], and the filesystem has another UUID from then on. `docs/design/identity.md` has the steps.
    ///
    /// # Errors
    /// As [`Self::unmount`]. The filesystem has the old UUID or the new one, whichever step failed.
    pub fn unmount_as(self: &Arc<Self>, identity: Identity) -> Result<()> {
        let _claims = std::mem::take(&mut *self.claims.lock());
        self.empty_log()?;
        self.journal.write_unmount_of_any()?;
        let mut raw = read_superblock(&*self.device)?.raw().clone();
        identity.put_into(&mut raw);
        self.write_superblock_to(&raw, DiskAddress(0))?;
        self.device.flush().map_err(Error::of_flush)?;
        identity.put_into(&mut self.superblock.lock());
        self.write_superblock_copies()?;
        self.journal.write_unmount_as(identity.uuid)
    }

    /// Writes everything back to its place on the device, the superblock with its counters too: the log then contains
    /// nothing that is still needed.
    fn empty_log(self: &Arc<Self>) -> Result<()> {
        self.journal.quiesce()?;
        self.superblock.lock().log_incompat = 0.into();
        self.log_superblock()?;
        self.journal.quiesce()
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
