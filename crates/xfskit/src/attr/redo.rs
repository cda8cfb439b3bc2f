//! Does an update again that an intent describes.
//!
//! A crash may have come before any step of the update or after some, and the kernel, which may have made those steps,
//! leaves other traces than xfskit: an entry marked incomplete, or the old value gone and the new one not there yet.
//! So everything that the update was to remove or to add is removed first, if it is there, whole or incomplete; then
//! what it was to add is added. That comes to the same however often it is done.

use super::deferred::{AttrOp, Change, Kept, Progress};
use super::{Attr, Form, form, leftovers, remote, shortform, tree};
use crate::cache::ForkKind;
use crate::deferred::{DeferredOp, Step};
use crate::error::Result;
use crate::inode::bmap;
use crate::item::LogVector;
use crate::mount::Mount;
use crate::trans::{InoId, Transaction};
use xfskit_ondisk::log_items::{AttrIntent, AttrVerb};
use xfskit_ondisk::{Extent, InodeNumber};

/// An update that is done again.
pub struct Redo {
    change: Change<'static>,
    progress: Progress,
    inode: InodeNumber,
    generation: u32,
    /// Blocks that nothing names and that go first; `None` while nobody has looked for them.
    leftovers: Option<Vec<Extent>>,
}

impl Redo {
    /// The update that an intent describes. The first of an inode begins with what others left mapped for values that never
    /// came; later ones must not, for the first may have mapped blocks that it does not name yet.
    pub fn new(mount: &Mount, intent: &AttrIntent<'_>, is_first: bool) -> Self {
        let attr = |name, value| Kept::owned(mount, &Attr { namespace: intent.namespace, name, value });
        let first = attr(intent.name, intent.value);
        let change = match intent.verb {
            AttrVerb::Set | AttrVerb::SetParent => Change::Set { new: first },
            AttrVerb::Remove | AttrVerb::RemoveParent => Change::Remove { old: first },
            AttrVerb::Replace => Change::Replace { old: first.clone(), new: first },
            AttrVerb::ReplaceParent => Change::Replace { old: first, new: attr(intent.new_name, intent.new_value) },
        };
        let progress = Progress::Start;
        let leftovers = (!is_first).then(Vec::new);
        Self { change, progress, inode: intent.inode, generation: intent.generation, leftovers }
    }

    /// Whose attribute it is.
    pub fn inode(&self) -> InodeNumber {
        self.inode
    }

    /// Whether it is about a parent pointer.
    pub fn is_parent(&self) -> bool {
        self.change.is_parent()
    }

    /// Length of the value that is added.
    pub fn value_bytes(&self) -> usize {
        match &self.change {
            Change::Set { new } | Change::Replace { new, .. } => new.value.len(),
            Change::Remove { .. } => 0,
        }
    }

    /// Does as much as fits the transaction; returns what is left. Where a value finds no space the attribute stays as it
    /// was, for nobody was told that it had changed.
    ///
    /// # Errors
    /// `NoSpace`, `Corrupt`, `Io`.
    pub fn step(self, tx: &mut Transaction, ino: InoId) -> Result<Option<Self>> {
        tx.inode_memory_mut(ino).known_absent = Default::default();
        let mut leftovers = match self.leftovers {
            Some(leftovers) => leftovers,
            None => leftovers::unnamed(tx, ino)?,
        };
        if let Some(extent) = leftovers.pop() {
            leftovers::reclaim(tx, ino, &extent)?;
            return Ok(Some(Self { leftovers: Some(leftovers), ..self }));
        }
        let (inode, generation) = (self.inode, self.generation);
        let mut progress = self.progress;
        if let Progress::Mapping { at, mapped, total } = progress
            && mapped < total
        {
            // Another update of the inode may have come between, and taken the rest of the range for its own value.
            let rest = at.add(mapped.into());
            if bmap::first_unused(tx, ino, ForkKind::Attr, rest, total - mapped)? != rest {
                progress = Progress::Start;
            }
        }
        let op = AttrOp { ino, change: self.change, progress, inode, generation, again: true };
        Ok(match op.step(tx)? {
            Step::Roll(AttrOp { change, progress, .. }) => {
                Some(Self { change, progress, inode, generation, leftovers: Some(leftovers) })
            }
            Step::Done => None,
            Step::NoSpace(op) => {
                op.undo(tx)?;
                None
            }
        })
    }

    /// Formats an intent for the whole of it.
    pub fn format_intent(&self, id: u64, copy: &mut LogVector) {
        self.change.format_intent(self.inode, self.generation, id, copy);
    }
}

/// Removes every entry of a key, whole or incomplete, with the blocks of its value.
pub(super) fn remove_every(tx: &mut Transaction, ino: InoId, key: &Attr<'_>) -> Result<()> {
    match form(tx, ino) {
        Form::None | Form::Empty => {}
        Form::Shortform => while shortform::remove(tx, ino, key, true)? {},
        Form::Tree => {
            for incomplete in [true, false] {
                while let Some(place) = tree::lookup(tx, ino, key, incomplete)? {
                    tree::remove(tx, ino, key, incomplete)?;
                    if let Some(place) = place {
                        remote::free(tx, ino, place)?;
                    }
                }
            }
        }
    }
    Ok(())
}
