//! One AG: its headers, its free list, its six trees, and how these agree with each other.
//!
//! Two trees and three counters of the AGF record free space; two trees and the AGI's counters record inodes. What the
//! trees say of other structures is gathered here and compared later ([`crate::usage`], [`crate::inodes`]).

use crate::context::Context;
use crate::join::join;
use crate::report::{Consequence, Fault, Owner};
use crate::superblock::Counters;
use crate::tree::{TreeStart, TreeWalk};
use crate::usage::{FREE, Usage};
use xfskit_ondisk::ag::{AGF_CRC_OFFSET, AGFL_CRC_OFFSET, AGFL_HEADER_BYTES, AGI_CRC_OFFSET, Agf, AgflHeader, Agi};
use xfskit_ondisk::btree::{
    Bnobt, Cntbt, Finobt, FreeExtent, Inobt, InodeChunk, REFCOUNT_COW, Refcount, Refcountbt, Rmap, Rmapbt, TreeFormat,
    rmap_owner,
};
use xfskit_ondisk::{
    AgBlock, AgInode, AgNumber, Geometry, INODES_PER_CHUNK, NULL_AG_BLOCK, NULL_AG_INODE, Verdict, checksum_matches,
};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// What the structures of an AG say.
#[derive(Debug, Default)]
pub(crate) struct AgState {
    pub(crate) chunks: Vec<InodeChunk>,
    /// `None` where the tree is damaged or the image has none.
    pub(crate) rmaps: Option<Vec<Rmap>>,
    /// As above.
    pub(crate) refcounts: Option<Vec<Refcount>>,
    /// The free space is known.
    pub(crate) free_known: bool,
    pub(crate) agi: Option<Agi>,
    pub(crate) counters: Counters,
    /// The owners of blocks that these structures name.
    pub(crate) usage: Vec<Usage>,
}

struct AgCheck<'a, 'd> {
    context: &'a Context<'d>,
    ag: AgNumber,
    state: AgState,
}

/// The records and blocks of a tree.
struct Tree<R> {
    records: Vec<R>,
    blocks: u32,
    whole: bool,
}

/// Checks an AG by itself.
pub(crate) fn check(context: &Context<'_>, ag: AgNumber) -> AgState {
    let mut check = AgCheck { context, ag, state: AgState::default() };
    if ag.0 != 0 {
        crate::superblock::check_copy(context, ag);
    }
    check.own(0, context.geometry.ag_header_blocks(), rmap_owner::FS);
    check.log();
    let verify = |agf: &Agf, geometry: &Geometry| {
        agf.verify(geometry, ag)?;
        agf.verify_free_list(geometry)
    };
    let agf = check.header(1, "AGF", AGF_CRC_OFFSET, verify);
    if let Some(agf) = &agf {
        check.context.check_lsn(agf.lsn.get(), "AGF", context.geometry.ag_header(ag, 1), Owner::Ag(ag));
        check.free_list(agf);
        check.space(agf);
    } else {
        context.owners_unknown();
    }
    let agi: Option<Agi> = check.header(2, "AGI", AGI_CRC_OFFSET, |agi: &Agi, geometry| agi.verify(geometry, ag));
    if let Some(agi) = &agi {
        check.context.check_lsn(agi.lsn.get(), "AGI", context.geometry.ag_header(ag, 2), Owner::Ag(ag));
        check.inodes(agi);
    } else {
        context.owners_unknown();
        context.names_unknown();
    }
    check.state.agi = agi;
    check.state
}

impl AgCheck<'_, '_> {
    fn geometry(&self) -> &Geometry {
        &self.context.geometry
    }

    fn own(&mut self, start: u32, count: u32, owner: u64) {
        self.state.usage.push(Usage { ag: self.ag, start, count, may_share: false, owner, offset: 0 });
    }

