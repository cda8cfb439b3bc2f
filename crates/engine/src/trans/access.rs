//! The methods that the layers above call in a transaction: lock and change buffers and inodes, count, and log.
//!
//! A method here calls the part that does the work, and notes that the transaction has changed something.

use super::{BufId, InoId, Transaction};
use crate::buffer::{BufferKey, BufferKind, Fill};
use crate::error::{Error, Result};
use crate::error_tags::REFUSE_LOCK;
use crate::incore::{Inode, InodeState};
use crate::item::{LogItem, LogOnlyItem, LogOnlyRole, LogVector};
use crate::journal::OrderedWrite;
use crate::mount::BlockPool;
use crate::sync::{HeldLock, IfLocked};
use crate::value::ValueBlocks;
use std::ops::Range;
use std::sync::Arc;
use xfskit_ondisk::logged::icreate::NewInodes;
use xfskit_ondisk::logged::inode::InodeFields;
use xfskit_ondisk::{AgBlock, AgNumber, DiskAddress};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Buffers.
impl Transaction<'_> {
    /// Reads and locks the structure of `kind` in `bytes` bytes at `address`.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn read(&mut self, address: DiskAddress, bytes: usize, kind: &'static BufferKind) -> Result<BufId> {
        self.get(&BufferKey::new(address, bytes), kind, Fill::Read, IfLocked::Wait)
    }

    /// As [`Self::read`], for a structure that may lie in several runs.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn read_key(&mut self, key: &BufferKey, kind: &'static BufferKind) -> Result<BufId> {
        self.get(key, kind, Fill::Read, IfLocked::Wait)
    }

    /// As [`Self::read`], but does not wait for a lock.
    ///
    /// # Errors
    /// `WouldBlock` when another transaction has the buffer locked; `Corrupt` or `Io`.
    pub fn try_read(&mut self, address: DiskAddress, bytes: usize, kind: &'static BufferKind) -> Result<BufId> {
        self.get(&BufferKey::new(address, bytes), kind, Fill::Read, IfLocked::GiveUp)
    }

    /// Locks the buffer of a newly allocated block, filled with zeros. The caller writes the structure and logs it.
    ///
    /// # Errors
    /// `Corrupt` when the block is in use by another structure.
    pub fn create(&mut self, address: DiskAddress, bytes: usize, kind: &'static BufferKind) -> Result<BufId> {
        self.create_key(&BufferKey::new(address, bytes), kind)
    }

    /// As [`Self::create`], for a structure that may lie in several runs.
    ///
    /// # Errors
    /// `Corrupt` when a block is in use by another structure.
    pub fn create_key(&mut self, key: &BufferKey, kind: &'static BufferKind) -> Result<BufId> {
        // The same blocks may have been freed lately by a transaction whose cancel record is still in the CIL. That
        // record must be in the log before new contents are committed there: it makes recovery skip what was logged
        // there before, inodes above all.
        if key.runs().iter().any(|run| self.mount.journal.holds_cancel(run.address)) {
            self.mount.journal.force_all()?;
        }
        self.get(key, kind, Fill::Zero, IfLocked::Wait)
    }

    fn get(&mut self, key: &BufferKey, kind: &'static BufferKind, fill: Fill, if_locked: IfLocked) -> Result<BufId> {
        if self.holds(key.address())
            && let Some(id) = self.buffers.use_again(key, kind, fill, &self.mount.geometry)?
        {
            return Ok(id);
        }
        let (buffer, content) = self.mount.cache.lock(key, kind, fill, self.mode, if_locked)?;
        if fill == Fill::Zero {
            buffer.item().lock().stale = false;
        }
        Ok(self.buffers.add(buffer, content))
    }

    /// The contents of a buffer.
    pub fn bytes(&self, id: BufId) -> &[u8] {
        self.buffers.bytes(id)
    }

    /// A structure within a buffer.
    ///
    /// # Panics
    /// If it does not lie within the buffer; offsets from disk are checked before.
    pub fn get_as<T: FromBytes + KnownLayout + Immutable + Unaligned>(&self, id: BufId, offset: usize) -> &T {
        let (value, _) = T::ref_from_prefix(&self.bytes(id)[offset..]).expect("the structure lies within the buffer");
        value
    }

    /// A structure within a buffer, for a change; all its bytes are logged.
    ///
    /// # Panics
    /// If it does not lie within the buffer; offsets from disk are checked before.
    pub fn edit_as<T>(&mut self, id: BufId, offset: usize) -> &mut T
    where
        T: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned,
    {
        let bytes = self.edit(id, offset..offset + size_of::<T>());
        T::mut_from_bytes(bytes).expect("the slice has the structure's size")
    }

    /// The bytes of `range` for a change; they are logged.
    pub fn edit(&mut self, id: BufId, range: Range<usize>) -> &mut [u8] {
        self.log(id, range.clone());
        &mut self.unlogged_mut(id)[range]
    }

    /// All bytes for a change; they are logged.
    pub fn edit_all(&mut self, id: BufId) -> &mut [u8] {
        let length = self.bytes(id).len();
        self.edit(id, 0..length)
    }

    /// All bytes for a change that the caller logs with [`Self::log`].
    pub fn unlogged_mut(&mut self, id: BufId) -> &mut [u8] {
        self.buffers.content_mut(id).bytes_mut()
    }

    /// Records that `range` changed, in units of [`CHUNK_BYTES`](xfskit_ondisk::logged::buffer::CHUNK_BYTES).
    pub fn log(&mut self, id: BufId, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        self.dirty = true;
        self.buffers.log(id, &range);
    }

    /// The kind of the buffer.
    pub fn kind(&self, id: BufId) -> &'static BufferKind {
        self.buffers.kind(id)
    }

    /// Records that the buffer is now another kind of structure.
    pub fn set_kind(&mut self, id: BufId, kind: &'static BufferKind) {
        self.buffers.content_mut(id).set_kind(kind);
    }

    /// The disk address of a buffer.
    pub fn address(&self, id: BufId) -> DiskAddress {
        self.buffers.address(id)
    }

    /// Releases a buffer early. One that was changed stays locked until the commit.
    pub fn release(&mut self, id: BufId) {
        self.buffers.release(id);
    }

    /// Invalidates the buffer of a freed block: the journal records that older copies of it must not be replayed, and
    /// the buffer is never written back.
    pub fn invalidate(&mut self, id: BufId) {
        self.dirty = true;
        self.buffers.invalidate(id);
    }

    /// As [`Self::invalidate`], for a block that was not read.
    ///
    /// # Errors
    /// `Corrupt` when the transaction has the block as another structure.
    pub fn invalidate_at(&mut self, address: DiskAddress, bytes: usize, kind: &'static BufferKind) -> Result<()> {
        let key = BufferKey::new(address, bytes);
        let id = match self.buffers.find(&key) {
            Some(id) => {
                let family = self.kind(id).family;
                ensure_on_disk!(
                    family == kind.family,
                    kind.name,
                    "one structure at one place",
                    "at {address}: {family}"
                );
                id
            }
            None => self.get(&key, kind, Fill::Zero, IfLocked::Wait)?,
        };
        self.invalidate(id);
        Ok(())
    }

    /// Orders the buffer: it is written back like logged ones although its contents are not logged, because recovery
    /// makes them again from another log item (an inode chunk's creation).
    pub fn order(&mut self, id: BufId) {
        self.dirty = true;
        self.buffers.order(id);
    }

    /// The addresses of the buffers that the transaction has locked.
    pub fn held_addresses(&self) -> impl Iterator<Item = DiskAddress> {
        self.buffers.addresses()
    }

    /// Whether the transaction has locked the buffer at `address`.
    pub fn holds(&self, address: DiskAddress) -> bool {
        self.buffers.contains(address)
    }
}

