//! Reverse mappings: the owner of every block.
//!
//! Invariants: a block that is not shared has one mapping; mappings of one owner that continue each other in blocks
//! and in fork offset, written alike, are one record.
//!
//! On an image that shares blocks the records of several owners overlap, so a record that covers a block need not be
//! the last one that starts before it; then the tree is asked for all that reach the block.

use super::ag::Ag;
use super::ag_tree::{AgTreeFormat, RootFields, ag_tree, tree_buffer};
use super::agfl::FreeList;
use crate::buffer::BufferKind;
use crate::error::Result;
use crate::trans::Transaction;
use smallvec::SmallVec;
use std::mem::offset_of;
use std::ops::ControlFlow;
use xfskit_ondisk::AgBlock;
use xfskit_ondisk::ag::Agf;
use xfskit_ondisk::btree::{Rmap, RmapOrder, Rmapbt, TreeFormat, rmap_offset};

tree_buffer! {
    /// Blocks of the reverse mapping tree.
    RMAPBT_KIND, Rmapbt
}

impl AgTreeFormat for Rmapbt {
    type Header = Ag;
    type Source = FreeList;
    const BUFFER: &'static BufferKind = &RMAPBT_KIND;
    const FIELDS: RootFields = RootFields {
        root: offset_of!(Agf, rmap_root),
        levels: offset_of!(Agf, rmap_level),
        blocks: Some(offset_of!(Agf, rmap_blocks)),
    };

    fn size_changed(tx: &Transaction, ag: Ag) {
        ag.note_rmap_blocks(tx);
    }
}

/// Whether `right` continues `left`.
fn continues(left: &Rmap, right: &Rmap) -> bool {
    let follows = if left.has_offset() { left.offset + u64::from(left.count) } else { left.offset };
    left.end() == right.start.0
        && left.owner == right.owner
        && follows == right.offset
        && u64::from(left.count) + u64::from(right.count) <= u64::from(u32::MAX)
}

/// The part of `whole` from `start` on, `count` blocks of it.
fn part(whole: &Rmap, start: u32, count: u32) -> Rmap {
    let advance = if whole.has_offset() { u64::from(start - whole.start.0) } else { 0 };
    Rmap { start: AgBlock(start), count, owner: whole.owner, offset: whole.offset + advance }
}

