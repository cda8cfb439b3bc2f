//! Blocks that a transaction has reserved, and what its commit changes of the filesystem's counts.
//!
//! ```text
//! free blocks ──reserve──▶ left of the reservation ──use──▶ allocated
//!      ▲  ▲                       │
//!      │  └──── end of the chain ─┘
//!      └─────── a link's commit ──────────────────────────── freed
//! ```
//! Invariants
//! - Blocks that are allocated were reserved before: the formulas of reservations are upper bounds, and an allocation
//!   beyond them panics.
//! - Freed blocks, inodes and extents count when the link that frees them has committed, never before.

use crate::item::CheckpointSeq;
use crate::mount::{Discard, Mount};
use xfskit_ondisk::{AgBlock, AgNumber};

#[derive(Clone, Copy, Debug)]
struct FreedExtent {
    ag: AgNumber,
    block: AgBlock,
    count: u32,
}

/// Reserved blocks and changes of counts.
#[derive(Debug, Default)]
pub(super) struct CountChanges {
    /// Blocks of the reservation that are not used yet.
    blocks_left: u64,
    /// Blocks that this link freed.
    freed_blocks: u64,
    inodes: i64,
    free_inodes: i64,
    /// Extents freed by this link, which stay busy until it is durable.
    freed_extents: Vec<FreedExtent>,
}

impl CountChanges {
    /// `blocks` are reserved, and no count has changed.
    #[inline]
    pub(super) fn new(blocks: u64) -> Self {
        Self { blocks_left: blocks, ..Self::default() }
    }

    /// Blocks that may still be allocated.
    #[inline]
    pub(super) fn blocks_left(&self) -> u64 {
        self.blocks_left
    }

    /// `count` more blocks were reserved.
    pub(super) fn add_reserved(&mut self, count: u64) {
        self.blocks_left += count;
    }

    /// Takes `count` blocks out of the reservation, which the caller keeps from here on.
    pub(super) fn hand_back(&mut self, count: u64) {
        assert!(count <= self.blocks_left, "only what is left can be handed back");
        self.blocks_left -= count;
    }

    /// `count` blocks were allocated.
    #[inline]
    pub(super) fn use_blocks(&mut self, count: u64) {
        let left = self.blocks_left;
        assert!(count <= left, "{count} blocks allocated with {left} left of the reservation");
        self.blocks_left -= count;
    }

    /// `count` blocks were freed.
    pub(super) fn free_blocks(&mut self, count: u64) {
        self.freed_blocks += count;
    }

    /// The counts of all and of free inodes change.
    pub(super) fn count_inodes(&mut self, all: i64, free: i64) {
        self.inodes += all;
        self.free_inodes += free;
    }

    /// An extent was freed.
    pub(super) fn extent_freed(&mut self, ag: AgNumber, block: AgBlock, count: u32) {
        self.freed_extents.push(FreedExtent { ag, block, count });
    }

    /// The extents of `ag` that this link freed.
    pub(super) fn freed_extents(&self, ag: AgNumber) -> impl Iterator<Item = (AgBlock, u32)> {
        self.freed_extents.iter().filter(move |freed| freed.ag == ag).map(|freed| (freed.block, freed.count))
    }

    /// Number of extents that this link freed.
    pub(super) fn extents_freed(&self) -> usize {
        self.freed_extents.len()
    }

    /// The link was committed to checkpoint `seq`: its changes count.
    #[inline]
    pub(super) fn apply(&mut self, mount: &Mount, seq: CheckpointSeq) {
        if self.freed_blocks != 0 {
            mount.space.give_back_blocks(std::mem::take(&mut self.freed_blocks));
        }
        if (self.inodes, self.free_inodes) != (0, 0) {
            mount.space.count_inodes(std::mem::take(&mut self.inodes), std::mem::take(&mut self.free_inodes));
        }
        for freed in self.freed_extents.drain(..) {
            let ag = &mount.ags[freed.ag.0 as usize];
            ag.extent_freed(freed.block, freed.count, seq);
            if mount.options.discard == Discard::Freed {
                ag.note_discard(freed.block, freed.count);
            }
        }
    }

    /// The transaction is over: gives back the rest of the reservation.
    #[inline]
    pub(super) fn give_back_rest(&mut self, mount: &Mount) {
        if self.blocks_left > 0 {
            mount.space.give_back_blocks(std::mem::take(&mut self.blocks_left));
        }
    }
}
