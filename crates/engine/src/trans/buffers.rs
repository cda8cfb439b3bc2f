//! The buffers of a transaction: locked, and changed or not.
//!
//! ```text
//! slot   0: buffer, uses, changes │ 1: released │ 2: buffer │ …      a BufId is the number of a slot
//! ```
//! Invariants
//! - A buffer is in one slot, and `uses` counts how often it was locked. A second slot of the same address may only
//!   contain a structure of another size that this transaction freed.
//! - A slot becomes free only when every use was released, and never while the buffer is changed: changes and their
//!   lock end with the commit of the link.
//! - A buffer that was invalidated is not changed again unless it is created anew; its chunks are then not logged.
//!
//! Locking: each slot owns its buffer's lock, shared in a read-only transaction. [`crate::sync`] has the order.

use super::log_buffer::{log_cancel, log_contents};
use crate::buffer::{Buffer, BufferContent, BufferKey, BufferKind, Fill};
use crate::error::Result;
use crate::item::DirtyBits;
use crate::journal::Batch;
use crate::sync::HeldLock;
use std::ops::Range;
use std::sync::Arc;
use xfskit_ondisk::logged::buffer::{CHUNK_BYTES, buffer_type};
use xfskit_ondisk::{Corruption, DiskAddress, Geometry};

/// A buffer that a transaction has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufId(u32);

struct LockedBuffer {
    address: DiskAddress,
    buffer: Arc<Buffer>,
    content: HeldLock<BufferContent>,
    dirty: DirtyBits,
    uses: u32,
    /// The blocks were freed: a cancel record instead of contents.
    invalidated: bool,
    /// Written back in order, but its contents are not logged.
    ordered: bool,
}

impl LockedBuffer {
    /// Whether the link's commit must log or order it.
    #[inline]
    fn is_changed(&self) -> bool {
        !self.dirty.is_empty() || self.invalidated || self.ordered
    }

    /// Logs what changed.
    #[inline]
    fn log_to(&self, batch: &mut Batch<'_>) {
        let kind = self.content.kind();
        if self.invalidated {
            log_cancel(batch, &self.buffer, kind);
            return;
        }
        if self.ordered {
            batch.order(&self.buffer);
        }
        // Changes to an ordered buffer are logged, and it stays ordered, so that the record that makes it is kept.
        if !self.dirty.is_empty() {
            log_contents(batch, &self.buffer, kind, self.content.bytes(), &self.dirty);
        }
    }
}

/// All buffers of a transaction.
#[derive(Default)]
pub(super) struct LockedBuffers {
    slots: Vec<Option<LockedBuffer>>,
}

impl LockedBuffers {
    /// No buffers.
    pub(super) const fn new() -> Self {
        Self { slots: Vec::new() }
    }

    fn all(&self) -> impl Iterator<Item = &LockedBuffer> {
        self.slots.iter().flatten()
    }

    #[inline]
    fn get(&self, id: BufId) -> &LockedBuffer {
        self.slots[id.0 as usize].as_ref().expect("a BufId is used only until it is released")
    }

    #[inline]
    fn get_mut(&mut self, id: BufId) -> &mut LockedBuffer {
        self.slots[id.0 as usize].as_mut().expect("a BufId is used only until it is released")
    }

    /// Adds a buffer that was locked for this transaction.
    #[inline]
    pub(super) fn add(&mut self, buffer: Arc<Buffer>, content: HeldLock<BufferContent>) -> BufId {
        self.slots.push(Some(LockedBuffer {
            address: buffer.key().address(),
            buffer,
            content,
            dirty: DirtyBits::default(),
            uses: 1,
            invalidated: false,
            ordered: false,
        }));
        BufId(self.slots.len() as u32 - 1)
    }

    /// Another use of a buffer that the transaction has already. `None` if it has none, or only a freed one of another
    /// size.
    ///
    /// # Errors
    /// `Corrupt` when it is another structure, or was freed, or is in use although it should be free.
    #[inline]
    pub(super) fn use_again(
        &mut self,
        key: &BufferKey,
        kind: &'static BufferKind,
        fill: Fill,
        geometry: &Geometry,
    ) -> Result<Option<BufId>> {
        let slots = self.slots.iter_mut().enumerate();
        for (index, locked) in slots.filter_map(|(index, slot)| Some((index, slot.as_mut()?))) {
            if locked.address != key.address() {
                continue;
            }
            if locked.buffer.key() != key {
                // A structure of another size that this transaction freed is marked stale, as the commit would do, so
                // that the cache replaces its buffer.
                if locked.invalidated {
                    locked.buffer.item().lock().stale = true;
                }
                continue;
            }
            let wrong = |check| Err(Corruption::new(kind.name, check).at(key.address()).into());
            match fill {
                Fill::Read if locked.invalidated => return wrong("not freed while it is in use"),
                Fill::Read => locked.content.check_kind(kind, geometry, key)?,
                Fill::Zero if !locked.invalidated => return wrong("free blocks are not in use"),
                Fill::Zero => {
                    let content = locked.content.exclusive();
                    content.bytes_mut().fill(0);
                    content.set_kind(kind);
                    // The block was freed and allocated again in one transaction: it is in use after all.
                    locked.invalidated = false;
                }
            }
            locked.uses += 1;
            return Ok(Some(BufId(index as u32)));
        }
        Ok(None)
    }

