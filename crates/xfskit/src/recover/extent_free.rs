//! Extent-free intents (EFI): one extent in each transaction.

use super::{Work, reservation};
use crate::error::Result;
use crate::error_tags::FREE_EXTENT;
use crate::item::LogVector;
use crate::mount::Mount;
use crate::space::unowned;
use crate::trans::{Reservation, Transaction};
use xfskit_ondisk::log_items::{ExtentFreeIntent, FsExtent, extent_free};

/// Extents to free, the last one first.
pub(super) struct Frees(Vec<FsExtent>);

impl Frees {
    pub(super) fn new(intent: ExtentFreeIntent) -> Self {
        Self(intent.extents)
    }
}

impl Work for Frees {
    fn reservation(&self, mount: &Mount) -> Reservation {
        reservation(mount, 0, 0)
    }

    fn step(mut self: Box<Self>, tx: &mut Transaction) -> Result<Option<Box<dyn Work>>> {
        if let Some(extent) = self.0.pop() {
            unowned::free(tx, extent.block, extent.count)?;
        }
        Ok(if self.0.is_empty() { None } else { Some(self) })
    }

    fn format_intent(&self, id: u64, copy: &mut LogVector) {
        copy.push(&extent_free::encode_intent(id, &self.0));
    }

    fn format_done(&self, id: u64, copy: &mut LogVector) {
        copy.push(&extent_free::encode_done(id, &self.0));
    }

    fn error_tag(&self) -> &'static str {
        FREE_EXTENT
    }
}
