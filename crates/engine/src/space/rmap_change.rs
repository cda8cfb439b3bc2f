//! Changes of reverse mappings that bring the free list to its length before each record.

use super::ag::Ag;
use super::ag_tree::ag_tree;
use super::free_list;
use super::owner::ExtentState;
use super::rmap::{add, remove, touching};
use crate::error::Result;
use crate::trans::Transaction;
use xfskit_ondisk::AgNumber;
use xfskit_ondisk::btree::{Rmap, Rmapbt, rmap_offset};

/// Records the first blocks of inodes that have had none, in the order of the blocks: nothing continues them, and they
/// continue nothing.
pub(super) fn add_firsts(tx: &mut Transaction, ag: Ag, new: &[Rmap]) -> Result<()> {
    let mut rest = if tx.geometry().has_rmap() { new } else { &[] };
    while !rest.is_empty() {
        free_list::fix(tx, ag, None)?;
        let count = ag_tree::<Rmapbt>(ag).cursor().insert_some(tx, rest)?;
        rest = &rest[count..];
    }
    Ok(())
}

/// Locks an AG for changes of its reverse mappings.
fn lock(tx: &mut Transaction, number: AgNumber) -> Result<Ag> {
    let ag = Ag::lock(tx, number)?;
    free_list::fix(tx, ag, None)?;
    Ok(ag)
}

/// Records that the owner that `new` names has the blocks from now on.
///
/// # Errors
/// `Corrupt` when their owner cannot share them, `WouldBlock` as [`super::free()`], `Io`.
pub fn map(tx: &mut Transaction, number: AgNumber, new: Rmap) -> Result<()> {
    if !tx.geometry().has_rmap() {
        return Ok(());
    }
    let ag = lock(tx, number)?;
    let may_share = tx.geometry().has_reflink() && new.has_offset() && new.offset & rmap_offset::ATTR_FORK == 0;
    if !may_share {
        let other = touching(tx, ag, new.start, new.count)?.first().copied();
        ensure_on_disk!(other.is_none(), "rmapbt block", "blocks that get an owner had none", "{new:?}: {other:?}");
    }
    add(tx, ag, new)
}

/// Records that the owner that `old` names has the blocks no more.
///
/// # Errors
/// `Corrupt` when it had not, `WouldBlock` as [`super::free()`], `Io`.
pub fn unmap(tx: &mut Transaction, number: AgNumber, old: Rmap) -> Result<()> {
    if !tx.geometry().has_rmap() {
        return Ok(());
    }
    let ag = lock(tx, number)?;
    remove(tx, ag, old).map(|_| ())
}

/// Records that blocks of a fork are unwritten or not.
///
/// # Errors
/// `Corrupt` when the blocks do not belong to the owner, `WouldBlock` as [`super::free()`], `Io`.
pub fn convert(tx: &mut Transaction, number: AgNumber, old: Rmap, state: ExtentState) -> Result<()> {
    if !tx.geometry().has_rmap() {
        return Ok(());
    }
    let ag = lock(tx, number)?;
    remove(tx, ag, old)?;
    let flag = if state.is_unwritten() { rmap_offset::UNWRITTEN } else { 0 };
    add(tx, ag, Rmap { offset: old.offset & !rmap_offset::UNWRITTEN | flag, ..old })
}
