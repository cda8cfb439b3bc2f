//! Copy on write's last step: blocks that others may refer to make way for new ones.

use super::rewrite::{expect_records, part, rewrite, with_middle};
use super::{extents, owner};
use crate::cache::ForkKind;
use crate::error::Result;
use crate::space::{alloc, refcount};
use crate::trans::{InoId, Transaction};
use xfskit_ondisk::{Corruption, Extent, FileBlock, FsBlock};

/// Gets ready to replace a file's blocks, before new ones are allocated: their AG is locked. Returns what one transaction
/// can replace of the `count` blocks from `at` on: no more than one record has, and than has few enough reference counts.
///
/// # Errors
/// `NoSpace` when the transaction has no blocks for the tree, `TooLarge`, `WouldBlock` when the transaction holds another AG
/// and somebody else this one; `Corrupt` when block `at` is a hole; `Io`.
pub fn prepare_replace(tx: &mut Transaction, ino: InoId, at: FileBlock, count: u64) -> Result<Extent> {
    let (_, extent) = mapped_at(tx, ino, at)?;
    let old = part(&extent, at, extent.end().min(at.add(count)));
    expect_records(tx, ino, ForkKind::Data, 2)?;
    let most = refcount::freeable_blocks(tx, old.block, old.count as u32)?;
    alloc::lock_for_free(tx, old.block, most)?;
    Ok(Extent { count: most.into(), ..old })
}

/// Maps `count` blocks from `block` on, which the transaction has allocated for this place and which are written, in the
/// place of what [`prepare_replace`] answered or of a first part of it. The old blocks lose a reference.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn replace_shared(tx: &mut Transaction, ino: InoId, at: FileBlock, block: FsBlock, count: u32) -> Result<()> {
    let fork = ForkKind::Data;
    let (index, extent) = mapped_at(tx, ino, at)?;
    let end = at.add(count.into());
    ensure_on_disk!(end <= extent.end(), "extent map", "blocks that are replaced are one record", "{extent:?}");
    let old = part(&extent, at, end);
    let new = Extent { file_block: at, block, count: count.into(), unwritten: false };
    rewrite(tx, ino, fork, index..index + 1, &with_middle(&extent, new))?;
    let owner = owner(tx, ino, fork, at);
    alloc::free(tx, old.block, count, owner)
}

/// The record that maps block `at`, and its index.
fn mapped_at(tx: &mut Transaction, ino: InoId, at: FileBlock) -> Result<(usize, Extent)> {
    let list = extents(tx, ino, ForkKind::Data)?;
    let index = list.index_at(at);
    let found = list.get(index).copied().filter(|extent| extent.file_block <= at);
    let inode = tx.inode(ino).core.inode.0;
    let missing = || Corruption::new("extent map", "blocks that are replaced are mapped").of(inode);
    Ok((index, found.ok_or_else(missing)?))
}
