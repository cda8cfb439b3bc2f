//! Replaces records of a map, merges those that continue each other, and checks beforehand that the map can take them.

use super::apply::{replace, small_limit};
use super::extents;
use crate::error::{Error, Result};
use crate::error_tags::REFUSE_RECORDS;
use crate::incore::ForkKind;
use crate::trans::{InoId, Transaction};
use smallvec::SmallVec;
use std::ops::Range;
use xfskit_ondisk::extent::MAX_EXTENT_BLOCKS;
use xfskit_ondisk::{Extent, FileBlock, FsBlock};

/// Records of one change.
pub(super) type Records = SmallVec<[Extent; 5]>;

/// Most records under the error tag `reduce_max_iextents`.
const FEW: u64 = 10;

/// Most records that a fork may have. An inode gets large counters when it needs them, where the image has that
/// feature. No directory can have as many blocks as that, so its operations need not count them beforehand.
fn most_records(tx: &mut Transaction, ino: InoId, fork: ForkKind) -> u64 {
    let is_directory = fork == ForkKind::Data && tx.inode(ino).core.is_dir();
    if !is_directory && tx.counts_few_extents() {
        return FEW;
    }
    match fork {
        _ if !tx.geometry().has_large_extent_counts() => small_limit(fork),
        ForkKind::Data => (1 << 48) - 1,
        ForkKind::Attr => (1 << 32) - 1,
    }
}

/// Checks that `added` more records of a map can be counted.
///
/// # Errors
/// `TooLarge`; `Corrupt`, `Io`.
pub fn expect_count(tx: &mut Transaction, ino: InoId, fork: ForkKind, added: usize) -> Result<()> {
    let count = extents(tx, ino, fork)?.len() + added;
    if count as u64 > most_records(tx, ino, fork) { Err(Error::TooLarge) } else { Ok(()) }
}

/// Checks that a map can take `added` more records side by side, before anything is changed.
///
/// # Errors
/// As [`expect_count`], and `NoSpace` when the transaction has no blocks for the tree.
pub fn expect_records(tx: &mut Transaction, ino: InoId, fork: ForkKind, added: usize) -> Result<()> {
    if added == 0 {
        return Ok(());
    }
    expect_count(tx, ino, fork, added)?;
    if !tx.is_dirty() && tx.mount().error_tags.strikes(REFUSE_RECORDS) {
        return Err(Error::TooLarge);
    }
    // Only the first of them can find full blocks all the way up.
    let levels = tx.mount().limits.data_levels;
    if tx.blocks_left() < u64::from(levels) { Err(Error::NoSpace) } else { Ok(()) }
}

/// Replaces the records of `range` (indices into the list) by `new`. New records that continue each other or a
/// neighbour become one record with it.
pub(super) fn rewrite(
    tx: &mut Transaction,
    ino: InoId,
    fork: ForkKind,
    range: Range<usize>,
    new: &[Extent],
) -> Result<()> {
    let list = extents(tx, ino, fork)?;
    let left = range.start.checked_sub(1).map(|index| list[index]);
    let right = list.get(range.end).copied();
    let mut records = Records::new();
    for next in left.iter().chain(new).chain(&right) {
        match records.last_mut() {
            Some(last) if continues(last, next) => last.count += next.count,
            _ => records.push(*next),
        }
    }
    // Neighbours that stay as they are are not rewritten.
    let keeps_left = left.is_some() && records.first() == left.as_ref();
    let keeps_right = right.is_some() && records.last() == right.as_ref();
    let range = range.start - usize::from(left.is_some() && !keeps_left)
        ..range.end + usize::from(right.is_some() && !keeps_right);
    let records = &records[usize::from(keeps_left)..records.len() - usize::from(keeps_right)];
    replace(tx, ino, fork, range, records)
}

/// Whether `right` could be one record with `left`.
fn continues(left: &Extent, right: &Extent) -> bool {
    left.end() == right.file_block
        && left.block.0 + left.count == right.block.0
        && left.unwritten == right.unwritten
        && left.count + right.count <= MAX_EXTENT_BLOCKS
}

/// The part of `extent` from fork block `first` to before `last`, which lie within it.
pub(super) fn part(extent: &Extent, first: FileBlock, last: FileBlock) -> Extent {
    Extent {
        file_block: first,
        block: FsBlock(extent.block.0 + (first.0 - extent.file_block.0)),
        count: last.0 - first.0,
        unwritten: extent.unwritten,
    }
}

/// The parts of `extent` before `first` and from `last` on.
pub(super) fn without(extent: &Extent, first: FileBlock, last: FileBlock) -> SmallVec<[Extent; 2]> {
    let mut rest = SmallVec::new();
    if first > extent.file_block {
        rest.push(part(extent, extent.file_block, first));
    }
    if last < extent.end() {
        rest.push(part(extent, last, extent.end()));
    }
    rest
}

/// `extent` with `middle` in the place of a part of it.
pub(super) fn with_middle(extent: &Extent, middle: Extent) -> Records {
    let mut records = Records::new();
    let rest = without(extent, middle.file_block, middle.end());
    records.extend(rest.iter().filter(|part| part.file_block < middle.file_block).copied());
    records.push(middle);
    records.extend(rest.iter().filter(|part| part.file_block > middle.file_block).copied());
    records
}