    fn log(&mut self) {
        let geometry = self.geometry();
        let place = geometry.log_start.and_then(|start| geometry.split_fs_block(start));
        if let Some((_, block)) = place.filter(|place| place.0 == self.ag) {
            self.own(block.0, self.geometry().log_blocks, rmap_owner::LOG);
        }
    }

    fn fault(&self, header: u64, structure: &'static str, check: &'static str, found: String, what: Consequence) {
        let fault = Fault::new(structure, check, what).at(self.geometry().ag_header(self.ag, header)).ag(self.ag);
        self.context.report(fault.found(found));
    }

    fn count(&self, header: u64, check: &'static str, stored: u32, counted: u32) {
        if stored != counted {
            let name = if header == 1 { "AGF" } else { "AGI" };
            self.fault(header, name, check, format!("{stored} instead of {counted}"), Consequence::Count);
        }
    }

    /// Reads a header sector.
    fn sector(&self, index: u64, name: &'static str, crc: usize) -> Option<Vec<u8>> {
        let address = self.geometry().ag_header(self.ag, index);
        let mut sector = vec![0; self.geometry().sector_bytes()];
        if !self.context.read(address, &mut sector, name, Owner::Ag(self.ag)) {
            return None;
        }
        if !checksum_matches(&sector, crc) {
            self.fault(index, name, "checksum", String::new(), Consequence::Allocation);
            return None;
        }
        Some(sector)
    }

    fn header<T: FromBytes + KnownLayout + Immutable + Unaligned + Clone>(
        &self,
        index: u64,
        name: &'static str,
        crc: usize,
        verify: impl Fn(&T, &Geometry) -> Verdict,
    ) -> Option<T> {
        let sector = self.sector(index, name, crc)?;
        let (header, _) = T::ref_from_prefix(&sector).ok()?;
        if let Err(corruption) = verify(header, self.geometry()) {
            let corruption = corruption.at(self.geometry().ag_header(self.ag, index));
            self.context.report(Fault::of(&corruption, Owner::Ag(self.ag), Consequence::Allocation));
            return None;
        }
        Some(header.clone())
    }

    fn free_list(&mut self, agf: &Agf) {
        const NAME: &str = "AGFL";
        let Some(sector) = self.sector(3, NAME, AGFL_CRC_OFFSET) else { return self.context.owners_unknown() };
        let Ok((header, _)) = AgflHeader::ref_from_prefix(&sector) else { return };
        if let Err(corruption) = header.verify(self.geometry(), self.ag) {
            let corruption = corruption.at(self.geometry().ag_header(self.ag, 3));
            self.context.report(Fault::of(&corruption, Owner::Ag(self.ag), Consequence::Allocation));
            return self.context.owners_unknown();
        }
        self.context.check_lsn(header.lsn.get(), NAME, self.geometry().ag_header(self.ag, 3), Owner::Ag(self.ag));
        let entries = self.geometry().agfl_entries();
        let length = self.geometry().blocks_in_ag(self.ag);
        for (index, entry) in sector[AGFL_HEADER_BYTES..].chunks_exact(4).take(entries as usize).enumerate() {
            let block = u32::from_be_bytes(entry.try_into().expect("four bytes"));
            // The kernel refuses the whole list if any entry is invalid, also one that is not in use.
            if block != NULL_AG_BLOCK.0 && block >= length {
                let found = format!("entry {index} is block {block}");
                self.fault(3, NAME, "entries lie within the AG", found, Consequence::Allocation);
            }
        }
        for index in 0..agf.fl_count.get() {
            let place = AGFL_HEADER_BYTES + ((agf.fl_first.get() + index) % entries) as usize * 4;
            let block = u32::from_be_bytes(sector[place..place + 4].try_into().expect("four bytes"));
            if block == NULL_AG_BLOCK.0 {
                let found = format!("place {index} of {}", agf.fl_count);
                self.fault(3, NAME, "entries in use are blocks", found, Consequence::Allocation);
            } else if block < length {
                self.own(block, 1, rmap_owner::AG);
            }
        }
    }

