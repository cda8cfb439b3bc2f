//! Blocks of an attr fork that no entry names: they were mapped for a value, and a crash was before the entry.
//!
//! ```text
//! | tree | value of a | ........... | tree | value of b |    mapped
//!                       unnamed
//! ```
//! They look like blocks that an update under way has mapped, so only recovery looks for them, before it
//! begins the first update of the inode.

use super::tree::tree;
use super::{Form, form, remote};
use crate::dabtree::{CycleGuard, Path};
use crate::error::Result;
use crate::incore::ForkKind;
use crate::inode::bmap;
use crate::trans::{InoId, Transaction};
use std::ops::Range;
use xfskit_ondisk::attr::leaf::{LeafValue, attrs};
use xfskit_ondisk::{Extent, FileBlock, FsBlock};

/// The mapped blocks that are neither the tree's nor a value's, whole or incomplete.
///
/// # Errors
/// `Corrupt`, `Io`.
pub(super) fn unnamed(tx: &mut Transaction, ino: InoId) -> Result<Vec<Extent>> {
    let end = bmap::last_block(tx, ino, ForkKind::Attr, FileBlock(u64::MAX))?;
    if form(tx, ino) != Form::Tree || end <= FileBlock(1) {
        return Ok(Vec::new());
    }
    let named = merged(named(tx, ino)?);
    let mut found = Vec::new();
    for extent in bmap::extents(tx, ino, ForkKind::Attr)?.iter() {
        let (start, end) = (extent.file_block.0, extent.end().0);
        let first = named.partition_point(|range| range.end <= start);
        let mut from = start;
        for range in named[first..].iter().take_while(|range| range.start < end).chain([&(end..end)]) {
            if range.start > from {
                found.push(part(extent, from..range.start));
            }
            from = from.max(range.end);
        }
    }
    Ok(found)
}

fn part(extent: &Extent, blocks: Range<u64>) -> Extent {
    let skip = blocks.start - extent.file_block.0;
    let block = FsBlock(extent.block.0 + skip);
    Extent { file_block: FileBlock(blocks.start), block, count: blocks.end - blocks.start, ..*extent }
}

/// Unmaps and frees what was found, unless something else was mapped there since.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Io`.
pub(super) fn reclaim(tx: &mut Transaction, ino: InoId, found: &Extent) -> Result<()> {
    let mapped = bmap::lookup(tx, ino, ForkKind::Attr, found.file_block)?;
    let is_same = mapped.is_some_and(|extent| {
        extent.end() >= found.end() && extent.block.0 + (found.file_block.0 - extent.file_block.0) == found.block.0
    });
    if is_same { bmap::remove(tx, ino, ForkKind::Attr, found.file_block, found.count) } else { Ok(()) }
}

/// The blocks of the tree and of all values.
fn named(tx: &mut Transaction, ino: InoId) -> Result<Vec<Range<u64>>> {
    let tree = tree(ino);
    let mut named = Vec::new();
    let mut path = Path::descend(tx, &tree, 0)?;
    let mut guard = CycleGuard::default();
    loop {
        guard.visit(path.leaf().block)?;
        named.extend(path.levels.iter().map(|level| u64::from(level.block)..u64::from(level.block) + 1));
        for attr in attrs(tx.bytes(path.leaf().id)) {
            if let LeafValue::Remote { block, length } = attr?.value
                && block != 0
            {
                let start = u64::from(block);
                named.push(start..start + u64::from(remote::blocks_of(tx, length as usize)));
            }
        }
        if !path.advance(tx, &tree)? {
            path.release(tx);
            return Ok(named);
        }
    }
}

/// In order, without overlaps.
fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, last| {
        let overlaps = next.start <= last.end;
        if overlaps {
            last.end = last.end.max(next.end);
        }
        overlaps
    });
    ranges
}
