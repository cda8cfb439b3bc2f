//! Extent map intents (BUI): a fork maps blocks, or unmaps them record by record from the end. The reverse mappings
//! change in the same transaction.

use super::inode;
use crate::error::Result;
use crate::error_tags::BMAP_FINISH_ONE;
use crate::incore::ForkKind;
use crate::inode::bmap::{map_extent, unmap_extent};
use crate::item::LogVector;
use crate::mount::Mount;
use crate::space::step_reservation;
use crate::trans::deferred::{StepResult, Work};
use crate::trans::{Reservation, Transaction};
use std::sync::Arc;
use xfskit_ondisk::Extent;
use xfskit_ondisk::log_items::bmap::encode_intent;
use xfskit_ondisk::log_items::{BmapIntent, BmapVerb, encode_done};
use xfskit_ondisk::log_record::item_type;

/// A change of one fork.
pub(super) struct Change(BmapIntent);

impl Change {
    pub(super) fn new(mount: &Arc<Mount>, intent: BmapIntent) -> Result<Self> {
        inode::named(mount, intent.inode, None)?;
        Ok(Self(intent))
    }
}

impl Work for Change {
    fn reserve(&self, mount: &Mount) -> Reservation {
        let levels = mount.limits.data_levels.max(mount.limits.attr_levels);
        step_reservation(mount, 0, 2 * u64::from(levels) + 2)
    }

    fn step(&mut self, tx: &mut Transaction) -> Result<StepResult> {
        let intent = &mut self.0;
        let ino = inode::join(tx, intent.inode)?;
        let fork = if intent.attr_fork { ForkKind::Attr } else { ForkKind::Data };
        let extent = Extent {
            file_block: intent.offset,
            block: intent.extent.block,
            count: intent.extent.count.into(),
            unwritten: intent.unwritten,
        };
        let left = match intent.verb {
            BmapVerb::Map => map_extent(tx, ino, fork, extent).map(|()| 0)?,
            BmapVerb::Unmap => unmap_extent(tx, ino, fork, extent)?,
        };
        intent.extent.count = left as u32;
        Ok(if left == 0 { StepResult::Done } else { StepResult::Roll })
    }

    fn encode_intent(&self, id: u64, copy: &mut LogVector) {
        copy.push(&encode_intent(&BmapIntent { id, ..self.0 }));
    }

    fn encode_done(&self, id: u64, copy: &mut LogVector) {
        copy.push(&encode_done(item_type::BUD, id));
    }

    fn error_tag(&self) -> &'static str {
        BMAP_FINISH_ONE
    }
}
