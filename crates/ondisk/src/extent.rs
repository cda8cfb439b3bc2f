//! Extent records: where a run of a fork's blocks lies on disk, in 128 bits.
//!
//! ```text
//! bit 127      126..73          72..21          20..0
//!     unwritten fork block (54) fs block (52)   count (21)
//! ```
//! Facts: the XFS Algorithms & Data Structures document, "Extent List".

use crate::{FileBlock, FsBlock, Geometry, Verdict, ensure};

/// Size of a record in bytes.
pub const EXTENT_RECORD_BYTES: usize = 16;
/// Most blocks in one record.
pub const MAX_EXTENT_BLOCKS: u64 = (1 << 21) - 1;

/// A run of fork blocks and where it lies on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First fork block.
    pub file_block: FileBlock,
    /// First block on disk.
    pub block: FsBlock,
    /// Number of blocks, from 1 to [`MAX_EXTENT_BLOCKS`].
    pub count: u64,
    /// Allocated, but reads as zeros.
    pub unwritten: bool,
}

impl Extent {
    /// Decodes a record without verifying it.
    pub fn decode(record: &[u8; EXTENT_RECORD_BYTES]) -> Self {
        let bits = u128::from_be_bytes(*record);
        Self {
            file_block: FileBlock((bits >> 73) as u64 & ((1 << 54) - 1)),
            block: FsBlock((bits >> 21) as u64 & ((1 << 52) - 1)),
            count: bits as u64 & ((1 << 21) - 1),
            unwritten: bits >> 127 != 0,
        }
    }

    /// The record.
    pub fn encode(&self) -> [u8; EXTENT_RECORD_BYTES] {
        let bits = u128::from(self.unwritten) << 127
            | u128::from(self.file_block.0) << 73
            | u128::from(self.block.0) << 21
            | u128::from(self.count);
        bits.to_be_bytes()
    }

    /// The first fork block after the run.
    pub fn end(&self) -> FileBlock {
        self.file_block.add(self.count)
    }

    /// Verifies that the run is not empty and lies within one AG of the device.
    ///
    /// # Errors
    /// A corruption of the "extent record".
    pub fn verify(&self, geometry: &Geometry) -> Verdict {
        const NAME: &str = "extent record";
        ensure!(self.count > 0, NAME, "not empty", "{self:?}");
        let first = geometry.split_fs_block(self.block);
        let last = geometry.split_fs_block(FsBlock(self.block.0 + self.count - 1));
        ensure!(first.zip(last).is_some_and(|(first, last)| first.0 == last.0), NAME, "lies within one AG", "{self:?}");
        ensure!(self.file_block.0 + self.count < 1 << 54, NAME, "ends before the largest file offset", "{self:?}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_found_again() {
        let extent = Extent {
            file_block: FileBlock((1 << 54) - 2),
            block: FsBlock((1 << 52) - 3),
            count: MAX_EXTENT_BLOCKS,
            unwritten: true,
        };
        assert_eq!(Extent::decode(&extent.encode()), extent);
    }
}
