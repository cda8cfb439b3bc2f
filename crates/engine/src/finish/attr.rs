//! Attribute intents (ATTRI), in all six forms. The update is done again from its beginning, see
//! [`Redo`](crate::attr::Redo). Only this run knows how much is left after a step; the intent for the rest describes
//! the whole update again.

use super::inode;
use crate::attr::Redo;
use crate::error::Result;
use crate::error_tags::LARP;
use crate::item::LogVector;
use crate::mount::Mount;
use crate::trans::deferred::{StepResult, Work};
use crate::trans::{InoId, Reservation, Transaction};
use std::sync::Arc;
use xfskit_ondisk::log_items::AttrIntent;

/// An update under way.
pub(super) struct Update {
    redo: Redo,
    /// The inode in the current transaction.
    ino: Option<InoId>,
}

impl Update {
    /// `is_first`: no intent before this one names the same inode.
    pub(super) fn new(mount: &Arc<Mount>, intent: &AttrIntent<'_>, is_first: bool) -> Result<Self> {
        // Only the intents of parent pointers record a generation.
        inode::named(mount, intent.inode, intent.verb.is_parent().then_some(intent.generation))?;
        Ok(Self { redo: Redo::new(mount, intent, is_first), ino: None })
    }
}

impl Work for Update {
    fn encode_intent(&self, id: u64, copy: &mut LogVector) {
        self.redo.encode_intent(id, copy);
    }

    fn encode_done(&self, id: u64, copy: &mut LogVector) {
        self.redo.encode_done(id, copy);
    }

    fn step(&mut self, tx: &mut Transaction) -> Result<StepResult> {
        let ino = inode::join(tx, self.redo.inode())?;
        self.ino = Some(ino);
        self.redo.step(tx, ino)
    }

    fn undo(&mut self, tx: &mut Transaction) -> Result<()> {
        let ino = self.ino.expect("the step that found no space has joined the inode");
        self.redo.undo(tx, ino)
    }

    fn reserve(&self, mount: &Mount) -> Reservation {
        self.redo.reserve(mount)
    }

    fn error_tag(&self) -> &'static str {
        LARP
    }

    fn may_be_left(&self) -> bool {
        !self.redo.is_parent()
    }
}
