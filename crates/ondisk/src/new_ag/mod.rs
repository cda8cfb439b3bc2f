//! The metadata of an AG as it is made: its header sectors and the roots of its trees, as mkfs.xfs and growing write
//! it.
//!
//! ```text
//! block 0                        superblock │ AGF │ AGI │ AGFL, a sector each
//! ag_header_blocks() and on      bnobt │ cntbt │ inobt │ finobt │ rmapbt │ refcountbt, a block each, if there is one
//! roots.end and on               free, but for the log, the free list and the first inodes
//! ```
//! Invariants: every tree has one level; the free space trees and the rmap tree describe every block once.
//!
//! Facts: the XFS Algorithms & Data Structures document, "Allocation Groups"; the images of mkfs.xfs and xfs_growfs.

mod space;

pub use space::{AgSpace, NoRoom, Run};

use crate::ag::{
    AGF_CRC_OFFSET, AGF_MAGIC, AGFL_CRC_OFFSET, AGFL_HEADER_BYTES, AGFL_MAGIC, AGI_CRC_OFFSET, AGI_MAGIC, Agf,
    AgflHeader, Agi,
};
use crate::btree::{
    BNOBT_MAGIC, CNTBT_MAGIC, FINOBT_MAGIC, FreeSpaceRecord, INOBT_MAGIC, InodeChunkRecord, REFCOUNTBT_MAGIC,
    RMAPBT_MAGIC, RmapRecord, SHORT_CRC_OFFSET, SHORT_HEADER_BYTES, ShortBlockHeader, rmap_owner,
};
use crate::{AgBlock, AgNumber, Geometry, INODES_PER_CHUNK, NULL_AG_BLOCK, NULL_AG_INODE, set_checksum};
use zerocopy::{FromZeros, Immutable, IntoBytes};

/// The blocks of every AG that contain the roots of its trees, in the order of mkfs.xfs.
#[derive(Clone, Copy, Debug)]
pub struct TreeRoots {
    /// Free space by block.
    pub bnobt: u32,
    /// Free space by size.
    pub cntbt: u32,
    /// Inodes.
    pub inobt: u32,
    /// Chunks with free inodes.
    pub finobt: Option<u32>,
    /// Owners of space.
    pub rmapbt: Option<u32>,
    /// Shared blocks.
    pub refcountbt: Option<u32>,
    /// The first block behind them.
    pub end: u32,
}

impl TreeRoots {
    /// The roots of an image with this geometry.
    pub fn new(geometry: &Geometry) -> Self {
        let mut end = geometry.ag_header_blocks();
        let mut next = || {
            end += 1;
            end - 1
        };
        let (bnobt, cntbt, inobt) = (next(), next(), next());
        let finobt = geometry.has_finobt().then(&mut next);
        let rmapbt = geometry.has_rmap().then(&mut next);
        let refcountbt = geometry.has_reflink().then(&mut next);
        Self { bnobt, cntbt, inobt, finobt, rmapbt, refcountbt, end }
    }
}

/// The inodes of an AG, in whole chunks whose first inodes are in use.
#[derive(Clone, Copy, Debug, Default)]
pub struct FirstInodes {
    /// The first.
    pub first: u32,
    /// How many exist.
    pub count: u32,
    /// How many of them are in use.
    pub used: u32,
}

/// The planned contents of one AG.
#[derive(Debug)]
pub struct NewAg {
    /// Its number.
    pub number: AgNumber,
    /// What is free, and who owns the rest.
    pub space: AgSpace,
    /// The blocks of the free list.
    pub free_list: Vec<u32>,
    /// The inodes.
    pub inodes: FirstInodes,
}

