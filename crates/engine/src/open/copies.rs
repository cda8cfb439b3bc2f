//! The copies of the superblock in all AGs but the first. Nothing but repair and a search for a lost superblock reads
//! them, so they are written past the journal, when what changed the superblock is durable in the log and before the
//! superblock itself is written to its place. Recovery that finds other copies writes them again.
//!
//! Locking: one mutex, with no other lock held but that of the superblock in memory below it.

use super::Mount;
use crate::error::{Error, Result};
use xfskit_ondisk::superblock::{SUPERBLOCK_CRC_OFFSET, SUPERBLOCK_MAGIC};
use xfskit_ondisk::{AgNumber, DiskAddress, RawSuperblock, set_checksum};
use zerocopy::{FromBytes, IntoBytes};

impl Mount {
    /// Writes the superblock as it is now into every other AG, and flushes it. A copy that cannot be written keeps none
    /// of the others from it.
    ///
    /// # Errors
    /// `Io`: the first copy that could not be written. The filesystem itself is as it should be.
    pub(crate) fn write_superblock_copies(&self) -> Result<()> {
        let _turn = self.superblock_copies.lock();
        // The LSN is that of the first superblock, and a copy has none.
        let raw = RawSuperblock { lsn: 0.into(), ..self.superblock() };
        let ags = 1..self.geometry.ag_count;
        let results = ags.map(|ag| self.write_superblock_to(&raw, self.geometry.ag_header(AgNumber(ag), 0)));
        // All are written before the first error is returned.
        let written = results.fold(Ok(()), Result::and);
        // By the journal: a flush that fails says that what others have written may be lost, too.
        self.journal.note_in_place();
        self.journal.flush_contents()?;
        written
    }

    /// Writes the copies if one of them is not what the superblock says of size, label and UUID. One that is no
    /// superblock, or cannot be read, is left to repair.
    ///
    /// # Errors
    /// As [`Self::write_superblock_copies`].
    pub(crate) fn mend_superblock_copies(&self) -> Result<()> {
        let shape =
            |raw: &RawSuperblock| (raw.data_blocks, raw.ag_count, raw.label, raw.uuid, raw.meta_uuid, raw.incompat);
        let wanted = shape(&self.superblock());
        let mut sector = vec![0; self.geometry.sector_bytes()];
        for ag in 1..self.geometry.ag_count {
            let offset = self.geometry.ag_header(AgNumber(ag), 0).bytes();
            if self.device.read(offset, &mut sector).is_err() {
                continue;
            }
            let (raw, _) = RawSuperblock::read_from_prefix(&sector).expect("a sector has room for a superblock");
            if raw.magic.get() == SUPERBLOCK_MAGIC && shape(&raw) != wanted {
                return self.write_superblock_copies();
            }
        }
        Ok(())
    }

    /// Writes a superblock to its place, past the journal and the cache.
    pub(super) fn write_superblock_to(&self, raw: &RawSuperblock, address: DiskAddress) -> Result<()> {
        let mut sector = vec![0; self.geometry.sector_bytes()];
        sector[..size_of::<RawSuperblock>()].copy_from_slice(raw.as_bytes());
        set_checksum(&mut sector, SUPERBLOCK_CRC_OFFSET);
        let offset = address.bytes();
        self.device.write(offset, &sector).map_err(|source| Error::Io { offset, source })
    }
}
