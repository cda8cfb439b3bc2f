//! Free index blocks of a directory in node form: the largest unused length of every data block.
//!
//! ```text
//!  0 header  48 first data block 52 values 56 values of blocks that exist 60 pad | 64 values, 2 bytes each
//! ```
//! Block `n` of the index starts with data block `n` times the block's capacity. A data block that does not exist has
//! the value `0xffff`.
//!
//! Facts: the XFS Algorithms & Data Structures document, "Node Directories"; the kernel's `xfs_dir3_free_header_check`.

use super::{DirBlockHeader, DirLayout, NO_DATA_BLOCK};
use crate::da::{array, prefix};
use crate::{DiskAddress, Geometry, Verdict, ensure};
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `"XDF3"`.
pub const DIR_FREE_MAGIC: u32 = 0x5844_4633;
/// Where the values start.
pub const FREE_HEADER_BYTES: usize = 64;

/// Header of a free index block.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug)]
#[repr(C)]
pub struct FreeHeader {
    /// The part shared with data blocks.
    pub block: DirBlockHeader,
    /// Data block of the first value.
    pub first: U32,
    /// Number of values.
    pub count: U32,
    /// Values of data blocks that exist.
    pub used: U32,
    /// Unused.
    pub pad: U32,
}

/// The header of a free index block.
pub fn free_header(bytes: &[u8]) -> &FreeHeader {
    prefix(bytes)
}

/// The values of a verified free index block.
pub fn free_values(bytes: &[u8]) -> &[U16] {
    array(bytes, FREE_HEADER_BYTES, free_header(bytes).count.get() as usize)
}

/// Verifies a free index block.
///
/// # Errors
/// A corruption of the "directory free index block".
pub fn verify_free(geometry: &Geometry, address: DiskAddress, bytes: &[u8]) -> Verdict {
    const NAME: &str = "directory free index block";
    DirBlockHeader::verify(geometry, address, bytes, DIR_FREE_MAGIC, NAME)?;
    let header = free_header(bytes);
    let layout = DirLayout::new(geometry);
    let capacity = layout.free_capacity() as u32;
    ensure!(header.count.get() <= capacity, NAME, "number of values", "{}", header.count);
    ensure!(header.first.get().is_multiple_of(capacity), NAME, "first data block", "{}", header.first);
    ensure!(header.first.get() < layout.max_data_blocks(), NAME, "first data block", "{}", header.first);
    let used = free_values(bytes).iter().filter(|value| value.get() != NO_DATA_BLOCK).count();
    ensure!(used == header.used.get() as usize, NAME, "number of data blocks", "{used}");
    Ok(())
}
