//! What the superblock must announce in place, because others read it there before they read the log.
//!
//! ```text
//! at opening          quotas are not kept from here on                 in place, flushed
//! first intent of     1. a transaction sets the bit                    in the log
//! a plain attribute   2. checkpoint, then the superblock in place      on the device, flushed
//!                     3. memory says that such intents may be logged
//! unmount             the bit is cleared when the log is empty
//! ```
//! Recovery refuses such an intent in an image whose superblock did not announce them before the log was read. A crash
//! between 1 and 3 leaves a bit without an intent, which the next clean unmount clears. The bit is in the log as well,
//! so that the replay of an older change of the superblock does not clear it.
//!
//! Locking: the superblock's buffer is locked without any other lock. The caller has no transaction.

use super::Mount;
use crate::buffer::{BufferKey, Fill};
use crate::error::{Error, Result};
use crate::inode::write_buffer_back;
use crate::mount::SUPERBLOCK_KIND;
use crate::sync::{IfLocked, LockMode};
use crate::trans::reservation_of;
use std::mem::offset_of;
use std::sync::Arc;
use xfskit_ondisk::features::LogIncompat;
use xfskit_ondisk::superblock::{QUOTA_COUNTED, SUPERBLOCK_CRC_OFFSET};
use xfskit_ondisk::{DiskAddress, RawSuperblock, set_checksum};
use zerocopy::FromBytes;

impl Mount {
    /// Writes into the superblock that the usage of quotas on disk is not kept, if it says that it is. No other thread
    /// knows the mount yet.
    pub(super) fn announce_no_quotas(self: &Arc<Self>) -> Result<()> {
        let mut raw = self.superblock.lock().clone();
        raw.quota_flags = (raw.quota_flags.get() & !QUOTA_COUNTED).into();
        if raw == *self.superblock.lock() {
            return Ok(());
        }
        let key = BufferKey::new(DiskAddress(0), self.geometry.sector_bytes());
        let (_, mut held) = self.cache.lock(&key, &SUPERBLOCK_KIND, Fill::Read, LockMode::Exclusive, IfLocked::Wait)?;
        let bytes = held.exclusive().bytes_mut();
        let (on_device, _) = RawSuperblock::mut_from_prefix(bytes).expect("a verified superblock is a whole one");
        on_device.quota_flags = raw.quota_flags;
        set_checksum(bytes, SUPERBLOCK_CRC_OFFSET);
        self.cache.write_runs(&key, held.bytes())?;
        // A flush that fails here fails the opening.
        self.device.flush().map_err(Error::of_flush)?;
        *self.superblock.lock() = raw;
        Ok(())
    }

    /// Makes the superblock announce attribute intents, in place, unless it does: [`Self::may_log_attr_intents`] holds
    /// afterwards. The caller has no transaction. Two callers at once both announce them, which does no harm.
    ///
    /// # Errors
    /// `Io`, `NoSpace` in the log, `Shutdown`; none of such intents may be logged then.
    pub fn announce_attr_intents(self: &Arc<Self>) -> Result<()> {
        if self.may_log_attr_intents() {
            return Ok(());
        }
        let sector_bytes = self.geometry.sector_bytes();
        let mut tx = self.transaction(reservation_of(self.reservations.sb))?;
        let id = tx.read(DiskAddress(0), sector_bytes, &SUPERBLOCK_KIND)?;
        let at = offset_of!(RawSuperblock, log_incompat);
        tx.edit(id, at..at + 4).copy_from_slice(&LogIncompat::XATTRS.bits().to_be_bytes());
        tx.commit()?;
        self.write_superblock_in_place()?;
        self.note_attr_intents_announced();
        Ok(())
    }

    /// Writes the superblock to its place as it was committed.
    ///
    /// A round is in vain only if another transaction changed the superblock behind the checkpoint. While the
    /// filesystem is in use there are two: the one that says that there are attributes, once, and this announcement by
    /// other threads, once each, and none that begins after one of them is done. So the rounds end.
    fn write_superblock_in_place(self: &Arc<Self>) -> Result<()> {
        let key = BufferKey::new(DiskAddress(0), self.geometry.sector_bytes());
        loop {
            self.journal.force_all()?;
            let (buffer, held) =
                self.cache.lock(&key, &SUPERBLOCK_KIND, Fill::Read, LockMode::Shared, IfLocked::Wait)?;
            drop(held);
            write_buffer_back(self, &buffer)?;
            if buffer.item().is_clean() {
                // A flush that fails may have lost what others have written: the filesystem shuts down.
                return self.journal.flush_contents();
            }
            if self.may_log_attr_intents() {
                // Another thread has written the bit.
                return Ok(());
            }
        }
    }
}
