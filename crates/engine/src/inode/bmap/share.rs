//! Maps blocks of one file into another, too.

use super::rewrite::{expect_records, rewrite};
use super::{count_blocks, extents, owner};
use crate::error::Result;
use crate::error_tags::BMAP_SHARE;
use crate::incore::ForkKind;
use crate::space::{refcount, rmap_change};
use crate::trans::{InoId, InodeFields, Transaction};
use xfskit_ondisk::inode::flags2;
use xfskit_ondisk::{Extent, InodeCore};

/// Whether a file may share blocks.
pub fn may_share(core: &InodeCore) -> bool {
    core.flags2 & flags2::REFLINK != 0
}

/// Sets the flag by which a file may share blocks. Both files need it before they share any.
pub fn set_may_share(tx: &mut Transaction, ino: InoId) {
    if !may_share(&tx.inode(ino).core) {
        tx.inode_mut(ino, InodeFields::CORE).core.flags2 |= flags2::REFLINK;
    }
}

/// Clears that flag in a file that maps no block any more.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn forget_sharing(tx: &mut Transaction, ino: InoId) -> Result<()> {
    if may_share(&tx.inode(ino).core) && extents(tx, ino, ForkKind::Data)?.is_empty() {
        tx.inode_mut(ino, InodeFields::CORE).core.flags2 &= !flags2::REFLINK;
    }
    Ok(())
}

/// Locks the AG of blocks of another file, which are written, and says how many of `extent` one transaction can map
/// into this one by [`share`]. That makes `added` records of the map more, with what the caller does to it before.
///
/// # Errors
/// `NoSpace` when the map or the AG's reference counts could not grow, `TooLarge`; `WouldBlock` when the transaction
/// has locked another AG and another transaction this one; `Corrupt`, `Io`.
pub fn expect_share(tx: &mut Transaction, ino: InoId, extent: Extent, added: usize) -> Result<u32> {
    tx.mount().error_tags.fail(BMAP_SHARE)?;
    expect_records(tx, ino, ForkKind::Data, added)?;
    let count = refcount::lock_some(tx, extent.block, extent.count as u32)?;
    refcount::expect_growth(tx, extent.block, count)?;
    Ok(count)
}

/// Maps blocks of another file into a hole of this one, as many as [`expect_share`] has said in this transaction. What
/// was there before may have been unmapped since: nothing is asked that could be refused now.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn share(tx: &mut Transaction, ino: InoId, extent: Extent) -> Result<()> {
    let fork = ForkKind::Data;
    let list = extents(tx, ino, fork)?;
    let index = list.index_at(extent.file_block);
    let is_hole = list.get(index).is_none_or(|next| next.file_block >= extent.end());
    ensure_on_disk!(is_hole, "extent map", "blocks are shared into a hole", "{extent:?}");
    let count = extent.count as u32;
    rewrite(tx, ino, fork, index..index, &[extent])?;
    count_blocks(tx, ino, extent.count as i64)?;
    refcount::increase(tx, extent.block, count)?;
    if let Some((ag, start)) = tx.geometry().split_fs_block(extent.block) {
        let mapping = owner(tx, ino, fork, extent.file_block).rmap(start, count);
        rmap_change::map(tx, ag, mapping)?;
    }
    Ok(())
}
