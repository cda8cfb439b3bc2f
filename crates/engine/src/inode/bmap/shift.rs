//! Moves records of a file to other offsets. Their blocks stay where they are; their reverse mappings change.

use super::rewrite::{Records, expect_records, part, rewrite, without};
use super::{extents, owner};
use crate::error::Result;
use crate::incore::ForkKind;
use crate::space::{ExtentState, alloc, rmap_change};
use crate::trans::{InoId, Transaction};
use std::ops::Range;
use xfskit_ondisk::{AgNumber, Corruption, Extent, FileBlock};

/// Records that one call moves. Each may split the rmap tree of its AG, and reservations are made for this many.
const MAX_RECORDS: usize = 4;

/// Moves records at or behind `from` by `distance` blocks towards the start of the file, where a hole of that length
/// must lie before `from`. Returns where the rest begins, if there is more.
///
/// # Errors
/// Before anything was changed: `NoSpace`, `TooLarge`, `WouldBlock` as [`super::convert()`]; `Corrupt`, `Io`.
pub fn shift_left(tx: &mut Transaction, ino: InoId, from: FileBlock, distance: u64) -> Result<Option<FileBlock>> {
    let (mut from, mut ag) = (from, None);
    for _ in 0..MAX_RECORDS {
        let list = extents(tx, ino, ForkKind::Data)?;
        let index = list.index_at(from);
        let Some(old) = list.get(index).copied() else { return Ok(None) };
        let room_from = index.checked_sub(1).map_or(FileBlock(0), |before| list[before].end());
        let to = old.file_block.0.checked_sub(distance).map(FileBlock).filter(|to| *to >= room_from);
        let inode = tx.inode(ino).core.inode.0;
        let to = to.ok_or_else(|| Corruption::new("extent map", "records move into a hole").of(inode))?;
        if !lock_first(tx, &mut ag, &old)? {
            return Ok(Some(from));
        }
        let new = Extent { file_block: to, ..old };
        rewrite(tx, ino, ForkKind::Data, index..index + 1, &[new])?;
        follow(tx, ino, &old, &new)?;
        from = old.end();
    }
    Ok(Some(from))
}

/// Moves records of the blocks of `range` by `distance` blocks towards the end of the file, the last ones first.
/// Records behind the range must have been moved before. A record that reaches into the range from before is cut.
/// Returns where the rest ends, if there is more.
///
/// # Errors
/// As [`shift_left`].
pub fn shift_right(
    tx: &mut Transaction,
    ino: InoId,
    range: Range<FileBlock>,
    distance: u64,
) -> Result<Option<FileBlock>> {
    let (mut end, mut ag) = (range.end, None);
    for _ in 0..MAX_RECORDS {
        let list = extents(tx, ino, ForkKind::Data)?;
        let behind = list.index_at(end);
        let Some(index) = behind.checked_sub(1).filter(|index| list[*index].end() > range.start) else {
            return Ok(None);
        };
        let whole = list[index];
        let room_to = list.get(behind).map_or(FileBlock(u64::MAX), |next| next.file_block);
        let inode = tx.inode(ino).core.inode.0;
        let fits = whole.end().add(distance) <= room_to;
        ensure_on_disk!(fits, "extent map", "records move into a hole", "{whole:?} of inode {inode}");
        let first = whole.file_block.max(range.start);
        let old = part(&whole, first, whole.end());
        let new = Extent { file_block: first.add(distance), ..old };
        let mut records = Records::from_iter(without(&whole, first, whole.end()));
        expect_records(tx, ino, ForkKind::Data, records.len())?;
        if !lock_first(tx, &mut ag, &old)? {
            return Ok(Some(end));
        }
        records.push(new);
        rewrite(tx, ino, ForkKind::Data, index..index + 1, &records)?;
        follow(tx, ino, &old, &new)?;
        end = first;
    }
    Ok(Some(end))
}

/// Locks the AG of the first record. Returns false for a record in another AG, which the next transaction moves.
fn lock_first(tx: &mut Transaction, locked: &mut Option<AgNumber>, extent: &Extent) -> Result<bool> {
    if !tx.geometry().has_rmap() {
        return Ok(true);
    }
    let ag = tx.geometry().split_fs_block(extent.block).map(|(ag, _)| ag);
    if locked.is_some() {
        return Ok(*locked == ag);
    }
    alloc::lock_for_free(tx, extent.block, extent.count as u32)?;
    *locked = ag;
    Ok(true)
}

/// Changes the reverse mapping of a record that moved.
fn follow(tx: &mut Transaction, ino: InoId, old: &Extent, new: &Extent) -> Result<()> {
    let Some((ag, start)) = tx.geometry().split_fs_block(old.block) else { return Ok(()) };
    let mapping = |tx: &Transaction, extent: &Extent| {
        owner(tx, ino, ForkKind::Data, extent.file_block).rmap_in_state(
            start,
            extent.count as u32,
            ExtentState::of_flag(extent.unwritten),
        )
    };
    let (from, to) = (mapping(tx, old), mapping(tx, new));
    rmap_change::unmap(tx, ag, from)?;
    rmap_change::map(tx, ag, to)
}
