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

/// Maps blocks of another file, which are written, into a hole of this one, as many of `extent` as one transaction can.
/// Returns their number.
///
/// # Errors
/// Before anything was changed: `NoSpace` when the map or the AG's reference counts could not grow, `TooLarge`,
/// `WouldBlock` when the transaction has locked another AG and another transaction this one; `Corrupt`, `Io`.
pub fn share(tx: &mut Transaction, ino: InoId, extent: Extent) -> Result<u64> {
    let fork = ForkKind::Data;
    tx.mount().error_tags.fail(BMAP_SHARE)?;
    expect_records(tx, ino, ForkKind::Data, 1)?;
    let list = extents(tx, ino, fork)?;
    let index = list.index_at(extent.file_block);
    let is_hole = list.get(index).is_none_or(|next| next.file_block >= extent.end());
    ensure_on_disk!(is_hole, "extent map", "blocks are shared into a hole", "{extent:?}");
    refcount::expect_growth(tx, extent.block, extent.count as u32)?;
    let done = refcount::increase_some(tx, extent.block, extent.count as u32)?;
    let extent = Extent { count: done.into(), ..extent };
    rewrite(tx, ino, fork, index..index, &[extent])?;
    count_blocks(tx, ino, extent.count as i64)?;
    if let Some((ag, start)) = tx.geometry().split_fs_block(extent.block) {
        let mapping = owner(tx, ino, fork, extent.file_block).rmap(start, done);
        rmap_change::map(tx, ag, mapping)?;
    }
    Ok(extent.count)
}
