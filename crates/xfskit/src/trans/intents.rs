//! Log items without an object in memory: intents, done items, records of new inode chunks; and frees that have to wait
//! for the next link of the chain.
//!
//! A transaction that holds the headers of one AG may not wait for those of a lower one. Where trying fails, the free
//! becomes a link of its own: an extent-free intent commits with the change that made the extent free, and the next
//! link, which holds no AG, frees it and logs the done item.

use super::Transaction;
use crate::error::{Error, Result};
use crate::error_tags::{FREE_EXTENT, LARP};
use crate::item::{CheckpointSeq, ItemState, LogItem, LogVector};
use crate::sync::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use xfskit_ondisk::log_items::{FsExtent, extent_free};
use xfskit_ondisk::log_record::item_type;
use xfskit_ondisk::{AgNumber, FsBlock};

/// The numbers by which done items name their intents. They count up from 1 at each mount, so that a run can be
/// replayed, and pass over those of intents from an earlier life that recovery has still to finish: only among intents
/// that live at the same time must they differ.
#[derive(Default)]
pub struct IntentIds {
    inner: Mutex<IdsInner>,
}

#[derive(Default)]
struct IdsInner {
    last: u64,
    recovered: HashSet<u64>,
}

impl IntentIds {
    /// Passes over the ids of recovered intents.
    pub fn avoid(&self, ids: impl IntoIterator<Item = u64>) {
        self.inner.lock().recovered.extend(ids);
    }

    fn next(&self) -> u64 {
        let mut inner = self.inner.lock();
        loop {
            inner.last += 1;
            if !inner.recovered.contains(&inner.last) {
                return inner.last;
            }
        }
    }
}

/// An intent as the journal sees it. It stays in the AIL until its done item is durable.
pub struct Intent {
    state: ItemState,
    id: u64,
}

impl Intent {
    /// A new intent with an id of its own.
    pub fn new(ids: &IntentIds) -> Arc<Self> {
        Arc::new(Self { state: ItemState::default(), id: ids.next() })
    }

    /// The number by which its done item names it.
    pub fn id(&self) -> u64 {
        self.id
    }
}

impl LogItem for Intent {
    fn state(&self) -> &ItemState {
        &self.state
    }

    fn is_intent(&self) -> bool {
        true
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn std::any::Any + Send + Sync> {
        self
    }
}

/// An item that has done its work once it is in the log: a done item, or the record of a new inode chunk.
#[derive(Default)]
pub struct PassingItem {
    state: ItemState,
    goes_first: bool,
}

impl LogItem for PassingItem {
    fn state(&self) -> &ItemState {
        &self.state
    }

    fn wants_write_back(&self) -> bool {
        false
    }

    fn goes_first(&self) -> bool {
        self.goes_first
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn std::any::Any + Send + Sync> {
        self
    }
}

/// An item that is nothing but its copy, as this link of the chain logs it.
pub(super) struct OtherItem {
    pub item: Arc<dyn LogItem>,
    pub copy: LogVector,
    /// A done item: the intent that it finishes.
    pub finishes: Option<Arc<dyn LogItem>>,
}

/// Does something in a link of its own: frees an extent in a transaction that holds no AG, updates an attribute.
pub type InLaterLink = Box<dyn FnOnce(&mut Transaction) -> Result<()> + Send>;

pub(super) struct PendingFree {
    block: FsBlock,
    count: u32,
    run: InLaterLink,
    intent: Option<Arc<Intent>>,
}

/// An update whose intent is logged with the caller's changes and which is done in links of its own after them.
pub struct Queued {
    /// What the update is about, so that a later change of the same waits for it.
    pub key: Vec<u8>,
    /// The intent, which is logged already.
    pub intent: Arc<Intent>,
    /// The update.
    pub update: Box<dyn Update>,
}

/// An update that waits for links of its own.
pub trait Update: Send {
    /// Formats an intent for all of it.
    fn format_intent(&self, id: u64, copy: &mut LogVector);

    /// Formats the done item of intent `id`.
    fn format_done(&self, id: u64, copy: &mut LogVector);

