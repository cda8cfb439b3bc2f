//! The geometry of an image: every conversion between units, and every size that follows from the superblock.
//!
//! Built once from a verified [`Superblock`] and shared. Conversions of numbers from the disk return `None` for what
//! lies outside the device; the other conversions expect numbers that the caller has verified.

use crate::features::{Incompat, RoCompat};
use crate::{AgBlock, AgInode, AgNumber, BASIC_BLOCK_BYTES, DiskAddress, FileBlock, FsBlock, InodeNumber, Superblock};

/// Size of the core of a version 3 inode in bytes.
pub const INODE_CORE_BYTES: usize = 176;

/// Inodes in a chunk, the unit in which inodes are allocated and recorded.
pub const INODES_PER_CHUNK: u32 = 64;

/// Sizes, addresses and features from the superblock, in the form that the code needs.
#[derive(Clone, Debug)]
pub struct Geometry {
    /// Logarithm of the block size in bytes.
    pub block_log: u8,
    /// Logarithm of the sector size in bytes.
    pub sector_log: u8,
    /// Logarithm of the inode size in bytes.
    pub inode_log: u8,
    /// Logarithm of the directory block size in bytes.
    pub dir_block_log: u8,
    /// Bits of an AG block number within an [`FsBlock`].
    pub ag_block_bits: u8,
    /// Number of AGs.
    pub ag_count: u32,
    /// Blocks of every AG but the last.
    pub ag_blocks: u32,
    /// Blocks of the data device.
    pub data_blocks: u64,
    /// The UUID of the filesystem, which the records of its log carry. It may be changed later.
    pub uuid: [u8; 16],
    /// The UUID that metadata carries: the one that the filesystem was made with.
    pub meta_uuid: [u8; 16],
    /// Alignment of inode chunks in blocks; at least 1.
    pub inode_alignment: u32,
    /// Alignment of sparse inode chunks in blocks; 0 without the feature.
    pub sparse_inode_alignment: u32,
    /// Stripe unit in blocks, 0 for none.
    pub stripe_unit: u32,
    /// Largest share of the space that inodes may take, in percent; 0 for no limit.
    pub inode_max_percent: u8,
    /// Inode number of the root directory.
    pub root_inode: InodeNumber,
    /// Incompatible features.
    pub incompat: Incompat,
    /// Read-only compatible features.
    pub ro_compat: RoCompat,
    /// First block of an internal log; `None` when the log is external.
    pub log_start: Option<FsBlock>,
    /// Blocks of the log.
    pub log_blocks: u32,
    /// Log stripe unit in bytes; at least 512.
    pub log_stripe_unit_bytes: u32,
    /// Logarithm of the sector size of the log's device in bytes.
    pub log_sector_log: u8,
}

impl Geometry {
    /// The geometry that `superblock` describes.
    pub fn new(superblock: &Superblock) -> Self {
        let raw = superblock.raw();
        let log_start = raw.log_start.get();
        Self {
            block_log: raw.block_log,
            sector_log: raw.sector_log,
            inode_log: raw.inode_log,
            dir_block_log: raw.block_log + raw.dir_block_log,
            ag_block_bits: raw.ag_blocks_log,
            ag_count: raw.ag_count.get(),
            ag_blocks: raw.ag_blocks.get(),
            data_blocks: raw.data_blocks.get(),
            uuid: superblock.raw().uuid,
            meta_uuid: superblock.meta_uuid(),
            inode_alignment: raw.inode_alignment.get().max(1),
            sparse_inode_alignment: raw.sparse_inode_alignment.get(),
            stripe_unit: raw.stripe_unit.get(),
            inode_max_percent: raw.inode_max_percent,
            root_inode: superblock.root_inode(),
            incompat: superblock.incompat(),
            ro_compat: superblock.ro_compat(),
            log_start: (log_start != 0).then_some(FsBlock(log_start)),
            log_blocks: raw.log_blocks.get(),
            log_stripe_unit_bytes: raw.log_stripe_unit.get().max(BASIC_BLOCK_BYTES as u32),
            log_sector_log: raw.log_sector_log.max(9),
        }
    }

    /// Size of a block in bytes.
    pub fn block_bytes(&self) -> usize {
        1 << self.block_log
    }

    /// Size of a sector in bytes.
    pub fn sector_bytes(&self) -> usize {
        1 << self.sector_log
    }

    /// Size of an inode in bytes.
    pub fn inode_bytes(&self) -> usize {
        1 << self.inode_log
    }

    /// Size of a directory block in bytes.
    pub fn dir_block_bytes(&self) -> usize {
        1 << self.dir_block_log
    }

    /// Filesystem blocks in a directory block.
    pub fn dir_block_blocks(&self) -> u32 {
        1 << (self.dir_block_log - self.block_log)
    }

    /// Inodes in a block.
    pub fn inodes_per_block(&self) -> u32 {
        1 << (self.block_log - self.inode_log)
    }