    /// Walks over a tree; its blocks belong to `owner`.
    fn tree<F: TreeFormat>(
        &mut self,
        root: u32,
        levels: u32,
        most: u32,
        owner: u64,
        what: Consequence,
    ) -> Tree<F::Record> {
        let place = TreeStart { ag: self.ag, owner: Owner::Ag(self.ag), consequence: what, quiet: false };
        if levels > most {
            let header = if owner == rmap_owner::INOBT { ("AGI", 2) } else { ("AGF", 1) };
            self.fault(header.1, header.0, "tree height", format!("{}: {levels} of {most}", F::NAME), what);
        }
        let mut records = Vec::new();
        let mut walk = TreeWalk::<F>::new(self.context, place);
        let header = if owner == rmap_owner::INOBT { 2 } else { 1 };
        let from = self.geometry().ag_header(self.ag, header);
        walk.walk(from, root.into(), levels, &mut |view, _| {
            records.extend((0..view.count()).map(|index| view.record(index)))
        });
        let (blocks, whole) = (walk.blocks, walk.whole);
        for &block in &blocks {
            self.own(block as u32, 1, owner);
        }
        Tree { records, blocks: blocks.len() as u32, whole }
    }

    fn record_fault(&self, name: &'static str, check: &'static str, start: u32, found: String, what: Consequence) {
        let address = self.geometry().address(self.ag, AgBlock(start));
        self.context.report(Fault::new(name, check, what).at(address).ag(self.ag).found(found));
    }

    fn space(&mut self, agf: &Agf) {
        let limits = self.context.limits.clone();
        let what = Consequence::Allocation;
        let owner = rmap_owner::AG;
        let mut by_block =
            self.tree::<Bnobt>(agf.bno_root.get(), agf.bno_level.get(), limits.alloc_levels, owner, what);
        let by_size = self.tree::<Cntbt>(agf.cnt_root.get(), agf.cnt_level.get(), limits.alloc_levels, owner, what);
        let mut btree_blocks = (by_block.blocks + by_size.blocks).saturating_sub(2);
        let mut trees_whole = by_block.whole && by_size.whole;
        self.free_extents(agf, &mut by_block, &by_size);
        if self.geometry().has_rmap() {
            let tree = self.tree::<Rmapbt>(agf.rmap_root.get(), agf.rmap_level.get(), limits.rmap_levels, owner, what);
            btree_blocks += tree.blocks.saturating_sub(1);
            trees_whole &= tree.whole;
            if tree.whole {
                self.count(1, "blocks of the rmapbt", agf.rmap_blocks.get(), tree.blocks);
                self.state.rmaps = Some(tree.records);
            }
        }
        if self.geometry().has_reflink() {
            self.references(agf, limits.refcount_levels);
        }
        if trees_whole {
            self.count(1, "blocks of the free space and rmap trees", agf.btree_blocks.get(), btree_blocks);
        } else {
            self.context.owners_unknown();
        }
        self.state.counters.free_blocks =
            u64::from(agf.free_blocks.get()) + u64::from(agf.fl_count.get()) + u64::from(agf.btree_blocks.get());
    }

