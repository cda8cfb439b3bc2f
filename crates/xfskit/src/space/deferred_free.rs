//! Extents that a link of their own frees, described by extent-free intents (EFI): one extent in each link.
//!
//! A transaction that holds the headers of one AG may not wait for those of a lower one. Where trying fails, the free
//! becomes a link of its own: its intent commits with the change that made the extent free, and the next link, which
//! holds no AG, frees it and logs the done item.

use super::{Owner, free, unowned};
use crate::error::Result;
use crate::error_tags::FREE_EXTENT;
use crate::item::LogVector;
use crate::mount::Mount;
use crate::trans::deferred::{StepResult, Turn, Work};
use crate::trans::reservation_of;
use crate::trans::{Reservation, Transaction};
use xfskit_ondisk::FsBlock;
use xfskit_ondisk::log_items::{ExtentFreeIntent, FsExtent, extent_free};

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

/// Log space for a step that changes a few extents in every kind of tree, and one tree in `changes` places more; and
/// `blocks` blocks.
pub fn step_reservation(mount: &Mount, changes: usize, blocks: u64) -> Reservation {
    let truncate = reservation_of(mount.reservations.itruncate);
    let write = reservation_of(mount.reservations.write);
    let log_bytes = truncate.log_bytes + write.log_bytes + (changes * 2 * mount.geometry.block_bytes()) as u32;
    Reservation { log_bytes, log_count: 1, ..Reservation::default() }.with_blocks(blocks).dipping()
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
