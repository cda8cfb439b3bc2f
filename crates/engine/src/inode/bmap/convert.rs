//! Marks blocks of a file as written, or as unwritten again.

use super::rewrite::{expect_records, part, rewrite, with_middle};
use super::{extents, owner};
use crate::error::Result;
use crate::error_tags::BMAP_CONVERT;
use crate::incore::ForkKind;
use crate::space::{ExtentState, alloc, rmap_change};
use crate::trans::{InoId, Transaction};
use xfskit_ondisk::{Corruption, Extent, FileBlock};

/// Puts blocks of a file into a state: of the `count` from `at` on, those that the record at `at` maps.
/// Returns their number. The reverse mapping changes with them.
///
/// # Errors
/// Before anything was changed: `NoSpace` when the record has to be cut and the transaction has no blocks for the tree,
/// `TooLarge`, `WouldBlock` when the transaction has locked another AG and another transaction this one; `Corrupt` when
/// block `at` is a hole; `Io`.
pub fn convert(tx: &mut Transaction, ino: InoId, at: FileBlock, count: u64, state: ExtentState) -> Result<u64> {
    let fork = ForkKind::Data;
    let list = extents(tx, ino, fork)?;
    let index = list.index_at(at);
    let found = list.get(index).copied().filter(|extent| extent.file_block <= at);
    let inode = tx.inode(ino).core.inode.0;
    let extent =
        found.ok_or_else(|| Corruption::new("extent map", "blocks that are converted are mapped").of(inode))?;
    let old = part(&extent, at, extent.end().min(at.add(count)));
    if ExtentState::of_flag(extent.unwritten) == state {
        return Ok(old.count);
    }
    tx.mount().error_tags.fail(BMAP_CONVERT)?;
    let new = with_middle(&extent, Extent { unwritten: state.is_unwritten(), ..old });
    expect_records(tx, ino, ForkKind::Data, new.len() - 1)?;
    if tx.geometry().has_rmap() {
        alloc::lock_for_free(tx, old.block, old.count as u32)?;
    }
    rewrite(tx, ino, fork, index..index + 1, &new)?;
    if let Some((ag, start)) = tx.geometry().split_fs_block(old.block) {
        let mapping =
            owner(tx, ino, fork, at).rmap_in_state(start, old.count as u32, ExtentState::of_flag(old.unwritten));
        rmap_change::convert(tx, ag, mapping, state)?;
    }
    Ok(old.count)
}
