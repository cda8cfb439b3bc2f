//! Inodes that intents name.

use super::wrong_inode;
use crate::error::{Error, Result};
use crate::incore::Inode;
use crate::mount::Mount;
use crate::trans::{InoId, Transaction};
use std::sync::Arc;
use xfskit_ondisk::InodeNumber;

/// The inode of a number, which must be in use and of that generation, where the intent names one.
///
/// # Errors
/// `Corrupt` when it is not; `Io`.
pub(super) fn named(mount: &Arc<Mount>, number: InodeNumber, generation: Option<u32>) -> Result<Arc<Inode>> {
    let inode = mount.inode(number).map_err(|error| match error {
        Error::Stale(_) => wrong_inode("an inode that an intent names is in use", number),
        other => other,
    })?;
    let found = inode.state_lock().read().core.generation;
    match generation {
        Some(expected) if found != expected => {
            Err(wrong_inode("an inode that an intent names has the generation it had then", number))
        }
        _ => Ok(inode),
    }
}

/// Locks an inode and joins it to the transaction.
///
/// # Errors
/// `Corrupt` when it is not in use; `Io`.
pub(super) fn join(tx: &mut Transaction, number: InodeNumber) -> Result<InoId> {
    let inode = named(tx.mount(), number, None)?;
    Ok(tx.join_inode(&inode))
}
