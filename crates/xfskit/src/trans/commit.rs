//! The end of a transaction: format what changed, hand it to the journal, let go.

use super::{BlfType, BufId, CHUNK_BYTES, HeldBuffer, HeldInode, InodeFields, Transaction};
use crate::cache::{BufferKey, DiskRun, Fork, InodeState};
use crate::error::{Error, Result};
use crate::error_tags::{LOG_DONE, LOG_INTENT, ROLL};
use crate::item::{CheckpointSeq, DirtyBits, LogItem, LogVector};
use crate::journal::{CommitItem, FormatFn, Grant, OrderedWrite};
use crate::sync::Held;
use smallvec::{SmallVec, smallvec};
use std::ops::Range;
use std::sync::Arc;
use xfskit_ondisk::btree::{BMBT_MAGIC, LONG_HEADER_BYTES};
use xfskit_ondisk::extent::EXTENT_RECORD_BYTES;
use xfskit_ondisk::inode::INODE_CORE_BYTES;
use xfskit_ondisk::log_record::{buffer_flags, item_type};
use xfskit_ondisk::{BASIC_BLOCK_BYTES, DiskAddress, ForkFormat, Geometry};

impl Transaction {
    /// Makes the changes part of the journal's next checkpoint and drops all locks. They are durable when that
    /// checkpoint is; a synchronous transaction waits for it.
    ///
    /// # Errors
    /// `Shutdown` or `Io`.
    pub fn commit(mut self) -> Result<CheckpointSeq> {
        let sync = self.sync;
        let mount = Arc::clone(&self.mount);
        if !self.dirty {
            mount.counters.empty_transactions.increment();
            return Ok(mount.journal.current());
        }
        // What was taken back is told when all the rest is done.
        let (queue, taken_back) = match self.finish_queue() {
            Err(Error::NoSpace) if mount.journal.check().is_ok() => (Ok(()), true),
            other => (other, false),
        };
        let first = queue.and_then(|()| self.finish_frees());
        let seq = first.and_then(|()| self.commit_link());
        let seq = match seq {
            Ok(seq) => seq,
            Err(error) => {
                self.cancel(&error);
                return Err(error);
            }
        };
        self.dirty = false;
        drop(self);
        mount.journal.after_commit()?;
        mount.trim_inodes()?;
        if sync {
            mount.journal.force(seq)?;
        }
        if taken_back { Err(Error::NoSpace) } else { Ok(seq) }
    }

    /// Commits this link of the chain and goes on with a new one. Inodes and held buffers stay locked; everything else
    /// is let go.
    ///
    /// # Errors
    /// `Shutdown` or `Io`.
    pub fn roll(&mut self) -> Result<()> {
        if self.dirty {
            if !self.grant.as_mut().is_none_or(Grant::try_next_link) {
                self.relog_inodes();
                self.relog_intents();
            }
            self.commit_link()?;
            self.mount.stop_if_tagged(ROLL)?;
        }
        for slot in &mut self.buffers {
            match slot {
                Some(held) if held.hold => {
                    held.dirty.clear();
                    held.ordered = false;
                }
                _ => *slot = None,
            }
        }
        for slot in &mut self.inodes {
            match slot {
                Some(held) if !held.first_link_only => held.dirty = InodeFields::empty(),
                _ => *slot = None,
            }
        }
        self.dirty = false;
        match &mut self.grant {
            Some(grant) => grant.next_link(),
            None => Ok(()),
        }
    }

    /// The next link has to wait for log space with its inodes locked, and what is locked is not written back. They move to
    /// the head of the log, so that none of them is the tail for which the link would wait.
    fn relog_inodes(&mut self) {
        for held in self.inodes.iter_mut().flatten() {
            if held.dirty.is_empty() && !held.first_link_only && held.inode.item().lock().in_ail.is_some() {
                held.dirty = InodeFields::CORE;
            }
        }
    }

    /// Ends a transaction that failed. One that changed something shuts the filesystem down: memory and journal would
    /// disagree from here on.
    pub fn cancel(self, error: &Error) {
        if self.dirty {
            self.mount.journal.shut_down(format!("an operation failed half-way: {error}"));
        }
    }

