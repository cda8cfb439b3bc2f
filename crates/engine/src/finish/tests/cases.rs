//! The scenes.

use super::*;
use crate::error_tags::FREE_EXTENT;
use crate::space::{cow, defer_free, refcount};
use xfskit_ondisk::btree::rmap_owner;
use xfskit_ondisk::log_items::{
    BmapIntent, BmapVerb, ExchangeIntent, RefcountUpdate, RefcountVerb, RmapUpdate, RmapVerb, bmap as bui,
    exchange as xmi, extent_free as efi, refcount as cui, rmap as rui,
};

const PLAIN: &[(char, &str)] = &[('d', "agcount=2")];
const SMALL_BLOCKS: &[(char, &str)] = &[('d', "agcount=2"), ('b', "size=1024")];
const NO_REFLINK: &[(char, &str)] = &[('d', "agcount=2"), ('m', "reflink=0")];

fn counts(scene: &mut Scene, updates: &[(RefcountVerb, FsBlock, u32)]) {
    let updates: Vec<_> =
        updates.iter().map(|&(verb, block, count)| RefcountUpdate { verb, extent: extent(block, count) }).collect();
    let id = 0x7000 + scene.intents;
    scene.log(cui::encode_intent(id, &updates));
}

fn owners(scene: &mut Scene, updates: &[(RmapVerb, usize, u64, FsBlock, u32, bool)]) {
    let updates: Vec<_> = updates
        .iter()
        .map(|&(verb, file, at, block, count, unwritten)| RmapUpdate {
            verb,
            owner: scene.inodes[file].0,
            extent: extent(block, count),
            offset: FileBlock(at),
            attr_fork: false,
            unwritten,
        })
        .collect();
    let id = 0x8000 + scene.intents;
    scene.log(rui::encode_intent(id, &updates));
}

fn maps(scene: &mut Scene, verb: BmapVerb, file: usize, at: u64, block: FsBlock, count: u32, unwritten: bool) {
    let intent = BmapIntent {
        id: 0x9000 + scene.intents,
        verb,
        inode: scene.inodes[file],
        extent: extent(block, count),
        offset: FileBlock(at),
        attr_fork: false,
        unwritten,
    };
    scene.log(bui::encode_intent(&intent));
}

#[test]
fn extents_are_freed_with_their_owner_or_without() {
    for arguments in [PLAIN, SMALL_BLOCKS, NO_REFLINK] {
        agree(arguments, &|scene| {
            let (first, second) = (scene.blocks(10), scene.blocks(20));
            let (ag, owned) = scene.rmap(0, 100, second, 20, false);
            reverse::map(&mut scene.tx, ag, owned).unwrap();
            let extents = [
                extent(first, 4),
                extent(FsBlock(first.0 + 4), 6),
                extent(second, 3),
                extent(FsBlock(second.0 + 3), 17),
            ];
            scene.log(efi::encode_intent(1, &extents));
            let third = scene.blocks(1);
            scene.log(efi::encode_intent(u64::MAX, &[extent(third, 1)]));
        });
    }
}

#[test]
fn our_own_frees_are_finished() {
    agree(PLAIN, &|scene| {
        for (at, count) in [(10, 4), (50, 7)] {
            let block = scene.blocks(count);
            let (ag, owned) = scene.rmap(0, at, block, count, false);
            reverse::map(&mut scene.tx, ag, owned).unwrap();
            let (inode, offset) = (scene.inodes[0], FileBlock(at));
            let owner = Owner::Fork { inode, fork: ForkKind::Data, offset, bmbt: false };
            defer_free(&mut scene.tx, block, count, owner);
        }
        scene.cut = Some(FREE_EXTENT);
    });
}

