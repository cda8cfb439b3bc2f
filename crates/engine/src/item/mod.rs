//! What the journal keeps about a cached object: the item.
//!
//! An item is a metadata buffer, an inode or an intent as the journal sees it. Its life:
//!
//! ```text
//!  clean ──commit──▶ in the CIL (pinned) ──checkpoint durable──▶ in the AIL ──written back──▶ clean
//!                       ▲      │ commit again: the newer copy replaces the older      │
//!                       └──────┴──────────────────────── commit again ◀───────────────┘
//!
//! ItemState      lock around the bookkeeping of one item
//!   Gathered     membership in the CIL: which checkpoint has the item, where its copy is, how many pin it
//!   AilPosition  membership in the AIL: the LSN that the item holds the tail at
//!   DirtyBits    what changed since the last write-back
//! LogVector      a copy as the log carries it
//! LogOnlyItem    an item without an object: an intent, a done item, the record of new inodes
//! ```
//! Invariants
//! - An item is pinned while any checkpoint that holds it is not durable, and a pinned object is never written to its
//!   place on the device.
//! - The dirty bits name everything that changed since the last write-back, so the newest copy in the log alone is
//!   enough to move the item to the head of the log.
//!
//! Locking: an item's state is locked last, below the CIL's shards and the AIL ([`crate::sync`]).

mod ail_position;
mod dirty_bits;
mod gathered;
mod log_only;
mod state;
mod vector;

pub use ail_position::AilPosition;
pub use dirty_bits::DirtyBits;
pub use gathered::{CopyPlace, Gathered};
pub use log_only::{LogOnlyItem, LogOnlyRole};
pub use state::{ItemInner, ItemState};
pub use vector::{BoxedVector, LogVector};

use std::sync::Arc;

/// Number of a checkpoint, counted from 1 at each mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct CheckpointSeq(pub u64);

/// An object as the journal sees it: it can be found again, pinned and pushed.
pub trait LogItem: Send + Sync {
    /// The journal's bookkeeping.
    fn state(&self) -> &ItemState;

    /// Disk address of the block that write-back of this item touches, so that neighbours are written together. An item
    /// without an object has none.
    fn block_address(&self) -> u64 {
        0
    }

    /// For downcasting by write-back, which treats buffers and inodes each in its own way.
    fn as_any(self: Arc<Self>) -> Arc<dyn std::any::Any + Send + Sync>;

    /// Whether this is an intent, for the counters.
    fn is_intent(&self) -> bool {
        false
    }

    /// Whether the item waits in the AIL once it is durable: for write-back, or an intent for its done item.
    fn stays_in_ail(&self) -> bool {
        true
    }

    /// Whether recovery must see the item before the others of its checkpoint: it makes blocks that others change.
    fn goes_first(&self) -> bool {
        false
    }
}
