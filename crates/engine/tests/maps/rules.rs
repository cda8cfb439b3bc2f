//! Limits and errors of the operations on maps, as Linux has them.

use super::kernel::kernel_extents;
use super::model::{make, open};
use std::path::Path;
use xfskit_engine::error_tags::REDUCE_MAX_IEXTENTS;
use xfskit_engine::incore::ForkKind;
use xfskit_engine::inode::bmap;
use xfskit_engine::trans::Transaction;
use xfskit_engine::{
    Caller, Error, Fallocate, NewFile, Permissions, RenameFlags, Seek, SetAttr, SetMode, SetTime, Volume,
};

const BLOCK: u64 = 4096;

fn with_image(arguments: &[&str], work: impl Fn(&Volume, &Path)) {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let image = scratch.image("a.img", 320 << 20);
    reference.mkfs(&image, arguments);
    let fs = open(&image);
    work(&fs, &image);
    fs.unmount().unwrap();
    reference.repair_finds_nothing(&image);
}

#[test]
fn sizes_go_to_the_end_of_signed_numbers() {
    with_image(&[], |fs, _| {
        let file = make(fs, "file").inode;
        let most = i64::MAX as u64;
        fs.truncate(file, most).unwrap();
        assert_eq!(fs.stat(file).unwrap().size, most);
        assert!(matches!(fs.truncate(file, most + 1), Err(Error::TooLarge)));
        assert!(matches!(fs.fallocate(file, most, 1, Fallocate::Allocate), Err(Error::TooLarge)));
        assert!(matches!(fs.fallocate(file, BLOCK, BLOCK, Fallocate::InsertRange), Err(Error::TooLarge)));
        fs.fallocate(file, most - BLOCK, BLOCK, Fallocate::Allocate).unwrap();
        fs.fallocate(file, 0, 8 * BLOCK, Fallocate::CollapseRange).unwrap();
        let extents = fs.file_extents(file).unwrap();
        assert_eq!((extents.len(), extents[0].offset), (1, (most / BLOCK - 1 - 8) * BLOCK));
        assert!(matches!(fs.seek(file, 0, Seek::Data), Err(Error::NoMoreData)));
        assert_eq!(fs.seek(file, 77, Seek::Hole).unwrap(), 77);
    });
}

#[test]
fn only_files_have_ranges() {
    with_image(&[], |fs, _| {
        let dir = fs.create(fs.root(), b"dir", &NewFile::dir(0o755), &Caller::root()).unwrap().inode;
        let pipe = fs.create(fs.root(), b"pipe", &NewFile::of_mode(0o010_644).unwrap(), &Caller::root()).unwrap().inode;
        let file = make(fs, "file").inode;
        assert!(matches!(fs.truncate(dir, 0), Err(Error::IsADirectory)));
        assert!(matches!(fs.truncate(pipe, 0), Err(Error::Invalid(_))));
        assert!(matches!(fs.seek(dir, 0, Seek::Data), Err(Error::IsADirectory)));
        assert!(matches!(fs.fallocate(pipe, 0, 1, Fallocate::Allocate), Err(Error::Invalid(_))));
        assert!(matches!(fs.fallocate(file, 0, 0, Fallocate::Allocate), Err(Error::Invalid(_))));
        assert!(matches!(fs.clone_range(dir, 0, file, 0, 0), Err(Error::IsADirectory)));
        assert!(matches!(fs.seek(file, 0, Seek::Hole), Err(Error::NoMoreData)));
        fs.clone_range(file, 0, file, 0, 0).unwrap();
        assert_eq!(fs.copy_range(file, 5, file, 0, 100).unwrap(), 0);
    });
}