    /// Does work that later links of a chain owe to the earlier ones. If it fails the filesystem shuts down, whether this
    /// link has changed something or not: what is committed is half of an operation, and only recovery can do the
    /// rest.
    ///
    /// # Errors
    /// The work's own.
    pub fn in_later_link<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        work(self).inspect_err(|error| {
            self.mount.journal.shut_down(format!("an operation failed between two transactions: {error}"));
        })
    }

    /// Ends a transaction with `result`: commits it, or cancels it and passes the error on.
    ///
    /// # Errors
    /// The result's own, or the commit's.
    pub fn finish<T>(self, result: Result<T>) -> Result<T> {
        match result {
            Ok(value) => self.commit().map(|_| value),
            Err(error) => {
                self.cancel(&error);
                Err(error)
            }
        }
    }

    /// Writes `bytes` at `address` of the data device before the checkpoint that carries this transaction. The blocks
    /// must be new and must not have been freed by a transaction that is not durable.
    pub fn write_before_checkpoint(&mut self, address: DiskAddress, bytes: Vec<u8>) {
        self.dirty = true;
        self.ordered_writes.push(OrderedWrite { offset: address.bytes(), bytes: bytes.into() });
    }

    /// Reads blocks that are written by [`Self::write_before_checkpoint`], whether the write was done yet or not.
    ///
    /// # Errors
    /// `Io`.
    pub fn read_unlogged(&self, address: DiskAddress, bytes: usize) -> Result<Vec<u8>> {
        let offset = address.bytes();
        if let Some(own) = self.ordered_writes.iter().rev().find(|write| write.offset == offset) {
            return Ok(own.bytes.to_vec());
        }
        if let Some(waiting) = self.mount.journal.waiting_write(offset) {
            return Ok(waiting.to_vec());
        }
        let mut read = vec![0; bytes];
        self.mount.device.read(offset, &mut read).map_err(|source| Error::Io { offset, source })?;
        Ok(read)
    }

    fn commit_link(&mut self) -> Result<CheckpointSeq> {
        self.mount.journal.check()?;
        self.log_free_intents();
        let mut items = Vec::with_capacity(self.buffers.len() + self.inodes.len() + self.items.len());
        // Intents and done items first, so that recovery meets them in the order in which they were made.
        items.append(&mut self.items);
        if items.iter().any(|item| item.item.is_intent()) {
            self.mount.error_tags.fail(LOG_INTENT)?;
        }
        if items.iter().any(|item| item.finishes.is_some()) {
            self.mount.error_tags.fail(LOG_DONE)?;
        }
        let geometry = Arc::clone(&self.mount.geometry);
        for held in self.buffers.iter().flatten() {
            if let Some(item) = buffer_item(held) {
                items.push(item);
            }
        }
        for held in self.inodes.iter_mut().flatten() {
            if !held.dirty.is_empty() {
                items.push(inode_item(held, &geometry));
            }
        }
        if let Some(first) = items.first_mut() {
            first.ordered_writes = std::mem::take(&mut self.ordered_writes);
        }
        let stale = self.stale_inode_clusters();
        let grant = self.grant.as_mut().expect("a writing transaction has log space");
        let seq = self.mount.journal.commit(grant, &mut items);
        if !stale.is_empty() {
            stale.into_iter().for_each(|cluster| self.mount.inodes.cluster_freed(cluster, seq));
            self.mount.inodes.prune_freed(&self.mount.journal);
        }
        self.apply_counters(seq);
        Ok(seq)
    }

    /// Disk addresses of the inode clusters that this transaction freed.
    fn stale_inode_clusters(&self) -> Vec<DiskAddress> {
        let is_cluster =
            |held: &&HeldBuffer| held.invalidated && held.content.kind().log_type == BlfType::Inodes as u16;
        self.buffers.iter().flatten().filter(is_cluster).map(|held| held.buffer.key().address()).collect()
    }

    fn apply_counters(&mut self, seq: CheckpointSeq) {
        let space = &self.mount.space;
        space.give_back_blocks(std::mem::take(&mut self.freed_blocks));
        space.count_inodes(std::mem::take(&mut self.inode_count_delta), std::mem::take(&mut self.free_inode_delta));
        for freed in self.freed_extents.drain(..) {
            self.mount.ags[freed.ag.0 as usize].extent_freed(freed.block, freed.count, seq);
        }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if self.dirty {
            self.mount.journal.shut_down("a transaction was given up half-way");
        }
        if self.exclusive {
            self.mount.space.give_back_blocks(self.blocks_left);
        }
    }
}

