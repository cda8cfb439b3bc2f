//! Reverse mapping intents (RUI): all updates in one transaction, in their order. A later intent may free the blocks
//! and expects that they have no owner.

use crate::error::Result;
use crate::error_tags::RMAP_FINISH_ONE;
use crate::item::LogVector;
use crate::mount::Mount;
use crate::space::{ExtentState, rmap_change, step_reservation};
use crate::trans::deferred::{StepResult, Work};
use crate::trans::{Reservation, Transaction};
use xfskit_ondisk::log_items::rmap::encode_intent;
use xfskit_ondisk::log_items::{RmapIntent, RmapUpdate, RmapVerb, encode_done};
use xfskit_ondisk::log_record::item_type;
use xfskit_ondisk::{AgBlock, AgNumber};

/// Updates of one intent.
pub(super) struct Updates(Vec<RmapUpdate>);

impl Updates {
    pub(super) fn new(intent: RmapIntent) -> Self {
        Self(intent.updates)
    }
}

/// Applies an update. Shared blocks need no other look-up: it finds the right record among those that overlap.
fn apply(tx: &mut Transaction, update: &RmapUpdate) -> Result<()> {
    let place = tx.geometry().split_fs_block(update.extent.block);
    let (ag, start) = place.unwrap_or((AgNumber(0), AgBlock(0)));
    ensure_on_disk!(place.is_some(), "reverse mapping intent", "blocks on the device", "{:?}", update.extent);
    let mapping = update.mapping(start);
    match update.verb {
        RmapVerb::Map | RmapVerb::MapShared | RmapVerb::Alloc => rmap_change::map(tx, ag, mapping),
        RmapVerb::Unmap | RmapVerb::UnmapShared | RmapVerb::Free => rmap_change::unmap(tx, ag, mapping),
        RmapVerb::Convert | RmapVerb::ConvertShared => {
            rmap_change::convert(tx, ag, mapping, ExtentState::of_flag(update.unwritten))
        }
    }
}

impl Work for Updates {
    fn reserve(&self, mount: &Mount) -> Reservation {
        step_reservation(mount, self.0.len(), 0)
    }

    fn step(&mut self, tx: &mut Transaction) -> Result<StepResult> {
        self.0.iter().try_for_each(|update| apply(tx, update))?;
        Ok(StepResult::Done)
    }

    fn encode_intent(&self, id: u64, copy: &mut LogVector) {
        copy.push(&encode_intent(id, &self.0));
    }

    fn encode_done(&self, id: u64, copy: &mut LogVector) {
        copy.push(&encode_done(item_type::RUD, id));
    }

    fn error_tag(&self) -> &'static str {
        RMAP_FINISH_ONE
    }
}
