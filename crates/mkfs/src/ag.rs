//! The metadata of one AG: its four header sectors and the roots of its trees.

use crate::free_space::{AgSpace, Run};
use crate::plan::Plan;
use xfskit_ondisk::ag::{
    AGF_CRC_OFFSET, AGF_MAGIC, AGFL_CRC_OFFSET, AGFL_HEADER_BYTES, AGFL_MAGIC, AGI_CRC_OFFSET, AGI_MAGIC, Agf,
    AgflHeader, Agi,
};
use xfskit_ondisk::btree::{
    BNOBT_MAGIC, CNTBT_MAGIC, FINOBT_MAGIC, FreeSpaceRecord, INOBT_MAGIC, InodeChunkRecord, REFCOUNTBT_MAGIC,
    RMAPBT_MAGIC, RmapRecord, SHORT_CRC_OFFSET, SHORT_HEADER_BYTES, ShortBlockHeader,
};
use xfskit_ondisk::{AgBlock, AgNumber, INODES_PER_CHUNK, NULL_AG_BLOCK, NULL_AG_INODE, set_checksum};
use zerocopy::{FromZeros, Immutable, IntoBytes};

/// The inodes of an AG, in whole chunks whose first inodes are in use.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Inodes {
    pub first: u32,
    pub count: u32,
    pub used: u32,
}

/// The planned contents of one AG.
pub(crate) struct Ag {
    pub number: AgNumber,
    pub space: AgSpace,
    pub free_list: Vec<u32>,
    pub inodes: Inodes,
}

impl Ag {
    /// The sectors behind the superblock: AGF, AGI, AGFL.
    pub(crate) fn encode_headers(&self, plan: &Plan) -> Vec<u8> {
        let sector = plan.geometry.sector_bytes();
        let mut out = vec![0; 3 * sector];
        let (agf, rest) = out.split_at_mut(sector);
        let (agi, agfl) = rest.split_at_mut(sector);
        put(agf, self.agf(plan).as_bytes());
        set_checksum(agf, AGF_CRC_OFFSET);
        put(agi, self.agi(plan).as_bytes());
        set_checksum(agi, AGI_CRC_OFFSET);
        self.encode_free_list(plan, agfl);
        out
    }

    fn agf(&self, plan: &Plan) -> Agf {
        let mut agf = Agf::new_zeroed();
        agf.magic.set(AGF_MAGIC);
        agf.version.set(1);
        agf.ag.set(self.number.0);
        agf.length.set(plan.geometry.blocks_in_ag(self.number));
        agf.bno_root.set(plan.roots.bnobt);
        agf.cnt_root.set(plan.roots.cntbt);
        agf.bno_level.set(1);
        agf.cnt_level.set(1);
        if let Some(root) = plan.roots.rmapbt {
            agf.rmap_root.set(root);
            agf.rmap_level.set(1);
            agf.rmap_blocks.set(1);
        }
        if let Some(root) = plan.roots.refcountbt {
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
        agf.uuid = plan.geometry.meta_uuid;
        agf
    }

    fn agi(&self, plan: &Plan) -> Agi {
        let mut agi = Agi::new_zeroed();
        agi.magic.set(AGI_MAGIC);
        agi.version.set(1);
        agi.ag.set(self.number.0);
        agi.length.set(plan.geometry.blocks_in_ag(self.number));
        agi.count.set(self.inodes.count);
        agi.free_count.set(self.inodes.count - self.inodes.used);
        agi.root.set(plan.roots.inobt);
        agi.level.set(1);
        agi.newest.set(if self.inodes.count > 0 { self.inodes.first } else { NULL_AG_INODE.0 });
        agi.dir_inode.set(NULL_AG_INODE.0);
        agi.unlinked.iter_mut().for_each(|head| head.set(NULL_AG_INODE.0));
        agi.uuid = plan.geometry.meta_uuid;
        if let Some(root) = plan.roots.finobt {
            agi.free_root.set(root);
            agi.free_level.set(1);
        }
        if plan.geometry.has_inode_btree_counts() {
            agi.inode_blocks.set(1);
            agi.free_inode_blocks.set(u32::from(plan.roots.finobt.is_some()));
        }
        agi
    }

    fn encode_free_list(&self, plan: &Plan, out: &mut [u8]) {
        let mut header = AgflHeader::new_zeroed();
        header.magic.set(AGFL_MAGIC);
        header.ag.set(self.number.0);
        header.uuid = plan.geometry.meta_uuid;
        out.fill(0xff);
        put(out, header.as_bytes());
        for (entry, block) in out[AGFL_HEADER_BYTES + 4..].chunks_exact_mut(4).zip(&self.free_list) {
            entry.copy_from_slice(&block.to_be_bytes());
        }
        // Bytes after the last whole entry belong to no entry.
        let entries = plan.geometry.agfl_entries() as usize;
        out[AGFL_HEADER_BYTES + 4 * entries..].fill(0);
        set_checksum(out, AGFL_CRC_OFFSET);
    }

    /// The roots, from the first block on and without gaps.
    pub(crate) fn encode_roots(&self, plan: &Plan) -> Vec<u8> {
        let by_block: Vec<_> = self.space.free.iter().map(free_record).collect();
        let by_size: Vec<_> = self.space.free_by_size().iter().map(free_record).collect();
        let chunks = self.chunk_records(plan);
        let mut out = self.encode_root(plan, BNOBT_MAGIC, plan.roots.bnobt, &by_block);
        out.extend(self.encode_root(plan, CNTBT_MAGIC, plan.roots.cntbt, &by_size));
        out.extend(self.encode_root(plan, INOBT_MAGIC, plan.roots.inobt, &chunks));
        if let Some(root) = plan.roots.finobt {
            out.extend(self.encode_root(plan, FINOBT_MAGIC, root, &chunks));
        }
        if let Some(root) = plan.roots.rmapbt {
            let owners: Vec<_> = self.space.owned.iter().map(rmap_record).collect();
            out.extend(self.encode_root(plan, RMAPBT_MAGIC, root, &owners));
        }
        if let Some(root) = plan.roots.refcountbt {
            out.extend(self.encode_root::<FreeSpaceRecord>(plan, REFCOUNTBT_MAGIC, root, &[]));
        }
        out
    }

    /// The chunks of the AG. All of them have free inodes, so both inode trees have the same records.
    fn chunk_records(&self, plan: &Plan) -> Vec<InodeChunkRecord> {
        let chunks = self.inodes.count / INODES_PER_CHUNK;
        let sparse = plan.geometry.has_sparse_inodes();
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

    fn encode_root<R: IntoBytes + Immutable>(&self, plan: &Plan, magic: u32, block: u32, records: &[R]) -> Vec<u8> {
        let mut out = vec![0; plan.geometry.block_bytes()];
        let mut header = ShortBlockHeader::new_zeroed();
        header.magic.set(magic);
        header.records.set(records.len() as u16);
        header.left.set(NULL_AG_BLOCK.0);
        header.right.set(NULL_AG_BLOCK.0);
        header.address.set(plan.geometry.address(self.number, AgBlock(block)).0);
        header.uuid = plan.geometry.meta_uuid;
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
