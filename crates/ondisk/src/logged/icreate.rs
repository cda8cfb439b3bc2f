//! A new extent of inodes: recovery initializes them from this item alone.
//!
//! ```text
//! 0 type  2 regions  | big-endian: 4 AG  8 block  12 inodes  16 inode size  20 blocks  24 generation
//! ```
//! Facts: the kernel's `struct xfs_icreate_log`.

use super::Fields;
use crate::log_record::item_type;
use crate::{AgBlock, AgInode, AgNumber, DiskAddress, Geometry, Verdict, ensure};
use zerocopy::{Immutable, IntoBytes, big_endian, little_endian};

const NAME: &str = "logged inode chunk";
const BYTES: usize = size_of::<RawFormat>();
const _: () = assert!(BYTES == 28);

/// The item (`struct xfs_icreate_log`).
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct RawFormat {
    item_type: little_endian::U16,
    regions: little_endian::U16,
    ag: big_endian::U32,
    block: big_endian::U32,
    inodes: big_endian::U32,
    inode_bytes: big_endian::U32,
    blocks: big_endian::U32,
    generation: big_endian::U32,
}

/// New inodes, all of them free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewInodes {
    /// Their AG.
    pub ag: AgNumber,
    /// Their first block.
    pub block: AgBlock,
    /// Blocks that they fill.
    pub blocks: u32,
    /// Their generation.
    pub generation: u32,
}

impl NewInodes {
    /// Decodes and verifies the only region of the item.
    ///
    /// # Errors
    /// A corruption of the "logged inode chunk".
    pub fn decode(geometry: &Geometry, region: &[u8]) -> Verdict<Self> {
        let fields = Fields::new(NAME, region, BYTES)?;
        ensure!(region.len() == BYTES && fields.u16(2)? == 1, NAME, "one region of 28 bytes", "{}", region.len());
        let (ag, block, blocks) = (AgNumber(fields.be32(4)?), AgBlock(fields.be32(8)?), fields.be32(20)?);
        let (count, size) = (fields.be32(12)?, fields.be32(16)?);
        let end = block.0.checked_add(blocks);
        ensure!(
            block.0 != 0 && blocks != 0 && end.is_some_and(|end| geometry.contains(ag, AgBlock(end - 1))),
            NAME,
            "lies within an AG",
            "AG {ag}, {blocks} blocks from {block}"
        );
        ensure!(size as usize == geometry.inode_bytes(), NAME, "inode size", "{size}");
        ensure!(
            count == blocks * geometry.inodes_per_block() && count <= geometry.inodes_per_allocation(),
            NAME,
            "as many inodes as its blocks hold, and no more than a chunk",
            "{count} in {blocks} blocks"
        );
        ensure!(
            count == geometry.inodes_per_allocation() || geometry.has_sparse_inodes(),
            NAME,
            "a whole chunk",
            "{count} inodes"
        );
        Ok(Self { ag, block, blocks, generation: fields.be32(24)? })
    }

    /// The only region of the item.
    pub fn encode(&self, geometry: &Geometry) -> [u8; BYTES] {
        let inodes = self.blocks * geometry.inodes_per_block();
        let inode_bytes = geometry.inode_bytes() as u32;
        let format = RawFormat {
            item_type: item_type::ICREATE.into(),
            regions: 1.into(),
            ag: self.ag.0.into(),
            block: self.block.0.into(),
            inodes: inodes.into(),
            inode_bytes: inode_bytes.into(),
            blocks: self.blocks.into(),
            generation: self.generation.into(),
        };
        zerocopy::transmute!(format)
    }

    /// The clusters that the inodes fill: the address of each and its first inode. The last may be cut short by the
    /// extent's end.
    pub fn clusters(self, geometry: &Geometry) -> impl Iterator<Item = (DiskAddress, AgInode, usize)> {
        let step = geometry.inode_cluster_blocks();
        let geometry = geometry.clone();
        (0..self.blocks.div_ceil(step)).map(move |index| {
            let block = self.block.add(index * step);
            let blocks = step.min(self.blocks - index * step);
            (
                geometry.address(self.ag, block),
                geometry.first_inode_of_block(block),
                (blocks as usize) << geometry.block_log,
            )
        })
    }
}