impl NewAg {
    /// An AG that contains its headers and the roots of its trees and is free otherwise.
    ///
    /// # Errors
    /// [`NoRoom`] for an AG of fewer blocks than that takes.
    pub fn empty(geometry: &Geometry, roots: &TreeRoots, number: AgNumber) -> Result<Self, NoRoom> {
        let mut space = AgSpace::new(geometry.blocks_in_ag(number));
        let mut take = |start: u32, count: u32, owner: u64| space.take(Run { start, count }, owner);
        take(0, roots.bnobt, rmap_owner::FS)?;
        take(roots.bnobt, 2, rmap_owner::AG)?;
        take(roots.inobt, 1 + u32::from(roots.finobt.is_some()), rmap_owner::INOBT)?;
        if let Some(root) = roots.rmapbt {
            take(root, 1, rmap_owner::AG)?;
        }
        if let Some(root) = roots.refcountbt {
            take(root, 1, rmap_owner::REFCOUNT)?;
        }
        Ok(Self { number, space, free_list: Vec::new(), inodes: FirstInodes::default() })
    }

    /// The sectors behind the superblock: AGF, AGI, AGFL.
    pub fn encode_headers(&self, geometry: &Geometry, roots: &TreeRoots) -> Vec<u8> {
        let sector = geometry.sector_bytes();
        let mut out = vec![0; 3 * sector];
        let (agf, rest) = out.split_at_mut(sector);
        let (agi, agfl) = rest.split_at_mut(sector);
        put(agf, self.agf(geometry, roots).as_bytes());
        set_checksum(agf, AGF_CRC_OFFSET);
        put(agi, self.agi(geometry, roots).as_bytes());
        set_checksum(agi, AGI_CRC_OFFSET);
        self.encode_free_list(geometry, agfl);
        out
    }

    fn agf(&self, geometry: &Geometry, roots: &TreeRoots) -> Agf {
        let mut agf = Agf::new_zeroed();
        agf.magic.set(AGF_MAGIC);
        agf.version.set(1);
        agf.ag.set(self.number.0);
        agf.length.set(geometry.blocks_in_ag(self.number));
        agf.bno_root.set(roots.bnobt);
        agf.cnt_root.set(roots.cntbt);
        agf.bno_level.set(1);
        agf.cnt_level.set(1);
        if let Some(root) = roots.rmapbt {
            agf.rmap_root.set(root);
            agf.rmap_level.set(1);
            agf.rmap_blocks.set(1);
        }
        if let Some(root) = roots.refcountbt {
            agf.refcount_root.set(root);
            agf.refcount_level.set(1);
            agf.refcount_blocks.set(1);
        }
        // The ring starts at its second entry, as mkfs.xfs makes it.
        agf.fl_first.set(1);
        agf.fl_last.set(self.free_list.len() as u32);
        agf.fl_count.set(self.free_list.len() as u32);
        agf.free_blocks.set(self.space.free_blocks());
        agf.longest.set(self.space.longest());
        agf.uuid = geometry.meta_uuid;
        agf
    }

    fn agi(&self, geometry: &Geometry, roots: &TreeRoots) -> Agi {
        let mut agi = Agi::new_zeroed();
        agi.magic.set(AGI_MAGIC);
        agi.version.set(1);
        agi.ag.set(self.number.0);
        agi.length.set(geometry.blocks_in_ag(self.number));
        agi.count.set(self.inodes.count);
        agi.free_count.set(self.inodes.count - self.inodes.used);
        agi.root.set(roots.inobt);
        agi.level.set(1);
        agi.newest.set(if self.inodes.count > 0 { self.inodes.first } else { NULL_AG_INODE.0 });
        agi.dir_inode.set(NULL_AG_INODE.0);
        agi.unlinked.iter_mut().for_each(|head| head.set(NULL_AG_INODE.0));
        agi.uuid = geometry.meta_uuid;
        if let Some(root) = roots.finobt {
            agi.free_root.set(root);
            agi.free_level.set(1);
        }
        if geometry.has_inode_btree_counts() {
            agi.inode_blocks.set(1);
            agi.free_inode_blocks.set(u32::from(roots.finobt.is_some()));
        }
        agi
    }