/// Finds the first record that touches `block` and satisfies `wanted`.
fn find_touching(tx: &mut Transaction, ag: Ag, block: AgBlock, wanted: impl Fn(&Rmap) -> bool) -> Result<Option<Rmap>> {
    let low = RmapOrder { start: block, owner: 0, offset: 0 };
    let high = RmapOrder { start: block, owner: u64::MAX, offset: u64::MAX };
    let mut found = None;
    let mut cursor = ag_tree::<Rmapbt>(ag).cursor();
    cursor.query(tx, &low, &high, |record| {
        if wanted(record) {
            found = Some(*record);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    cursor.close(tx);
    Ok(found)
}

/// The record that `new` continues.
fn left_of(tx: &mut Transaction, ag: Ag, new: &Rmap) -> Result<Option<Rmap>> {
    let nearest = ag_tree::<Rmapbt>(ag).lookup_le(tx, &Rmapbt::key(new))?;
    if let Some(record) = nearest
        && continues(&record, new)
    {
        return Ok(nearest);
    }
    // Blocks that cannot be shared have one record, so the nearest is the one; and nothing continues into the start of
    // a file.
    let may_share = new.has_offset() && new.offset & rmap_offset::ATTR_FORK == 0;
    let is_start = new.offset & !rmap_offset::UNWRITTEN == 0;
    if !tx.geometry().has_reflink() || new.start.0 == 0 || !may_share || is_start {
        return Ok(None);
    }
    find_touching(tx, ag, AgBlock(new.start.0 - 1), |record| continues(record, new))
}

/// The record that continues `new`.
fn right_of(tx: &mut Transaction, ag: Ag, new: &Rmap) -> Result<Option<Rmap>> {
    let advance = if new.has_offset() { u64::from(new.count) } else { 0 };
    let next = Rmap { start: AgBlock(new.end()), offset: new.offset + advance, ..*new };
    let found = ag_tree::<Rmapbt>(ag).lookup(tx, &Rmapbt::key(&next))?;
    Ok(found.filter(|record| continues(new, record)))
}

/// Changes the count of `record`.
fn resize(tx: &mut Transaction, ag: Ag, record: &Rmap, count: u32) -> Result<()> {
    ag_tree::<Rmapbt>(ag).update(tx, record, &Rmap { count, ..*record })
}

/// Records `new`, merged with what it continues and what continues it.
pub(super) fn add(tx: &mut Transaction, ag: Ag, new: Rmap) -> Result<()> {
    if !tx.geometry().has_rmap() {
        return Ok(());
    }
    let left = left_of(tx, ag, &new)?;
    let right = right_of(tx, ag, &new)?;
    let mut merged = new;
    if let Some(right) = right {
        merged.count += right.count;
        ag_tree::<Rmapbt>(ag).remove(tx, &right)?;
    }
    match left {
        Some(left) => resize(tx, ag, &left, left.count + merged.count),
        None => ag_tree::<Rmapbt>(ag).insert(tx, &merged),
    }
}

/// The record of the same owner and fork that covers `old`, which may differ from it in being unwritten.
fn covering(tx: &mut Transaction, ag: Ag, old: &Rmap) -> Result<Option<Rmap>> {
    let same = |record: &Rmap| {
        let offset = record.offset & !rmap_offset::UNWRITTEN;
        let advance = if record.has_offset() { u64::from(old.start.0.saturating_sub(record.start.0)) } else { 0 };
        record.start <= old.start
            && record.end() >= old.end()
            && record.owner == old.owner
            && offset + advance == old.offset & !rmap_offset::UNWRITTEN
    };
    let nearest = ag_tree::<Rmapbt>(ag).lookup_le(tx, &Rmapbt::key(old))?;
    if let Some(record) = nearest
        && same(&record)
    {
        return Ok(nearest);
    }
    if tx.geometry().has_reflink() { find_touching(tx, ag, old.start, same) } else { Ok(None) }
}

/// Removes the mapping `old`, which may be a part of a record. Says whether the blocks were recorded as unwritten.
pub(super) fn remove(tx: &mut Transaction, ag: Ag, old: Rmap) -> Result<bool> {
    if !tx.geometry().has_rmap() {
        return Ok(false);
    }
    let whole = covering(tx, ag, &old)?;
    ensure_on_disk!(whole.is_some(), "rmapbt block", "freed blocks belong to their owner", "{old:?}");
    let whole = whole.expect("checked above");
    let before = old.start.0 - whole.start.0;
    let after = whole.end() - old.end();
    if before > 0 {
        resize(tx, ag, &whole, before)?;
    } else {
        ag_tree::<Rmapbt>(ag).remove(tx, &whole)?;
    }
    if after > 0 {
        let rest = part(&whole, old.end(), after);
        ag_tree::<Rmapbt>(ag).insert(tx, &rest)?;
    }
    Ok(whole.offset & rmap_offset::UNWRITTEN != 0)
}

/// Records that touch the blocks, two at most.
pub(super) fn touching(tx: &mut Transaction, ag: Ag, start: AgBlock, count: u32) -> Result<SmallVec<[Rmap; 2]>> {
    let low = RmapOrder { start, owner: 0, offset: 0 };
    let high = RmapOrder { start: AgBlock(start.0 + count - 1), owner: u64::MAX, offset: u64::MAX };
    let mut found = SmallVec::new();
    let mut cursor = ag_tree::<Rmapbt>(ag).cursor();
    cursor.query(tx, &low, &high, |record| {
        found.push(*record);
        if found.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    cursor.close(tx);
    Ok(found)
}

/// Forgets the owner of blocks that are about to be freed by an intent, which does not name it: they have one owner,
/// or none any more.
pub(super) fn remove_any(tx: &mut Transaction, ag: Ag, start: AgBlock, count: u32) -> Result<()> {
    if !tx.geometry().has_rmap() {
        return Ok(());
    }
    match touching(tx, ag, start, count)?.as_slice() {
        [] => Ok(()),
        [whole] if whole.start <= start && start.0 + count <= whole.end() => {
            let old = part(whole, start.0, count);
            remove(tx, ag, old).map(|_| ())
        }
        others => {
            ensure_on_disk!(
                false,
                "rmapbt block",
                "blocks freed by an intent have one owner or none",
                "{count} blocks from {start}: {others:?}"
            );
            Ok(())
        }
    }
}