#[test]
fn mappings_get_owners_and_lose_them() {
    for arguments in [PLAIN, NO_REFLINK] {
        agree(arguments, &|scene| {
            let one = scene.write(0, 0, 10);
            let (ag, whole) = scene.rmap(0, 0, one, 10, false);
            // The blocks are mapped, but have reverse mappings at both ends only.
            reverse::unmap(&mut scene.tx, ag, whole).unwrap();
            for (at, count) in [(0, 3), (7, 3)] {
                let (ag, part) = scene.rmap(0, at, FsBlock(one.0 + at), count, false);
                reverse::map(&mut scene.tx, ag, part).unwrap();
            }
            // The blocks are unmapped and still have a reverse mapping.
            let other = scene.blocks(8);
            let (ag, owned) = scene.rmap(1, 50, other, 8, true);
            reverse::map(&mut scene.tx, ag, owned).unwrap();
            owners(
                scene,
                &[(RmapVerb::Map, 0, 3, FsBlock(one.0 + 3), 4, false), (RmapVerb::Unmap, 1, 50, other, 8, true)],
            );
            scene.log(efi::encode_intent(2, &[extent(other, 8)]));
        });
    }
}

#[test]
fn mappings_are_converted() {
    agree(PLAIN, &|scene| {
        let one = scene.write(0, 0, 10);
        let unwritten = scene.blocks(6);
        scene.map(0, 40, unwritten, 6, true);
        let (ag, part) = scene.rmap(0, 2, FsBlock(one.0 + 2), 5, false);
        reverse::convert(&mut scene.tx, ag, part, ExtentState::Unwritten).unwrap();
        let (ag, part) = scene.rmap(0, 40, unwritten, 6, true);
        reverse::convert(&mut scene.tx, ag, part, ExtentState::Written).unwrap();
        owners(
            scene,
            &[(RmapVerb::Convert, 0, 2, FsBlock(one.0 + 2), 5, false), (RmapVerb::Convert, 0, 40, unwritten, 6, true)],
        );
    });
}

/// Blocks of the first file that the second shares from block 4 on.
fn shared(scene: &mut Scene, counted: bool) -> FsBlock {
    scene.share();
    let one = scene.write(0, 0, 20);
    scene.map(1, 100, FsBlock(one.0 + 4), 10, false);
    if counted {
        assert_eq!(refcount::increase_some(&mut scene.tx, FsBlock(one.0 + 4), 10).unwrap(), 10);
    }
    one
}

#[test]
fn mappings_of_shared_blocks_change() {
    for arguments in [PLAIN, SMALL_BLOCKS] {
        agree(arguments, &|scene| {
            let one = shared(scene, true);
            let block = FsBlock(one.0 + 4);
            let (ag, whole) = scene.rmap(1, 100, block, 10, false);
            reverse::unmap(&mut scene.tx, ag, whole).unwrap();
            owners(scene, &[(RmapVerb::MapShared, 1, 100, block, 10, false)]);
        });
        agree(arguments, &|scene| {
            let one = shared(scene, true);
            let (block, last) = (FsBlock(one.0 + 4), FsBlock(one.0 + 12));
            let (ag, whole) = scene.rmap(1, 100, block, 10, false);
            reverse::convert(&mut scene.tx, ag, Rmap { count: 7, ..whole }, ExtentState::Unwritten).unwrap();
            // The second file had two blocks of the first more.
            let (ag, more) = scene.rmap(1, 200, last, 2, false);
            reverse::map(&mut scene.tx, ag, more).unwrap();
            owners(
                scene,
                &[
                    (RmapVerb::ConvertShared, 1, 102, FsBlock(block.0 + 2), 5, false),
                    (RmapVerb::ConvertShared, 1, 100, block, 2, false),
                    (RmapVerb::UnmapShared, 1, 200, last, 2, false),
                ],
            );
        });
    }
}

#[test]
fn references_go_up() {
    agree(PLAIN, &|scene| {
        let one = shared(scene, false);
        counts(scene, &[(RefcountVerb::Increase, FsBlock(one.0 + 4), 10)]);
    });
    // Some blocks are counted already, for a third mapping shares them.
    agree(PLAIN, &|scene| {
        let one = shared(scene, true);
        scene.map(1, 300, FsBlock(one.0 + 2), 8, false);
        counts(scene, &[(RefcountVerb::Increase, FsBlock(one.0 + 2), 8)]);
    });
}

