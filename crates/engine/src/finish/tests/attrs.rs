//! Attribute intents: our own operations cut off, and states that only the kernel leaves, made by hand.

use super::*;
use crate::attr::tree::{self, Completeness};
use crate::attr::update::{self, Logging};
use crate::attr::{self, Attr, Form, ParentRecord, flags, form};
use crate::error_tags::{ATTR_NO_SPACE, LARP};
use crate::{AttrLogging, AttrPath, Caller, RenameFlags, SetMode};
use xfskit_ondisk::attr::leaf::LeafValue;
use xfskit_ondisk::log_items::{AttrIntent, AttrVerb, ExchangeIntent, exchange as xmi};

const ARGUMENTS: &[(char, &str)] = &[('d', "agcount=2")];

fn logged() -> MountOptions {
    MountOptions { attr_logging: AttrLogging::Always, attr_path: AttrPath::Intents, ..Default::default() }
}

fn one(fs: &Volume) -> InodeNumber {
    fs.lookup(fs.root(), b"one").unwrap().inode
}

/// Gives the first file `count` attributes of 600 bytes.
fn fill(fs: &Volume, count: usize) {
    for n in 0..count {
        let name = format!("user.filler {n}");
        fs.set_xattr(one(fs), name.as_bytes(), &[n as u8; 600], SetMode::Any, &Caller::root()).unwrap();
    }
}

/// Cuts `work` off at the `nth` passage of a tag. The kernel and we must recover the same tree from there.
fn cut_off(tag: &'static str, nth: u32, before: &dyn Fn(&Volume), work: &dyn Fn(&Volume)) {
    let image = TestImage::new(MIB, ARGUMENTS);
    let (fs, _) = two_files(&image.device, logged());
    before(&fs);
    fs.sync().unwrap();
    fs.mount().error_tags.arm(tag, nth);
    work(&fs);
    assert!(fs.mount().journal.check().is_err(), "{tag} was not passed {nth} times");
    agree_on(&image.device.to_bytes(), State::assert_same_tree);
}

#[test]
fn our_own_updates_are_finished() {
    let me = Caller::root();
    for fillers in [0, 40] {
        let before = |fs: &Volume| {
            fill(fs, fillers);
            fs.set_xattr(one(fs), b"trusted.x", &[1; 100], SetMode::Any, &me).unwrap();
            fs.link(fs.root(), b"a second name", one(fs), &Caller::root()).unwrap();
        };
        let cut = |work: &dyn Fn(&Volume)| cut_off(LARP, 1, &before, work);
        cut(&|fs| drop(fs.set_xattr(one(fs), b"user.new", &[7; 30], SetMode::Any, &me)));
        cut(&|fs| drop(fs.set_xattr(one(fs), b"user.large", &[7; 65536], SetMode::Any, &me)));
        cut(&|fs| drop(fs.set_xattr(one(fs), b"trusted.x", &[7; 9000], SetMode::Any, &me)));
        cut(&|fs| drop(fs.remove_xattr(one(fs), b"trusted.x", SetMode::Any, &me)));
        cut(&|fs| drop(fs.link(fs.root(), b"third", one(fs), &Caller::root())));
        cut(&|fs| drop(fs.unlink(fs.root(), b"a second name", &me)));
        cut(&|fs| drop(fs.rename(fs.root(), b"one", fs.root(), b"other", RenameFlags::default(), &me)));
    }
}

/// Logs an attribute intent.
fn log(scene: &mut Scene, intent: &AttrIntent<'_>) {
    let mut regions = Vec::new();
    intent.encode(|region| regions.push(region.to_vec()));
    scene.log_regions(&regions);
}

fn plain<'a>(scene: &Scene, verb: AttrVerb, name: &'a [u8], value: &'a [u8]) -> AttrIntent<'a> {
    let (inode, id) = (scene.inodes[0], 0xb000 + scene.intents);
    AttrIntent { id, verb, inode, generation: 0, namespace: 0, name, value, new_name: &[], new_value: &[] }
}

/// Puts an entry that is not whole into the first file's tree.
fn leave_incomplete(scene: &mut Scene, name: &[u8]) {
    assert_eq!(form(&scene.tx, scene.inos[0]), Form::Tree);
    let key = Attr::key(0, name);
    tree::add(&mut scene.tx, scene.inos[0], &key, LeafValue::Remote { block: 0, length: 0 }, Completeness::Incomplete)
        .unwrap();
}

