//! Drops the dirty blocks of a file when they need not be written any more.

use crate::trans::{InoId, Transaction};

/// Drops all dirty blocks and gives their space back.
pub fn discard(tx: &mut Transaction, ino: InoId) {
    let Some(dirty) = tx.inode_memory_mut(ino).dirty.take() else { return };
    let mount = tx.mount();
    mount.space.give_back_blocks(dirty.paid());
    mount.dirty_inodes.count_bytes(dirty.count() << mount.geometry.block_log, 0);
}