    /// Does it, in as many links as it takes.
    ///
    /// # Errors
    /// As [`Transaction::finish_queue`].
    fn run(self: Box<Self>, tx: &mut Transaction) -> Result<()>;
}

impl PendingFree {
    fn extent(&self) -> FsExtent {
        FsExtent { block: self.block, count: self.count }
    }
}

impl Transaction<'_> {
    /// Leaves the free of an extent to the next link of the chain, which `commit` makes.
    pub fn defer_free(&mut self, block: FsBlock, count: u32, run: InLaterLink) {
        self.pending_frees.push_back(PendingFree { block, count, run, intent: None });
    }

    /// Logs an intent for each free that waits and has none yet; part of every link's commit.
    pub(super) fn log_free_intents(&mut self) {
        for index in 0..self.pending_frees.len() {
            let pending = &mut self.pending_frees[index];
            if pending.intent.is_none() {
                let intent = Intent::new(&self.mount.intent_ids);
                pending.intent = Some(Arc::clone(&intent));
                let mut copy = LogVector::default();
                copy.push(&extent_free::encode_intent(intent.id(), &[pending.extent()]));
                self.log_intent(intent, copy);
            }
        }
    }

    /// Leaves an update to links that `commit` makes.
    pub fn queue(&mut self, update: Queued) {
        self.queued.push_back(update);
    }

    /// Whether updates wait for their links.
    pub fn has_queue(&self) -> bool {
        !self.queued.is_empty()
    }

    /// Whether an update waits that is about the key.
    pub fn has_queued(&self, key: impl FnOnce() -> Vec<u8>) -> bool {
        if self.queued.is_empty() {
            return false;
        }
        let key = key();
        self.queued.iter().any(|queued| queued.key == key)
    }

    /// Logs the intents of all that waits anew, and that the old ones are done: the next link has to wait for log space, and
    /// they must not be what holds the tail. Those in the checkpoint at hand are at the head already.
    pub(super) fn relog_intents(&mut self) {
        let mut queued = std::mem::take(&mut self.queued);
        for Queued { intent, update, .. } in &mut queued {
            let (format_intent, format_done) = (
                |id, copy: &mut LogVector| update.format_intent(id, copy),
                |id, copy: &mut LogVector| update.format_done(id, copy),
            );
            self.relog_intent(intent, format_intent, format_done);
        }
        self.queued = queued;
        let mut pending = std::mem::take(&mut self.pending_frees);
        for free in &mut pending {
            let extent = [free.extent()];
            let Some(intent) = &mut free.intent else { continue };
            self.relog_intent(
                intent,
                |id, copy| copy.push(&extent_free::encode_intent(id, &extent)),
                |id, copy| copy.push(&extent_free::encode_done(id, &extent)),
            );
        }
        self.pending_frees = pending;
    }

    fn relog_intent(
        &mut self,
        intent: &mut Arc<Intent>,
        format_intent: impl Fn(u64, &mut LogVector),
        format_done: impl Fn(u64, &mut LogVector),
    ) {
        // Those that this link commits, or the checkpoint at hand has, are at the head.
        let logged_in = intent.state.lock().in_cil;
        if logged_in == CheckpointSeq::default() || logged_in == self.mount.journal.current() {
            return;
        }
        let new = Intent::new(&self.mount.intent_ids);
        let (mut copy, mut done) = (LogVector::default(), LogVector::default());
        format_intent(new.id(), &mut copy);
        self.log_intent(Arc::clone(&new) as _, copy);
        format_done(intent.id(), &mut done);
        let old = std::mem::replace(intent, new);
        self.log_done(Arc::new(PassingItem::default()), done, old);
        self.mount.counters.intents_relogged.increment();
    }

    /// Does what was queued, each update in links of its own; the last of them is left to commit. An update that finds
    /// no space is taken back, and the others are done all the same.
    ///
    /// # Errors
    /// `NoSpace` for an update that was taken back; `Corrupt`, `Io`, `Shutdown`.
    pub fn finish_queue(&mut self) -> Result<()> {
        let mut taken_back = false;
        while !self.queued.is_empty() {
            taken_back |= self.in_later_link(Self::make_queued_link)?;
        }
        if !taken_back {
            return Ok(());
        }
        // Whoever is told so finds a transaction without changes.
        self.in_later_link(Self::roll)?;
        Err(Error::NoSpace)
    }