    fn free_extents(&mut self, agf: &Agf, by_block: &mut Tree<FreeExtent>, by_size: &Tree<FreeExtent>) {
        let mut end = 0;
        for extent in &by_block.records {
            if extent.start.0 < end || (extent.start.0 == end && end != 0) {
                let found = format!("{} after an extent that ends at {end}", extent.start);
                self.record_fault(
                    "bnobt record",
                    "free extents do not touch",
                    extent.start.0,
                    found,
                    Consequence::Allocation,
                );
            }
            end = end.max(extent.end());
            self.state.usage.push(Usage {
                ag: self.ag,
                start: extent.start.0,
                count: extent.count,
                may_share: false,
                owner: FREE,
                offset: 0,
            });
        }
        self.state.free_known = by_block.whole;
        if by_block.whole {
            let free: u64 = by_block.records.iter().map(|extent| u64::from(extent.count)).sum();
            let longest = by_block.records.iter().map(|extent| extent.count).max().unwrap_or(0);
            self.count(1, "number of free blocks", agf.free_blocks.get(), free.min(u32::MAX.into()) as u32);
            self.count(1, "longest free extent", agf.longest.get(), longest);
        }
        if by_block.whole && by_size.whole {
            let mut by_size = by_size.records.clone();
            by_size.sort_unstable_by_key(|extent| extent.start);
            join(
                &by_block.records,
                &by_size,
                |extent| (extent.start, extent.count),
                |left, right| {
                    let (name, extent) = match (left, right) {
                        (Some(extent), None) => ("cntbt record", extent),
                        (None, Some(extent)) => ("bnobt record", extent),
                        _ => return,
                    };
                    let found = format!("{} blocks from {} are missing", extent.count, extent.start);
                    self.record_fault(
                        name,
                        "both trees have every free extent",
                        extent.start.0,
                        found,
                        Consequence::Allocation,
                    );
                },
            );
        }
    }

    fn references(&mut self, agf: &Agf, most: u32) {
        const NAME: &str = "refcountbt record";
        let (root, levels) = (agf.refcount_root.get(), agf.refcount_level.get());
        let tree = self.tree::<Refcountbt>(root, levels, most, rmap_owner::REFCOUNT, Consequence::SharedSpace);
        if !tree.whole {
            self.context.owners_unknown();
            return;
        }
        self.count(1, "blocks of the refcountbt", agf.refcount_blocks.get(), tree.blocks);
        let mut end = 0;
        for record in &tree.records {
            let staging = record.start & REFCOUNT_COW != 0;
            let start = record.start & !REFCOUNT_COW;
            if record.start < end {
                let found = format!("{start} before {}", end & !REFCOUNT_COW);
                self.record_fault(NAME, "records do not overlap", start, found, Consequence::SharedSpace);
            }
            end = record.start + record.count;
            if staging != (record.references == 1) {
                let found = format!("{} references", record.references);
                self.record_fault(
                    NAME,
                    "shared blocks have two owners, staged ones one",
                    start,
                    found,
                    Consequence::SharedSpace,
                );
            }
            if staging {
                self.own(start, record.count, rmap_owner::COW);
            }
        }
        self.state.refcounts = Some(tree.records);
    }

    fn inodes(&mut self, agi: &Agi) {
        let most = self.context.limits.inobt_levels;
        let owner = rmap_owner::INOBT;
        let all = self.tree::<Inobt>(agi.root.get(), agi.level.get(), most, owner, Consequence::Inodes);
        if !all.whole {
            self.context.owners_unknown();
            self.context.names_unknown();
        }
        if all.whole && self.geometry().has_inode_btree_counts() {
            self.count(2, "blocks of the inobt", agi.inode_blocks.get(), all.blocks);
        }
        self.take_chunks(all.records);
        if all.whole {
            let inodes: u32 = self.state.chunks.iter().map(InodeChunk::inodes).sum();
            let free: u32 = self.state.chunks.iter().map(|chunk| u32::from(chunk.free_count)).sum();
            self.count(2, "number of inodes", agi.count.get(), inodes);
            self.count(2, "number of free inodes", agi.free_count.get(), free);
        }
        if self.geometry().has_finobt() {
            let free = self.tree::<Finobt>(agi.free_root.get(), agi.free_level.get(), most, owner, Consequence::Index);
            if !free.whole {
                self.context.owners_unknown();
            } else if self.geometry().has_inode_btree_counts() {
                self.count(2, "blocks of the finobt", agi.free_inode_blocks.get(), free.blocks);
            }
            if all.whole && free.whole {
                self.compare_inode_trees(&free.records);
            }
        }
        let newest = AgInode(agi.newest.get());
        if newest != NULL_AG_INODE && !self.geometry().contains(self.ag, self.geometry().inode_block(newest)) {
            self.fault(2, "AGI", "newest chunk lies within the AG", newest.to_string(), Consequence::Allocation);
        }
        self.state.counters.inodes = agi.count.get().into();
        self.state.counters.free_inodes = agi.free_count.get().into();
    }