#[test]
fn references_go_down_and_unreferenced_blocks_become_free() {
    agree(PLAIN, &|scene| {
        let one = scene.write(0, 0, 20);
        scene.share();
        refcount::increase_some(&mut scene.tx, FsBlock(one.0 + 4), 10).unwrap();
        let loose = scene.blocks(30);
        refcount::increase_some(&mut scene.tx, FsBlock(loose.0 + 5), 3).unwrap();
        scene.map(1, 0, FsBlock(loose.0 + 5), 3, false);
        counts(scene, &[(RefcountVerb::Decrease, FsBlock(one.0 + 4), 10), (RefcountVerb::Decrease, loose, 30)]);
    });
}

#[test]
fn references_of_many_pieces_change_in_many_steps() {
    agree(SMALL_BLOCKS, &|scene| {
        scene.share();
        let one = scene.write(0, 0, 600);
        for piece in 0..200 {
            let block = FsBlock(one.0 + 3 * piece);
            scene.map(1, 1000 + 5 * piece, block, 1, false);
            refcount::increase_some(&mut scene.tx, block, 1).unwrap();
        }
        scene.map(1, 5000, one, 600, false);
        counts(scene, &[(RefcountVerb::Increase, one, 600)]);
    });
}

#[test]
fn blocks_are_staged_and_what_nobody_maps_is_freed() {
    agree(PLAIN, &|scene| {
        scene.share();
        let staged = scene.blocks(10);
        let more = scene.blocks(6);
        cow::stage(&mut scene.tx, more, 6).unwrap();
        let cow_owner = |block: FsBlock, count| {
            let (ag, start) = scene.tx.geometry().split_fs_block(block).unwrap();
            (ag, Rmap { start, count, owner: rmap_owner::COW, offset: 0 })
        };
        let (ag, owned) = cow_owner(staged, 10);
        reverse::map(&mut scene.tx, ag, owned).unwrap();
        counts(scene, &[(RefcountVerb::AllocCow, staged, 10)]);
        let update = RmapUpdate {
            verb: RmapVerb::Alloc,
            owner: rmap_owner::COW,
            extent: extent(more, 6),
            offset: FileBlock(0),
            attr_fork: false,
            unwritten: false,
        };
        scene.log(rui::encode_intent(5, &[update]));
    });
}

#[test]
fn staged_blocks_enter_a_file() {
    // The end of a copy on write as the kernel logs it.
    agree(PLAIN, &|scene| {
        let one = shared(scene, true);
        let staged = scene.blocks(3);
        let (ag, start) = scene.tx.geometry().split_fs_block(staged).unwrap();
        let owned = Rmap { start, count: 3, owner: rmap_owner::COW, offset: 0 };
        reverse::map(&mut scene.tx, ag, owned).unwrap();
        cow::stage(&mut scene.tx, staged, 3).unwrap();
        maps(scene, BmapVerb::Unmap, 1, 102, FsBlock(one.0 + 6), 3, false);
        counts(scene, &[(RefcountVerb::Decrease, FsBlock(one.0 + 6), 3), (RefcountVerb::FreeCow, staged, 3)]);
        let update = RmapUpdate {
            verb: RmapVerb::Free,
            owner: rmap_owner::COW,
            extent: extent(staged, 3),
            offset: FileBlock(0),
            attr_fork: false,
            unwritten: false,
        };
        scene.log(rui::encode_intent(6, &[update]));
        maps(scene, BmapVerb::Map, 1, 102, staged, 3, false);
    });
}

#[test]
fn a_file_maps_and_unmaps_blocks() {
    for arguments in [PLAIN, NO_REFLINK] {
        agree(arguments, &|scene| {
            let block = scene.blocks(12);
            scene.map(0, 0, block, 5, false);
            maps(scene, BmapVerb::Map, 0, 5, FsBlock(block.0 + 5), 7, false);
            let other = scene.blocks(4);
            maps(scene, BmapVerb::Map, 1, 9, other, 4, true);
        });
    }
    agree(PLAIN, &|scene| {
        scene.share();
        let block = scene.blocks(9);
        // Three records, so three steps.
        for (at, unwritten) in [(0, false), (3, true), (6, false)] {
            scene.map(0, 20 + at, FsBlock(block.0 + at), 3, unwritten);
        }
        maps(scene, BmapVerb::Unmap, 0, 21, FsBlock(block.0 + 1), 8, false);
        counts(scene, &[(RefcountVerb::Decrease, FsBlock(block.0 + 1), 8)]);
    });
}