#[test]
fn times_and_other_attributes_follow_a_size() {
    with_image(&[], |fs, _| {
        let file = make(fs, "file");
        let before = fs.stat(file.inode).unwrap();
        fs.truncate(file.inode, 10_000).unwrap();
        let after = fs.stat(file.inode).unwrap();
        assert!(after.mtime > before.mtime && after.ctime > before.ctime && after.atime == before.atime);
        let time = xfskit_ondisk::Timestamp { seconds: 1_000_000, nanoseconds: 5 };
        let change = SetAttr {
            size: Some(5),
            permissions: Some(Permissions::new(0o600)),
            uid: Some(7),
            mtime: Some(SetTime::To(time)),
            ..SetAttr::default()
        };
        let stat = fs.set_attr(file.inode, &change, &Caller::root()).unwrap();
        assert_eq!((stat.size, stat.permissions.bits(), stat.uid, stat.mtime), (5, 0o600, 7, time));
        let stat =
            fs.set_attr(file.inode, &SetAttr { permissions: None, size: Some(6), ..change }, &Caller::root()).unwrap();
        assert_eq!((stat.size, stat.uid, stat.mtime), (6, 7, time));
    });
}

#[test]
fn space_behind_the_end_stays_until_the_file_is_truncated() {
    with_image(&[], |fs, _| {
        let file = make(fs, "file").inode;
        fs.write_at(file, 0, &[5; 100]).unwrap();
        fs.fallocate(file, 0, 100 * BLOCK, Fallocate::AllocateKeepSize).unwrap();
        assert_eq!(fs.stat(file).unwrap().size, 100);
        fs.truncate(file, 50 * BLOCK).unwrap();
        fs.sync().unwrap();
        assert_eq!(fs.file_extents(file).unwrap().iter().map(|extent| extent.length).sum::<u64>(), 100 * BLOCK);
        fs.truncate(file, 50 * BLOCK).unwrap();
        assert_eq!(fs.file_extents(file).unwrap().iter().map(|extent| extent.length).sum::<u64>(), 50 * BLOCK);
    });
}

#[test]
fn a_map_that_cannot_count_more_extents_says_so_and_lives() {
    with_image(&[], |fs, _| {
        let file = make(fs, "file").inode;
        for block in 0..10 {
            fs.fallocate(file, 2 * block * BLOCK, BLOCK, Fallocate::AllocateKeepSize).unwrap();
        }
        fs.mount().error_tags.arm(REDUCE_MAX_IEXTENTS, 1);
        let result = fs.fallocate(file, 30 * BLOCK, BLOCK, Fallocate::AllocateKeepSize);
        assert!(matches!(result, Err(Error::TooLarge)), "{result:?}");
        fs.fallocate(file, 30 * BLOCK, BLOCK, Fallocate::AllocateKeepSize).unwrap();
        assert_eq!(fs.file_extents(file).unwrap().len(), 11);
    });
}

/// Ten records can be counted. A new attribute may add two leaves and a split of each of five levels, and the blocks of
/// its value, wherever that is stored.
#[test]
fn an_attribute_is_refused_when_the_map_cannot_count_two_leaves_each_level_and_the_value() {
    let me = &Caller::root();
    with_image(&[], |fs, _| {
        let files = ["a", "b"].map(|name| make(fs, name).inode);
        let records = |inode| {
            let mount = fs.mount();
            let state = mount.inode(inode).unwrap();
            let mut tx = Transaction::read_only(mount);
            let ino = tx.join_inode(&state);
            bmap::extents(&mut tx, ino, ForkKind::Attr).unwrap().len()
        };
        let mut sets = 0..;
        // Two files in turns, so that their blocks are no neighbours.
        let mut grow_to = |count| {
            while records(files[0]) < count {
                let name = format!("user.{}", sets.next().unwrap());
                for file in files {
                    fs.set_xattr(file, name.as_bytes(), &[7; 3900], SetMode::Any, me).unwrap();
                }
            }
            assert_eq!(records(files[0]), count);
        };
        let set_few = |name: &str, bytes: usize| {
            fs.mount().error_tags.arm(REDUCE_MAX_IEXTENTS, 1);
            fs.set_xattr(files[0], name.as_bytes(), &vec![7; bytes], SetMode::Any, me)
        };
        grow_to(2);
        set_few("user.counted", 30).unwrap();
        assert!(matches!(set_few("user.of two blocks", 5000), Err(Error::TooLarge)));
        grow_to(3);
        assert!(matches!(set_few("user.counted", 31), Err(Error::TooLarge)));
        assert_eq!(fs.get_xattr(files[0], b"user.counted").unwrap(), [7; 30]);
        fs.mount().journal.check().unwrap();
    });
}