fn commit_item(item: Arc<dyn LogItem>, dirty: DirtyBits, format: FormatFn) -> CommitItem {
    CommitItem { item, dirty, format, stale: false, finishes: None, ordered_writes: Vec::new() }
}

/// The commit item of a buffer, if it changed.
fn buffer_item(held: &HeldBuffer) -> Option<CommitItem> {
    let item: Arc<dyn LogItem> = Arc::clone(&held.buffer) as _;
    let kind = held.content.kind();
    if held.invalidated {
        let mut vector = LogVector::default();
        let mut flags = buffer_flags::CANCEL;
        if kind.log_type == BlfType::Inodes as u16 {
            flags |= buffer_flags::INODES;
        }
        for run in held.buffer.key().runs() {
            push_buffer_format(&mut vector, run, flags | kind.log_type << buffer_flags::TYPE_SHIFT, 1, &[]);
        }
        let addresses = held.buffer.key().runs().iter().map(|run| run.address).collect();
        let item = commit_item(item, DirtyBits::default(), FormatFn::Cancel(vector, addresses));
        return Some(CommitItem { stale: true, ..item });
    }
    if held.dirty.is_empty() {
        return held.ordered.then(|| commit_item(item, DirtyBits::default(), FormatFn::Ordered));
    }
    // The format runs while the transaction still holds the buffer's lock, so the bytes cannot change under it; a raw
    // copy would cost a second pass over every buffer.
    let mut total = held.buffer.item().lock().dirty.clone();
    total.merge(&held.dirty);
    let map_bytes = held.content.bytes().len() / CHUNK_BYTES / 8 + 4;
    let formats = held.buffer.key().runs().len() * (BUFFER_FORMAT_BYTES + map_bytes);
    let mut vector = LogVector::with_capacity(total.count() * CHUNK_BYTES + formats);
    format_buffer(held.buffer.key(), kind.log_type, held.content.bytes(), &total, &mut vector);
    Some(commit_item(item, held.dirty.clone(), FormatFn::Ready(vector)))
}

/// Formats the dirty chunks of a buffer, one item for each of its runs.
fn format_buffer(key: &BufferKey, log_type: u16, bytes: &[u8], dirty: &DirtyBits, vector: &mut LogVector) {
    let flags = log_type << buffer_flags::TYPE_SHIFT
        | if log_type == BlfType::Inodes as u16 { buffer_flags::INODES } else { 0 };
    let mut start = 0;
    for run in key.runs() {
        let length = run.basic_blocks as usize * BASIC_BLOCK_BYTES;
        let first_chunk = start / CHUNK_BYTES;
        let chunks = length / CHUNK_BYTES;
        let mut map: SmallVec<[u32; 4]> = smallvec![0; chunks.div_ceil(32)];
        let mut runs: SmallVec<[Range<usize>; 8]> = SmallVec::new();
        for range in dirty.runs(first_chunk + chunks) {
            let range = range.start.max(first_chunk)..range.end;
            if range.is_empty() {
                continue;
            }
            for chunk in range.clone() {
                let bit = chunk - first_chunk;
                map[bit / 32] |= 1 << (bit % 32);
            }
            runs.push(range);
        }
        if !runs.is_empty() {
            push_buffer_format(vector, run, flags, 1 + runs.len() as u16, &map);
            for range in runs {
                vector.push(&bytes[range.start * CHUNK_BYTES..range.end * CHUNK_BYTES]);
            }
        }
        start += length;
    }
}