    /// Blocks of an inode chunk; at least 1.
    pub fn inode_chunk_blocks(&self) -> u32 {
        (INODES_PER_CHUNK >> (self.block_log - self.inode_log)).max(1)
    }

    /// Most inodes that the image may have, in whole chunks; `None` without a limit. Source:
    /// `xfs_ialloc_setup_geometry` (`maxicount`).
    pub fn max_inodes(&self) -> Option<u64> {
        let chunk_blocks = u64::from(self.inode_chunk_blocks());
        let percent = Some(u64::from(self.inode_max_percent)).filter(|percent| *percent > 0)?;
        let blocks = u128::from(self.data_blocks) * u128::from(percent) / 100;
        Some(blocks as u64 / chunk_blocks * chunk_blocks * u64::from(self.inodes_per_block()))
    }

    /// Inodes that one allocation of a chunk creates: a chunk, or a whole block if that contains more.
    pub fn inodes_per_allocation(&self) -> u32 {
        self.inodes_per_block().max(INODES_PER_CHUNK)
    }

    /// Size of an inode cluster, the unit in which inodes are read and written, in bytes. Eight KiB for 256-byte
    /// inodes and larger in proportion; never less than a block.
    pub fn inode_cluster_bytes(&self) -> usize {
        let scaled = 8192 * self.inode_bytes() / 256;
        // A cluster must not reach past an aligned chunk.
        let scaled = if self.inode_alignment as usize * self.block_bytes() >= scaled { scaled } else { 8192 };
        scaled.max(self.block_bytes()).min((INODES_PER_CHUNK as usize * self.inode_bytes()).max(self.block_bytes()))
    }

    /// Blocks of an inode cluster.
    pub fn inode_cluster_blocks(&self) -> u32 {
        (self.inode_cluster_bytes() >> self.block_log) as u32
    }

    /// Inodes in an inode cluster.
    pub fn inode_cluster_inodes(&self) -> u32 {
        (self.inode_cluster_bytes() >> self.inode_log) as u32
    }

    /// Basic blocks in `blocks` filesystem blocks.
    #[inline]
    pub fn basic_blocks(&self, blocks: u32) -> usize {
        (blocks as usize) << (self.block_log - 9)
    }

    /// Blocks of AG `ag`, which may be fewer in the last.
    pub fn blocks_in_ag(&self, ag: AgNumber) -> u32 {
        if ag.0 + 1 < self.ag_count {
            self.ag_blocks
        } else {
            (self.data_blocks - u64::from(self.ag_count - 1) * u64::from(self.ag_blocks)) as u32
        }
    }

    /// Whether `block` lies in `ag`.
    #[inline]
    pub fn contains(&self, ag: AgNumber, block: AgBlock) -> bool {
        ag.0 < self.ag_count && block.0 < self.blocks_in_ag(ag)
    }

    /// The packed number of a block.
    pub fn fs_block(&self, ag: AgNumber, block: AgBlock) -> FsBlock {
        FsBlock(u64::from(ag.0) << self.ag_block_bits | u64::from(block.0))
    }

    /// The two parts of a packed number, unless they lie outside the device.
    pub fn split_fs_block(&self, block: FsBlock) -> Option<(AgNumber, AgBlock)> {
        let ag = AgNumber(u32::try_from(block.0 >> self.ag_block_bits).ok()?);
        let within = AgBlock((block.0 & ((1 << self.ag_block_bits) - 1)) as u32);
        self.contains(ag, within).then_some((ag, within))
    }

    /// The disk address of a block of an AG.
    #[inline]
    pub fn address(&self, ag: AgNumber, block: AgBlock) -> DiskAddress {
        let blocks = u64::from(ag.0) * u64::from(self.ag_blocks) + u64::from(block.0);
        DiskAddress(blocks << (self.block_log - 9))
    }

    /// The disk address of a packed block number, unless it lies outside the device.
    #[inline]
    pub fn fs_block_address(&self, block: FsBlock) -> Option<DiskAddress> {
        let (ag, within) = self.split_fs_block(block)?;
        Some(self.address(ag, within))
    }

    /// The block that contains a disk address.
    #[inline]
    pub fn block_of_address(&self, address: DiskAddress) -> (AgNumber, AgBlock) {
        let blocks = address.0 >> (self.block_log - 9);
        (AgNumber((blocks / u64::from(self.ag_blocks)) as u32), AgBlock((blocks % u64::from(self.ag_blocks)) as u32))
    }

    /// The disk address of the header sector `index` of an AG: 0 superblock, 1 AGF, 2 AGI, 3 AGFL.
    #[inline]
    pub fn ag_header(&self, ag: AgNumber, index: u64) -> DiskAddress {
        DiskAddress(self.address(ag, AgBlock(0)).0 + (index << (self.sector_log - 9)))
    }