/// The same for the pointer of another name: it may add two leaves and a split of each of five levels.
#[test]
fn a_name_is_refused_when_the_map_cannot_count_the_blocks_of_its_pointer() {
    let me = &Caller::root();
    with_image(&["-n", "parent=1"], |fs, _| {
        let files = ["a", "b"].map(|name| make(fs, name).inode);
        let link = |name: &[u8]| {
            fs.mount().error_tags.arm(REDUCE_MAX_IEXTENTS, 1);
            fs.link(fs.root(), name, files[0], &Caller::root()).map(drop)
        };
        // Two files in turns, so that their blocks are no neighbours: the first has a root and three leaves then.
        let mut sets = 0;
        let mut grow = || {
            for file in files {
                fs.set_xattr(file, format!("user.{sets}").as_bytes(), &[7; 3900], SetMode::Any, me).unwrap();
            }
            sets += 1;
        };
        grow();
        link(b"counted").unwrap();
        (0..3).for_each(|_| grow());
        assert!(matches!(link(b"not counted"), Err(Error::TooLarge)));
        assert_eq!(fs.parents(files[0]).unwrap().len(), 2);
        fs.mount().journal.check().unwrap();
    });
}

/// A set of an attribute must count the blocks of its tree and of its value together, before it changes anything: if
/// the map cannot count the last of them after a change, the filesystem shuts down.
#[test]
fn attributes_count_their_blocks_before_anything_is_changed() {
    let me = &Caller::root();
    with_image(&[], |fs, _| {
        let (mut refused, mut done) = (0, 0);
        for nth in 1..8 {
            // Two files in turns, so that the maps have many records.
            let [file, other] = ["a", "b"].map(|kind| make(fs, &format!("{kind}{nth}")).inode);
            for n in 0..12 {
                for inode in [file, other] {
                    fs.set_xattr(inode, format!("user.before{n}").as_bytes(), &[7; 3900], SetMode::Any, me).unwrap();
                }
            }
            let (first, second) = (vec![b'a' + nth as u8; 200], vec![b'a' + nth as u8; 220]);
            fs.mount().error_tags.arm(REDUCE_MAX_IEXTENTS, nth);
            let set = |n: usize| {
                let value = vec![nth as u8; if n == 39 { 60_000 } else { 250 }];
                fs.set_xattr(file, format!("user.{n}").as_bytes(), &value, SetMode::Any, me)
            };
            let mut results: Vec<_> = (0..40).map(set).collect();
            results.push(fs.link(fs.root(), &first, file, &Caller::root()).map(|_| ()));
            results.push(fs.rename(fs.root(), &first, fs.root(), &second, RenameFlags::default(), me));
            for result in results {
                match result {
                    Ok(()) => done += 1,
                    Err(Error::TooLarge | Error::NotFound) => refused += 1,
                    Err(error) => panic!("{error}, at look {nth}"),
                }
            }
        }
        assert!(refused > 6 && done > 250, "{refused} refused, {done} done");
    });
}

#[test]
fn a_full_image_refuses_and_what_is_freed_can_be_used() {
    for arguments in [&[][..], &["-b", "size=1024"], &["-m", "rmapbt=0,reflink=0"]] {
        with_image(arguments, |fs, _| {
            let free = fs.statfs().free_blocks * u64::from(fs.statfs().block_bytes);
            let (big, small) = (make(fs, "big").inode, make(fs, "small").inode);
            assert!(matches!(fs.fallocate(big, 0, 2 * free, Fallocate::Allocate), Err(Error::NoSpace)));
            let mut step = 32 << 20;
            let mut end = 0;
            while step >= BLOCK {
                match fs.fallocate(big, end, step, Fallocate::Allocate) {
                    Ok(()) => end += step,
                    Err(Error::NoSpace) => step /= 2,
                    Err(error) => panic!("{error}"),
                }
            }
            assert!(end > free / 10 * 9, "{end} of {free}");
            let result = fs.fallocate(small, 0, 1 << 20, Fallocate::Allocate);
            assert!(matches!(result, Err(Error::NoSpace)), "{result:?}");
            fs.fallocate(big, 5 << 20, 4 << 20, Fallocate::PunchHole).unwrap();
            fs.fallocate(small, 0, 1 << 20, Fallocate::Allocate).unwrap();
            fs.write_at(small, 0, &vec![9; 1 << 20]).unwrap();
            fs.truncate(big, 0).unwrap();
            fs.fallocate(small, 0, free / 10 * 9, Fallocate::Allocate).unwrap();
        });
    }
}

