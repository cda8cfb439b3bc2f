//! What is remembered of an AG between transactions: hints, and busy extents.
//!
//! The hints may be a little out of date. A transaction that acts on one locks the header and looks again.

use super::windows::Windows;
use crate::item::CheckpointSeq;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use xfskit_ondisk::AgBlock;

/// Says that a hint is not known yet.
const UNKNOWN: u64 = u64::MAX;

/// An AG in memory, on cache lines of its own: threads work in different AGs.
#[derive(Debug)]
#[repr(align(128))]
pub struct AgState {
    /// Free blocks above, the longest free extent below.
    space: AtomicU64,
    /// Inodes above, free inodes below.
    inodes: AtomicU64,
    /// The block of the inobt's leaf that was used last; under the AGI's lock it is a leaf of the tree.
    inobt_leaf: AtomicU64,
    /// Blocks that the rmapbt has beyond what the AG holds back for it; exact once the AGF was read.
    rmap_excess: AtomicU32,
    /// Transactions that hold the AGF and look for space in other AGs.
    waiting_holders: AtomicU32,
    busy: Mutex<Busy>,
    discards: Mutex<Discards>,
    /// Free blocks that are kept for a file that is being written.
    pub(crate) windows: Windows,
}

/// Extents whose freeing, or whose loss of a reference, is not durable.
#[derive(Debug, Default)]
struct Busy {
    extents: Vec<(AgBlock, u32, CheckpointSeq)>,
    /// Length at which the list is searched for extents that have become durable.
    trim_at: usize,
}

impl Busy {
    fn retain_after(&mut self, durable: CheckpointSeq) {
        self.extents.retain(|(_, _, freed)| *freed > durable);
        self.trim_at = (2 * self.extents.len()).max(1024);
    }
}

/// Extents that were freed and are to be given back to the host.
#[derive(Debug)]
enum Discards {
    Extents(Vec<(AgBlock, u32)>),
    /// So many that the free space of the whole AG is looked at instead.
    WholeAg,
}

/// Extents to give back that are remembered one by one.
const MAX_DISCARDS: usize = 1 << 14;

impl Default for Discards {
    fn default() -> Self {
        Self::Extents(Vec::new())
    }
}

impl Default for AgState {
    fn default() -> Self {
        Self {
            space: AtomicU64::new(UNKNOWN),
            inodes: AtomicU64::new(UNKNOWN),
            inobt_leaf: AtomicU64::new(UNKNOWN),
            rmap_excess: AtomicU32::new(0),
            waiting_holders: AtomicU32::new(0),
            busy: Mutex::default(),
            discards: Mutex::default(),
            windows: Windows::default(),
        }
    }
}

