//! Transactions: reserve, join, log, commit, roll; and the work that takes several of them ([`deferred`]).
//!
//! ```text
//! mount.transaction(reservation)      log space and blocks are reserved; nothing is locked yet
//!   .join_inode / .read / .create     objects are locked and belong to the transaction
//!   .edit / .inode_mut                contents change; what changed is recorded
//! .commit()                           the dirty items go to the CIL in one step; locks are dropped
//! .roll()                             the same, but inodes and held buffers stay locked for the next link
//! ```
//! A transaction is all or nothing in the journal. Dropping one that changed nothing is free; dropping one that
//! changed something would leave memory and journal apart, so it shuts the filesystem down (decision 8 of the design).
//!
//! Objects are named by [`BufId`] and [`InoId`], which are valid in the transaction that gave them out: an inode's to
//! its end, a buffer's until it is released, and across a roll only if it is held.
//!
//! A read-only transaction ([`Transaction::read_only`]) takes shared locks, reserves nothing and commits nothing, so
//! that one look-up code serves both.
//!
//! Locking: see [`crate::sync`]. Asking for a buffer that the transaction holds already gives the same id again and
//! counts it; each needs its own `release`.

mod begin;
#[cfg(test)]
mod chain_tests;
mod commit;
pub mod deferred;
mod hold_times;
mod items;
mod log_buffer;
mod log_inode;
mod remembered;
mod reservation;
mod scratch;

pub use reservation::{Reservation, reservation_of};

use crate::buffer::{Buffer, BufferContent, BufferKey, BufferKind, Fill};
use crate::error::{Error, Result};
use crate::error_tags::{REDUCE_MAX_IEXTENTS, REFUSE_LOCK};
use crate::incore::{Inode, InodeState};
use crate::item::DirtyBits;
use crate::journal::{Grant, OrderedWrite};
use crate::mount::Mount;
use crate::sync::{ArcMutexGuard, Held};
use hold_times::HoldTimes;
use std::ops::Range;
use std::sync::Arc;
use xfskit_ondisk::logged::buffer::CHUNK_BYTES;
pub use xfskit_ondisk::logged::inode::InodeFields;
use xfskit_ondisk::{AgBlock, AgNumber, Corruption, DiskAddress, Geometry};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A buffer that a transaction holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufId(u32);

/// An inode that a transaction holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InoId(u32);

struct HeldBuffer {
    address: DiskAddress,
    buffer: Arc<Buffer>,
    content: Held<BufferContent>,
    dirty: DirtyBits,
    uses: u32,
    /// Stays locked when the transaction rolls.
    hold: bool,
    /// The blocks were freed: a cancel record instead of contents.
    invalidated: bool,
    /// Written back in order, but its contents are not logged.
    ordered: bool,
}

struct HeldInode {
    inode: Arc<Inode>,
    state: Held<InodeState>,
    dirty: InodeFields,
}

/// A set of changes that becomes durable as one.
pub struct Transaction<'m> {
    mount: &'m Arc<Mount>,
    exclusive: bool,
    buffers: Vec<Option<HeldBuffer>>,
    inodes: Vec<HeldInode>,
    /// Intents and done items logged by this link.
    items: Vec<items::CopiedItem>,
    grant: Option<Grant<'m>>,
    /// Blocks of the reservation that are not used yet.
    blocks_left: u64,
    /// Remote values to write before the checkpoint.
    ordered_writes: Vec<OrderedWrite>,
    /// Extents freed by this link, which stay busy until it is durable.
    freed_extents: Vec<FreedExtent>,
    /// Work that waits for links of its own.
    deferred: deferred::Queue,
    /// Changes of the filesystem's counters, applied at commit.
    freed_blocks: u64,
    inode_count_delta: i64,
    free_inode_delta: i64,
    dirty: bool,
    /// Wait for the log at commit.
    sync: bool,
    /// Whether extent maps count few records only, once anybody has asked.
    counts_few_extents: Option<bool>,
    hold_times: HoldTimes,
    /// While space is scarce, those who may allocate come one at a time.
    _turn: Option<ArcMutexGuard>,
}

impl<'m> Transaction<'m> {
    /// A transaction that only looks.
    pub fn read_only(mount: &'m Arc<Mount>) -> Self {
        Self::build(mount, false, Reservation::default(), None)
    }