    /// Blocks at the start of each AG that its four header sectors take.
    pub fn ag_header_blocks(&self) -> u32 {
        (4u32 << self.sector_log).div_ceil(1 << self.block_log)
    }

    fn inode_index_bits(&self) -> u8 {
        self.block_log - self.inode_log
    }

    /// The full number of an AG's inode.
    pub fn inode_number(&self, ag: AgNumber, inode: AgInode) -> InodeNumber {
        InodeNumber(u64::from(ag.0) << (self.ag_block_bits + self.inode_index_bits()) | u64::from(inode.0))
    }

    /// The AG and the number within it of an inode, unless they lie outside the device.
    #[inline]
    pub fn split_inode(&self, inode: InodeNumber) -> Option<(AgNumber, AgInode)> {
        let bits = self.ag_block_bits + self.inode_index_bits();
        let ag = AgNumber(u32::try_from(inode.0 >> bits).ok()?);
        let within = AgInode((inode.0 & ((1 << bits) - 1)) as u32);
        self.contains(ag, self.inode_block(within)).then_some((ag, within))
    }

    /// The block of an AG that contains an inode.
    #[inline]
    pub fn inode_block(&self, inode: AgInode) -> AgBlock {
        AgBlock(inode.0 >> self.inode_index_bits())
    }

    /// The first inode of a block of an AG.
    pub fn first_inode_of_block(&self, block: AgBlock) -> AgInode {
        AgInode(block.0 << self.inode_index_bits())
    }

    /// The byte offset of an inode within its block.
    pub fn inode_offset_in_block(&self, inode: AgInode) -> usize {
        ((inode.0 & ((1 << self.inode_index_bits()) - 1)) as usize) << self.inode_log
    }

    /// Bytes of an inode that its forks share.
    pub fn literal_area_bytes(&self) -> usize {
        self.inode_bytes() - INODE_CORE_BYTES
    }

    /// The fork block at which byte `offset` of a directory's address space lies, rounded down to a directory block.
    pub fn dir_block_of(&self, offset: u64) -> FileBlock {
        FileBlock((offset >> self.dir_block_log) << (self.dir_block_log - self.block_log))
    }

    /// Alignment in blocks of `count` new blocks of a file that do not continue an extent: the stripe unit, if they
    /// fill at least one. The kernel aligns to the stripe width only when mounted with `swalloc`.
    pub fn stripe_alignment(&self, count: u32) -> u32 {
        if count >= self.stripe_unit { self.stripe_unit.max(1) } else { 1 }
    }

    /// Whether the image has reverse mappings.
    pub fn has_rmap(&self) -> bool {
        self.ro_compat.contains(RoCompat::RMAPBT)
    }

    /// Whether the image can share blocks.
    pub fn has_reflink(&self) -> bool {
        self.ro_compat.contains(RoCompat::REFLINK)
    }

    /// Whether the image has a btree of chunks with free inodes.
    pub fn has_finobt(&self) -> bool {
        self.ro_compat.contains(RoCompat::FINOBT)
    }

    /// Whether the AGI counts the blocks of the inode btrees.
    pub fn has_inode_btree_counts(&self) -> bool {
        self.ro_compat.contains(RoCompat::INOBTCNT)
    }

    /// Whether inode chunks may be partly allocated.
    pub fn has_sparse_inodes(&self) -> bool {
        self.incompat.contains(Incompat::SPINODES)
    }

    /// Whether contents of two files can be exchanged by one intent.
    pub fn has_exchange(&self) -> bool {
        self.incompat.contains(Incompat::EXCHRANGE)
    }

    /// Whether every file has parent pointers.
    pub fn has_parent(&self) -> bool {
        self.incompat.contains(Incompat::PARENT)
    }

    /// Whether new inodes get 64-bit extent counters.
    pub fn has_large_extent_counts(&self) -> bool {
        self.incompat.contains(Incompat::NREXT64)
    }

    /// Whether new inodes get timestamps to the year 2486.
    pub fn has_bigtime(&self) -> bool {
        self.incompat.contains(Incompat::BIGTIME)
    }
}

#[cfg(test)]
impl Geometry {
    /// Four AGs of 10,000 blocks of 4 KiB, with every feature, for unit tests.
    pub(crate) fn of_tests() -> Self {
        Self {
            block_log: 12,
            sector_log: 9,
            inode_log: 9,
            dir_block_log: 12,
            ag_block_bits: 14,
            ag_count: 4,
            ag_blocks: 10_000,
            data_blocks: 40_000,
            uuid: [1; 16],
            meta_uuid: [1; 16],
            inode_alignment: 8,
            sparse_inode_alignment: 4,
            stripe_unit: 0,
            inode_max_percent: 25,
            root_inode: InodeNumber(128),
            incompat: Incompat::all(),
            ro_compat: RoCompat::all(),
            log_start: None,
            log_blocks: 1000,
            log_stripe_unit_bytes: 512,
            log_sector_log: 9,
        }
    }
}
