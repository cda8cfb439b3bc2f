//! Frees extents of which only an intent says that they have no owner any more.

use super::ag::below_agf;
use super::owner::Counted;
use super::{alloc, free_list, rmap};
use crate::error::Result;
use crate::trans::Transaction;
use xfskit_ondisk::FsBlock;
use xfskit_ondisk::btree::FreeExtent;

/// Frees an extent whose owner the caller does not know. If its owner is still recorded, the record goes with it:
/// the kernel logs the removal of that record as an intent of its own, xfskit frees both in one transaction.
///
/// # Errors
/// `Corrupt` when the extent is free already, or is only partly one owner's; `WouldBlock` as [`super::free()`];
/// `Io`.
pub fn free(tx: &mut Transaction, block: FsBlock, count: u32) -> Result<()> {
    let (ag, start) = alloc::lock_extent(tx, block, count)?;
    let result = (|| {
        free_list::fix(tx, ag, None)?;
        rmap::remove_any(tx, ag, start, count)?;
        alloc::give_back(tx, ag, FreeExtent { start, count }, Counted::AsUsed)
    })();
    below_agf(tx, ag.number, result)
}