    fn encode_free_list(&self, geometry: &Geometry, out: &mut [u8]) {
        let mut header = AgflHeader::new_zeroed();
        header.magic.set(AGFL_MAGIC);
        header.ag.set(self.number.0);
        header.uuid = geometry.meta_uuid;
        out.fill(0xff);
        put(out, header.as_bytes());
        for (entry, block) in out[AGFL_HEADER_BYTES + 4..].chunks_exact_mut(4).zip(&self.free_list) {
            entry.copy_from_slice(&block.to_be_bytes());
        }
        // Bytes after the last whole entry belong to no entry.
        let entries = geometry.agfl_entries() as usize;
        out[AGFL_HEADER_BYTES + 4 * entries..].fill(0);
        set_checksum(out, AGFL_CRC_OFFSET);
    }

    /// The roots, from the first block on and without gaps.
    pub fn encode_roots(&self, geometry: &Geometry, roots: &TreeRoots) -> Vec<u8> {
        let by_block: Vec<_> = self.space.free.iter().map(free_record).collect();
        let by_size: Vec<_> = self.space.free_by_size().iter().map(free_record).collect();
        let chunks = self.chunk_records(geometry);
        let mut out = self.encode_root(geometry, BNOBT_MAGIC, roots.bnobt, &by_block);
        out.extend(self.encode_root(geometry, CNTBT_MAGIC, roots.cntbt, &by_size));
        out.extend(self.encode_root(geometry, INOBT_MAGIC, roots.inobt, &chunks));
        if let Some(root) = roots.finobt {
            out.extend(self.encode_root(geometry, FINOBT_MAGIC, root, &chunks));
        }
        if let Some(root) = roots.rmapbt {
            let owners: Vec<_> = self.space.owned.iter().map(rmap_record).collect();
            out.extend(self.encode_root(geometry, RMAPBT_MAGIC, root, &owners));
        }
        if let Some(root) = roots.refcountbt {
            out.extend(self.encode_root::<FreeSpaceRecord>(geometry, REFCOUNTBT_MAGIC, root, &[]));
        }
        out
    }

    /// The chunks of the AG. All of them have free inodes, so both inode trees have the same records.
    fn chunk_records(&self, geometry: &Geometry) -> Vec<InodeChunkRecord> {
        let chunks = self.inodes.count / INODES_PER_CHUNK;
        let sparse = geometry.has_sparse_inodes();
        let record = |chunk: u32| {
            let used = self.inodes.used.saturating_sub(chunk * INODES_PER_CHUNK);
            let mut record = InodeChunkRecord::new_zeroed();
            record.first.set(self.inodes.first + chunk * INODES_PER_CHUNK);
            // Without sparse inodes these bytes are one 32-bit number of free inodes.
            record.count = if sparse { INODES_PER_CHUNK as u8 } else { 0 };
            record.free_count = (INODES_PER_CHUNK - used) as u8;
            record.free.set(u64::MAX << used);
            record
        };
        (0..chunks).map(record).collect()
    }

    fn encode_root<R: IntoBytes + Immutable>(
        &self,
        geometry: &Geometry,
        magic: u32,
        block: u32,
        records: &[R],
    ) -> Vec<u8> {
        let mut out = vec![0; geometry.block_bytes()];
        let mut header = ShortBlockHeader::new_zeroed();
        header.magic.set(magic);
        header.records.set(records.len() as u16);
        header.left.set(NULL_AG_BLOCK.0);
        header.right.set(NULL_AG_BLOCK.0);
        header.address.set(geometry.address(self.number, AgBlock(block)).0);
        header.uuid = geometry.meta_uuid;
        header.owner.set(self.number.0);
        put(&mut out, header.as_bytes());
        put(&mut out[SHORT_HEADER_BYTES..], records.as_bytes());
        set_checksum(&mut out, SHORT_CRC_OFFSET);
        out
    }
}

fn put(out: &mut [u8], bytes: &[u8]) {
    out[..bytes.len()].copy_from_slice(bytes);
}

fn free_record(run: &Run) -> FreeSpaceRecord {
    FreeSpaceRecord { start: run.start.into(), count: run.count.into() }
}

fn rmap_record((run, owner): &(Run, u64)) -> RmapRecord {
    RmapRecord { start: run.start.into(), count: run.count.into(), owner: (*owner).into(), offset: 0.into() }
}
