//! Changes to a block's bytes that note what they touched, so that they can be tried without a transaction.

use crate::trans::{BufId, Transaction};
use smallvec::SmallVec;
use std::ops::Range;
use xfskit_ondisk::da::{prefix, prefix_mut};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A block's bytes and the ranges of them that changed.
pub(crate) struct Edit<'a> {
    bytes: &'a mut [u8],
    changed: SmallVec<[Range<usize>; 8]>,
}

impl<'a> Edit<'a> {
    /// A block before any change.
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, changed: SmallVec::new() }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// Size of the block.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes of `range` for a change.
    pub fn touch(&mut self, range: Range<usize>) -> &mut [u8] {
        self.changed.push(range.clone());
        &mut self.bytes[range]
    }

    /// All bytes, for a change of the first `head` and of those from `tail` on. What is between them is zeroed and
    /// means nothing, so it is not logged: after a crash it may be what was there before.
    pub fn touch_ends(&mut self, head: usize, tail: usize) -> &mut [u8] {
        assert!(head <= tail, "the two ends do not overlap");
        self.changed.push(0..head);
        self.changed.push(tail..self.bytes.len());
        self.bytes[head..tail].fill(0);
        self.bytes
    }

    /// A structure for a change.
    pub fn touch_as<T>(&mut self, offset: usize) -> &mut T
    where
        T: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned,
    {
        prefix_mut(self.touch(offset..offset + size_of::<T>()))
    }

    /// A structure to look at.
    pub fn get_as<T: FromBytes + KnownLayout + Immutable + Unaligned>(&self, offset: usize) -> &T {
        prefix(&self.bytes[offset..])
    }

    /// Writes bytes at `offset`.
    pub fn put(&mut self, offset: usize, bytes: &[u8]) {
        self.touch(offset..offset + bytes.len()).copy_from_slice(bytes);
    }

    /// Moves the bytes of `from` so that they start at `to`.
    pub fn shift(&mut self, from: Range<usize>, to: usize) {
        if from.is_empty() || from.start == to {
            return;
        }
        let length = from.len();
        self.bytes.copy_within(from, to);
        self.changed.push(to..to + length);
    }

    /// What changed.
    pub fn into_changed(self) -> SmallVec<[Range<usize>; 8]> {
        self.changed
    }
}

/// Changes a buffer through an [`Edit`] and logs what it touched.
pub(crate) fn edit<R>(tx: &mut Transaction, id: BufId, change: impl FnOnce(&mut Edit<'_>) -> R) -> R {
    let mut edit = Edit::new(tx.unlogged_mut(id));
    let result = change(&mut edit);
    for range in edit.into_changed() {
        tx.log(id, range);
    }
    result
}
