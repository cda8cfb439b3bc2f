//! The free space of one AG: the bnobt and the cntbt, which hold the same extents in two orders.
//!
//! Invariants: both trees hold the same extents; no two of them touch; `free_blocks` is their sum and `longest` the
//! last record of the cntbt.

use super::ag::Ag;
use super::ag_tree::{AgTreeFormat, RootFields, ag_tree, tree_buffer};
use super::agfl::FreeList;
use crate::buffer::BufferKind;
use crate::error::Result;
use crate::trans::Transaction;
use std::mem::offset_of;
use xfskit_ondisk::AgBlock;
use xfskit_ondisk::ag::Agf;
use xfskit_ondisk::btree::{BlockKey, Bnobt, Cntbt, FreeExtent};

tree_buffer! {
    /// Blocks of the free space tree by block.
    BNOBT_KIND, Bnobt
}
tree_buffer! {
    /// Blocks of the free space tree by size.
    CNTBT_KIND, Cntbt
}
impl AgTreeFormat for Bnobt {
    type Header = Ag;
    type Source = FreeList;
    const BUFFER: &'static BufferKind = &BNOBT_KIND;
    const FIELDS: RootFields =
        RootFields { root: offset_of!(Agf, bno_root), levels: offset_of!(Agf, bno_level), blocks: None };
}

impl AgTreeFormat for Cntbt {
    type Header = Ag;
    type Source = FreeList;
    const BUFFER: &'static BufferKind = &CNTBT_KIND;
    const FIELDS: RootFields =
        RootFields { root: offset_of!(Agf, cnt_root), levels: offset_of!(Agf, cnt_level), blocks: None };
    const PRESENT: &'static str = "holds every extent of the bnobt";
}

fn block_key(start: AgBlock) -> BlockKey {
    BlockKey { start, count: 0 }
}

/// The free extent that holds `block`.
pub(super) fn extent_at(tx: &mut Transaction, ag: Ag, block: AgBlock) -> Result<Option<FreeExtent>> {
    let found = ag_tree::<Bnobt>(ag).lookup_le(tx, &block_key(block))?;
    Ok(found.filter(|extent| extent.end() > block.0))
}

/// Why the longest extent may be another one now; lengths in blocks.
enum Longest {
    /// An extent of this length was added.
    Added(u32),
    /// One of this length was taken, or a part of it.
    Taken(u32),
}

/// Counts `change` blocks and finds the longest extent anew where it may have changed.
fn update_header(tx: &mut Transaction, ag: Ag, change: i64, longest: Longest) -> Result<()> {
    let old = ag.agf(tx).longest.get();
    let longest = match longest {
        Longest::Added(added) => added.max(old),
        Longest::Taken(whole) if whole >= old => {
            let mut by_size = ag_tree::<Cntbt>(ag).cursor();
            let last = by_size.last(tx)?;
            by_size.close(tx);
            last.map_or(0, |extent| extent.count)
        }
        Longest::Taken(_) => old,
    };
    let free = i64::from(ag.agf(tx).free_blocks.get()) + change;
    ensure_on_disk!(
        (0..=i64::from(u32::MAX)).contains(&free) && i64::from(longest) <= free,
        "AGF",
        "free blocks agree with the trees",
        "{free} free, the longest extent has {longest}"
    );
    let agf = ag.agf_mut(tx);
    agf.free_blocks = (free as u32).into();
    agf.longest = longest.into();
    ag.remember(tx);
    Ok(())
}

/// Takes `taken`, which lies within one free extent, out of the free space.
pub(super) fn take(tx: &mut Transaction, ag: Ag, taken: FreeExtent) -> Result<()> {
    let mut by_block = ag_tree::<Bnobt>(ag).cursor();
    let whole = by_block.lookup_le(tx, &block_key(taken.start))?.filter(|extent| extent.end() >= taken.end());
    ensure_on_disk!(whole.is_some(), "bnobt block", "holds the free extent", "{taken:?}");
    let whole = whole.expect("checked above");
    let before = FreeExtent { start: whole.start, count: taken.start.0 - whole.start.0 };
    let after = FreeExtent { start: AgBlock(taken.end()), count: whole.end() - taken.end() };
    ag_tree::<Cntbt>(ag).remove(tx, &whole)?;
    for rest in [before, after] {
        if rest.count > 0 {
            ag_tree::<Cntbt>(ag).insert(tx, &rest)?;
        }
    }
    match (before.count > 0, after.count > 0) {
        (false, false) => by_block.remove(tx)?,
        (true, false) => by_block.update(tx, &before)?,
        (false, true) => by_block.update(tx, &after)?,
        (true, true) => {
            by_block.update(tx, &before)?;
            by_block.insert(tx, &after)?;
        }
    }
    by_block.close(tx);
    update_header(tx, ag, -i64::from(taken.count), Longest::Taken(whole.count))
}

/// Adds `freed` to the free space, merged with what it touches.
pub(super) fn give(tx: &mut Transaction, ag: Ag, freed: FreeExtent) -> Result<()> {
    let mut by_block = ag_tree::<Bnobt>(ag).cursor();
    let before = by_block.lookup_le(tx, &block_key(freed.start))?;
    let after = by_block.lookup_ge(tx, &block_key(freed.start))?;
    let apart = before.is_none_or(|b| b.end() <= freed.start.0) && after.is_none_or(|a| a.start.0 >= freed.end());
    ensure_on_disk!(apart, "bnobt block", "freed blocks were in use", "{freed:?} beside {before:?} and {after:?}");
    let before = before.filter(|extent| extent.end() == freed.start.0);
    let after = after.filter(|extent| extent.start.0 == freed.end());
    let start = before.map_or(freed.start, |extent| extent.start);
    let end = after.map_or(freed.end(), |extent| extent.end());
    let merged = FreeExtent { start, count: end - start.0 };
    for old in before.into_iter().chain(after) {
        ag_tree::<Cntbt>(ag).remove(tx, &old)?;
    }
    ag_tree::<Cntbt>(ag).insert(tx, &merged)?;
    match (before, after) {
        (None, None) => by_block.insert(tx, &merged)?,
        // The cursor stands at the extent behind.
        (None, Some(_)) => by_block.update(tx, &merged)?,
        (Some(before), after) => {
            if after.is_some() {
                by_block.remove(tx)?;
            }
            by_block.lookup(tx, &block_key(before.start))?;
            by_block.update(tx, &merged)?;
        }
    }
    by_block.close(tx);
    update_header(tx, ag, freed.count.into(), Longest::Added(merged.count))
}