    /// The buffer of a key, if the transaction has it.
    pub(super) fn find(&self, key: &BufferKey) -> Option<BufId> {
        let found = self.slots.iter().position(|slot| slot.as_ref().is_some_and(|locked| locked.buffer.key() == key));
        found.map(|index| BufId(index as u32))
    }

    /// Whether the transaction has a buffer at `address`.
    #[inline]
    pub(super) fn contains(&self, address: DiskAddress) -> bool {
        self.all().any(|locked| locked.address == address)
    }

    /// The addresses of all buffers.
    pub(super) fn addresses(&self) -> impl Iterator<Item = DiskAddress> {
        self.all().map(|locked| locked.address)
    }

    /// The cached object.
    pub(super) fn handle(&self, id: BufId) -> &Arc<Buffer> {
        &self.get(id).buffer
    }

    /// Where a buffer lies.
    #[inline]
    pub(super) fn address(&self, id: BufId) -> DiskAddress {
        self.get(id).address
    }

    /// The contents.
    #[inline]
    pub(super) fn bytes(&self, id: BufId) -> &[u8] {
        self.get(id).content.bytes()
    }

    /// What the contents are.
    #[inline]
    pub(super) fn kind(&self, id: BufId) -> &'static BufferKind {
        self.get(id).content.kind()
    }

    /// The contents, for a change that the caller records with [`Self::log`], or for a change of their kind.
    #[inline]
    pub(super) fn content_mut(&mut self, id: BufId) -> &mut BufferContent {
        self.get_mut(id).content.exclusive()
    }

    /// Records that `range` changed, in units of [`CHUNK_BYTES`]. It is not empty.
    #[inline]
    pub(super) fn log(&mut self, id: BufId, range: &Range<usize>) {
        let locked = self.get_mut(id);
        assert!(range.end <= locked.content.bytes().len(), "a logged range lies within its buffer");
        assert!(!locked.invalidated, "a freed block is not changed");
        locked.dirty.set(range.start / CHUNK_BYTES..=(range.end - 1) / CHUNK_BYTES);
    }

    /// The blocks were freed.
    pub(super) fn invalidate(&mut self, id: BufId) {
        let locked = self.get_mut(id);
        locked.invalidated = true;
        locked.ordered = false;
        locked.dirty.clear();
    }

    /// Another log item makes the contents.
    pub(super) fn order(&mut self, id: BufId) {
        self.get_mut(id).ordered = true;
    }

    /// One use of a buffer is over.
    #[inline]
    pub(super) fn release(&mut self, id: BufId) {
        let slot = &mut self.slots[id.0 as usize];
        let locked = slot.as_mut().expect("a BufId is released once for each time it was given out");
        locked.uses = locked.uses.saturating_sub(1);
        if locked.uses == 0 && !locked.is_changed() {
            *slot = None;
            // Released slots at the end are dropped, so that a reader of many blocks does not search through them.
            while matches!(self.slots.last(), Some(None)) {
                self.slots.pop();
            }
        }
    }

    /// Logs what changed of all buffers.
    #[inline]
    pub(super) fn log_all_to(&self, batch: &mut Batch<'_>) {
        self.all().for_each(|locked| locked.log_to(batch));
    }

    /// Disk addresses of the inode clusters that this link freed.
    #[inline]
    pub(super) fn freed_inode_clusters(&self) -> Vec<DiskAddress> {
        let is_cluster =
            |locked: &&LockedBuffer| locked.invalidated && locked.content.kind().log_type == buffer_type::INODES;
        self.all().filter(is_cluster).map(|locked| locked.address).collect()
    }

    /// Bytes of the buffers that this link logs, as if all their bytes were dirty, with `overhead_bytes` for each.
    pub(super) fn log_bytes(&self, overhead_bytes: usize) -> usize {
        let logged = self.all().filter(|locked| locked.invalidated || !locked.dirty.is_empty());
        logged.map(|locked| locked.content.bytes().len() + overhead_bytes).sum()
    }

    /// Drops all locks; the list's memory stays.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.slots.clear();
    }

    /// Slots that the list's memory has room for.
    pub(super) fn capacity(&self) -> usize {
        self.slots.capacity()
    }
}