#[test]
fn what_the_kernel_left_half_done_is_finished() {
    for fillers in [8, 40] {
        let before = |fs: &Volume| fill(fs, fillers);
        let case = |work: &dyn Fn(&mut Scene)| {
            agree_on(&crash_after(ARGUMENTS, logged(), &before, work), State::assert_same_tree);
        };
        case(&|scene| {
            leave_incomplete(scene, b"large");
            log(scene, &plain(scene, AttrVerb::Set, b"large", &[5; 20000]));
        });
        case(&|scene| {
            leave_incomplete(scene, b"gone");
            log(scene, &plain(scene, AttrVerb::Remove, b"gone", &[]));
        });
        // Already done, or not begun.
        case(&|scene| log(scene, &plain(scene, AttrVerb::Set, b"filler 3", &[6; 50])));
        case(&|scene| log(scene, &plain(scene, AttrVerb::Remove, b"never there", &[])));
        case(&|scene| log(scene, &plain(scene, AttrVerb::Replace, b"never there", b"new")));
        case(&|scene| log(scene, &plain(scene, AttrVerb::Replace, b"filler 1", &[4; 4000])));
    }
}

#[test]
fn an_incomplete_entry_is_seen_by_nobody_afterwards() {
    let before = |fs: &Volume| fill(fs, 8);
    let crash = crash_after(ARGUMENTS, logged(), &before, &|scene| {
        leave_incomplete(scene, b"large");
        log(scene, &plain(scene, AttrVerb::Set, b"large", &[5; 20000]));
    });
    let device = Arc::new(MemoryDevice::from_bytes(recovered(&crash)));
    let fs = open(&device).unwrap();
    let inode = fs.mount().inode(one(&fs)).unwrap();
    let mut tx = Transaction::read_only(fs.mount());
    let ino = tx.join_inode(&inode);
    let key = Attr::key(0, b"large");
    assert!(!tree::contains(&mut tx, ino, &key, Completeness::Incomplete).unwrap());
    assert!(tree::contains(&mut tx, ino, &key, Completeness::Complete).unwrap());
    assert_eq!(attr::get(&mut tx, ino, &key).unwrap(), Some(vec![5; 20000]));
}

/// Maps nearly all blocks that are left into the second file, those of the reserve pool, too.
fn use_up_space(fs: &Volume) {
    let mount = fs.mount();
    let two = mount.inode(fs.lookup(fs.root(), b"two").unwrap().inode).unwrap();
    let (mut at, mut count) = (0, 1024);
    while count > 0 {
        let reservation =
            Reservation { log_bytes: 1 << 18, log_count: 1, blocks: count + 20, pool: BlockPool::Reserve };
        let Ok(mut tx) = mount.transaction(reservation) else {
            count /= 2;
            continue;
        };
        let ino = tx.join_inode(&two);
        bmap::allocate(&mut tx, ino, ForkKind::Data, FileBlock(at), count as u32).unwrap();
        tx.commit().unwrap();
        at += count;
    }
}

/// There was space when the update began, and there is none now. The mount must not be refused.
#[test]
fn an_update_for_which_there_is_no_space_any_more_is_left_out() {
    let image = TestImage::new(MIB, ARGUMENTS);
    let (fs, inodes) = two_files(&image.device, logged());
    fill(&fs, 8);
    use_up_space(&fs);
    let mount = Arc::clone(fs.mount());
    let tx = mount.transaction(Reservation { log_bytes: 1 << 18, log_count: 1, ..Reservation::default() }).unwrap();
    let mut scene = Scene { tx, inos: Vec::new(), inodes, intents: 0, cut: None, fill_log: false };
    let intent = plain(&scene, AttrVerb::Set, b"large", &[7; 65536]);
    log(&mut scene, &intent);
    scene.tx.commit().unwrap();
    fs.sync().unwrap();
    let device = Arc::new(MemoryDevice::from_bytes(image.device.to_bytes()));
    drop(fs);
    let fs = open(&device).unwrap();
    let one = one(&fs);
    assert!(matches!(fs.get_xattr(one, b"user.large"), Err(crate::Error::NoAttribute)));
    assert_eq!(fs.get_xattr(one, b"user.filler 3").unwrap(), [3; 600]);
    fs.unmount().unwrap();
    TestImage { device }.assert_sound();
}

