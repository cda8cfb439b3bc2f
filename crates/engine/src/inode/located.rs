//! Errors of work on one inode say whose structures are damaged.

use crate::error::Result;
use crate::space::cluster;
use crate::trans::{InoId, Transaction};
use xfskit_ondisk::{BASIC_BLOCK_BYTES, DiskAddress, Geometry, InodeNumber};

/// Names the inode that some work was about, in an error that does not say where the damage is.
///
/// # Errors
/// The result's own.
pub fn located_at<T>(geometry: &Geometry, inode: InodeNumber, result: Result<T>) -> Result<T> {
    result.map_err(|error| match cluster::locate(geometry, inode) {
        Ok((address, offset)) => {
            error.below(DiskAddress(address.0 + offset as u64 / BASIC_BLOCK_BYTES as u64), inode.0)
        }
        Err(_) => error,
    })
}

/// As [`located_at`], of an inode that a transaction has locked.
///
/// # Errors
/// The result's own.
pub fn located<T>(tx: &Transaction, ino: InoId, result: Result<T>) -> Result<T> {
    located_at(tx.geometry(), tx.inode(ino).core.inode, result)
}
