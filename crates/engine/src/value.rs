//! Long values in memory, laid out as the blocks that they will be on the device.
//!
//! ```text
//! header │ part │ header │ part │ … │ header │ last part, zeros
//! ```
//! A value is copied once, from the caller's memory to here. The write to the device and the intent, which carries
//! the value without the headers, share it; and an intent is mostly whited out before its bytes are needed.
//!
//! Headers are empty until it is known which blocks they will be: an intent is committed before blocks are allocated.
//!
//! Locks: the bytes have one of their own, taken last, by who fills in the headers, who writes the blocks, and who
//! writes the intent. They may be three threads.

use crate::sync::{Mutex, MutexGuard};
use std::fmt;
use xfskit_ondisk::attr::remote::{bytes_per_block, lay_out, stamp_block};
use xfskit_ondisk::{DiskAddress, Geometry};

/// A value in its blocks.
pub struct ValueBlocks {
    blocks: Mutex<Vec<u8>>,
    block_bytes: usize,
    part_bytes: usize,
    value_bytes: usize,
}

impl ValueBlocks {
    /// A copy of `value`, without headers.
    pub fn new(geometry: &Geometry, value: &[u8]) -> Self {
        Self {
            blocks: Mutex::new(lay_out(geometry, value)),
            block_bytes: geometry.block_bytes(),
            part_bytes: bytes_per_block(geometry),
            value_bytes: value.len(),
        }
    }

    /// Length of the value.
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// Fills in the headers: the blocks, one for each address, are inode `owner`'s.
    pub fn stamp(&self, geometry: &Geometry, owner: u64, addresses: impl Iterator<Item = DiskAddress>) {
        let mut blocks = self.blocks.lock();
        for (index, (block, address)) in blocks.chunks_exact_mut(self.block_bytes).zip(addresses).enumerate() {
            let offset = index * self.part_bytes;
            let bytes = (self.value_bytes - offset).min(self.part_bytes);
            stamp_block(geometry, owner, address, offset, bytes, block);
        }
    }

    /// The blocks.
    pub fn blocks(&self) -> MutexGuard<'_, Vec<u8>> {
        self.blocks.lock()
    }

    /// The value as a region of the log, which is padded to a multiple of 4.
    pub fn to_region(&self) -> Vec<u8> {
        let blocks = self.blocks.lock();
        let header_bytes = self.block_bytes - self.part_bytes;
        let mut region = Vec::with_capacity(self.region_bytes());
        for block in blocks.chunks_exact(self.block_bytes) {
            let left = self.value_bytes - region.len();
            region.extend_from_slice(&block[header_bytes..][..left.min(self.part_bytes)]);
        }
        region.resize(self.region_bytes(), 0);
        region
    }

    /// Length of that region.
    pub fn region_bytes(&self) -> usize {
        self.value_bytes.next_multiple_of(4)
    }
}

impl fmt::Debug for ValueBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value of {} bytes", self.value_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_image::TestImage;
    use xfskit_ondisk::attr::remote::decode_block;

    #[test]
    fn a_value_is_found_in_its_blocks_and_in_its_region() {
        let geometry = TestImage::new(64, &[]).mount().geometry.clone();
        let part = bytes_per_block(&geometry);
        for length in [1, 3, 4, part - 1, part, part + 1, 3 * part, 65536] {
            let value: Vec<u8> = (0..length).map(|i| (i % 251 + 1) as u8).collect();
            let held = ValueBlocks::new(&geometry, &value);
            let address = |index: usize| DiskAddress(1000 + 24 * index as u64);
            held.stamp(&geometry, 77, (0..).map(address));
            let mut read: Vec<u8> = Vec::new();
            for (index, block) in held.blocks().chunks(geometry.block_bytes()).enumerate() {
                let bytes = (length - read.len()).min(part);
                read.extend(decode_block(&geometry, 77, address(index), block, read.len(), bytes).unwrap());
            }
            assert!(read == value, "{length} bytes");
            let mut region = value.clone();
            region.resize(length.next_multiple_of(4), 0);
            assert!(held.to_region() == region && held.region_bytes() == region.len(), "{length} bytes");
        }
    }
}