    pub(crate) fn build(
        mount: &'m Arc<Mount>,
        exclusive: bool,
        reservation: Reservation,
        grant: Option<Grant<'m>>,
    ) -> Self {
        let (buffers, inodes) = scratch::take();
        Self {
            mount,
            exclusive,
            buffers,
            inodes,
            items: Vec::new(),
            ordered_writes: Vec::new(),
            freed_extents: Vec::new(),
            deferred: deferred::Queue::default(),
            grant,
            blocks_left: reservation.blocks,
            freed_blocks: 0,
            inode_count_delta: 0,
            free_inode_delta: 0,
            dirty: false,
            sync: false,
            counts_few_extents: None,
            hold_times: HoldTimes::default(),
            _turn: None,
        }
    }

    /// Keeps a turn until the transaction is over.
    pub(crate) fn with_turn(mut self, turn: Option<ArcMutexGuard>) -> Self {
        self._turn = turn;
        self
    }

    /// The mount.
    pub fn mount(&self) -> &'m Arc<Mount> {
        self.mount
    }

    /// The geometry.
    pub fn geometry(&self) -> &'m Geometry {
        &self.mount.geometry
    }

    /// Whether anything was changed in this link of the chain.
    pub fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// Whether this transaction may change anything.
    pub fn is_writable(&self) -> bool {
        self.exclusive
    }

    /// Whether the error tag has it that extent maps cannot count more than a few records. Decided by the first look of
    /// a chain, for all of it, as a real limit would be; and only while nothing is changed, for whoever looks later
    /// than that does not mean to refuse.
    pub fn counts_few_extents(&mut self) -> bool {
        let (mount, is_clean) = (self.mount, !self.dirty);
        *self.counts_few_extents.get_or_insert_with(|| is_clean && mount.error_tags.strikes(REDUCE_MAX_IEXTENTS))
    }

    /// The commit waits until the journal is durable.
    pub fn set_sync(&mut self) {
        self.sync = true;
    }
}

