//! An item's membership in the CIL: which checkpoint gathered it, and the copy that it keeps for that checkpoint.
//!
//! ```text
//! commit 1 of checkpoint 7   join(7, place)   pins 1   the copy is made
//! commit 2 of checkpoint 7   is_in(7)         pins 1   the copy is made anew, or patched
//! checkpoint 7 is closed     take_copy        pins 1   the copy is the checkpoint's
//! commit 1 of checkpoint 8   join(8, place)   pins 2
//! checkpoint 7 is durable    unpin            pins 1
//! ```
//! Invariants
//! - `pins` counts the checkpoints, gathering or being written, that hold the item; each unpins it once.
//! - Place, size and vector are those of the newest checkpoint's copy, and say nothing once that checkpoint is closed.
//! - A copy is in one place: in the item's vector, or in the shard that the place names. Ordered items and intents that
//!   were whited out have none.

use super::{BoxedVector, CheckpointSeq, LogVector};

/// Where the copy of an item is that the gathering checkpoint holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyPlace {
    /// In the item itself.
    #[default]
    Item,
    /// In a shard of the CIL, with the entry of that index.
    Shard {
        /// The shard.
        shard: u16,
        /// The entry.
        entry: u32,
    },
}

/// What an item knows of the checkpoints that hold it.
#[derive(Debug, Default)]
pub struct Gathered {
    /// The newest checkpoint that gathered the item; 0 for none. It is the gathering one or was closed long ago.
    seq: CheckpointSeq,
    place: CopyPlace,
    /// Bytes of the copy in the log.
    bytes: u32,
    pins: u32,
    /// The copy, unless it is in a shard. Apart, since an inode's is nearly always in a shard, and there are many
    /// inodes.
    vector: Option<BoxedVector>,
}

impl Gathered {
    /// The newest checkpoint that gathered the item; 0 for none.
    pub fn newest(&self) -> CheckpointSeq {
        self.seq
    }

    /// Whether checkpoint `seq`, the gathering one, has the item.
    #[inline]
    pub fn is_in(&self, seq: CheckpointSeq) -> bool {
        self.seq == seq
    }

    /// Checkpoint `seq` gathers the item, and pins it; its copy is at `place`.
    #[inline]
    pub fn join(&mut self, seq: CheckpointSeq, place: CopyPlace) {
        self.seq = seq;
        self.place = place;
        self.pins += 1;
    }

    /// Where the copy is, as long as the checkpoint gathers.
    #[inline]
    pub fn place(&self) -> CopyPlace {
        self.place
    }

    /// The copy is in the item from here on.
    pub fn move_to_item(&mut self) {
        self.place = CopyPlace::Item;
    }

    /// The copy for checkpoint `seq` takes `bytes` bytes of log; returns by how many the checkpoint grows.
    #[inline]
    pub fn resize(&mut self, seq: CheckpointSeq, bytes: u32) -> i64 {
        let before = if self.is_in(seq) { self.bytes } else { 0 };
        self.bytes = bytes;
        i64::from(bytes) - i64::from(before)
    }

    /// Drops the copy of an item that its checkpoint leaves out; returns how many bytes it took.
    pub fn drop_copy(&mut self) -> u32 {
        self.vector = None;
        std::mem::take(&mut self.bytes)
    }

    /// Whether a checkpoint that is not durable holds the item.
    #[inline]
    pub fn is_pinned(&self) -> bool {
        self.pins > 0
    }

    /// A checkpoint that held the item is durable, or leaves it out.
    #[inline]
    pub fn unpin(&mut self) {
        assert!(self.pins > 0, "an item was unpinned more often than it was pinned");
        self.pins -= 1;
    }

    /// The copy, if the item has it and it is not empty.
    #[inline]
    pub fn copy(&self) -> Option<&LogVector> {
        self.vector.as_deref().filter(|copy| !copy.is_empty())
    }

    /// The copy for a change; empty if there was none.
    #[inline]
    pub fn copy_mut(&mut self) -> &mut LogVector {
        self.vector.get_or_insert_default()
    }

    /// Makes `copy` the copy.
    pub fn set_copy(&mut self, copy: LogVector) {
        *self.copy_mut() = copy;
    }

    /// Takes the copy out, if the item has one.
    pub fn take_copy(&mut self) -> Option<BoxedVector> {
        self.vector.take()
    }

    /// Gives the item an empty vector for its copy, if it has none and there is one.
    pub fn lend(&mut self, spare: impl FnOnce() -> Option<BoxedVector>) {
        if self.vector.is_none() {
            self.vector = spare();
        }
    }

    /// The item has no copy: another item makes its object.
    pub fn clear_copy(&mut self) {
        self.vector = None;
    }
}
