//! The shape of every btree of an image: how many records fit a block, and how high a tree can grow.
//!
//! ```text
//! tree          header  leaf record  node key  pointer
//! bnobt, cntbt      56            8         8        4
//! inobt, finobt     56           16         4        4
//! rmapbt            56           24    2 * 20        4
//! refcountbt        56           12         4        4
//! bmbt block        72           16         8        8
//! bmbt root          4            -         8        8    (in an inode's fork)
//! ```
//! A block other than the root is at least half full, so the number of records that an AG (or a fork) can have bounds
//! the height. Transaction reservations and the free list are sized by heights: these must be what the kernel computes,
//! or the two would disagree on whether a log is large enough.
//!
//! Facts: the kernel's `*_maxrecs` and `*_compute_maxlevels` functions.

use crate::Geometry;
use crate::btree::{LONG_HEADER_BYTES, SHORT_HEADER_BYTES};

/// Size of the header of an extent map's root in an inode's fork, in bytes.
pub const BMBT_ROOT_HEADER_BYTES: usize = 4;
/// Size of a key and a pointer in a node of an extent map, in bytes.
const BMBT_KEY_POINTER_BYTES: usize = 16;
/// Fewest pointers that the root of a data fork's map has room for.
const MIN_DATA_ROOT_POINTERS: u64 = 3;
/// Fewest pointers that the root of an attr fork's map has room for.
const MIN_ATTR_ROOT_POINTERS: u64 = 2;

/// How many records fit the blocks of a btree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BtreeShape {
    /// Most records of a leaf.
    pub max_leaf: u32,
    /// Fewest records of a leaf that is not the root.
    pub min_leaf: u32,
    /// Most keys and pointers of a node.
    pub max_node: u32,
    /// Fewest keys and pointers of a node that is not the root.
    pub min_node: u32,
}

impl BtreeShape {
    fn new(payload_bytes: usize, record_bytes: usize, key_pointer_bytes: usize) -> Self {
        let (max_leaf, max_node) = ((payload_bytes / record_bytes) as u32, (payload_bytes / key_pointer_bytes) as u32);
        Self { max_leaf, min_leaf: max_leaf / 2, max_node, min_node: max_node / 2 }
    }

    /// Most records of a block at `level`, where leaves have level 0.
    pub fn max_records(&self, level: u32) -> u32 {
        if level == 0 { self.max_leaf } else { self.max_node }
    }

    /// Fewest records of a block at `level` that is not the root.
    pub fn min_records(&self, level: u32) -> u32 {
        if level == 0 { self.min_leaf } else { self.min_node }
    }

    /// Height of a tree of `records` records with every block as empty as it may be; at least 1.
    pub fn levels_for_records(&self, records: u64) -> u32 {
        let mut blocks = records.div_ceil(self.min_leaf.into());
        let mut levels = 1;
        while blocks > 1 {
            blocks = blocks.div_ceil(self.min_node.into());
            levels += 1;
        }
        levels
    }

    /// Blocks of a tree of `records` records with every block as empty as it may be; at least 1.
    pub fn blocks_for_records(&self, records: u64) -> u64 {
        let mut level_blocks = records.div_ceil(self.min_leaf.into()).max(1);
        let mut blocks = level_blocks;
        while level_blocks > 1 {
            level_blocks = level_blocks.div_ceil(self.min_node.into());
            blocks += level_blocks;
        }
        blocks
    }

    /// Height of the highest tree that `blocks` blocks can build. The root may be a node of two, however large
    /// the minimum of others is.
    pub fn levels_for_blocks(&self, blocks: u64) -> u32 {
        let Some(mut left) = blocks.checked_sub(1) else { return 0 };
        let mut level_blocks = 2u64;
        let mut levels = 1;
        while level_blocks < left {
            left -= level_blocks;
            level_blocks *= u64::from(self.min_node);
            levels += 1;
        }
        levels
    }
}

/// Most keys and pointers of an extent map's root in a fork of `fork_bytes` bytes.
pub fn bmbt_root_max_records(fork_bytes: usize) -> u32 {
    (fork_bytes.saturating_sub(BMBT_ROOT_HEADER_BYTES) / BMBT_KEY_POINTER_BYTES) as u32
}

/// Bytes that an extent map's root with `records` keys and pointers takes in a fork.
pub fn bmbt_root_bytes(records: u32) -> usize {
    BMBT_ROOT_HEADER_BYTES + records as usize * BMBT_KEY_POINTER_BYTES
}