    /// Does the first of the queued updates; says whether it had to be taken back for want of space.
    fn make_queued_link(&mut self) -> Result<bool> {
        self.roll()?;
        self.mount.stop_if_tagged(LARP)?;
        let Some(Queued { intent, update, .. }) = self.queued.pop_front() else { return Ok(false) };
        let mut done = LogVector::default();
        update.format_done(intent.id(), &mut done);
        self.log_done(Arc::new(PassingItem::default()), done, intent);
        match update.run(self) {
            Err(Error::NoSpace) if !self.dirty => Ok(true),
            other => other.map(|()| false),
        }
    }

    /// Makes the links that free what was left for later; the last of them is left to commit.
    ///
    /// # Errors
    /// `Corrupt`, `Io`, `Shutdown`.
    pub fn finish_frees(&mut self) -> Result<()> {
        if self.pending_frees.is_empty() { Ok(()) } else { self.in_later_link(Self::make_free_links) }
    }

    fn make_free_links(&mut self) -> Result<()> {
        while !self.pending_frees.is_empty() {
            self.roll()?;
            self.mount.stop_if_tagged(FREE_EXTENT)?;
            let Some(pending) = self.pending_frees.pop_front() else { break };
            let extent = pending.extent();
            if let Some(intent) = pending.intent {
                let mut copy = LogVector::default();
                copy.push(&extent_free::encode_done(intent.id(), &[extent]));
                self.log_done(Arc::new(PassingItem::default()), copy, intent);
            }
            (pending.run)(self)?;
        }
        Ok(())
    }

    /// Counts the extent as freed and keeps it busy until the transaction is durable: what lies there on disk may
    /// still be needed by recovery.
    pub fn extent_freed(&mut self, ag: AgNumber, block: xfskit_ondisk::AgBlock, count: u32) {
        self.freed_extents.push(super::FreedExtent { ag, block, count });
    }

    /// The extents of `ag` that this link of the chain freed.
    pub fn freed_extents(&self, ag: AgNumber) -> impl Iterator<Item = (xfskit_ondisk::AgBlock, u32)> {
        self.freed_extents.iter().filter(move |freed| freed.ag == ag).map(|freed| (freed.block, freed.count))
    }

    /// Extents that this link of the chain freed.
    pub fn extents_freed(&self) -> usize {
        self.freed_extents.len()
    }

    /// Logs an intent.
    pub fn log_intent(&mut self, intent: Arc<dyn LogItem>, copy: LogVector) {
        self.log_other(intent, copy, None);
    }

    /// Logs that an intent is finished.
    pub fn log_done(&mut self, done: Arc<dyn LogItem>, copy: LogVector, intent: Arc<dyn LogItem>) {
        self.log_other(done, copy, Some(intent));
    }

    /// Logs that an inode chunk was made: recovery makes its inodes again from this alone, so the buffers themselves
    /// are only ordered (the kernel's `struct xfs_icreate_log`).
    pub fn log_icreate(
        &mut self,
        ag: AgNumber,
        block: xfskit_ondisk::AgBlock,
        inodes: u32,
        blocks: u32,
        generation: u32,
    ) {
        let mut copy = LogVector::default();
        let inode_bytes = self.geometry().inode_bytes() as u32;
        copy.push_with(28, |out| {
            out[0..2].copy_from_slice(&item_type::ICREATE.to_le_bytes());
            out[2..4].copy_from_slice(&1u16.to_le_bytes());
            for (index, word) in [ag.0, block.0, inodes, inode_bytes, blocks, generation].iter().enumerate() {
                out[4 + 4 * index..8 + 4 * index].copy_from_slice(&word.to_be_bytes());
            }
        });
        self.log_other(Arc::new(PassingItem { goes_first: true, ..PassingItem::default() }), copy, None);
    }

    fn log_other(&mut self, item: Arc<dyn LogItem>, copy: LogVector, finishes: Option<Arc<dyn LogItem>>) {
        self.dirty = true;
        self.items.push(OtherItem { item, copy, finishes });
    }
}
