//! Changes only who owns blocks: maps an extent that is already allocated, or unmaps one without freeing it. Reverse
//! mappings change in the same transaction. The caller changes free space and reference counts.

use super::allocate::insert;
use super::apply::replace;
use super::rewrite::without;
use super::{count_blocks, extents, owner};
use crate::error::Result;
use crate::incore::ForkKind;
use crate::space::{ExtentState, rmap_change};
use crate::trans::{InoId, Transaction};
use xfskit_ondisk::btree::Rmap;
use xfskit_ondisk::extent::MAX_EXTENT_BLOCKS;
use xfskit_ondisk::{AgNumber, Corruption, Extent, FsBlock};

/// Verifies that a fork is mapped by extents.
///
/// # Errors
/// `Corrupt` when it is missing or contains local bytes.
pub fn expect_extents(tx: &Transaction, ino: InoId, fork: ForkKind) -> Result<()> {
    let state = tx.inode(ino);
    if state.map(fork).is_some() {
        return Ok(());
    }
    let name = if fork == ForkKind::Data { "data fork" } else { "attr fork" };
    Err(Corruption::new(name, "is mapped by extents").of(state.core.inode.0).into())
}

/// The AG of an extent of a fork and its reverse mapping.
fn mapping(tx: &Transaction, ino: InoId, fork: ForkKind, extent: &Extent) -> Result<(AgNumber, Rmap)> {
    extent.verify(tx.geometry())?;
    let (ag, start) = tx
        .geometry()
        .split_fs_block(extent.block)
        .ok_or_else(|| Corruption::new("extent record", "lies on the device").found(format_args!("{extent:?}")))?;
    let owner = owner(tx, ino, fork, extent.file_block);
    Ok((ag, owner.rmap_in_state(start, extent.count as u32, ExtentState::of_flag(extent.unwritten))))
}

/// Maps an extent into a hole of the fork.
///
/// # Errors
/// `Corrupt` when it is no hole or the blocks have another owner; `NoSpace` when the map cannot grow; `WouldBlock` as
/// [`rmap_change::map`]; `Io`.
pub fn map_extent(tx: &mut Transaction, ino: InoId, fork: ForkKind, extent: Extent) -> Result<()> {
    expect_extents(tx, ino, fork)?;
    let (ag, mapping) = mapping(tx, ino, fork, &extent)?;
    let list = extents(tx, ino, fork)?;
    let next = list.index_at(extent.file_block);
    let is_hole = list.get(next).is_none_or(|other| other.file_block >= extent.end());
    ensure_on_disk!(
        is_hole && extent.count <= MAX_EXTENT_BLOCKS,
        "extent map",
        "blocks are mapped into a hole",
        "{extent:?}"
    );
    insert(tx, ino, fork, extent)?;
    count_blocks(tx, ino, extent.count as i64)?;
    rmap_change::map(tx, ag, mapping)
}

/// Unmaps the end of a range of fork blocks that must map the blocks which `extent` names, as far back as one record
/// goes. Returns how many blocks at the start of the range are left.
///
/// # Errors
/// `Corrupt` when something else is mapped there; `NoSpace` when a record has to be cut in two and the tree has no
/// block for that; `WouldBlock` as [`rmap_change::unmap`]; `Io`.
pub fn unmap_extent(tx: &mut Transaction, ino: InoId, fork: ForkKind, extent: Extent) -> Result<u64> {
    expect_extents(tx, ino, fork)?;
    let (at, end) = (extent.file_block, extent.end());
    let list = extents(tx, ino, fork)?;
    let index = list.partition_point(|other| other.end() < end);
    let found = list.get(index).copied().filter(|found| {
        let shift = found.file_block.0.abs_diff(at.0);
        let place = if found.file_block < at { found.block.0 + shift } else { found.block.0.wrapping_sub(shift) };
        found.file_block < end && place == extent.block.0
    });
    ensure_on_disk!(found.is_some(), "extent map", "maps the blocks that are unmapped", "{extent:?}");
    let found = found.expect("checked above");
    let first = at.max(found.file_block);
    let left = first.0 - at.0;
    let gone = Extent {
        file_block: first,
        block: FsBlock(extent.block.0 + left),
        count: end.0 - first.0,
        unwritten: found.unwritten,
    };
    let (ag, mapping) = mapping(tx, ino, fork, &gone)?;
    replace(tx, ino, fork, index..index + 1, &without(&found, first, end))?;
    count_blocks(tx, ino, -(gone.count as i64))?;
    rmap_change::unmap(tx, ag, mapping)?;
    Ok(left)
}
