//! The log vector: an item's copy as the log carries it.
//!
//! ```text
//! region 0 │ region 1 │ a long value │ region 3     each becomes one operation in the log, padded to 4 bytes
//! ```
//! Invariants: a vector has one long value at most, which is shared with the write to its blocks and not copied;
//! [`LogVector::log_bytes`] is what the regions take in the log with their operation headers, to the byte.

use crate::value::ValueBlocks;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::sync::Arc;

/// The formatted copy of an item: regions of bytes, each of which becomes one operation in the log.
#[derive(Debug, Default, Clone)]
pub struct LogVector {
    /// The bytes of all regions but a long value, each region padded to a multiple of 4.
    bytes: Vec<u8>,
    /// Where each region ends in `bytes`.
    ends: SmallVec<[u32; 4]>,
    /// A value that is not in `bytes`, and its place among the regions.
    value: Option<(u32, Arc<ValueBlocks>)>,
}

/// A copy as an item keeps it: one word when there is none, and it changes hands without being moved.
pub type BoxedVector = Box<LogVector>;

impl LogVector {
    /// Forgets the regions, keeping the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.value = None;
    }

    /// Adds a long value as a region, without copying it. There may be one of them.
    pub fn push_value(&mut self, value: &Arc<ValueBlocks>) {
        assert!(self.value.is_none(), "a copy has one long value at most");
        self.value = Some((self.ends.len() as u32, Arc::clone(value)));
        self.ends.push(self.bytes.len() as u32);
    }

    /// Length of that region.
    pub fn value_bytes(&self) -> usize {
        self.value.as_ref().map_or(0, |(_, value)| value.region_bytes())
    }

    /// Adds a region. Its length in the log is rounded up to 4 with zeros.
    pub fn push(&mut self, region: &[u8]) {
        self.bytes.extend_from_slice(region);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self.ends.push(self.bytes.len() as u32);
    }

    /// Makes room for regions of together `bytes` bytes.
    pub fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// All bytes, for a change in place.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Sets regions of these ends up, each a multiple of 4, and hands out their bytes to be filled.
    pub fn set_up(&mut self, ends: &[u32]) -> &mut [u8] {
        self.clear();
        self.ends.extend_from_slice(ends);
        self.bytes.resize(ends.last().copied().unwrap_or(0) as usize, 0);
        &mut self.bytes
    }

    /// Adds a region of `length` zeros and hands it out to be filled.
    pub fn push_with(&mut self, length: usize, fill: impl FnOnce(&mut [u8])) {
        let start = self.bytes.len();
        self.bytes.resize(start + length.next_multiple_of(4), 0);
        fill(&mut self.bytes[start..start + length]);
        self.ends.push(self.bytes.len() as u32);
    }

    /// The regions in order. A long value is put together for it.
    pub fn regions(&self) -> impl Iterator<Item = Cow<'_, [u8]>> {
        let mut start = 0;
        self.ends.iter().enumerate().map(move |(index, &end)| {
            if let Some((place, value)) = &self.value
                && *place as usize == index
            {
                return Cow::Owned(value.to_region());
            }
            let region = &self.bytes[start..end as usize];
            start = end as usize;
            Cow::Borrowed(region)
        })
    }

    /// How many regions there are.
    pub fn region_count(&self) -> usize {
        self.ends.len()
    }

    /// The memory that it occupies.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.capacity()
    }

    /// Whether there are no regions.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes in the log, with an operation header of 12 bytes for each region.
    pub fn log_bytes(&self) -> usize {
        self.bytes.len() + self.value_bytes() + 12 * self.ends.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_image::TestImage;

    #[test]
    fn a_region_is_padded_to_four_bytes_in_the_log_only() {
        let geometry = TestImage::new(64, &[]).mount().geometry.clone();
        let mut vector = LogVector::default();
        vector.push(b"abcde");
        vector.push(b"xy");
        let regions: Vec<_> = vector.regions().collect();
        assert_eq!(regions, [b"abcde\0\0\0".as_slice(), b"xy\0\0"]);
        assert_eq!(vector.log_bytes(), 12 + 24);
        vector.push_value(&Arc::new(ValueBlocks::new(&geometry, b"12345")));
        vector.push(b"z");
        let regions: Vec<_> = vector.regions().skip(2).collect();
        assert_eq!(regions, [b"12345\0\0\0".as_slice(), b"z\0\0\0"]);
        assert_eq!(vector.log_bytes(), 12 + 24 + 8 + 4 + 24);
    }
}
