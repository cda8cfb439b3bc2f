//! What the tests believe of an image: every block with its owner, every inode; and random work that keeps it.

use crate::btree::{BtreeKind, Cursor, RecordOf};
use crate::error::Error;
use crate::incore::ForkKind;
use crate::mount::Mount;
use crate::space::ag::Ag;
use crate::space::ag_tree::ag_tree;
use crate::space::inode_trees::InodeAg;
use crate::space::{
    AllocRequest, Busy, Near, Owner, allocate, free, initialize, inode_allocation_blocks, inode_free_blocks, inodes,
};
use crate::test_image::{Random, TestImage, transact};
use crate::trans::Transaction;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use xfskit_ondisk::btree::{Bnobt, Cntbt, Finobt, Inobt, Rmap, Rmapbt};
use xfskit_ondisk::inode::{MODE_DIR, MODE_REGULAR};
use xfskit_ondisk::{AgNumber, FileBlock, FsBlock, InodeNumber};

pub fn all_records<K: BtreeKind>(tx: &mut Transaction, mut cursor: Cursor<K>) -> Vec<RecordOf<K>> {
    let mut records = Vec::new();
    let mut next = cursor.first(tx).unwrap();
    while let Some(record) = next {
        records.push(record);
        next = cursor.next(tx).unwrap();
    }
    cursor.close(tx);
    records
}

/// What the test holds: extents with their owners, inodes.
pub struct Model {
    pub mount: Arc<Mount>,
    pub random: Random,
    pub extents: Vec<(FsBlock, u32, Owner)>,
    pub blocks: BTreeSet<u64>,
    pub inodes: BTreeSet<InodeNumber>,
}

impl Model {
    pub fn new(image: &TestImage, seed: u64) -> Self {
        Self {
            mount: image.mount(),
            random: Random::new(seed),
            extents: Vec::new(),
            blocks: BTreeSet::new(),
            inodes: BTreeSet::new(),
        }
    }

    fn owner(&mut self) -> Owner {
        let inode = InodeNumber(1000 + self.random.below(20));
        let fork = if self.random.below(3) == 0 { ForkKind::Attr } else { ForkKind::Data };
        // Far apart, so that no two extents continue each other by accident.
        let offset = FileBlock(self.random.below(1 << 20) << 20);
        Owner::Fork { inode, fork, offset, bmbt: self.random.below(8) == 0 }
    }

    fn near(&mut self) -> Near {
        let ag_count = u64::from(self.mount.geometry.ag_count);
        match self.extents.last() {
            Some(&(block, count, _)) if self.random.below(3) > 0 => Near::Block(FsBlock(block.0 + u64::from(count))),
            _ => Near::Ag(AgNumber(self.random.below(ag_count) as u32)),
        }
    }

    pub fn took(&mut self, block: FsBlock, count: u32, owner: Owner) {
        for block in block.0..block.0 + u64::from(count) {
            assert!(self.mount.geometry.split_fs_block(FsBlock(block)).is_some());
            assert!(self.blocks.insert(block), "block {block} was given out twice");
        }
        self.extents.push((block, count, owner));
    }

