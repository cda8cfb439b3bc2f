//! Attribute intents (ATTRI), in all six forms. The update is done again from its beginning, see
//! [`Redo`](crate::attr::Redo); what it still has to do after a step is known to this run alone, and described in the
//! log as the whole update again.

use super::{Work, inode};
use crate::attr::Redo;
use crate::attr::update::{self, Logging};
use crate::error::Result;
use crate::error_tags::LARP;
use crate::item::LogVector;
use crate::mount::Mount;
use crate::trans::{Reservation, Transaction};
use std::sync::Arc;
use xfskit_ondisk::log_items::{AttrIntent, encode_done};
use xfskit_ondisk::log_record::item_type;

/// An update under way.
pub(super) struct Update(Redo);

impl Update {
    /// `is_first`: no intent before it is about the same inode.
    pub(super) fn new(mount: &Arc<Mount>, intent: &AttrIntent<'_>, is_first: bool) -> Result<Self> {
        // Only the intents of parent pointers record a generation.
        inode::named(mount, intent.inode, intent.verb.is_parent().then_some(intent.generation))?;
        Ok(Self(Redo::new(mount, intent, is_first)))
    }
}

impl Work for Update {
    fn reservation(&self, mount: &Mount) -> Reservation {
        update::reservation(mount, self.0.value_bytes(), Logging::Logged).dipping()
    }

    fn step(self: Box<Self>, tx: &mut Transaction) -> Result<Option<Box<dyn Work>>> {
        let ino = inode::join(tx, self.0.inode())?;
        Ok(self.0.step(tx, ino)?.map(|rest| Box::new(Self(rest)) as _))
    }

    fn format_intent(&self, id: u64, copy: &mut LogVector) {
        self.0.format_intent(id, copy);
    }

    fn format_done(&self, id: u64, copy: &mut LogVector) {
        copy.push(&encode_done(item_type::ATTRD, id));
    }

    fn error_tag(&self) -> &'static str {
        LARP
    }

    fn may_be_left(&self) -> bool {
        !self.0.is_parent()
    }
}
