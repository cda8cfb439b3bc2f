//! An item's place in the AIL.
//!
//! Invariant: the position is the LSN of the first record of the newest durable checkpoint that holds the item, unless
//! the item keeps its position; the log is needed from there on until the object is written back.

use std::num::NonZeroU64;
use xfskit_ondisk::Lsn;

/// Where in the AIL an item is, if it is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AilPosition(Option<NonZeroU64>);

impl AilPosition {
    /// The position.
    pub fn get(self) -> Option<Lsn> {
        self.0.map(|lsn| Lsn(lsn.get()))
    }

    /// Moves the item to `lsn`.
    pub fn set(&mut self, lsn: Lsn) {
        // Cycles are counted from 1.
        assert!(lsn.0 != 0, "an item of no checkpoint cannot be in the AIL");
        self.0 = NonZeroU64::new(lsn.0);
    }

    /// Takes the item out; returns where it was.
    pub fn take(&mut self) -> Option<Lsn> {
        Self(self.0.take()).get()
    }
}
