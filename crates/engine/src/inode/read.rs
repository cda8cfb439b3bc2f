//! Reads inodes from their clusters into the cache.

use crate::error::{Error, Result};
use crate::incore::Inode;
use crate::mount::Mount;
use crate::trans::Transaction;
use std::sync::Arc;
use xfskit_ondisk::InodeNumber;

impl Mount {
    /// The inode of a number, from memory or from disk. Of the locks that a caller might hold it takes only that of the
    /// inode's cluster buffer.
    ///
    /// # Errors
    /// `Stale` for a free inode or one outside the device, `Corrupt`, `Io`.
    pub fn inode(self: &Arc<Self>, number: InodeNumber) -> Result<Arc<Inode>> {
        loop {
            let version = match self.inodes.find_or_version(number) {
                Ok(inode) => {
                    self.counters.inode_hits.increment();
                    return Ok(inode);
                }
                Err(version) => version,
            };
            let inode = self.read_inode(number)?;
            if inode.state_lock().read().core.mode == 0 {
                return Err(Error::Stale(number.0));
            }
            if let Some(inode) = self.inodes.insert_read(inode, version) {
                return Ok(inode);
            }
        }
    }

    /// Reads an inode that may be free and does not cache it.
    ///
    /// # Errors
    /// `Stale` for a number outside the device, `Corrupt`, `Io`.
    pub fn read_inode(self: &Arc<Self>, number: InodeNumber) -> Result<Inode> {
        self.counters.inode_misses.increment();
        if self.geometry.split_inode(number).is_none() {
            return Err(Error::Stale(number.0));
        }
        let (address, _) = crate::space::cluster::locate(&self.geometry, number)?;
        let mut tx = Transaction::read_only(self);
        let (buffer, offset) = crate::space::cluster::read(&mut tx, number)?;
        let bytes = &tx.bytes(buffer)[offset..offset + self.geometry.inode_bytes()];
        let state = super::fork::decode_inode(&self.geometry, number, bytes).map_err(|error| match error {
            Error::Corrupt(corruption) => Error::Corrupt(corruption.at(address)),
            other => other,
        })?;
        Ok(Inode::new(state, address.0, offset))
    }
}
