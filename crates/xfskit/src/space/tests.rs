//! Random allocations and frees against a model of every block, and xfs_repair as the judge at the end.

use super::ag::Ag;
use super::free_space::{cursor, refcount_cursor};
use super::inode_trees::{self, InodeAg};
use super::refcount::freeable_blocks;
use super::{
    AllocRequest, Near, Owner, allocate, free, free_blocks_needed, initialize, inode_allocation_blocks,
    inode_free_blocks, inodes, rmap,
};
use crate::btree::{BtreeKind, Cursor, RecordOf};
use crate::error::Error;
use crate::incore::ForkKind;
use crate::mount::Mount;
use crate::test_image::{Random, TestImage, transact};
use crate::trans::Transaction;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use xfskit_ondisk::btree::{Bnobt, Cntbt, Finobt, Inobt, Refcount, Rmap, Rmapbt};
use xfskit_ondisk::inode::{MODE_DIR, MODE_REGULAR};
use xfskit_ondisk::{AgNumber, FileBlock, FsBlock, InodeNumber};

fn all_records<K: BtreeKind>(tx: &mut Transaction, mut cursor: Cursor<K>) -> Vec<RecordOf<K>> {
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
struct Model {
    mount: Arc<Mount>,
    random: Random,
    extents: Vec<(FsBlock, u32, Owner)>,
    blocks: BTreeSet<u64>,
    inodes: BTreeSet<InodeNumber>,
}

impl Model {
    fn new(image: &TestImage, seed: u64) -> Self {
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

    fn took(&mut self, block: FsBlock, count: u32, owner: Owner) {
        for block in block.0..block.0 + u64::from(count) {
            assert!(self.mount.geometry.split_fs_block(FsBlock(block)).is_some());
            assert!(self.blocks.insert(block), "block {block} was given out twice");
        }
        self.extents.push((block, count, owner));
    }

    /// Allocates an extent; false when there is no space.
    fn allocate(&mut self, most: u32) -> bool {
        let max = 1 + self.random.below(most.into()) as u32;
        let min = 1 + self.random.below(max.into()) as u32;
        let alignment = if self.random.below(4) == 0 { 1 << self.random.below(4) } else { 1 };
        let owner = self.owner();
        let avoid_busy = self.random.below(4) == 0;
        let request = AllocRequest { alignment, avoid_busy, ..AllocRequest::new(self.near(), min, max, owner) };
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
    fn free_some(&mut self) {
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

    fn allocate_inode(&mut self) -> bool {
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

    fn free_inode(&mut self) {
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
    fn check(&self) {
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
        let by_block = all_records(tx, cursor::<Bnobt>(ag));
        let mut by_size = all_records(tx, cursor::<Cntbt>(ag));
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
        for rmap in all_records(tx, cursor::<Rmapbt>(ag)) {
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
            let expected = owner.rmap(start, *count, false);
            let found = owners[&start.0];
            let advance = if found.has_offset() { u64::from(start.0 - found.start.0) } else { 0 };
            assert_eq!((found.owner, found.offset + advance), (expected.owner, expected.offset));
            assert!(found.end() >= expected.end());
        }
    }

    fn check_inodes(&self, tx: &mut Transaction, ag: InodeAg) {
        let all = all_records(tx, inode_trees::cursor::<Inobt>(ag));
        if tx.geometry().has_finobt() {
            let free = all_records(tx, inode_trees::cursor::<Finobt>(ag));
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
    fn finish(mut self, image: &TestImage) {
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

    fn random_steps(&mut self, steps: u32, most: u32, grow_percent: u64) {
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

fn random_work(mib: usize, arguments: &[(char, &str)], most: u32) {
    let image = TestImage::new(mib, arguments);
    let mut model = Model::new(&image, 5);
    model.random_steps(1500, most, 75);
    model.check();
    model.random_steps(1500, most / 4 + 1, 50);
    model.check();
    model.random_steps(800, most, 25);
    model.check();
    model.finish(&image);
}

#[test]
fn random_work_with_all_features() {
    random_work(128, &[('d', "agcount=4")], 40);
}

#[test]
fn random_work_without_rmap_and_finobt() {
    random_work(96, &[('d', "agcount=3"), ('m', "rmapbt=0,finobt=0,reflink=0")], 40);
}

#[test]
fn random_work_without_reflink_and_sparse_inodes() {
    random_work(96, &[('d', "agcount=2"), ('m', "reflink=0"), ('i', "sparse=0")], 40);
}

#[test]
fn random_work_with_small_blocks_and_tiny_ags() {
    random_work(96, &[('d', "agcount=6"), ('b', "size=1024")], 60);
}

#[test]
fn random_work_with_large_blocks() {
    random_work(320, &[('d', "agcount=2"), ('b', "size=65536")], 8);
}

#[test]
fn random_work_with_large_inodes() {
    random_work(96, &[('d', "agcount=2"), ('i', "size=2048")], 30);
}

#[test]
fn a_full_image_refuses_and_recovers() {
    for arguments in [[('b', "size=1024"), ('d', "agcount=2")], [('m', "rmapbt=0,reflink=0"), ('d', "agcount=2")]] {
        let image = TestImage::new(64, &arguments);
        let mut model = Model::new(&image, 9);
        let mut refused = 0;
        while refused < 50 {
            if !model.allocate(200) {
                refused += 1;
            }
        }
        while model.allocate(1) {}
        model.check();
        while model.allocate_inode() {}
        model.check();
        model.random_steps(1000, 3, 50);
        model.check();
        model.finish(&image);
    }
}

#[test]
fn twenty_thousand_fragments_in_one_ag() {
    let image = TestImage::new(128, &[('b', "size=1024"), ('d', "agcount=2")]);
    let mut model = Model::new(&image, 2);
    let mut singles = Vec::new();
    for i in 0..1350u64 {
        let found = transact(&model.mount, 32, |tx| {
            let mut found = Vec::new();
            for j in 0..32 {
                let offset = FileBlock((i * 32 + j) << 10);
                let owner = Owner::Fork { inode: InodeNumber(1000), fork: ForkKind::Data, offset, bmbt: false };
                let request = AllocRequest::new(Near::Ag(AgNumber(1)), 1, 1, owner);
                let (block, _) = allocate(tx, &request)?.ok_or(Error::NoSpace)?;
                found.push((block, 1, owner));
            }
            Ok(found)
        })
        .unwrap();
        for &(block, count, owner) in &found {
            model.took(block, count, owner);
        }
        singles.extend(found);
    }
    for pair in singles.chunks(32) {
        transact(&model.mount, 0, |tx| {
            for &(block, count, owner) in pair.iter().step_by(2) {
                free(tx, block, count, owner)?;
            }
            Ok(())
        })
        .unwrap();
        for &(block, ..) in pair.iter().step_by(2) {
            model.blocks.remove(&block.0);
            model.extents.retain(|extent| extent.0 != block);
        }
    }
    model.check();
    let mut tx = Transaction::read_only(&model.mount);
    let fragments: usize = (0..2)
        .map(|ag| {
            let ag = Ag::lock(&mut tx, AgNumber(ag)).unwrap();
            all_records(&mut tx, cursor::<Bnobt>(ag)).len()
        })
        .max()
        .unwrap();
    assert!(fragments > 20_000, "{fragments}");
    drop(tx);
    for _ in 0..3000 {
        assert!(model.allocate_inode());
    }
    model.random_steps(1000, 4, 60);
    model.check();
    model.finish(&image);
}

#[test]
fn unwritten_blocks_are_recorded_and_converted() {
    let image = TestImage::new(64, &[('d', "agcount=1")]);
    let mount = image.mount();
    let owner = Owner::Fork { inode: InodeNumber(1000), fork: ForkKind::Data, offset: FileBlock(5), bmbt: false };
    transact(&mount, 10, |tx| {
        let request = AllocRequest { unwritten: true, ..AllocRequest::new(Near::Ag(AgNumber(0)), 10, 10, owner) };
        let (block, _) = allocate(tx, &request)?.expect("space");
        let (number, start) = tx.geometry().split_fs_block(block).expect("on the device");
        let middle = owner.advanced(3).rmap(start.add(3), 4, true);
        rmap::convert(tx, number, middle, false)?;
        let ag = Ag::lock(tx, AgNumber(0))?;
        let mine = |tx: &mut Transaction| {
            let all = all_records(tx, cursor::<Rmapbt>(ag));
            all.iter().filter(|r| r.owner == 1000).map(|r| r.count).collect::<Vec<_>>()
        };
        assert_eq!(mine(tx), [3, 4, 3]);
        rmap::convert(tx, number, middle, true)?;
        assert_eq!(mine(tx), [10]);
        free(tx, block, 10, owner)
    })
    .unwrap();
    mount.unmount().unwrap();
    image.assert_sound();
}

#[test]
fn a_double_free_is_an_error_and_changes_nothing() {
    let image = TestImage::new(64, &[('d', "agcount=1"), ('m', "rmapbt=0,reflink=0")]);
    let mount = image.mount();
    let owner = Owner::Fork { inode: InodeNumber(1000), fork: ForkKind::Data, offset: FileBlock(0), bmbt: false };
    let block = transact(&mount, 1, |tx| {
        let (block, _) = allocate(tx, &AllocRequest::new(Near::Ag(AgNumber(0)), 1, 1, owner))?.expect("space");
        free(tx, block, 1, owner)?;
        Ok(block)
    })
    .unwrap();
    assert!(matches!(transact(&mount, 0, |tx| free(tx, block, 1, owner)), Err(Error::Corrupt(_))));
    mount.unmount().unwrap();
    image.assert_sound();
}

#[test]
fn sparse_chunks_fill_small_holes() {
    let image = TestImage::new(64, &[('b', "size=1024"), ('d', "agcount=1")]);
    let mut model = Model::new(&image, 4);
    let cluster = model.mount.geometry.sparse_inode_alignment;
    assert!(cluster > 0 && cluster < model.mount.geometry.inode_chunk_blocks());
    let owner = |offset: u64| Owner::Fork {
        inode: InodeNumber(1000),
        fork: ForkKind::Data,
        offset: FileBlock(offset << 20),
        bmbt: false,
    };
    // Clusters one by one, then the rest; every second cluster is freed again.
    for i in 0.. {
        let request =
            AllocRequest { alignment: cluster, ..AllocRequest::new(Near::Ag(AgNumber(0)), cluster, cluster, owner(i)) };
        match transact(&model.mount, cluster.into(), |tx| allocate(tx, &request)) {
            Ok(Some((block, count))) => model.took(block, count, owner(i)),
            Ok(None) | Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    model.extents.sort_by_key(|extent| extent.0);
    let mut index = 0;
    model.extents.retain(|&(block, count, owner)| {
        index += 1;
        let keep = index % 2 == 0;
        if !keep {
            transact(&model.mount, 0, |tx| free(tx, block, count, owner)).unwrap();
            for block in block.0..block.0 + u64::from(count) {
                model.blocks.remove(&block);
            }
        }
        keep
    });
    for _ in 0..12_000 {
        assert!(model.allocate_inode());
    }
    let mut tx = Transaction::read_only(&model.mount);
    let ag = InodeAg::lock(&mut tx, AgNumber(0)).unwrap();
    let sparse = all_records(&mut tx, inode_trees::cursor::<Inobt>(ag)).iter().filter(|c| c.hole_mask != 0).count();
    drop(tx);
    assert!(sparse > 10, "{sparse} sparse chunks");
    model.check();
    for _ in 0..8000 {
        model.free_inode();
        if model.random.below(2) == 0 {
            model.allocate_inode();
        }
    }
    model.check();
    model.finish(&image);
}

/// Shares an extent among `owners` by writing the records that a clone would leave.
fn share(tx: &mut Transaction, block: FsBlock, references: &[u32], owners: &[Owner]) -> crate::error::Result<()> {
    let (number, start) = tx.geometry().split_fs_block(block).unwrap();
    let ag = Ag::lock(tx, number)?;
    let mut at = 0;
    while at < references.len() {
        let count = references[at..].iter().take_while(|&&r| r == references[at]).count();
        if references[at] > 1 {
            let record = Refcount { start: start.0 + at as u32, count: count as u32, references: references[at] };
            refcount_cursor(ag).insert(tx, &record)?;
        }
        at += count;
    }
    for (level, owner) in owners.iter().enumerate().skip(1) {
        let mut at = 0;
        while at < references.len() {
            let has = |r: &&u32| **r > level as u32;
            let count = references[at..].iter().take_while(has).count();
            if count > 0 {
                let rmap =
                    owner.advanced(at as u32).rmap(xfskit_ondisk::AgBlock(start.0 + at as u32), count as u32, false);
                rmap::add(tx, ag, rmap)?;
            }
            at += count.max(1);
        }
    }
    Ok(())
}

#[test]
fn shared_blocks_are_free_when_the_last_owner_lets_go() {
    const BLOCKS: u32 = 300;
    let image = TestImage::new(64, &[('b', "size=1024"), ('d', "agcount=1")]);
    let mut model = Model::new(&image, 6);
    let owner = |i: u64| Owner::Fork {
        inode: InodeNumber(1000 + i),
        fork: ForkKind::Data,
        offset: FileBlock(i << 30),
        bmbt: false,
    };
    let owners = [owner(0), owner(1), owner(2), owner(3)];
    for _ in 0..5 {
        let mut run = 0;
        let references: Vec<u32> = (0..BLOCKS)
            .map(|_| {
                if model.random.below(5) == 0 {
                    run = model.random.below(4) as u32;
                }
                1 + run
            })
            .collect();
        let block = transact(&model.mount, 2000, |tx| {
            let (block, _) =
                allocate(tx, &AllocRequest::new(Near::Ag(AgNumber(0)), BLOCKS, BLOCKS, owners[0]))?.expect("space");
            share(tx, block, &references, &owners)?;
            Ok(block)
        })
        .unwrap();
        // Every owner frees its blocks in pieces, in a random order.
        let mut pieces = Vec::new();
        for (level, owner) in owners.iter().enumerate() {
            let mut at = 0;
            while at < BLOCKS {
                let most = 1 + model.random.below(if level == 0 { 200 } else { 30 }) as u32;
                let has = |r: &&u32| **r > level as u32;
                let left = references[at as usize..].iter().take(most as usize).take_while(has).count() as u32;
                if left > 0 {
                    pieces.push((FsBlock(block.0 + u64::from(at)), left, owner.advanced(at)));
                }
                at += left.max(1);
            }
        }
        let needed = free_blocks_needed(&model.mount.geometry, &model.mount.limits);
        while !pieces.is_empty() {
            let index = model.random.below(pieces.len() as u64) as usize;
            let (mut block, mut count, mut owner) = pieces.swap_remove(index);
            while count > 0 {
                let step = transact(&model.mount, needed, |tx| {
                    let step = if count.is_multiple_of(2) { count } else { freeable_blocks(tx, block, count)? };
                    free(tx, block, step, owner)?;
                    Ok(step)
                })
                .unwrap();
                (block, count, owner) = (FsBlock(block.0 + u64::from(step)), count - step, owner.advanced(step));
            }
        }
        let mut tx = Transaction::read_only(&model.mount);
        let ag = Ag::lock(&mut tx, AgNumber(0)).unwrap();
        assert!(all_records(&mut tx, refcount_cursor(ag)).is_empty());
        drop(tx);
        model.check();
    }
    model.finish(&image);
}

#[test]
fn threads_share_the_ags() {
    let image = TestImage::new(128, &[('d', "agcount=4")]);
    let mount = image.mount();
    let model = |seed| Model {
        mount: Arc::clone(&mount),
        random: Random::new(seed),
        extents: Vec::new(),
        blocks: BTreeSet::new(),
        inodes: BTreeSet::new(),
    };
    let mut models: Vec<Model> = std::thread::scope(|scope| {
        let work = |seed| {
            let mut model = model(seed);
            move || {
                model.random_steps(1500, 20, 60);
                model
            }
        };
        let threads: Vec<_> = (0..4).map(|seed| scope.spawn(work(seed))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut whole = models.pop().unwrap();
    for other in models {
        for block in other.blocks {
            assert!(whole.blocks.insert(block), "two threads got block {block}");
        }
        whole.extents.extend(other.extents);
        for inode in other.inodes {
            assert!(whole.inodes.insert(inode), "two threads got inode {inode}");
        }
    }
    whole.check();
    whole.finish(&image);
}