/// Bytes of the first region of a buffer's log item before its map.
const BUFFER_FORMAT_BYTES: usize = 20;

/// The first region of a buffer's log item (the kernel's `struct xfs_buf_log_format`).
fn push_buffer_format(vector: &mut LogVector, run: &DiskRun, flags: u16, regions: u16, map: &[u32]) {
    vector.push_with(BUFFER_FORMAT_BYTES + 4 * map.len(), |out| {
        out[0..2].copy_from_slice(&item_type::BUFFER.to_le_bytes());
        out[2..4].copy_from_slice(&regions.to_le_bytes());
        out[4..6].copy_from_slice(&flags.to_le_bytes());
        out[6..8].copy_from_slice(&(run.basic_blocks as u16).to_le_bytes());
        out[8..16].copy_from_slice(&run.address.0.to_le_bytes());
        out[16..20].copy_from_slice(&(map.len() as u32).to_le_bytes());
        for (index, word) in map.iter().enumerate() {
            out[20 + 4 * index..24 + 4 * index].copy_from_slice(&word.to_le_bytes());
        }
    });
}

/// The commit item of an inode.
fn inode_item(held: &mut HeldInode, geometry: &Geometry) -> CommitItem {
    let core = &mut held.state.exclusive().core;
    core.change_count = core.change_count.wrapping_add(1);
    let total = {
        let inner = held.inode.item().lock();
        InodeFields::from_bits_truncate(inner.dirty.low_word()) | held.dirty
    };
    // Both forks together are seldom longer than the inode on disk.
    let mut vector = LogVector::with_capacity(INODE_FORMAT_BYTES + geometry.inode_bytes());
    format_inode(&held.state, held.inode.cluster, total, geometry, &mut vector);
    let mut dirty = DirtyBits::default();
    for bit in 0..12 {
        if held.dirty.bits() >> bit & 1 == 1 {
            dirty.set(bit..=bit);
        }
    }
    commit_item(Arc::clone(&held.inode) as _, dirty, FormatFn::Ready(vector))
}

/// Bytes of the first region of an inode's log item.
const INODE_FORMAT_BYTES: usize = 56;

/// Formats an inode: its log format (the kernel's `struct xfs_inode_log_format`), the core, and the parts of the forks that
/// changed and still exist.
fn format_inode(state: &InodeState, cluster: u64, fields: InodeFields, geometry: &Geometry, vector: &mut LogVector) {
    let core = &state.core;
    let data = ForkRegion::of(&state.data, fields, true);
    let attr = state.attr.as_ref().and_then(|fork| ForkRegion::of(fork, fields, false));
    let mut logged = InodeFields::CORE;
    for region in data.iter().chain(&attr) {
        logged |= region.field;
    }
    let regions = 2 + u16::from(data.is_some()) + u16::from(attr.is_some());
    let bytes_of = |region: &Option<ForkRegion<'_>>| region.as_ref().map_or(0, ForkRegion::log_bytes) as u16;
    let device = if let Fork::Dev(device) = state.data { device } else { 0 };
    if fields.contains(InodeFields::DEV) && core.data_format == ForkFormat::Dev {
        logged |= InodeFields::DEV;
    }
    let (_, within) = geometry.split_inode(core.inode).expect("a cached inode lies on the device");
    let cluster_bytes = geometry.inode_cluster_bytes();
    let block_offset = u64::from(within.0) << geometry.inode_log;
    vector.push_with(INODE_FORMAT_BYTES, |out| {
        out[0..2].copy_from_slice(&item_type::INODE.to_le_bytes());
        out[2..4].copy_from_slice(&regions.to_le_bytes());
        out[4..8].copy_from_slice(&logged.bits().to_le_bytes());
        out[8..10].copy_from_slice(&bytes_of(&attr).to_le_bytes());
        out[10..12].copy_from_slice(&bytes_of(&data).to_le_bytes());
        out[16..24].copy_from_slice(&core.inode.0.to_le_bytes());
        out[24..28].copy_from_slice(&device.to_le_bytes());
        out[40..48].copy_from_slice(&cluster.to_le_bytes());
        out[48..52].copy_from_slice(&((cluster_bytes / BASIC_BLOCK_BYTES) as u32).to_le_bytes());
        let in_cluster = offset_in_cluster(geometry, cluster, block_offset, core.inode);
        out[52..56].copy_from_slice(&(in_cluster as u32).to_le_bytes());
    });
    vector.push_with(INODE_CORE_BYTES, |out| core.encode_for_log(out));
    for region in data.iter().chain(&attr) {
        vector.push_with(region.log_bytes(), |out| region.encode(out));
    }
}