/// The blocks of the first file's attr fork after recovery of an update of its attributes, before which blocks were
/// mapped that nothing names: so many from each place. There is a hole below those of a long value.
fn mapped_after_recovery(unnamed: &[(u64, u32)]) -> Vec<u64> {
    let me = Caller::root();
    let before = |fs: &Volume| {
        fill(fs, 8);
        for name in [b"user.a".as_slice(), b"user.b"] {
            fs.set_xattr(one(fs), name, &[8; 40_000], SetMode::Any, &me).unwrap();
        }
        fs.remove_xattr(one(fs), b"user.a", SetMode::Any, &me).unwrap();
    };
    let crash = crash_after(ARGUMENTS, logged(), &before, &|scene| {
        for &(at, count) in unnamed {
            bmap::allocate(&mut scene.tx, scene.inos[0], ForkKind::Attr, FileBlock(at), count).unwrap();
        }
        log(scene, &plain(scene, AttrVerb::Set, b"small", b"value"));
    });
    let device = Arc::new(MemoryDevice::from_bytes(recovered(&crash)));
    let fs = open(&device).unwrap();
    assert_eq!(fs.get_xattr(one(&fs), b"user.small").unwrap(), b"value");
    assert_eq!(fs.get_xattr(one(&fs), b"user.b").unwrap(), [8; 40_000]);
    assert_eq!(fs.get_xattr(one(&fs), b"user.filler 7").unwrap(), [7; 600]);
    let inode = fs.mount().inode(one(&fs)).unwrap();
    let mut tx = Transaction::read_only(fs.mount());
    let ino = tx.join_inode(&inode);
    let extents = bmap::extents(&mut tx, ino, ForkKind::Attr).unwrap().to_vec();
    drop(tx);
    drop(inode);
    fs.unmount().unwrap();
    TestImage { device }.assert_sound();
    extents.iter().flat_map(|extent| extent.file_block.0..extent.end().0).collect()
}

/// What an update had mapped before its value had a name goes with the next update that recovery finishes, wherever it
/// lies, and nothing else does.
#[test]
fn blocks_that_nothing_names_are_given_back() {
    let named = mapped_after_recovery(&[]);
    let last = *named.last().unwrap();
    let hole: Vec<u64> = (1..last).filter(|block| !named.contains(block)).collect();
    let (first, end) = (hole[0], *hole.last().unwrap());
    assert!(hole.len() >= 8 && end - first + 1 == hole.len() as u64, "one hole: {named:?}");
    let cases: [&[(u64, u32)]; 7] = [
        &[(first, hole.len() as u32)],
        &[(first, 2), (end, 1)],
        &[(first + 2, 3)],
        &[(last + 1, 4)],
        &[(last + 3, 1), (last + 6, 2), (first + 1, 1)],
        &[(last + 1, 300)],
        &[(first, 3), (last + 1, 200), (last + 400, 150)],
    ];
    for unnamed in cases {
        assert_eq!(mapped_after_recovery(unnamed), named, "{unnamed:?}");
    }
}

/// Leaves `count` free runs of a block each.
fn leave_pieces(fs: &Volume, count: u64) {
    use crate::Fallocate;
    let two = fs.lookup(fs.root(), b"two").unwrap().inode;
    let block = u64::from(fs.statfs().block_bytes);
    let (mut end, mut step) = (0, fs.statfs().blocks.next_power_of_two() * block);
    while step >= block {
        match fs.fallocate(two, end, step, Fallocate::Allocate) {
            Ok(()) => end += step,
            Err(_) => step /= 2,
        }
    }
    fs.sync().unwrap();
    for hole in 0..count {
        fs.fallocate(two, (2 * hole + 1) * block, block, Fallocate::PunchHole).unwrap();
    }
    fs.sync().unwrap();
}

/// Steps of both updates take turns, and the second may map the range in which the first has only begun.
#[test]
fn two_long_values_of_one_file_are_finished_from_free_space_in_pieces() {
    let before = |fs: &Volume| {
        fill(fs, 8);
        leave_pieces(fs, 2400);
    };
    let crash = crash_after(ARGUMENTS, logged(), &before, &|scene| {
        log(scene, &plain(scene, AttrVerb::Set, b"first", &[5; 60_000]));
        log(scene, &plain(scene, AttrVerb::Set, b"second", &[6; 50_000]));
    });
    let fs = open(&Arc::new(MemoryDevice::from_bytes(recovered(&crash)))).unwrap();
    assert_eq!(fs.get_xattr(one(&fs), b"user.first").unwrap(), [5; 60_000]);
    assert_eq!(fs.get_xattr(one(&fs), b"user.second").unwrap(), [6; 50_000]);
    drop(fs);
    agree_on(&crash, State::assert_same_tree);
}

