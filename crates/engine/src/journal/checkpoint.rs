//! A checkpoint that was closed: what the log writer writes as one.
//!
//! ```text
//! part (one for each shard)   entries: item, where its copy is │ slabs with the copies of inodes
//! vectors                     copies that lay in their items
//! ```
//! Invariants: each item that the checkpoint contains has exactly one entry that counts. An entry repeats what this
//! checkpoint needs to know of its item, since commits to the next one may change the item meanwhile.

use super::copies::{Copied, Copies};
use super::values::OrderedWrite;
use crate::counters::Counters;
use crate::item::{BoxedVector, CheckpointSeq, LogItem};
use std::sync::Arc;

/// An item of a checkpoint, and where its copy is.
pub(super) struct CheckpointEntry {
    pub item: Arc<dyn LogItem>,
    pub copy: EntryCopy,
    pub stale: bool,
    /// The item's `keeps_position` when this checkpoint was closed: commits to the next one may free the blocks.
    pub keeps_position: bool,
    /// Recovery must see it before the others.
    pub goes_first: bool,
}

/// Where the copy of an entry's item is.
pub(super) enum EntryCopy {
    /// In the item, while the checkpoint gathers. In a closed checkpoint: the item has no copy, since it is ordered.
    InItem,
    /// In the shard.
    InShard(Copied),
    /// Taken out of the item.
    Vector(u32),
    /// There is none here: another entry has it, or the intent was whited out.
    Gone,
}

/// What one shard gathered.
pub(super) struct ShardPart {
    pub entries: Vec<CheckpointEntry>,
    pub copies: Copies,
}

/// A checkpoint that was taken off the CIL.
pub(super) struct Checkpoint {
    pub seq: CheckpointSeq,
    pub parts: Vec<ShardPart>,
    /// Copies that were taken out of their items.
    pub vectors: Vec<BoxedVector>,
    /// Intents whose done items this checkpoint carries: they leave the AIL when it is durable.
    pub finished: Vec<Arc<dyn LogItem>>,
    pub ordered_writes: Vec<OrderedWrite>,
    pub charged_bytes: u64,
}

impl CheckpointEntry {
    /// An entry of an item that is not stale and keeps its copy at `copy`.
    pub(super) fn new(item: Arc<dyn LogItem>, copy: EntryCopy, goes_first: bool) -> Self {
        Self { item, copy, stale: false, keeps_position: false, goes_first }
    }

    /// Whether this is the entry that counts for its item.
    pub(super) fn counts(&self) -> bool {
        !matches!(self.copy, EntryCopy::Gone)
    }
}

impl Checkpoint {
    /// Number of entries.
    pub(super) fn entry_count(&self) -> usize {
        self.parts.iter().map(|part| part.entries.len()).sum()
    }

    /// Takes all entries out. The empty lists stay, so that their memory is used again.
    pub(super) fn take_entries(&mut self) -> impl Iterator<Item = CheckpointEntry> {
        self.parts.iter_mut().flat_map(|part| part.entries.drain(..))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.finished.is_empty()
            && self.ordered_writes.is_empty()
            && !self.parts.iter().flat_map(|part| &part.entries).any(CheckpointEntry::counts)
    }

    /// Takes the copies out of the items that keep them, and leaves out intents that were whited out.
    pub(super) fn take_vectors(&mut self, counters: &Counters) {
        for entry in self.parts.iter_mut().flat_map(|part| &mut part.entries) {
            if !matches!(entry.copy, EntryCopy::InItem) {
                continue;
            }
            let mut inner = entry.item.state().lock();
            let vector = inner.gathered.take_copy();
            (entry.stale, entry.keeps_position) = (inner.stale, inner.keeps_position);
            if inner.whiteout {
                inner.gathered.unpin();
                entry.copy = EntryCopy::Gone;
                continue;
            }
            drop(inner);
            if entry.item.is_intent() {
                counters.intents_logged.increment();
            }
            let Some(vector) = vector else { continue };
            if vector.value_bytes() > 0 {
                // Each value is copied twice: into its region, and from there into the record.
                counters.value_bytes_copied.add(2 * vector.value_bytes() as u64);
            }
            entry.copy = EntryCopy::Vector(self.vectors.len() as u32);
            self.vectors.push(vector);
        }
    }

    /// How many regions there are.
    pub(super) fn region_count(&self) -> usize {
        let regions = |entry: &CheckpointEntry| match &entry.copy {
            EntryCopy::InShard(place) => place.region_count(),
            EntryCopy::Vector(index) => self.vectors[*index as usize].region_count(),
            EntryCopy::InItem | EntryCopy::Gone => 0,
        };
        self.parts.iter().flat_map(|part| &part.entries).map(regions).sum()
    }

    /// Hands all regions to `each`, in the order in which recovery is to see them: an item that makes blocks anew
    /// precedes the items of later changes to them.
    pub(super) fn regions<E>(&self, mut each: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        for first in [true, false] {
            for part in &self.parts {
                for entry in part.entries.iter().filter(|entry| entry.goes_first == first) {
                    match &entry.copy {
                        EntryCopy::InShard(place) => part.copies.regions(place).try_for_each(&mut each)?,
                        EntryCopy::Vector(index) => {
                            self.vectors[*index as usize].regions().try_for_each(|region| each(&region))?;
                        }
                        EntryCopy::InItem | EntryCopy::Gone => {}
                    }
                }
            }
        }
        Ok(())
    }
}