#[test]
fn a_file_that_lost_its_last_block_shares_none() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    with_image(&[], |fs, image| {
        let mut one = make(fs, "one");
        one.write(fs, 0, &[3; 9000]);
        let two = make(fs, "two").inode;
        fs.clone_range(one.inode, 0, two, 0, 0).unwrap();
        assert!(fs.file_extents(two).unwrap().iter().all(|extent| extent.shared));
        fs.truncate(two, 0).unwrap();
        assert!(fs.file_extents(one.inode).unwrap().iter().all(|extent| !extent.shared));
        fs.sync().unwrap();
        fs.mount().journal.push_tail(xfskit_ondisk::Lsn(u64::MAX)).unwrap();
        for (inode, expected) in [(one.inode, "1"), (two, "0")] {
            let said = reference.db(image, &[&format!("inode {}", inode.0), "print v3.reflink"]);
            assert_eq!(said.trim(), format!("v3.reflink = {expected}"));
        }
    });
}

/// A caller that keeps the times of files itself, as the kernel does for a mount, must not have to restore them: a
/// crash in between would show others.
#[test]
fn a_copy_changes_the_times_of_its_target_unless_the_caller_keeps_them() {
    with_image(&[], |fs, _| {
        let mut source = make(fs, "source");
        source.write(fs, 0, &[3; 9000]);
        let target = make(fs, "target").inode;
        let times = || {
            let stat = fs.stat(target).unwrap();
            (stat.mtime, stat.ctime)
        };
        // A shared range, and one that has to be copied.
        for (offset, length) in [(0, 8192), (1, 5000)] {
            let before = times();
            assert_eq!(fs.copy_range_keeping_times(source.inode, offset, target, offset, length).unwrap(), length);
            assert_eq!(times(), before);
            std::thread::sleep(std::time::Duration::from_millis(2));
            assert_eq!(fs.copy_range(source.inode, offset, target, offset, length).unwrap(), length);
            let after = times();
            assert!(after.0 > before.0);
            assert_eq!(after.0, after.1);
        }
    });
}

#[test]
fn what_is_unshared_has_blocks_of_its_own_and_the_same_contents() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let image = scratch.image("a.img", 320 << 20);
    reference.mkfs(&image, &[]);
    let bytes: Vec<u8> = (0..3_000_001_u32).map(|at| (at >> 5) as u8 | 1).collect();
    let fs = open(&image);
    let [file, clone, part] = ["file", "clone", "part"].map(|name| make(&fs, name).inode);
    fs.write_at(file, 0, &bytes).unwrap();
    fs.clone_range(file, 0, clone, 0, 0).unwrap();
    fs.clone_range(file, 0, part, 0, 0).unwrap();
    fs.fallocate(clone, 0, 4_000_000, Fallocate::UnshareKeepSize).unwrap();
    fs.fallocate(part, 1_000_000, 4097, Fallocate::UnshareKeepSize).unwrap();
    fs.unmount().unwrap();
    reference.repair_finds_nothing(&image);
    let Some(kernel) = xfskit_testkit::kernel_mount(&image) else { return };
    for name in ["file", "clone", "part"] {
        assert!(std::fs::read(kernel.path().join(name)).unwrap() == bytes, "{name}");
    }
    let of = |name: &str| kernel_extents(&kernel.path().join(name));
    let shared = |name: &str| of(name).iter().filter(|extent| extent.shared).map(|extent| extent.length).sum::<u64>();
    assert_eq!(shared("clone"), 0);
    assert_eq!(shared("part"), 3_000_001_u64.next_multiple_of(BLOCK) - 2 * BLOCK);
    assert_eq!(of("clone").iter().map(|extent| extent.length).sum::<u64>(), 4_000_000_u64.next_multiple_of(BLOCK));
    kernel.unmount();
}