/// An update that finds no space in a later step is taken back: the attributes are as they were.
#[test]
fn an_update_whose_rest_finds_no_space_in_recovery_is_taken_back() {
    let before = |fs: &Volume| fill(fs, 8);
    let work = |scene: &mut Scene| log(scene, &plain(scene, AttrVerb::Set, b"large", &[7; 65536]));
    let crash = crash_after(ARGUMENTS, logged(), &before, &work);
    let device = Arc::new(MemoryDevice::from_bytes(crash));
    let env = Arc::new(SeededEnvironment::new(1));
    let mount = Mount::open_in(Arc::clone(&device) as _, None, logged(), env).unwrap();
    let found = mount.recovered.lock().take().unwrap();
    mount.error_tags.arm_for(ATTR_NO_SPACE, 1, 2);
    let report = finish_intents(&mount, found.intents).unwrap();
    assert_eq!((report.attrs, report.transactions), (1, 2));
    // The power fails: the log must say that the update is done.
    let device = Arc::new(MemoryDevice::from_bytes(device.to_bytes()));
    let fs = open(&device).unwrap();
    assert!(matches!(fs.get_xattr(one(&fs), b"user.large"), Err(crate::Error::NoAttribute)));
    assert_eq!(fs.get_xattr(one(&fs), b"user.filler 3").unwrap(), [3; 600]);
    fs.unmount().unwrap();
    TestImage { device }.assert_sound();
}

#[test]
fn parent_pointers_are_finished_from_any_state() {
    for fillers in [0, 8, 40] {
        let before = |fs: &Volume| fill(fs, fillers);
        let case = |work: &dyn Fn(&mut Scene, &[u8])| {
            let work = |scene: &mut Scene| {
                let root = scene.tx.geometry().root_inode;
                let mount = Arc::clone(scene.tx.mount());
                let generation = mount.inode(root).unwrap().state_lock().read().core.generation;
                work(scene, &ParentRecord { inode: root.0, generation }.encode());
            };
            agree_on(&crash_after(ARGUMENTS, logged(), &before, &work), State::assert_same_tree);
        };
        let pointer = |scene: &Scene, verb, name: &'static [u8]| AttrIntent {
            namespace: flags::PARENT,
            generation: scene.tx.inode(scene.inos[0]).core.generation,
            ..plain(scene, verb, name, &[])
        };
        case(&|scene, value| {
            update::remove(&mut scene.tx, scene.inos[0], Attr::parent(b"one", value), Logging::Logged).unwrap();
            log(scene, &AttrIntent { value, ..pointer(scene, AttrVerb::SetParent, b"one") });
        });
        case(&|scene, value| log(scene, &AttrIntent { value, ..pointer(scene, AttrVerb::SetParent, b"one") }));
        case(&|scene, value| log(scene, &AttrIntent { value, ..pointer(scene, AttrVerb::RemoveParent, b"gone") }));
        for old_is_there in [true, false] {
            case(&|scene, value| {
                let ino = scene.inos[0];
                if old_is_there {
                    let (one, old) = (Attr::parent(b"one", value), Attr::parent(b"old name", value));
                    update::replace_parent(&mut scene.tx, ino, one, old).unwrap();
                } else {
                    update::remove(&mut scene.tx, ino, Attr::parent(b"one", value), Logging::Logged).unwrap();
                }
                let intent = pointer(scene, AttrVerb::ReplaceParent, b"old name");
                log(scene, &AttrIntent { value, new_name: b"one", new_value: value, ..intent });
            });
        }
    }
}

#[test]
fn files_exchange_their_attributes() {
    let before = |fs: &Volume| {
        fill(fs, 8);
        let two = fs.lookup(fs.root(), b"two").unwrap().inode;
        for n in 0..200u8 {
            let name = format!("user.of two {n}");
            fs.set_xattr(two, name.as_bytes(), &[n; 500], SetMode::Any, &Caller::root()).unwrap();
        }
    };
    // Without parent pointers, which would be exchanged too. The blocks name their inode, so they are exchanged first.
    let arguments = [('d', "agcount=2"), ('n', "parent=0")];
    let crash = crash_after(&arguments, MountOptions::default(), &before, &|scene| {
        let inos = [scene.inos[0], scene.inos[1]];
        let lists = inos.map(|ino| bmap::extents(&mut scene.tx, ino, ForkKind::Attr).unwrap().to_vec());
        for side in 0..2 {
            for &extent in &lists[side] {
                bmap::unmap_extent(&mut scene.tx, inos[side], ForkKind::Attr, extent).unwrap();
            }
        }
        for side in 0..2 {
            for &extent in &lists[1 - side] {
                bmap::map_extent(&mut scene.tx, inos[side], ForkKind::Attr, extent).unwrap();
            }
        }
        let intent = ExchangeIntent {
            id: 0xa000,
            inodes: [scene.inodes[0], scene.inodes[1]],
            generations: inos.map(|ino| scene.tx.inode(ino).core.generation),
            offsets: [FileBlock(0); 2],
            count: 200,
            flags: xmi::flags::ATTR_FORK,
            sizes: [0; 2],
        };
        scene.log(xmi::encode_intent(&intent));
    });
    agree_on(&crash, State::assert_same);
}