    /// Allocates an extent; false when there is no space.
    pub fn allocate(&mut self, most: u32) -> bool {
        let max = 1 + self.random.below(most.into()) as u32;
        let min = 1 + self.random.below(max.into()) as u32;
        let alignment = if self.random.below(4) == 0 { 1 << self.random.below(4) } else { 1 };
        let owner = self.owner();
        let busy = if self.random.below(4) == 0 { Busy::Avoided } else { Busy::Taken };
        let request = AllocRequest { alignment, busy, ..AllocRequest::new(self.near(), min, max, owner) };
        match transact(&self.mount, max.into(), |tx| allocate(tx, &request)) {
            Ok(Some((block, count))) => {
                assert!((min..=max).contains(&count));
                let (_, within) = self.mount.geometry.split_fs_block(block).unwrap();
                assert_eq!(within.0 % alignment, 0);
                self.took(block, count, owner);
                true
            }
            Ok(None) | Err(Error::NoSpace) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Frees an extent, or a part of it.
    pub fn free_some(&mut self) {
        if self.extents.is_empty() {
            return;
        }
        let index = self.random.below(self.extents.len() as u64) as usize;
        let (block, count, owner) = self.extents.swap_remove(index);
        let whole = self.random.below(2) == 0;
        let from = if whole { 0 } else { self.random.below(count.into()) as u32 };
        let length = if whole { count } else { 1 + self.random.below(u64::from(count - from)) as u32 };
        let start = FsBlock(block.0 + u64::from(from));
        transact(&self.mount, 0, |tx| free(tx, start, length, owner.advanced(from))).unwrap();
        for block in start.0..start.0 + u64::from(length) {
            assert!(self.blocks.remove(&block));
        }
        if from > 0 {
            self.extents.push((block, from, owner));
        }
        let rest = count - from - length;
        if rest > 0 {
            self.extents.push((FsBlock(start.0 + u64::from(length)), rest, owner.advanced(from + length)));
        }
    }

    pub fn allocate_inode(&mut self) -> bool {
        let (geometry, limits) = (&self.mount.geometry, &self.mount.limits);
        let blocks = inode_allocation_blocks(geometry, limits);
        let mode = if self.random.below(10) == 0 { MODE_DIR } else { MODE_REGULAR } | 0o644;
        let parent = match self.inodes.last() {
            Some(&inode) if self.random.below(4) > 0 => inode,
            _ => geometry.root_inode,
        };
        match transact(&self.mount, blocks, |tx| inodes::allocate_inode(tx, parent, mode)) {
            Ok(Some(inode)) => {
                assert!(self.inodes.insert(inode), "inode {inode} was given out twice");
                true
            }
            Ok(None) | Err(Error::NoSpace) => false,
            Err(error) => panic!("{error}"),
        }
    }

    pub fn free_inode(&mut self) {
        let Some(&last) = self.inodes.last() else { return };
        let pivot = InodeNumber(self.random.below(last.0 + 1));
        let inode = *self.inodes.range(pivot..).next().unwrap();
        self.inodes.remove(&inode);
        let blocks = inode_free_blocks(&self.mount.geometry, &self.mount.limits);
        transact(&self.mount, blocks, |tx| {
            assert!(inodes::is_allocated(tx, inode)?);
            inodes::free_inode(tx, inode)?;
            assert!(!inodes::is_allocated(tx, inode)?);
            Ok(())
        })
        .unwrap();
    }

    /// Compares the trees of all AGs with each other, with the counters and with the model.
    pub fn check(&self) {
        let totals = initialize(&self.mount).unwrap();
        assert_eq!(totals.free_blocks, self.mount.space.free_blocks());
        assert_eq!((totals.inodes, totals.free_inodes), self.mount.space.inodes());
        for ag in (0..self.mount.geometry.ag_count).map(AgNumber) {
            let mut tx = Transaction::read_only(&self.mount);
            let inode_ag = InodeAg::lock(&mut tx, ag).unwrap();
            let space = Ag::lock(&mut tx, ag).unwrap();
            let owners = self.check_space(&mut tx, space);
            self.check_owners(ag, &owners);
            self.check_inodes(&mut tx, inode_ag);
        }
        for (block, ..) in &self.extents {
            assert!(self.blocks.contains(&block.0));
        }
    }

    /// Returns the owner of every block that is not free, if the image records them.
    fn check_space(&self, tx: &mut Transaction, ag: Ag) -> BTreeMap<u32, Rmap> {
        let by_block = all_records(tx, ag_tree::<Bnobt>(ag).cursor());
        let mut by_size = all_records(tx, ag_tree::<Cntbt>(ag).cursor());
        assert!(by_block.windows(2).all(|w| w[0].end() < w[1].start.0), "free extents do not touch");
        assert_eq!(by_size.last().map_or(0, |e| e.count), ag.agf(tx).longest.get());
        by_size.sort_unstable();
        assert_eq!(by_block, by_size);
        assert_eq!(by_block.iter().map(|e| e.count).sum::<u32>(), ag.agf(tx).free_blocks.get());
        let free: BTreeSet<u32> = by_block.iter().flat_map(|e| e.start.0..e.end()).collect();
        for block in &free {
            let block = tx.geometry().fs_block(ag.number, xfskit_ondisk::AgBlock(*block));
            assert!(!self.blocks.contains(&block.0), "a block in use is free");
        }
        if !tx.geometry().has_rmap() {
            return BTreeMap::new();
        }
        let mut owners = BTreeMap::new();
        for rmap in all_records(tx, ag_tree::<Rmapbt>(ag).cursor()) {
            for block in rmap.start.0..rmap.end() {
                assert!(owners.insert(block, rmap).is_none(), "a block has one owner");
            }
        }
        for block in 0..tx.geometry().blocks_in_ag(ag.number) {
            assert!(owners.contains_key(&block) != free.contains(&block), "block {block} is free or has an owner");
        }
        owners
    }

    fn check_owners(&self, ag: AgNumber, owners: &BTreeMap<u32, Rmap>) {
        let geometry = &self.mount.geometry;
        let mine = self.extents.iter().map(|e| (geometry.split_fs_block(e.0).unwrap(), e));
        for ((_, start), (_, count, owner)) in mine.filter(|((at, _), _)| *at == ag && geometry.has_rmap()) {
            let expected = owner.rmap(start, *count);
            let found = owners[&start.0];
            let advance = if found.has_offset() { u64::from(start.0 - found.start.0) } else { 0 };
            assert_eq!((found.owner, found.offset + advance), (expected.owner, expected.offset));
            assert!(found.end() >= expected.end());
        }
    }

    fn check_inodes(&self, tx: &mut Transaction, ag: InodeAg) {
        let all = all_records(tx, ag_tree::<Inobt>(ag).cursor());
        if tx.geometry().has_finobt() {
            let free = all_records(tx, ag_tree::<Finobt>(ag).cursor());
            assert!(free.iter().eq(all.iter().filter(|chunk| chunk.free_count > 0)));
        }
        assert_eq!(all.iter().map(|c| c.inodes()).sum::<u32>(), ag.agi(tx).count.get());
        assert_eq!(all.iter().map(|c| u32::from(c.free_count)).sum::<u32>(), ag.agi(tx).free_count.get());
        let geometry = tx.geometry();
        for inode in &self.inodes {
            let (at, within) = geometry.split_inode(*inode).unwrap();
            if at != ag.number {
                continue;
            }
            let chunk = all.iter().find(|chunk| chunk.index_of(within).is_some()).expect("an inode has a chunk");
            let index = chunk.index_of(within).unwrap();
            assert!((chunk.free | chunk.holes()) >> index & 1 == 0);
        }
    }

    /// Frees everything and lets repair look.
    pub fn finish(mut self, image: &TestImage) {
        while !self.inodes.is_empty() {
            self.free_inode();
        }
        while !self.extents.is_empty() {
            self.free_some();
        }
        self.check();
        self.mount.unmount().unwrap();
        image.assert_sound();
    }

    pub fn random_steps(&mut self, steps: u32, most: u32, grow_percent: u64) {
        for _ in 0..steps {
            let grow = self.random.below(100) < grow_percent;
            match (self.random.below(3), grow) {
                (0, true) => drop(self.allocate_inode()),
                (0, false) => self.free_inode(),
                (_, true) => drop(self.allocate(most)),
                (_, false) => self.free_some(),
            }
        }
    }
}