/// Buffers.
impl Transaction<'_> {
    /// Reads and locks the structure of `kind` in `bytes` bytes at `address`.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn read(&mut self, address: DiskAddress, bytes: usize, kind: &'static BufferKind) -> Result<BufId> {
        self.get(&BufferKey::new(address, bytes), kind, Fill::Read, true)
    }

    /// As [`Self::read`], for a structure that may lie in several runs.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn read_key(&mut self, key: &BufferKey, kind: &'static BufferKind) -> Result<BufId> {
        self.get(key, kind, Fill::Read, true)
    }

    /// As [`Self::read`], but does not wait for a lock.
    ///
    /// # Errors
    /// `WouldBlock` when somebody else holds the buffer; `Corrupt` or `Io`.
    pub fn try_read(&mut self, address: DiskAddress, bytes: usize, kind: &'static BufferKind) -> Result<BufId> {
        self.get(&BufferKey::new(address, bytes), kind, Fill::Read, false)
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
        // The same blocks may have been freed lately by somebody whose cancel record is still in the CIL. It must get
        // into the log before anything new is committed in its place: recovery needs it to pass over what was logged
        // there before, inodes above all.
        if key.runs().iter().any(|run| self.mount.journal.holds_cancel(run.address)) {
            self.mount.journal.force_all()?;
        }
        self.get(key, kind, Fill::Zero, true)
    }

    fn get(&mut self, key: &BufferKey, kind: &'static BufferKind, fill: Fill, wait: bool) -> Result<BufId> {
        if self.holds(key.address())
            && let Some(id) = self.get_held(key, kind, fill)?
        {
            return Ok(id);
        }
        let (buffer, content) = self.mount.cache.lock(key, kind, fill, self.exclusive, wait)?;
        if fill == Fill::Zero {
            buffer.item().lock().stale = false;
        }
        Ok(self.hold_new(buffer, content))
    }

    fn hold_new(&mut self, buffer: Arc<Buffer>, content: Held<BufferContent>) -> BufId {
        self.buffers.push(Some(HeldBuffer {
            address: buffer.key().address(),
            buffer,
            content,
            dirty: DirtyBits::default(),
            uses: 1,
            hold: false,
            invalidated: false,
            ordered: false,
        }));
        BufId(self.buffers.len() as u32 - 1)
    }

    /// A buffer that the transaction holds, once more.
    fn get_held(&mut self, key: &BufferKey, kind: &'static BufferKind, fill: Fill) -> Result<Option<BufId>> {
        let slots = self.buffers.iter_mut().enumerate();
        for (index, held) in slots.filter_map(|(index, slot)| Some((index, slot.as_mut()?))) {
            if held.address != key.address() {
                continue;
            }
            if held.buffer.key() != key {
                // A structure of another size that this transaction freed makes way, as it will for others once it is
                // committed.
                if held.invalidated {
                    held.buffer.item().lock().stale = true;
                }
                continue;
            }
            let wrong = |check| Err(Corruption::new(kind.name, check).at(key.address()).into());
            match fill {
                Fill::Read if held.invalidated => return wrong("not freed while it is in use"),
                Fill::Read => held.content.check_kind(kind, &self.mount.geometry, key)?,
                Fill::Zero if !held.invalidated => return wrong("free blocks are not in use"),
                Fill::Zero => {
                    let content = held.content.exclusive();
                    content.bytes_mut().fill(0);
                    content.set_kind(kind);
                    // The block was freed and taken again in one transaction: it is in use after all.
                    held.invalidated = false;
                }
            }
            held.uses += 1;
            return Ok(Some(BufId(index as u32)));
        }
        Ok(None)
    }

    fn buffer(&self, id: BufId) -> &HeldBuffer {
        self.buffers[id.0 as usize].as_ref().expect("a BufId is used only until it is released")
    }

    fn buffer_mut(&mut self, id: BufId) -> &mut HeldBuffer {
        self.buffers[id.0 as usize].as_mut().expect("a BufId is used only until it is released")
    }

    /// The contents of a buffer.
    pub fn bytes(&self, id: BufId) -> &[u8] {
        self.buffer(id).content.bytes()
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
        self.buffer_mut(id).content.exclusive().bytes_mut()
    }

    /// Records that `range` changed, in units of [`CHUNK_BYTES`].
    pub fn log(&mut self, id: BufId, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        self.dirty = true;
        let held = self.buffer_mut(id);
        assert!(range.end <= held.content.bytes().len(), "a logged range lies within its buffer");
        assert!(!held.invalidated, "a freed block is not changed");
        held.dirty.set(range.start / CHUNK_BYTES..=(range.end - 1) / CHUNK_BYTES);
    }

    /// What the buffer is.
    pub fn kind(&self, id: BufId) -> &'static BufferKind {
        self.buffer(id).content.kind()
    }

    /// Says that the buffer is now another kind of structure.
    pub fn set_kind(&mut self, id: BufId, kind: &'static BufferKind) {
        self.buffer_mut(id).content.exclusive().set_kind(kind);
    }

    /// The disk address of a buffer.
    pub fn address(&self, id: BufId) -> DiskAddress {
        self.buffer(id).address
    }

    /// Gives a buffer back early. One that was changed stays locked until the commit.
    pub fn release(&mut self, id: BufId) {
        let slot = &mut self.buffers[id.0 as usize];
        let held = slot.as_mut().expect("a BufId is released once for each time it was given out");
        held.uses = held.uses.saturating_sub(1);
        if held.uses == 0 && held.dirty.is_empty() && !held.invalidated && !held.ordered && !held.hold {
            *slot = None;
            // A reader of many blocks, one after the other, shall not have to search through what it gave back.
            while matches!(self.buffers.last(), Some(None)) {
                self.buffers.pop();
            }
        }
    }

    /// The block was freed: the journal records that older copies of it must not be replayed, and the buffer is
    /// never written back.
    pub fn invalidate(&mut self, id: BufId) {
        self.dirty = true;
        let held = self.buffer_mut(id);
        held.invalidated = true;
        held.ordered = false;
        held.dirty.clear();
    }

    /// As [`Self::invalidate`], for a block whose contents nobody looked at.
    ///
    /// # Errors
    /// `Corrupt` when the transaction knows the block as something else.
    pub fn invalidate_at(&mut self, address: DiskAddress, bytes: usize, kind: &'static BufferKind) -> Result<()> {
        let key = BufferKey::new(address, bytes);
        let held = self.buffers.iter().position(|slot| slot.as_ref().is_some_and(|held| held.buffer.key() == &key));
        let id = match held {
            Some(index) => {
                let id = BufId(index as u32);
                let family = self.kind(id).family;
                ensure_on_disk!(
                    family == kind.family,
                    kind.name,
                    "one structure at one place",
                    "at {address}: {family}"
                );
                id
            }
            None => self.get(&key, kind, Fill::Zero, true)?,
        };
        self.invalidate(id);
        Ok(())
    }

    /// The buffer is written back in its turn although its contents are not logged, because another log item
    /// (an inode chunk's creation) can make them again.
    pub fn order(&mut self, id: BufId) {
        self.dirty = true;
        self.buffer_mut(id).ordered = true;
    }

    /// Keeps the buffer locked when the transaction rolls; its id stays valid.
    pub fn hold(&mut self, id: BufId) {
        self.buffer_mut(id).hold = true;
    }

    /// Undoes [`Self::hold`].
    pub fn unhold(&mut self, id: BufId) {
        self.buffer_mut(id).hold = false;
    }

    /// Where the buffers that the transaction holds lie.
    pub fn held_addresses(&self) -> impl Iterator<Item = DiskAddress> {
        self.buffers.iter().flatten().map(|held| held.address)
    }

    /// Whether the transaction holds the buffer at `address`.
    pub fn holds(&self, address: DiskAddress) -> bool {
        self.buffers.iter().flatten().any(|held| held.address == address)
    }
}

