//! Freeing all attributes of an inode that is going away.
//!
//! ```text
//! link 1      the root becomes an empty leaf: from here on there are no attributes, whatever blocks are left
//! link 2..n   blocks are freed from the end of the fork, a bounded number in each transaction
//! link n + 1  the root is freed
//! ```
//! After a crash the fork can be read by the system that frees the inode, ours or the kernel's.

use super::{Form, form, tree};
use crate::dabtree::ATTR_LEAF_KIND;
use crate::error::Result;
use crate::incore::{AttrFork, ForkKind};
use crate::inode::bmap;
use crate::trans::{InoId, InodeFields, Transaction};
use xfskit_ondisk::{FileBlock, ForkFormat, FsBlock};

/// Most extents that one link cuts.
const EXTENTS_PER_LINK: usize = 2;
/// Most blocks that one link frees; each leaves a cancel record in the journal.
const BLOCKS_PER_LINK: u64 = 128;

/// Frees the attr fork's blocks, rolling the transaction between portions. An attr fork without blocks is left alone.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn remove_all(tx: &mut Transaction, ino: InoId) -> Result<()> {
    if form(tx, ino) != Form::Tree {
        return Ok(());
    }
    if bmap::lookup(tx, ino, ForkKind::Attr, FileBlock(0))?.is_some() {
        tree::make_empty(tx, ino)?;
        tx.roll()?;
    }
    while free_some(tx, ino)? {
        tx.roll()?;
    }
    let state = tx.inode_mut(ino, InodeFields::ATTR_EXTENTS);
    state.attr = Some(AttrFork::EMPTY);
    state.core.attr_format = ForkFormat::Extents;
    Ok(())
}

/// Frees some blocks at the end of the fork; `false` when it was the last of them.
fn free_some(tx: &mut Transaction, ino: InoId) -> Result<bool> {
    let mut left = BLOCKS_PER_LINK;
    for _ in 0..EXTENTS_PER_LINK {
        let Some(last) = bmap::extents(tx, ino, ForkKind::Attr)?.last().copied() else { return Ok(false) };
        // The root goes last, and alone.
        let holds_more = last.file_block == FileBlock(0) && last.count > 1;
        let count = (last.count - u64::from(holds_more)).min(left);
        let first = last.count - count;
        for block in first..last.count {
            // Leaves and nodes were logged. Blocks of values were not, but nothing distinguishes them any more.
            let address = tx.geometry().fs_block_address(FsBlock(last.block.0 + block));
            ensure_on_disk!(address.is_some(), "extent record", "lies on the device");
            let bytes = tx.geometry().block_bytes();
            tx.invalidate_at(address.unwrap_or_default(), bytes, &ATTR_LEAF_KIND)?;
        }
        bmap::remove(tx, ino, ForkKind::Attr, last.file_block.add(first), count)?;
        left -= count;
        if left == 0 {
            break;
        }
    }
    Ok(!bmap::extents(tx, ino, ForkKind::Attr)?.is_empty())
}
