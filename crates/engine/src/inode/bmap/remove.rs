//! Unmaps blocks of a fork and frees them.

use super::apply::replace;
use super::rewrite::{expect_records, without};
use super::{count_blocks, extents, owner};
use crate::error::{Error, Result};
use crate::error_tags::BMAP_REMOVE;
use crate::incore::ForkKind;
use crate::space::{self, alloc, refcount};
use crate::trans::{InoId, Transaction};
use std::ops::Range;
use xfskit_ondisk::inode::{MODE_REGULAR, MODE_TYPE};
use xfskit_ondisk::{FileBlock, FsBlock};

/// Extents that one call of [`remove_some`] frees. Each may change every tree of its AG, and reservations are made for
/// this many.
const MAX_EXTENTS: usize = 4;

/// Unmaps `count` fork blocks from `at` and frees what was mapped there. The caller invalidates the buffers of the
/// blocks.
///
/// # Errors
/// `WouldBlock`, before anything was changed, for blocks of a file, which may be shared, unless the transaction holds
/// no AG yet; `NoSpace`, before anything was changed, when an extent has to be cut in two and the tree has no block for
/// that; `TooLarge`, `Corrupt`, `Io`.
pub fn remove(tx: &mut Transaction, ino: InoId, fork: ForkKind, at: FileBlock, count: u64) -> Result<()> {
    let end = at.add(count);
    loop {
        let list = extents(tx, ino, fork)?;
        let index = list.index_at(at);
        let Some(extent) = list.get(index).copied().filter(|extent| extent.file_block < end) else { return Ok(()) };
        let first = at.max(extent.file_block);
        let last = end.min(extent.end());
        let rest = without(&extent, first, last);
        let freed = last.0 - first.0;
        let block = FsBlock(extent.block.0 + (first.0 - extent.file_block.0));
        let owner = owner(tx, ino, fork, first);
        let is_file = tx.inode(ino).core.mode & MODE_TYPE == MODE_REGULAR;
        // Directories and attributes unmap blocks in the middle of a removal, which must not fail any more.
        if is_file && owner.may_share() {
            expect_records(tx, ino, ForkKind::Data, rest.len().saturating_sub(1))?;
            expect_references(tx, (block, freed as u32), rest.len())?;
            if tx.geometry().has_reflink() {
                // Only files share blocks. This transaction drops the reference. An extent-free intent would not do:
                // from it recovery would free blocks that other files still map. So the AG is locked here, before the
                // blocks of the map's tree may lock another AG.
                alloc::lock_for_free(tx, block, freed as u32)?;
            }
        }
        count_blocks(tx, ino, -(freed as i64))?;
        replace(tx, ino, fork, index..index + 1, &rest)?;
        space::free(tx, block, freed as u32, owner)?;
    }
}

/// Checks that the transaction has blocks for the reference counts of blocks that are freed, of a record of which so
/// many parts stay: a record that is cut in two may take blocks for the map, too.
fn expect_references(tx: &mut Transaction, (block, count): (FsBlock, u32), parts: usize) -> Result<()> {
    let (left, references, all) = (tx.blocks_left(), reference_blocks(tx), blocks_for_one(tx));
    let enough = match parts {
        2.. => left >= all || references == 0,
        // What is not shared has no counts.
        _ => left >= references || refcount::shared_part(tx, block, count)?.is_none(),
    };
    if enough { Ok(()) } else { Err(Error::NoSpace) }
}

fn reference_blocks(tx: &Transaction) -> u64 {
    space::free_blocks_needed(tx.geometry(), &tx.mount().limits)
}

/// Most blocks that the trees take when a part of one record is freed.
pub fn blocks_for_one(tx: &Transaction) -> u64 {
    reference_blocks(tx) + u64::from(tx.mount().limits.data_levels)
}

/// Unmaps and frees blocks of a file in `range`, from its last extent on, as many as one transaction can: some extents
/// of one AG, or a part of one that is shared in many pieces. The transaction must have locked no AG. Returns whether
/// anything is left.
///
/// # Errors
/// `NoSpace`, `TooLarge` as [`remove`]; `Corrupt`, `Io`.
pub fn remove_some(tx: &mut Transaction, ino: InoId, range: Range<FileBlock>) -> Result<bool> {
    tx.mount().error_tags.fail(BMAP_REMOVE)?;
    let mut first_ag = None;
    for _ in 0..MAX_EXTENTS {
        let list = extents(tx, ino, ForkKind::Data)?;
        // The last extent that starts before the end of the range.
        let last = range.end.0.checked_sub(1).map_or(0, |last| list.index_behind(FileBlock(last))).checked_sub(1);
        let Some(extent) = last.map(|index| list[index]).filter(|extent| extent.end() > range.start) else {
            return Ok(false);
        };
        let first = extent.file_block.max(range.start);
        let count = extent.end().min(range.end).0 - first.0;
        let block = FsBlock(extent.block.0 + (first.0 - extent.file_block.0));
        let ag = tx.geometry().split_fs_block(block).map(|(ag, _)| ag);
        if first_ag.is_some() && first_ag != ag {
            return Ok(true);
        }
        // Those before may have used up what this one may need: the next link has more.
        if first_ag.is_some() && tx.blocks_left() < blocks_for_one(tx) {
            return Ok(true);
        }
        first_ag = ag;
        let mut portion = u64::from(refcount::freeable_blocks(tx, block, count as u32)?);
        let mut skipped = 0;
        // Without blocks for a cut, the part at the end goes, for the record then only becomes shorter. To find it
        // takes a walk over all of the record's counts, so otherwise the part at the front does.
        while tx.blocks_left() < blocks_for_one(tx) && skipped + portion < count {
            skipped += portion;
            let (from, rest) = (FsBlock(block.0 + skipped), count - skipped);
            portion = refcount::freeable_blocks(tx, from, rest as u32)?.into();
        }
        remove(tx, ino, ForkKind::Data, first.add(skipped), portion)?;
        if portion < count {
            return Ok(true);
        }
    }
    Ok(true)
}