/// Inodes.
impl Transaction<'_> {
    /// Locks an inode and joins it; waits. Callers keep the lock order of [`crate::sync`].
    pub fn join_inode(&mut self, inode: &Arc<Inode>) -> InoId {
        let state = HeldLock::lock(inode.state_lock(), self.mode);
        self.join_locked(inode, state)
    }

    /// Locks an inode and joins it unless that would wait.
    pub fn try_join_inode(&mut self, inode: &Arc<Inode>) -> Option<InoId> {
        if self.mount.error_tags.strikes(REFUSE_LOCK) {
            return None;
        }
        let state = HeldLock::try_lock(inode.state_lock(), self.mode)?;
        Some(self.join_locked(inode, state))
    }

    /// Joins an inode whose lock the caller took.
    pub fn join_locked(&mut self, inode: &Arc<Inode>, state: HeldLock<InodeState>) -> InoId {
        let id = self.inodes.add(inode, state);
        self.note_inode_lock();
        id
    }

    /// An inode's state.
    pub fn inode(&self, id: InoId) -> &InodeState {
        self.inodes.state(id)
    }

    /// The cached object of an inode.
    pub fn inode_handle(&self, id: InoId) -> &Arc<Inode> {
        self.inodes.handle(id)
    }

    /// An inode's state for a change of the parts that `fields` names; the core is logged with any of them.
    pub fn inode_mut(&mut self, id: InoId, fields: InodeFields) -> &mut InodeState {
        self.dirty = true;
        self.inodes.edit(id, fields)
    }

    /// An inode's state for a change that does not reach the disk (what is known about it).
    pub fn inode_memory_mut(&mut self, id: InoId) -> &mut InodeState {
        self.inodes.memory_mut(id)
    }
}