    /// Stores the chunks that do not overlap, and notes the blocks that they take.
    fn take_chunks(&mut self, chunks: Vec<InodeChunk>) {
        let geometry = self.context.geometry.clone();
        let per_block = geometry.inodes_per_block();
        let length = geometry.blocks_in_ag(self.ag);
        let mut end = 0u64;
        for chunk in chunks {
            let block = geometry.inode_block(chunk.first);
            let aligned = if per_block < INODES_PER_CHUNK {
                chunk.first.0.is_multiple_of(per_block) && block.0.is_multiple_of(geometry.inode_alignment)
            } else {
                chunk.first.0.is_multiple_of(INODES_PER_CHUNK)
            };
            if u64::from(chunk.first.0) < end || !aligned {
                let overlaps = u64::from(chunk.first.0) < end;
                let check = if overlaps { "chunks do not overlap" } else { "chunks are aligned" };
                let found = format!("inode {} of the AG", chunk.first);
                self.record_fault("inobt record", check, block.0, found, Consequence::Inodes);
                self.context.owners_unknown();
                self.context.names_unknown();
                if overlaps {
                    continue;
                }
            }
            end = u64::from(chunk.first.0) + u64::from(INODES_PER_CHUNK);
            if chunk_blocks(&geometry, &chunk)
                .any(|(block, blocks)| u64::from(block.0) + u64::from(blocks) > length.into())
            {
                let found = format!("inode {} of the AG", chunk.first);
                self.record_fault("inobt record", "inodes lie within the AG", block.0, found, Consequence::Inodes);
                continue;
            }
            for (block, blocks) in chunk_blocks(&geometry, &chunk) {
                // A block that contains several chunks was noted for the first of them.
                let taken = self.state.usage.last().is_some_and(|u| u.owner == rmap_owner::INODES && u.end() > block.0);
                if !taken {
                    self.own(block.0, blocks, rmap_owner::INODES);
                }
            }
            self.state.chunks.push(chunk);
        }
    }

    fn compare_inode_trees(&self, free: &[InodeChunk]) {
        let expected: Vec<InodeChunk> =
            self.state.chunks.iter().filter(|chunk| chunk.free_count > 0).copied().collect();
        join(
            &expected,
            free,
            |chunk| chunk.first,
            |want, have| {
                let (check, chunk) = match (want, have) {
                    (Some(want), None) => ("every chunk with free inodes is in it", want),
                    (None, Some(have)) => ("has only chunks with free inodes", have),
                    (Some(want), Some(have)) if want != have => ("agrees with the inobt", have),
                    _ => return,
                };
                let block = self.geometry().inode_block(chunk.first);
                let found = format!("inode {} of the AG, {} free", chunk.first, chunk.free_count);
                self.record_fault("finobt record", check, block.0, found, Consequence::Index);
            },
        );
    }
}

/// The runs of blocks that the inodes of a chunk take.
pub(crate) fn chunk_blocks(geometry: &Geometry, chunk: &InodeChunk) -> impl Iterator<Item = (AgBlock, u32)> {
    let per_block = geometry.inodes_per_block().min(INODES_PER_CHUNK);
    let (holes, first) = (chunk.holes(), geometry.inode_block(chunk.first));
    let mut at = 0;
    std::iter::from_fn(move || {
        let exists = |index: u32| holes >> (index * per_block) & 1 == 0;
        let blocks = INODES_PER_CHUNK / per_block;
        while at < blocks && !exists(at) {
            at += 1;
        }
        let start = at;
        while at < blocks && exists(at) {
            at += 1;
        }
        (start < at).then(|| (AgBlock(first.0 + start), at - start))
    })
}
