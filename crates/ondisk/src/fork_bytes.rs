//! What the shortforms need of the memory that a local fork lies in.

use std::ops::{DerefMut, Range};

/// The bytes of a local fork in memory, which grow and shrink.
pub trait ForkBytes: DerefMut<Target = [u8]> {
    /// Adds so many zeros at the end, and hands them out to be written.
    fn grow(&mut self, bytes: usize) -> &mut [u8];

    /// Adds bytes at the end.
    fn append(&mut self, bytes: &[u8]) {
        self.grow(bytes.len()).copy_from_slice(bytes);
    }

    /// Takes the bytes of a range out, which lies within.
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
