//! Frees extents, at once or in a link of their own, which an extent-free intent (EFI) describes: one extent in each
//! link.
//!
//! A transaction that holds the headers of one AG may not wait for those of a lower one. Where trying fails, the free
//! becomes a link of its own: its intent commits with the change that made the extent free, and the next link, which
//! holds no AG, frees it and logs the done item.

use super::ag::{Ag, below_agf};
use super::owner::Owner;
use super::{alloc, free_list, refcount, rmap, unowned};
use crate::error::{Error, Result};
use crate::error_tags::FREE_EXTENT;
use crate::item::LogVector;
use crate::mount::{BlockPool, Mount};
use crate::trans::deferred::{StepResult, Turn, Work};
use crate::trans::reservation_of;
use crate::trans::{Reservation, Transaction};
use xfskit_ondisk::btree::FreeExtent;
use xfskit_ondisk::log_items::{ExtentFreeIntent, FsExtent, extent_free};
use xfskit_ondisk::{AgBlock, FsBlock};

/// Extents that one link frees itself; further ones get links of their own. Each may change every tree of its AG, and
/// reservations are made for this many.
const FREES_PER_LINK: usize = 2;

/// Extents to free, the last one first.
pub struct Frees {
    extents: Vec<FsExtent>,
    /// The owner that they had; an intent does not say it.
    owner: Option<Owner>,
}

impl Frees {
    /// What an intent describes that a crash left.
    pub fn recovered(intent: ExtentFreeIntent) -> Self {
        Self { extents: intent.extents, owner: None }
    }
}

/// Leaves the free of an extent to a link that [`Transaction::commit`] makes.
pub fn defer_free(tx: &mut Transaction, block: FsBlock, count: u32, owner: Owner) {
    let frees = Frees { extents: vec![FsExtent { block, count }], owner: Some(owner) };
    tx.defer(Turn::Last, Vec::new(), Box::new(frees));
}

/// For a step of recovery: log space for one that changes a few extents in every kind of tree, and one tree in
/// `changes` places more; and `blocks` blocks.
pub fn step_reservation(mount: &Mount, changes: usize, blocks: u64) -> Reservation {
    let truncate = reservation_of(mount.reservations.itruncate);
    let write = reservation_of(mount.reservations.write);
    let log_bytes = truncate.log_bytes + write.log_bytes + (changes * 2 * mount.geometry.block_bytes()) as u32;
    Reservation { log_bytes, log_count: 1, ..Reservation::default() }.with_blocks(blocks).with_pool(BlockPool::Recovery)
}

impl Work for Frees {
    fn encode_intent(&self, id: u64, copy: &mut LogVector) {
        copy.push(&extent_free::encode_intent(id, &self.extents));
    }

    fn encode_done(&self, id: u64, copy: &mut LogVector) {
        copy.push(&extent_free::encode_done(id, &self.extents));
    }

    fn step(&mut self, tx: &mut Transaction) -> Result<StepResult> {
        if let Some(FsExtent { block, count }) = self.extents.pop() {
            match self.owner {
                Some(owner) => free(tx, block, count, owner)?,
                None => unowned::free(tx, block, count)?,
            }
        }
        Ok(if self.extents.is_empty() { StepResult::Done } else { StepResult::Roll })
    }

    fn reserve(&self, mount: &Mount) -> Reservation {
        step_reservation(mount, 0, 0)
    }

    fn error_tag(&self) -> &'static str {
        FREE_EXTENT
    }
}

/// Frees an extent; in the next link of the chain when its AG must not be waited for and another transaction holds it.
/// On an image that shares blocks, an extent of a data fork loses a reference, and only what no other file refers to
/// becomes free; see [`super::refcount::freeable_blocks`] for how much one transaction should take.
///
/// # Errors
/// `Corrupt` when the extent is free already or has another owner, `Io`.
pub fn free(tx: &mut Transaction, block: FsBlock, count: u32, owner: Owner) -> Result<()> {
    let mut place = Err(Error::WouldBlock);
    if owner.may_share() || tx.extents_freed() < FREES_PER_LINK {
        place = alloc::lock_extent(tx, block, count);
    }
    match place {
        Ok((ag, start)) => {
            let freed = free_in(tx, ag, start, count, owner);
            below_agf(tx, ag.number, freed)
        }
        Err(Error::WouldBlock) => {
            defer_free(tx, block, count, owner);
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Frees an extent of an AG whose AGF is locked.
fn free_in(tx: &mut Transaction, ag: Ag, start: AgBlock, count: u32, owner: Owner) -> Result<()> {
    let shared = owner.may_share() && tx.geometry().has_reflink();
    let mut rest = FreeExtent { start, count };
    let mut owner = owner;
    while rest.count > 0 {
        let count = if shared { refcount::step(tx, ag, rest)? } else { rest.count };
        let extent = FreeExtent { count, ..rest };
        if shared {
            free_list::fix(tx, ag, None)?;
            rmap::remove(tx, ag, owner.rmap(extent.start, count))?;
            for part in refcount::decrease(tx, ag, extent)? {
                free_list::fix(tx, ag, None)?;
                alloc::give_back(tx, ag, part, owner.counted())?;
            }
        } else {
            alloc::free_unshared(tx, ag, extent, owner)?;
        }
        rest = FreeExtent { start: extent.start.add(count), count: rest.count - count };
        owner = owner.advanced(count);
    }
    Ok(())
}