#[test]
fn a_map_that_is_a_tree_grows_and_shrinks() {
    agree(SMALL_BLOCKS, &|scene| {
        scene.share();
        let block = scene.blocks(250);
        for at in 0..120 {
            scene.map(0, 3 * at, FsBlock(block.0 + 2 * at), 1, false);
        }
        let more = scene.blocks(20);
        for at in 0..10 {
            scene.map(1, 3 * at, FsBlock(more.0 + 2 * at), 1, false);
        }
        // Blocks that no file maps are freed at once.
        let rest: Vec<_> = (0..125)
            .map(|at| FsBlock(block.0 + 2 * at + 1))
            .chain((120..125).map(|at| FsBlock(block.0 + 2 * at)))
            .chain((0..10).map(|at| FsBlock(more.0 + 2 * at + 1)))
            .collect();
        for block in rest.iter().skip(2) {
            crate::space::unowned::free(&mut scene.tx, *block, 1).unwrap();
        }
        maps(scene, BmapVerb::Map, 0, 1, rest[0], 1, false);
        maps(scene, BmapVerb::Map, 1, 100, rest[1], 1, false);
        maps(scene, BmapVerb::Unmap, 0, 30, FsBlock(block.0 + 20), 1, false);
        counts(scene, &[(RefcountVerb::Decrease, FsBlock(block.0 + 20), 1)]);
    });
}

fn exchange(scene: &Scene, offsets: [u64; 2], count: u64, flags: u64, sizes: [u64; 2]) -> ExchangeIntent {
    ExchangeIntent {
        id: 0xa000,
        inodes: [scene.inodes[0], scene.inodes[1]],
        generations: [0, 1].map(|side| scene.tx.inode(scene.inos[side]).core.generation),
        offsets: offsets.map(FileBlock),
        count,
        flags,
        sizes,
    }
}

/// Two files with pieces of different lengths and a hole each.
fn pieces(scene: &mut Scene) {
    scene.write(0, 0, 5);
    scene.write(0, 8, 7);
    scene.write(1, 2, 9);
    let unwritten = scene.blocks(3);
    scene.map(0, 5, unwritten, 2, true);
    scene.map(1, 14, FsBlock(unwritten.0 + 2), 1, true);
}

#[test]
fn files_exchange_their_contents() {
    use xmi::flags::{FILE1_WRITTEN, SET_SIZES};
    for flags in [0, SET_SIZES, FILE1_WRITTEN] {
        for arguments in [PLAIN, NO_REFLINK] {
            agree(arguments, &|scene| {
                pieces(scene);
                let sizes = [1, 0].map(|side: usize| scene.tx.inode(scene.inos[side]).core.size);
                let sizes = if flags & SET_SIZES != 0 { sizes } else { [0, 0] };
                let intent = exchange(scene, [0, 0], 15, flags, sizes);
                scene.log(xmi::encode_intent(&intent));
            });
        }
    }
    // A part at different places.
    agree(PLAIN, &|scene| {
        pieces(scene);
        let intent = exchange(scene, [1, 4], 6, 0, [0, 0]);
        scene.log(xmi::encode_intent(&intent));
    });
}

#[test]
fn files_that_share_blocks_exchange_them() {
    agree(PLAIN, &|scene| {
        shared(scene, true);
        let intent = exchange(scene, [2, 98], 10, 0, [0, 0]);
        scene.log(xmi::encode_intent(&intent));
    });
    // Kernels have logged that a file shares nothing any more, although a hole of the other left it shared blocks.
    for flags in [xmi::flags::CLEAR_REFLINK1, xmi::flags::CLEAR_REFLINK2] {
        for others in [0, xmi::flags::FILE1_WRITTEN] {
            agree(PLAIN, &|scene| {
                shared(scene, true);
                let intent = exchange(scene, [2, 98], 10, flags | others, [0, 0]);
                scene.log(xmi::encode_intent(&intent));
            });
        }
    }
}