/// Inodes.
impl Transaction<'_> {
    /// Locks an inode and joins it; waits. Callers keep the lock order of [`crate::sync`].
    pub fn join_inode(&mut self, inode: &Arc<Inode>) -> InoId {
        let state = Held::lock(inode.state_lock(), self.exclusive);
        self.join_locked(inode, state)
    }

    /// Locks an inode and joins it unless that would wait.
    pub fn try_join_inode(&mut self, inode: &Arc<Inode>) -> Option<InoId> {
        if self.mount.error_tags.strikes(REFUSE_LOCK) {
            return None;
        }
        let state = Held::try_lock(inode.state_lock(), self.exclusive)?;
        Some(self.join_locked(inode, state))
    }

    /// Joins an inode whose lock the caller took.
    pub fn join_locked(&mut self, inode: &Arc<Inode>, state: Held<InodeState>) -> InoId {
        let held = HeldInode { inode: Arc::clone(inode), state, dirty: InodeFields::empty() };
        self.inodes.push(held);
        self.note_inode_lock();
        InoId(self.inodes.len() as u32 - 1)
    }

    fn held_inode(&self, id: InoId) -> &HeldInode {
        &self.inodes[id.0 as usize]
    }

    /// An inode's state.
    pub fn inode(&self, id: InoId) -> &InodeState {
        &self.held_inode(id).state
    }

    /// The cached object of an inode.
    pub fn inode_handle(&self, id: InoId) -> &Arc<Inode> {
        &self.held_inode(id).inode
    }

    /// An inode's state for a change of the parts that `fields` names; the core is logged with any of them.
    pub fn inode_mut(&mut self, id: InoId, fields: InodeFields) -> &mut InodeState {
        self.dirty = true;
        let held = &mut self.inodes[id.0 as usize];
        held.dirty |= fields | InodeFields::CORE;
        held.state.exclusive()
    }

    /// An inode's state for a change that does not reach the disk (what is known about it).
    pub fn inode_memory_mut(&mut self, id: InoId) -> &mut InodeState {
        self.inodes[id.0 as usize].state.exclusive()
    }
}

/// Counters and intents.
impl Transaction<'_> {
    /// Takes `count` blocks out of the transaction's reservation because they were allocated.
    ///
    /// # Panics
    /// If more blocks are allocated than were reserved: the reservation formula is wrong.
    pub fn use_blocks(&mut self, count: u64) {
        assert!(
            count <= self.blocks_left,
            "{count} blocks allocated with {} left of the reservation",
            self.blocks_left
        );
        self.blocks_left -= count;
        self.dirty = true;
    }

    /// Reserves blocks until `count` are left: a link of a chain may use up what was reserved for one.
    ///
    /// # Errors
    /// `NoSpace`.
    pub fn top_up_blocks(&mut self, count: u64, may_dip: bool) -> Result<()> {
        let more = count.saturating_sub(self.blocks_left);
        if !self.mount.space.reserve_blocks(more, may_dip) {
            return Err(Error::NoSpace);
        }
        self.blocks_left += more;
        Ok(())
    }

    /// Takes over `count` blocks that were reserved before the transaction began.
    pub fn take_over_blocks(&mut self, count: u64) {
        self.blocks_left += count;
    }

    /// Undoes [`Self::take_over_blocks`] for blocks that were not used.
    pub fn hand_back_blocks(&mut self, count: u64) {
        assert!(count <= self.blocks_left, "only what is left can be handed back");
        self.blocks_left -= count;
    }

    /// Counts `count` blocks as free once the transaction commits.
    pub fn free_blocks(&mut self, count: u64) {
        self.freed_blocks += count;
        self.dirty = true;
    }

    /// Blocks that may still be allocated.
    pub fn blocks_left(&self) -> u64 {
        self.blocks_left
    }

    /// Changes the counts of all and of free inodes at commit.
    pub fn count_inodes(&mut self, all: i64, free: i64) {
        self.inode_count_delta += all;
        self.free_inode_delta += free;
    }
}

#[derive(Clone, Copy, Debug)]
struct FreedExtent {
    ag: AgNumber,
    block: AgBlock,
    count: u32,
}
