//! Does an update again that an intent describes.
//!
//! A crash may have been before any step of the update or after some. The kernel, which may have made those steps,
//! leaves other traces than xfskit: an entry marked incomplete, or the old value gone and the new one not there yet.
//! So everything that the update was to remove or to add is removed first, if it is there, whole or incomplete; then
//! what it was to add is added. The result is the same however often it is done.

use super::remote::HostRoom;
use super::work::{AttrUpdate, Before, FullHost, encode_done};
use super::{Change, leftovers};
use crate::error::Result;
use crate::item::LogVector;
use crate::mount::Mount;
use crate::trans::deferred::StepResult;
use crate::trans::{InoId, Reservation, Transaction};
use xfskit_ondisk::log_items::AttrIntent;
use xfskit_ondisk::{Extent, InodeNumber};

/// An update that is done again.
pub struct Redo {
    update: AttrUpdate<'static>,
    /// Blocks that nothing names and that go first; `None` before the first step has looked for them.
    leftovers: Option<Vec<Extent>>,
}

impl Redo {
    /// The update that an intent describes. The first of an inode begins with what others left mapped for values that
    /// were never named; later ones must not, for the first may have mapped blocks that it does not name yet.
    pub fn new(mount: &Mount, intent: &AttrIntent<'_>, is_first: bool) -> Self {
        let change = Change::of_intent(mount, intent);
        let (inode, generation) = (intent.inode, intent.generation);
        let (before, full_host, host_room) = (Before::Unknown, FullHost::IsRisked, HostRoom::Enough);
        let update = AttrUpdate { change, mapping: None, inode, generation, before, full_host, host_room };
        Self { update, leftovers: (!is_first).then(Vec::new) }
    }

    /// The inode of the attribute.
    pub fn inode(&self) -> InodeNumber {
        self.update.inode
    }

    /// Whether it is about a parent pointer.
    pub fn is_parent(&self) -> bool {
        self.update.change.is_parent()
    }

    /// Does as much as fits the transaction, to which the inode belongs as `ino`.
    ///
    /// # Errors
    /// `NoSpace`, `Corrupt`, `Io`.
    pub fn step(&mut self, tx: &mut Transaction, ino: InoId) -> Result<StepResult> {
        tx.inode_memory_mut(ino).known_absent = Default::default();
        if self.leftovers.is_none() {
            self.leftovers = Some(leftovers::unnamed(tx, ino)?);
        }
        if let Some(extent) = self.leftovers.as_mut().and_then(Vec::pop) {
            leftovers::reclaim(tx, ino, &extent)?;
            return Ok(StepResult::Roll);
        }
        // Another update of the inode may have taken the rest of the range for its own value.
        if let Some(mapping) = self.update.mapping
            && !mapping.is_rest_free(tx, ino)?
        {
            self.update.mapping = None;
        }
        self.update.step(tx, ino)
    }

    /// Where a value found no space: the attribute stays as it was, for no caller has been answered that it had
    /// changed.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn undo(&mut self, tx: &mut Transaction, ino: InoId) -> Result<()> {
        self.update.undo(tx, ino)
    }

    /// Log space and blocks for a step.
    pub fn reserve(&self, mount: &Mount) -> Reservation {
        self.update.reserve(mount)
    }

    /// Encodes an intent for the whole of it.
    pub fn encode_intent(&self, id: u64, copy: &mut LogVector) {
        self.update.encode_intent(id, copy);
    }

    /// Encodes the done item of its intent.
    pub fn encode_done(&self, id: u64, copy: &mut LogVector) {
        encode_done(id, copy);
    }
}
