//! Random allocations and frees against a model of every block, and xfs_repair as the judge at the end.

mod model;

use super::ag::Ag;
use super::ag_tree::ag_tree;
use super::inode_trees::InodeAg;
use super::refcount::freeable_blocks;
use super::{AllocRequest, ExtentState, Near, Owner, allocate, free, free_blocks_needed, rmap, rmap_change};
use crate::error::Error;
use crate::incore::ForkKind;
use crate::test_image::{Random, TestImage, transact};
use crate::trans::Transaction;
use model::{Model, all_records};
use std::collections::BTreeSet;
use std::sync::Arc;
use xfskit_ondisk::btree::{Bnobt, Inobt, Refcount, Refcountbt, Rmapbt};
use xfskit_ondisk::{AgNumber, FileBlock, FsBlock, InodeNumber};

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
            all_records(&mut tx, ag_tree::<Bnobt>(ag).cursor()).len()
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
        let request =
            AllocRequest { state: ExtentState::Unwritten, ..AllocRequest::new(Near::Ag(AgNumber(0)), 10, 10, owner) };
        let (block, _) = allocate(tx, &request)?.expect("space");
        let (number, start) = tx.geometry().split_fs_block(block).expect("on the device");
        let middle = owner.advanced(3).rmap_in_state(start.add(3), 4, ExtentState::Unwritten);
        rmap_change::convert(tx, number, middle, ExtentState::Written)?;
        let ag = Ag::lock(tx, AgNumber(0))?;
        let mine = |tx: &mut Transaction| {
            let all = all_records(tx, ag_tree::<Rmapbt>(ag).cursor());
            all.iter().filter(|r| r.owner == 1000).map(|r| r.count).collect::<Vec<_>>()
        };
        assert_eq!(mine(tx), [3, 4, 3]);
        rmap_change::convert(tx, number, middle, ExtentState::Unwritten)?;
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
    let sparse = all_records(&mut tx, ag_tree::<Inobt>(ag).cursor()).iter().filter(|c| c.hole_mask != 0).count();
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
            ag_tree::<Refcountbt>(ag).insert(tx, &record)?;
        }
        at += count;
    }
    for (level, owner) in owners.iter().enumerate().skip(1) {
        let mut at = 0;
        while at < references.len() {
            let has = |r: &&u32| **r > level as u32;
            let count = references[at..].iter().take_while(has).count();
            if count > 0 {
                let rmap = owner.advanced(at as u32).rmap(xfskit_ondisk::AgBlock(start.0 + at as u32), count as u32);
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
        assert!(all_records(&mut tx, ag_tree::<Refcountbt>(ag).cursor()).is_empty());
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