/// The shapes and greatest heights of all btrees of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Shape of the bnobt and the cntbt.
    pub alloc: BtreeShape,
    /// Shape of the inobt and the finobt.
    pub inobt: BtreeShape,
    /// Shape of the rmapbt.
    pub rmap: BtreeShape,
    /// Shape of the refcountbt.
    pub refcount: BtreeShape,
    /// Shape of the blocks of an extent map.
    pub bmbt: BtreeShape,
    /// Greatest height of the bnobt and of the cntbt.
    pub alloc_levels: u32,
    /// Greatest height of the inobt and of the finobt.
    pub inobt_levels: u32,
    /// Greatest height of the rmapbt; 0 without the feature.
    pub rmap_levels: u32,
    /// Greatest height of the refcountbt; 0 without the feature.
    pub refcount_levels: u32,
    /// Greatest height of a data fork's extent map, the root in the inode included.
    pub data_levels: u32,
    /// Greatest height of an attr fork's extent map, the root in the inode included.
    pub attr_levels: u32,
}

impl Limits {
    /// The limits of an image of this geometry.
    pub fn new(geometry: &Geometry) -> Self {
        let short = geometry.block_bytes() - SHORT_HEADER_BYTES;
        let long = geometry.block_bytes() - LONG_HEADER_BYTES;
        let alloc = BtreeShape::new(short, 8, 12);
        let inobt = BtreeShape::new(short, 16, 8);
        let rmap = BtreeShape::new(short, 24, 44);
        let refcount = BtreeShape::new(short, 12, 8);
        let bmbt = BtreeShape::new(long, 16, BMBT_KEY_POINTER_BYTES);
        let ag_blocks = u64::from(geometry.ag_blocks);
        let inode_bits = geometry.ag_block_bits + (geometry.block_log - geometry.inode_log);
        let (data_extents, attr_extents) = if geometry.has_large_extent_counts() {
            ((1u64 << 48) - 1, (1u64 << 32) - 1)
        } else {
            ((1 << 31) - 1, (1 << 15) - 1)
        };
        Self {
            alloc_levels: alloc.levels_for_records(ag_blocks.div_ceil(2)),
            inobt_levels: inobt.levels_for_records(1u64 << inode_bits >> 6),
            rmap_levels: match (geometry.has_rmap(), geometry.has_reflink()) {
                (false, _) => 0,
                (true, false) => rmap.levels_for_records(ag_blocks),
                // A shared block has any number of records, so only the space of the AG bounds the tree.
                (true, true) => rmap.levels_for_blocks(ag_blocks),
            },
            refcount_levels: if geometry.has_reflink() { refcount.levels_for_records(ag_blocks) } else { 0 },
            data_levels: fork_levels(&bmbt, data_extents, MIN_DATA_ROOT_POINTERS),
            attr_levels: fork_levels(&bmbt, attr_extents, MIN_ATTR_ROOT_POINTERS),
            alloc,
            inobt,
            rmap,
            refcount,
            bmbt,
        }
    }
}

/// Height of a fork's map of `extents` extents, whose root in the inode has room for `root_pointers`.
fn fork_levels(bmbt: &BtreeShape, extents: u64, root_pointers: u64) -> u32 {
    let mut blocks = extents.div_ceil(bmbt.min_leaf.into());
    let mut levels = 1;
    while blocks > 1 {
        blocks = if blocks <= root_pointers { 1 } else { blocks.div_ceil(bmbt.min_node.into()) };
        levels += 1;
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_four_kib_holds_what_the_document_says() {
        assert_eq!(
            BtreeShape::new(4040, 8, 12),
            BtreeShape { max_leaf: 505, min_leaf: 252, max_node: 336, min_node: 168 }
        );
        assert_eq!(bmbt_root_max_records(336), 20);
        assert_eq!(bmbt_root_max_records(3), 0);
        assert_eq!(bmbt_root_bytes(3), 52);
    }

    #[test]
    fn heights_change_where_a_level_is_full() {
        let shape = BtreeShape { max_leaf: 20, min_leaf: 10, max_node: 8, min_node: 4 };
        assert_eq!([0, 1, 10, 11, 40, 41].map(|n| shape.levels_for_records(n)), [1, 1, 1, 2, 2, 3]);
        assert_eq!([0, 10, 11, 41].map(|n| shape.blocks_for_records(n)), [1, 1, 3, 8]);
        assert_eq!([0, 1, 3, 4, 11, 12].map(|n| shape.levels_for_blocks(n)), [0, 1, 1, 2, 2, 3]);
    }
}
