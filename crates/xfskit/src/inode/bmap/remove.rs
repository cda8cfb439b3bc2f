//! Unmaps blocks of a fork and frees them.

use super::apply::replace;
use super::remap::without;
use super::{count_blocks, extents, owner};
use crate::cache::ForkKind;
use crate::error::Result;
use crate::space::alloc;
use crate::trans::{InoId, Transaction};
use xfskit_ondisk::inode::{MODE_REGULAR, MODE_TYPE};
use xfskit_ondisk::{FileBlock, FsBlock};

/// Unmaps `count` fork blocks from `at` and frees what was mapped there. Buffers of the blocks are the caller's to
/// invalidate.
///
/// # Errors
/// `WouldBlock`, before anything was changed, for blocks of a file, which may be shared, unless the transaction holds no AG yet;
/// `NoSpace` when an extent has to be cut in two and the tree has no block for that; `Corrupt`, `Io`.
pub fn remove(tx: &mut Transaction, ino: InoId, fork: ForkKind, at: FileBlock, count: u64) -> Result<()> {
    let end = at.add(count);
    loop {
        let list = extents(tx, ino, fork)?;
        let index = list.partition_point(|extent| extent.end() <= at);
        let Some(extent) = list.get(index).copied().filter(|extent| extent.file_block < end) else { return Ok(()) };
        let first = at.max(extent.file_block);
        let last = end.min(extent.end());
        let rest = without(&extent, first, last);
        let freed = last.0 - first.0;
        let block = FsBlock(extent.block.0 + (first.0 - extent.file_block.0));
        let owner = owner(tx, ino, fork, first);
        let is_file = tx.inode(ino).core.mode & MODE_TYPE == MODE_REGULAR;
        if is_file && owner.may_share() && tx.geometry().has_reflink() {
            // Only files share blocks; a directory loses its in the middle of a removal, which must not fail any more. A reference is dropped here and now, not by an extent-free intent, from which recovery would free blocks
            // that others still refer to. So the AG is locked before the map's own blocks may lock another.
            alloc::lock_for_free(tx, block, freed as u32)?;
        }
        count_blocks(tx, ino, -(freed as i64))?;
        replace(tx, ino, fork, index..index + 1, &rest)?;
        alloc::free(tx, block, freed as u32, owner)?;
    }
}
