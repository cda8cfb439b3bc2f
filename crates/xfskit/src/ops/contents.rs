//! Reads and writes files.

use super::Filesystem;
use super::create::single;
use crate::data;
use crate::error::{Error, Result};
use crate::mount::reservation_of;
use crate::trans::{InoId, InodeFields, Reservation, Transaction};
use xfskit_ondisk::InodeNumber;

impl Filesystem {
    /// Fills `buffer` with the contents of a file from byte `offset` on; returns how many there are, fewer than asked for
    /// only at the end of the file.
    ///
    /// # Errors
    /// `IsADirectory`, `Invalid` when it is no file, `Stale`, `Corrupt`, `Io`.
    pub fn read_at(&self, inode: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let inode = self.mount.inode(inode)?;
        let mut tx = Transaction::read_only(&self.mount);
        let id = self.join(&mut tx, &inode)?;
        check_file(&tx, id)?;
        self.located(inode.number, data::read(&mut tx, id, offset, buffer))
    }

    /// Writes `data` at byte `offset` of a file, all of it or nothing. It is durable after [`Self::fsync`].
    ///
    /// # Errors
    /// As [`Self::read_at`]; `NoSpace`, `TooLarge`.
    pub fn write_at(&self, inode: InodeNumber, offset: u64, data: &[u8]) -> Result<()> {
        self.with_settled(inode, single(reservation_of(self.mount.reservations.write)).with_blocks(2000), |tx, id| {
            data::write(tx, id, offset, data)?;
            let now = tx.mount().env.now();
            let core = &mut tx.inode_mut(id, InodeFields::CORE).core;
            (core.mtime, core.ctime) = (now, now);
            Ok(())
        })
    }

    /// Locks a file of which nothing waits in memory, and works on it in a transaction.
    pub(super) fn with_settled<T>(
        &self,
        inode: InodeNumber,
        reservation: Reservation,
        work: impl FnOnce(&mut Transaction, InoId) -> Result<T>,
    ) -> Result<T> {
        let inode = self.mount.inode(inode)?;
        let mut tx = self.begin(reservation)?;
        let result = (|| {
            let id = self.join(&mut tx, &inode)?;
            check_file(&tx, id)?;
            work(&mut tx, id)
        })();
        self.located(inode.number, tx.finish(result))
    }
}

/// Checks that an inode is a regular file.
pub(super) fn check_file(tx: &Transaction, ino: InoId) -> Result<()> {
    let core = &tx.inode(ino).core;
    match core.mode & xfskit_ondisk::inode::MODE_TYPE {
        xfskit_ondisk::inode::MODE_REGULAR => Ok(()),
        xfskit_ondisk::inode::MODE_DIR => Err(Error::IsADirectory),
        _ => Err(Error::Invalid("not a regular file")),
    }
}