/// Where an inode lies within its cluster, in bytes.
fn offset_in_cluster(geometry: &Geometry, cluster: u64, offset_in_ag: u64, inode: xfskit_ondisk::InodeNumber) -> u64 {
    let (ag, _) = geometry.split_inode(inode).expect("a cached inode lies on the device");
    let ag_start = geometry.address(ag, xfskit_ondisk::AgBlock(0)).bytes();
    ag_start + offset_in_ag - cluster * BASIC_BLOCK_BYTES as u64
}

/// What a fork contributes to a log item; never nothing.
struct ForkRegion<'a> {
    field: InodeFields,
    fork: &'a Fork,
}

impl<'a> ForkRegion<'a> {
    /// The part of a fork that changed, if it has contents.
    fn of(fork: &'a Fork, fields: InodeFields, is_data: bool) -> Option<Self> {
        let (of_data, of_attr) = match fork {
            Fork::Dev(_) => return None,
            Fork::Local(_) => (InodeFields::DATA_LOCAL, InodeFields::ATTR_LOCAL),
            Fork::Extents(_) => (InodeFields::DATA_EXTENTS, InodeFields::ATTR_EXTENTS),
            Fork::Btree { .. } => (InodeFields::DATA_ROOT, InodeFields::ATTR_ROOT),
        };
        let region = Self { field: if is_data { of_data } else { of_attr }, fork };
        (fields.contains(region.field) && region.log_bytes() > 0).then_some(region)
    }

    fn log_bytes(&self) -> usize {
        match self.fork {
            Fork::Dev(_) => 0,
            Fork::Local(bytes) => bytes.len(),
            Fork::Extents(extents) => extents.len() * EXTENT_RECORD_BYTES,
            Fork::Btree { keys, children, .. } => LONG_HEADER_BYTES + 8 * (keys.len() + children.len()),
        }
    }

    fn encode(&self, out: &mut [u8]) {
        match self.fork {
            Fork::Dev(_) => {}
            Fork::Local(bytes) => out.copy_from_slice(bytes),
            Fork::Extents(extents) => {
                for (record, extent) in out.chunks_exact_mut(EXTENT_RECORD_BYTES).zip(extents) {
                    record.copy_from_slice(&extent.encode());
                }
            }
            Fork::Btree { level, keys, children, .. } => encode_root_for_log(*level, keys, children, out),
        }
    }
}

/// A btree root as the journal carries it: with the header of a whole block.
fn encode_root_for_log(level: u16, keys: &[u64], children: &[u64], out: &mut [u8]) {
    let (header, words) = out.split_at_mut(LONG_HEADER_BYTES);
    header.fill(0);
    header[0..4].copy_from_slice(&BMBT_MAGIC.to_be_bytes());
    header[4..6].copy_from_slice(&level.to_be_bytes());
    header[6..8].copy_from_slice(&(keys.len() as u16).to_be_bytes());
    header[8..24].fill(0xff);
    for (place, word) in words.chunks_exact_mut(8).zip(keys.iter().chain(children)) {
        place.copy_from_slice(&word.to_be_bytes());
    }
}

/// Whether a lock is held exclusively, for assertions.
pub(super) fn is_exclusive<T>(held: &Held<T>) -> bool {
    matches!(held, Held::Exclusive(_))
}

impl Transaction {
    /// Whether a buffer may be changed.
    pub fn can_edit(&self, id: BufId) -> bool {
        is_exclusive(&self.buffer(id).content)
    }
}
