//! The memory of a local fork, as the encoders of shortforms use it.

use std::ops::{DerefMut, Range};

/// The bytes of a local fork in memory, which grow and shrink.
pub trait ForkBytes: DerefMut<Target = [u8]> {
    /// Adds `bytes` zeros at the end and returns them, for the caller to fill.
    fn grow(&mut self, bytes: usize) -> &mut [u8];

    /// Adds bytes at the end.
    fn append(&mut self, bytes: &[u8]) {
        self.grow(bytes.len()).copy_from_slice(bytes);
    }

    /// Removes the bytes of a range, which lies within.
    fn take_out(&mut self, range: Range<usize>);
}

impl ForkBytes for Vec<u8> {
    fn grow(&mut self, bytes: usize) -> &mut [u8] {
        let end = self.len();
        self.resize(end + bytes, 0);
        &mut self[end..]
    }

    fn take_out(&mut self, range: Range<usize>) {
        self.drain(range);
    }
}
