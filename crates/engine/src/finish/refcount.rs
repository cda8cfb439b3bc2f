//! Reference count intents (CUI): as many updates as fit a transaction, in their order.

use crate::error::Result;
use crate::error_tags::REFCOUNT_FINISH_ONE;
use crate::item::LogVector;
use crate::mount::Mount;
use crate::space::{cow, refcount, step_reservation};
use crate::trans::deferred::{StepResult, Work};
use crate::trans::{Reservation, Transaction};
use xfskit_ondisk::FsBlock;
use xfskit_ondisk::log_items::refcount::encode_intent;
use xfskit_ondisk::log_items::{RefcountIntent, RefcountUpdate, RefcountVerb, encode_done};
use xfskit_ondisk::log_record::item_type;

/// Parts of updates that one transaction does; each changes a bounded number of records.
const MAX_PARTS: usize = 16;

/// Updates from `next` on.
pub(super) struct Updates {
    updates: Vec<RefcountUpdate>,
    next: usize,
}

impl Updates {
    pub(super) fn new(intent: RefcountIntent) -> Self {
        Self { updates: intent.updates, next: 0 }
    }
}

/// Applies an update to as many of its blocks as fit; returns how many.
fn apply(tx: &mut Transaction, update: &RefcountUpdate) -> Result<u32> {
    let (block, count) = (update.extent.block, update.extent.count);
    match update.verb {
        RefcountVerb::Increase => refcount::increase_some(tx, block, count),
        RefcountVerb::Decrease => refcount::decrease_some(tx, block, count),
        RefcountVerb::AllocCow => cow::stage(tx, block, count).map(|()| count),
        RefcountVerb::FreeCow => cow::unstage(tx, block, count).map(|()| count),
    }
}

impl Work for Updates {
    fn reserve(&self, mount: &Mount) -> Reservation {
        step_reservation(mount, 2 * MAX_PARTS, 4 * u64::from(mount.limits.refcount_levels) + 2 * MAX_PARTS as u64)
    }

    fn step(&mut self, tx: &mut Transaction) -> Result<StepResult> {
        for _ in 0..MAX_PARTS {
            let next = self.next;
            let Some(update) = self.updates.get_mut(next) else { return Ok(StepResult::Done) };
            let done = apply(tx, update)?;
            update.extent.block = FsBlock(update.extent.block.0 + u64::from(done));
            update.extent.count -= done;
            if update.extent.count == 0 {
                self.next += 1;
            }
        }
        Ok(if self.next >= self.updates.len() { StepResult::Done } else { StepResult::Roll })
    }

    fn encode_intent(&self, id: u64, copy: &mut LogVector) {
        copy.push(&encode_intent(id, &self.updates[self.next..]));
    }

    fn encode_done(&self, id: u64, copy: &mut LogVector) {
        copy.push(&encode_done(item_type::CUD, id));
    }

    fn error_tag(&self) -> &'static str {
        REFCOUNT_FINISH_ONE
    }
}