/// Blocks and counts.
impl Transaction<'_> {
    /// Takes `count` allocated blocks out of the transaction's reservation.
    ///
    /// # Panics
    /// If more blocks are allocated than were reserved: the reservation formula is wrong.
    pub fn use_blocks(&mut self, count: u64) {
        self.counts.use_blocks(count);
        self.dirty = true;
    }

    /// Reserves blocks until `count` are left: a link of a chain may have used up the blocks that a link needs.
    ///
    /// # Errors
    /// `NoSpace`.
    pub fn top_up_blocks(&mut self, count: u64, pool: BlockPool) -> Result<()> {
        let more = count.saturating_sub(self.counts.blocks_left());
        if !self.mount.space.reserve_blocks(more, pool) {
            return Err(Error::NoSpace);
        }
        self.counts.add_reserved(more);
        Ok(())
    }

    /// Adds `count` blocks to the reservation that were reserved before the transaction began.
    pub fn take_over_blocks(&mut self, count: u64) {
        self.counts.add_reserved(count);
    }

    /// Undoes [`Self::take_over_blocks`] for blocks that were not used.
    pub fn hand_back_blocks(&mut self, count: u64) {
        self.counts.hand_back(count);
    }

    /// Counts `count` blocks as free once the transaction commits.
    pub fn free_blocks(&mut self, count: u64) {
        self.counts.free_blocks(count);
        self.dirty = true;
    }

    /// Blocks that may still be allocated.
    pub fn blocks_left(&self) -> u64 {
        self.counts.blocks_left()
    }

    /// Changes the counts of all and of free inodes at commit.
    pub fn count_inodes(&mut self, all: i64, free: i64) {
        self.counts.count_inodes(all, free);
    }

    /// Counts the extent as freed and keeps it busy until the transaction is durable: recovery may still need its old
    /// contents on disk.
    pub fn extent_freed(&mut self, ag: AgNumber, block: AgBlock, count: u32) {
        self.counts.extent_freed(ag, block, count);
    }

    /// The extents of `ag` that this link of the chain freed.
    pub fn freed_extents(&self, ag: AgNumber) -> impl Iterator<Item = (AgBlock, u32)> {
        self.counts.freed_extents(ag)
    }

    /// Extents that this link of the chain freed.
    pub fn extents_freed(&self) -> usize {
        self.counts.extents_freed()
    }
}

/// Items and values.
impl Transaction<'_> {
    /// Logs that inodes were made: recovery makes them again from this alone, so the buffers themselves are only
    /// ordered.
    pub fn log_new_inodes(&mut self, new: NewInodes) {
        let mut copy = LogVector::default();
        copy.push(&new.encode(self.geometry()));
        self.log_item(LogOnlyItem::new(LogOnlyRole::NewInodes), copy, None);
    }

    /// Logs an item without an object; a done item with the intent that it finishes.
    pub(super) fn log_item(&mut self, item: Arc<dyn LogItem>, copy: LogVector, finishes: Option<Arc<dyn LogItem>>) {
        self.dirty = true;
        self.items.add(item, copy, finishes);
    }

    /// Writes some bytes of a value's blocks at `address` of the data device before the checkpoint that carries this
    /// transaction. The blocks must be new and must not have been freed by a transaction that is not durable.
    pub fn write_before_checkpoint(&mut self, address: DiskAddress, value: &Arc<ValueBlocks>, range: Range<usize>) {
        self.dirty = true;
        self.values.push(OrderedWrite::new(address.bytes(), value, range));
    }

    /// Fills `out` from blocks given to [`Self::write_before_checkpoint`], whether they are written already or not.
    ///
    /// # Errors
    /// `Io`.
    pub fn read_unlogged(&self, address: DiskAddress, out: &mut [u8]) -> Result<()> {
        let start = address.bytes();
        // A write that does not wait any more is on the device, so the device is read second.
        for gap in self.mount.journal.copy_waiting(start, out) {
            let offset = start + gap.start as u64;
            self.mount.device.read(offset, &mut out[gap]).map_err(|source| Error::Io { offset, source })?;
        }
        for own in &self.values {
            own.copy_to(start, out);
        }
        Ok(())
    }
}
