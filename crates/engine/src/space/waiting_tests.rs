//! Allocations beside transactions that hold AGs, and what the AGs hold back together.

use super::ag::{Ag, read_agf};
use super::reservation::{held_back, set_aside_blocks};
use super::{AllocRequest, Near, Owner, allocate, inode_allocation_blocks, inodes};
use crate::incore::ForkKind;
use crate::mount::Mount;
use crate::test_image::{TestImage, transact};
use crate::trans::Transaction;
use std::sync::Arc;
use std::time::Duration;
use xfskit_ondisk::inode::MODE_DIR;
use xfskit_ondisk::{AgBlock, AgNumber, FileBlock, InodeNumber};

const OWNER: Owner = Owner::Fork { inode: InodeNumber(1000), fork: ForkKind::Data, offset: FileBlock(0), bmbt: false };

/// Longer than an allocation waits for holders that wait themselves.
const SLOW: Duration = Duration::from_millis(300);

/// An image of two AGs, the second of which has no run of so many blocks any more.
fn with_a_full_ag(run: u32) -> (TestImage, Arc<Mount>) {
    let image = TestImage::new(64, &[('d', "agcount=2")]);
    let mount = image.mount();
    while mount.ags[1].space().is_some_and(|(_, longest)| longest >= run) {
        let request = AllocRequest::new(Near::Ag(AgNumber(1)), run, run, OWNER);
        let found = transact(&mount, run.into(), |tx| allocate(tx, &request)).unwrap();
        if found.is_none_or(|(block, _)| mount.geometry.split_fs_block(block).unwrap().0 != AgNumber(1)) {
            break;
        }
    }
    (image, mount)
}

#[test]
fn a_slow_holder_of_an_ag_is_waited_for() {
    const RUN: u32 = 64;
    let (_image, mount) = with_a_full_ag(RUN);
    let mut holder = Transaction::read_only(&mount);
    read_agf(&mut holder, AgNumber(0)).unwrap();
    std::thread::scope(|scope| {
        let found = scope.spawn(|| {
            transact(&mount, RUN.into(), |tx| {
                Ag::lock(tx, AgNumber(1))?;
                allocate(tx, &AllocRequest::new(Near::Ag(AgNumber(1)), RUN, RUN, OWNER))
            })
        });
        std::thread::sleep(SLOW);
        drop(holder);
        assert!(found.join().unwrap().unwrap().is_some(), "there is space, if one waits for it");
    });
}

/// The one that locks both may wait for neither with the other in its hands: its holder looks around for space there.
#[test]
fn who_locks_two_ags_keeps_none_while_it_waits() {
    const RUN: u32 = 64;
    let (_image, mount) = with_a_full_ag(RUN);
    std::thread::scope(|scope| {
        let found = transact(&mount, RUN.into(), |tx| {
            Ag::lock(tx, AgNumber(1))?;
            scope.spawn(|| {
                let mut pair = Transaction::read_only(&mount);
                let block = |ag| mount.geometry.fs_block(AgNumber(ag), AgBlock(100));
                super::alloc::lock_pair(&mut pair, block(0), block(1)).unwrap();
            });
            std::thread::sleep(SLOW);
            allocate(tx, &AllocRequest::new(Near::Ag(AgNumber(1)), RUN, RUN, OWNER))
        });
        assert!(found.unwrap().is_some(), "there is space in the first AG");
    });
}

#[test]
fn holders_that_wait_for_each_other_give_up() {
    const RUN: u32 = 64;
    let (_image, mount) = with_a_full_ag(RUN);
    // The holder of the first AG looks for space in the second, or so it says.
    let mut holder = Transaction::read_only(&mount);
    read_agf(&mut holder, AgNumber(0)).unwrap();
    mount.ags[0].holder_begins_to_wait();
    let found = transact(&mount, RUN.into(), |tx| {
        Ag::lock(tx, AgNumber(1))?;
        allocate(tx, &AllocRequest::new(Near::Ag(AgNumber(1)), RUN, RUN, OWNER))
    });
    assert!(found.unwrap().is_none());
    mount.ags[0].holder_ends_to_wait();
    assert!(!mount.ags[1].holder_waits(), "and says that it does not wait any more");
}

#[test]
fn what_the_ags_hold_back_is_set_aside() {
    let small: &[(char, &str)] = &[('b', "size=1024"), ('m', "rmapbt=0,reflink=0"), ('i', "maxpct=90")];
    for arguments in [small, &[('b', "size=1024")], &[('m', "finobt=0,inobtcount=0")]] {
        let image = TestImage::new(64, arguments);
        let mount = image.mount();
        let blocks = inode_allocation_blocks(&mount.geometry, &mount.limits);
        // A chunk at a time, in all AGs, until there is no room for more.
        let chunks = (0..).take_while(|_| {
            let parent = mount.geometry.root_inode;
            let made = transact(&mount, blocks, |tx| inodes::allocate_inodes(tx, parent, MODE_DIR, 64));
            let made = made.is_ok_and(|made| !made.is_empty());
            let mut tx = Transaction::read_only(&mount);
            let held = (0..mount.geometry.ag_count).map(|ag| {
                let ag = Ag::lock(&mut tx, AgNumber(ag)).unwrap();
                u64::from(held_back(&tx, ag))
            });
            let (held, aside) = (held.sum::<u64>(), set_aside_blocks(&mount.geometry, &mount.limits));
            assert!(held <= aside, "{held} blocks are held back and {aside} set aside");
            made
        });
        assert!(chunks.count() > 100);
    }
}