fn pack(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn unpack(hint: &AtomicU64) -> Option<(u32, u32)> {
    let packed = hint.load(Ordering::Relaxed);
    (packed != UNKNOWN).then_some(((packed >> 32) as u32, packed as u32))
}

impl AgState {
    /// An extent was freed by a transaction that becomes durable with checkpoint `seq`.
    pub fn extent_freed(&self, block: AgBlock, count: u32, seq: CheckpointSeq) {
        self.busy.lock().extents.push((block, count, seq));
    }

    /// An extent that was freed is to be given back to the host when that is durable.
    pub(crate) fn note_discard(&self, block: AgBlock, count: u32) {
        let mut discards = self.discards.lock();
        if let Discards::Extents(extents) = &mut *discards {
            match extents.last_mut() {
                // Files are freed extent by extent, and often in their order.
                Some((last, length)) if last.0 + *length == block.0 => *length += count,
                _ => extents.push((block, count)),
            }
            if extents.len() > MAX_DISCARDS {
                *discards = Discards::WholeAg;
            }
        }
    }

    /// Takes the extents that are to be given back, of an AG of `length` blocks.
    pub(crate) fn take_discards(&self, length: u32) -> Vec<(AgBlock, u32)> {
        match std::mem::take(&mut *self.discards.lock()) {
            Discards::Extents(extents) => extents,
            Discards::WholeAg => vec![(AgBlock(0), length)],
        }
    }

    /// Everything up to checkpoint `seq` is durable.
    pub fn checkpoint_durable(&self, seq: CheckpointSeq) {
        self.busy.lock().retain_after(seq);
    }

    /// The extents whose freeing is not durable although everything up to checkpoint `seq` is.
    pub fn busy_extents(&self, durable: CheckpointSeq) -> Vec<(AgBlock, u32)> {
        let mut busy = self.busy.lock();
        busy.retain_after(durable);
        busy.extents.iter().map(|&(block, count, _)| (block, count)).collect()
    }

    /// How many extents a checkpoint not before `seq` frees.
    pub(crate) fn count_busy_since(&self, seq: CheckpointSeq) -> usize {
        self.busy.lock().extents.iter().filter(|(.., freed)| *freed >= seq).count()
    }

    /// Whether a part of an extent is busy although everything up to checkpoint `durable` is durable.
    pub(crate) fn is_busy(&self, start: AgBlock, count: u32, durable: CheckpointSeq) -> bool {
        let overlaps = |(block, length, seq): &(AgBlock, u32, CheckpointSeq)| {
            *seq > durable && block.0 < start.0 + count && start.0 < block.0 + length
        };
        self.busy.lock().extents.iter().any(overlaps)
    }

    /// Forgets what is durable when the list has grown long.
    pub(crate) fn trim_busy(&self, durable: CheckpointSeq) {
        let mut busy = self.busy.lock();
        if busy.extents.len() >= busy.trim_at.max(1024) {
            busy.retain_after(durable);
        }
    }

    /// Whether the holder of the AGF looks for space in other AGs.
    pub(crate) fn holder_waits(&self) -> bool {
        self.waiting_holders.load(Ordering::Acquire) > 0
    }

    /// The holder of the AGF begins to look for space in other AGs.
    pub(crate) fn holder_begins_to_wait(&self) {
        self.waiting_holders.fetch_add(1, Ordering::AcqRel);
    }

    /// It has found something, or given up.
    pub(crate) fn holder_ends_to_wait(&self) {
        self.waiting_holders.fetch_sub(1, Ordering::AcqRel);
    }

    /// Free blocks and the longest free extent, if they are known.
    pub fn space(&self) -> Option<(u32, u32)> {
        unpack(&self.space)
    }

    /// Inodes and free inodes, if they are known.
    pub fn inodes(&self) -> Option<(u32, u32)> {
        unpack(&self.inodes)
    }

    /// The leaf of the inobt that was used last.
    pub(crate) fn inobt_leaf(&self) -> Option<u64> {
        Some(self.inobt_leaf.load(Ordering::Relaxed)).filter(|&block| block != UNKNOWN)
    }

    pub(crate) fn remember_inobt_leaf(&self, block: u64) {
        self.inobt_leaf.store(block, Ordering::Relaxed);
    }

    /// A block of an inode tree is freed.
    pub(crate) fn forget_inobt_leaf(&self) {
        self.inobt_leaf.store(UNKNOWN, Ordering::Relaxed);
    }

    pub(crate) fn knows_space(&self) -> bool {
        self.space().is_some()
    }

    pub(crate) fn knows_inodes(&self) -> bool {
        self.inodes().is_some()
    }

    pub(crate) fn remember_space(&self, free_blocks: u32, longest: u32) {
        self.space.store(pack(free_blocks, longest), Ordering::Relaxed);
    }

    /// Remembers how many blocks the rmapbt has beyond what is held back for it; returns by how many that is more. The
    /// AGF is locked.
    pub(crate) fn remember_rmap_excess(&self, blocks: u32) -> i64 {
        i64::from(blocks) - i64::from(self.rmap_excess.swap(blocks, Ordering::AcqRel))
    }

    pub(crate) fn remember_inodes(&self, inodes: u32, free: u32) {
        self.inodes.store(pack(inodes, free), Ordering::Relaxed);
    }
}