#[test]
fn a_log_that_is_nearly_full_is_finished() {
    agree(PLAIN, &|scene| {
        pieces(scene);
        let intent = exchange(scene, [0, 0], 15, 0, [0, 0]);
        scene.log(xmi::encode_intent(&intent));
        let loose = scene.blocks(3);
        scene.log(efi::encode_intent(1, &[extent(loose, 1), extent(FsBlock(loose.0 + 1), 2)]));
        scene.fill_log = true;
    });
}

#[test]
fn who_only_looks_sees_the_work_finished_and_writes_nothing() {
    let crash = crash(PLAIN, &|scene| {
        pieces(scene);
        let intent = exchange(scene, [0, 0], 15, xmi::flags::SET_SIZES, [7, 9]);
        scene.log(xmi::encode_intent(&intent));
    });
    let device = Arc::new(MemoryDevice::from_bytes(crash.clone()));
    let fs = open_with(&device, MountOptions::read_only()).unwrap();
    let sizes = [b"one", b"two"].map(|name| {
        let inode = fs.lookup(fs.root(), name).unwrap().inode;
        fs.mount().inode(inode).unwrap().state_lock().read().core.size
    });
    assert_eq!(sizes, [7, 9]);
    drop(fs);
    assert!(device.to_bytes() == crash, "the image was written");
}

#[test]
fn the_report_counts_what_was_finished() {
    let crash = crash(PLAIN, &|scene| {
        let block = scene.blocks(12);
        scene.map(0, 0, block, 5, false);
        maps(scene, BmapVerb::Map, 0, 5, FsBlock(block.0 + 5), 3, false);
        let loose = [extent(FsBlock(block.0 + 8), 1), extent(FsBlock(block.0 + 9), 3)];
        scene.log(efi::encode_intent(1, &loose));
    });
    let device = Arc::new(MemoryDevice::from_bytes(crash));
    let env = Arc::new(SeededEnvironment::new(1));
    let mount = Mount::open_in(device, None, MountOptions::default(), env).unwrap();
    let found = mount.recovered.lock().take().unwrap();
    let report = finish_intents(&mount, found.intents).unwrap();
    assert_eq!(report, IntentReport { bmaps: 1, extent_frees: 1, transactions: 3, ..Default::default() });
    assert!(!mount.journal.ail().has_intents());
    mount.unmount().unwrap();
}

/// Operations before the crash have taken the blocks that removals may take; the rest is there for recovery.
#[test]
fn what_a_crash_cut_off_is_finished_although_no_operation_could_begin() {
    let crash = crash(PLAIN, &|scene| {
        let one = shared(scene, false);
        counts(scene, &[(RefcountVerb::Increase, FsBlock(one.0 + 4), 10)]);
        let block = scene.blocks(12);
        scene.map(0, 200, block, 5, false);
        maps(scene, BmapVerb::Map, 0, 205, FsBlock(block.0 + 5), 7, false);
        let staged = scene.blocks(6);
        cow::stage(&mut scene.tx, staged, 6).unwrap();
        let (ag, start) = scene.tx.geometry().split_fs_block(staged).unwrap();
        reverse::map(&mut scene.tx, ag, Rmap { start, count: 6, owner: rmap_owner::COW, offset: 0 }).unwrap();
    });
    let device = Arc::new(MemoryDevice::from_bytes(crash.clone()));
    let env = Arc::new(SeededEnvironment::new(1));
    let mount = Mount::open_in(Arc::clone(&device) as _, None, MountOptions::default(), env).unwrap();
    let mut taken = 0;
    for step in [1024, 64, 1] {
        while mount.space.reserve_blocks(step, BlockPool::Removal) {
            taken += step;
        }
    }
    let found = mount.recovered.lock().take().unwrap();
    let report = finish_intents(&mount, found.intents).unwrap();
    assert_eq!((report.bmaps, report.refcounts), (1, 1));
    assert_eq!(free_cow_leftovers(&mount).unwrap(), 6);
    mount.space.give_back_blocks(taken);
    mount.unmount().unwrap();
    let Some(ours) = State::of(&device.to_bytes()) else { return };
    let Some(kernels) = State::of(&crash) else { return };
    ours.assert_same(&kernels, "we and the kernel");
}
