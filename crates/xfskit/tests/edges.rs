//! Contents at the edges: full images, batches with the same name twice, blocks that were shared until just now, maps
//! that reach behind every file.

mod stress;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use xfskit::device::{Access, FileDevice};
use xfskit::error_tags::{ALLOC_EXTENT, DATA_IOERROR, ITOBP};
use xfskit::ondisk::{InodeNumber, Timestamp};
use xfskit::volume::{
    Caller, Error, Fallocate, Flags, LastLink, MountOptions, NewFile, Permissions, RenameFlags, Seek, Volume, WholeFile,
};

const MEBIBYTE: usize = 1 << 20;

fn open(image: &Path) -> Volume {
    let device = Arc::new(FileDevice::open(image, Access::Write).unwrap());
    Volume::open(device, MountOptions::default()).unwrap()
}

fn make(fs: &Volume, name: &str) -> InodeNumber {
    fs.create(fs.root(), name.as_bytes(), &NewFile::file(0o644), &Caller::root()).unwrap().inode
}

fn small<'a>(name: &'a [u8], xattrs: &'a [(Vec<u8>, Vec<u8>)]) -> WholeFile<'a> {
    let time = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
    WholeFile {
        name,
        permissions: Permissions::new(0o644),
        uid: 0,
        gid: 0,
        atime: time,
        mtime: time,
        xattrs,
        contents: name,
    }
}

#[test]
fn what_was_allocated_can_be_written_on_a_full_image() {
    let image = stress::Image::new(320, &[]);
    let fs = image.open();
    let (kept, filler) = (make(&fs, "kept"), make(&fs, "filler"));
    fs.fallocate(kept, 0, 8 << 20, Fallocate::Allocate).unwrap();
    let piece = vec![7; MEBIBYTE];
    for size in [MEBIBYTE, 4096] {
        while fs.append(filler, &piece[..size]).and_then(|_| fs.fsync(filler)).is_ok() {}
    }
    for at in 0..8 {
        fs.write_at(kept, (at * MEBIBYTE) as u64, &piece).unwrap();
    }
    fs.fsync(kept).unwrap();
    image.close(fs);
}

#[test]
fn a_batch_with_the_same_name_twice_is_refused_before_anything_is_made() {
    let image = stress::Image::new(320, &[]);
    let fs = image.open();
    let files = [small(b"one", &[]), small(b"two", &[]), small(b"one", &[])];
    assert!(matches!(fs.make_files(fs.root(), &files), Err(Error::Exists)));
    assert!(matches!(fs.lookup(fs.root(), b"two"), Err(Error::NotFound)));
    assert_eq!(fs.make_files(fs.root(), &files[..2]).unwrap().len(), 2);
    image.close(fs);
}

#[test]
fn attributes_that_are_too_long_for_shortform_or_have_no_proper_name_are_not_small() {
    let image = stress::Image::new(320, &[('i', "size=2048")]);
    let fs = image.open();
    let long = [(b"user.long".to_vec(), vec![5; 300])];
    assert!(!fs.is_small(&small(b"one", &long)));
    let odd = [(b"user.a\0b".to_vec(), b"value".to_vec())];
    assert!(!fs.is_small(&small(b"one", &odd)));
    image.close(fs);
}

#[test]
fn what_is_written_to_a_file_does_not_show_in_one_that_shared_its_blocks_before_a_crash() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    for way in 0..3 {
        let scratch = xfskit_testkit::scratch();
        let image = scratch.image("a.img", 320 << 20);
        reference.tool_output("mkfs.xfs", ["-q".as_ref(), image.as_os_str()]);
        let fs = open(&image);
        let (one, other) = (make(&fs, "one"), make(&fs, "other"));
        let old = vec![b'a'; 64 << 10];
        fs.write_at(one, 0, &old).unwrap();
        fs.clone_range(one, 0, other, 0, 0).unwrap();
        fs.sync().unwrap();
        match way {
            0 => fs.truncate(other, 0).unwrap(),
            1 => fs.unlink(fs.root(), b"other", &Caller::root()).unwrap(),
            _ => {
                // Copied on write, and mapped, but not durable.
                fs.write_at(other, 0, &vec![b'b'; 64 << 10]).unwrap();
                fs.seek(other, 0, Seek::Data).unwrap();
            }
        }
        fs.write_at(one, 4096, &[b'z'; 8192]).unwrap();
        fs.seek(one, 0, Seek::Data).unwrap();
        let after = scratch.file("after.img");
        std::fs::copy(&image, &after).unwrap();
        fs.unmount().unwrap();
        reference.repair_finds_nothing(&image);
        let fs = open(&after);
        if let Ok(found) = fs.lookup(fs.root(), b"other") {
            let mut bytes = vec![0; 64 << 10];
            let count = fs.read_at(found.inode, 0, &mut bytes).unwrap();
            assert!(!bytes[..count].contains(&b'z'), "way {way}");
        }
        fs.unmount().unwrap();
        reference.repair_finds_nothing(&after);
    }
}

#[test]
fn a_map_that_reaches_behind_the_largest_size_is_no_hang() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    for far in [(1u64 << 52) + 5, 1 << 52, (1 << 53) + 1] {
        let image = scratch.image("a.img", 320 << 20);
        reference.tool_output("mkfs.xfs", ["-q".as_ref(), image.as_os_str()]);
        let fs = open(&image);
        let file = make(&fs, "one");
        fs.write_at(file, 0, &[1; 4096]).unwrap();
        fs.truncate(file, MEBIBYTE as u64).unwrap();
        fs.unmount().unwrap();
        let (inode, change) = (format!("inode {}", file.0), format!("write u3.bmx[0].startoff {far}"));
        reference.tool_output("xfs_db", ["-x", "-c", &inode, "-c", &change, image.to_str().unwrap()]);
        let fs = open(&image);
        let mut bytes = vec![9; MEBIBYTE + 1];
        assert_eq!(fs.read_at(file, 0, &mut bytes).unwrap(), MEBIBYTE);
        assert!(bytes[..MEBIBYTE].iter().all(|byte| *byte == 0));
        assert!(matches!(fs.seek(file, 0, Seek::Data), Err(Error::NoMoreData)));
        assert_eq!(fs.seek(file, 0, Seek::Hole).unwrap(), 0);
        assert!(fs.file_extents(file).unwrap().len() < 2);
        fs.unmount().unwrap();
        std::fs::remove_file(&image).unwrap();
    }
}

/// The contents of a file cannot be written out at the unmount, which reports this and closes the log in good order.
/// The superblock must not count the block that was reserved for them as used.
#[test]
fn space_of_contents_that_the_unmount_lost_is_free() {
    let image = stress::Image::new(320, &[]);
    let fs = image.open();
    let file = make(&fs, "file");
    fs.sync().unwrap();
    fs.write_at(file, 0, &[7; 100]).unwrap();
    fs.mount().error_tags.arm(ALLOC_EXTENT, 1);
    assert!(matches!(fs.unmount(), Err(Error::Io { .. })));
    image.assert_sound();
    let fs = image.open();
    assert_eq!(fs.stat(file).unwrap().size, 0);
    fs.unmount().unwrap();
}

/// A thread that waits until a file has no dirty blocks could wait for ever beside a thread that never stops writing.
/// So an fsync writes out the blocks that were dirty when it began, and a change of the map keeps other threads off
/// while it writes out the rest.
#[test]
fn a_file_that_another_thread_goes_on_writing_can_be_synced_and_cut() {
    let image = stress::Image::new(320, &[]);
    let fs = image.open();
    let file = make(&fs, "file");
    fs.append(file, &[7; 10_000]).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    fs.append(file, &[7; 5000]).unwrap();
                }
            });
        }
        for _ in 0..30 {
            fs.fsync(file).unwrap();
            fs.seek(file, 0, Seek::Hole).unwrap();
            fs.fallocate(file, 4096, 100_000, Fallocate::PunchHole).unwrap();
            fs.truncate(file, 10_000).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    image.close(fs);
}

/// A write may set a size without a dirty block, if its bytes are written in place. An fsync must make that size
/// durable, although other threads have dirty blocks in holes of the file.
#[test]
fn an_fsync_makes_the_size_durable_while_others_fill_holes() {
    let image = stress::Image::new(320, &[]);
    let fs = image.open();
    let file = make(&fs, "file");
    fs.truncate(file, 1 << 30).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for block in (0..(1 << 18)).step_by(2).take(20_000).take_while(|_| !done.load(Ordering::Relaxed)) {
                fs.write_at(file, block << 12, b"x").unwrap();
            }
        });
        let mut end = 1 << 30;
        let short = (0..2000).find_map(|_| {
            fs.append(file, &[7; 100]).unwrap();
            end += 100;
            fs.fsync(file).unwrap();
            let durable = fs.mount().inodes.find(file).unwrap().state_lock().read().core.size;
            (durable < end).then_some((durable, end))
        });
        done.store(true, Ordering::Relaxed);
        assert_eq!(short, None, "what the core says, and what was synced");
    });
    image.close(fs);
}

/// Dirty bytes for an unwritten block have no other block reserved. When the file loses its blocks and cannot be freed
/// after that, a sync must not allocate a block for them, which the superblock would count as free.
#[test]
fn contents_of_a_file_that_could_not_be_freed_take_no_space() {
    let image = stress::Image::new(320, &[]);
    for nth in 1..4 {
        let fs = image.open();
        let file = make(&fs, "file");
        fs.fallocate(file, 0, 64 << 10, Fallocate::Allocate).unwrap();
        fs.sync().unwrap();
        fs.write_at(file, 0, &[7; 100]).unwrap();
        fs.mount().error_tags.arm(ITOBP, nth);
        let _ = fs.unlink(fs.root(), b"file", &Caller::root());
        // Passes the tag once more, in case the unlink has not used it up.
        fs.mount().error_tags.strikes(ITOBP);
        let _ = fs.sync();
        let _ = fs.unmount();
        // The next mount frees what was left.
        let fs = image.open();
        let _ = fs.unlink(fs.root(), b"file", &Caller::root());
        image.close(fs);
    }
}

/// A program empties a file to write it anew. What another program syncs makes the loss of the old contents durable, and
/// must not leave the new ones behind. They come from a cache when the file is closed, or the caller says that.
#[test]
fn a_file_that_was_emptied_and_written_again_has_its_new_contents_with_the_fsync_of_another() {
    let image = stress::Image::new(320, &[]);
    let fs = image.open();
    let files = ["late", "closed", "synced", "other"].map(|name| make(&fs, name));
    let [late, closed, synced, other] = files;
    files.iter().for_each(|file| fs.write_at(*file, 0, &[1; 10_000]).unwrap());
    fs.sync().unwrap();
    files[..3].iter().for_each(|file| fs.truncate(*file, 0).unwrap());
    fs.write_keeping_times(late, 0, &[2; 10_000]).unwrap();
    fs.write_at(closed, 0, &[2; 10_000]).unwrap();
    fs.finish_writing(closed);
    // From its fsync on it is a file as others are, which gather what is written to them.
    fs.fsync(synced).unwrap();
    fs.write_keeping_times(synced, 0, &[2; 10_000]).unwrap();
    let waiting: Vec<_> = fs.mount().dirty_inodes.all().iter().map(|inode| inode.number).collect();
    assert_eq!(waiting, [synced]);
    fs.write_at(other, 20_000, &[3; 100]).unwrap();
    fs.fsync(other).unwrap();
    let cut = image.path.with_extension("cut");
    xfskit_testkit::copy_image(&image.path, &cut);
    image.close(fs);
    let fs = open(&cut);
    for file in [late, closed] {
        let mut found = [0; 10_001];
        assert_eq!(fs.read_at(file, 0, &mut found).unwrap(), 10_000);
        assert!(found[..10_000] == [2; 10_000]);
    }
    fs.unmount().unwrap();
}

/// A disk that takes no contents any more, or a host that is full: what need not be written is not tried, as the kernel
/// drops pages that were not written back.
#[test]
fn a_file_whose_contents_cannot_be_written_can_be_emptied_and_cut() {
    let image = stress::Image::new(320, &[]);
    let fs = image.open();
    let [new, old] = ["new", "old"].map(|name| make(&fs, name));
    fs.write_at(old, 0, &[1; 8192]).unwrap();
    fs.sync().unwrap();
    let before = fs.statfs();
    let mtime = |file| fs.stat(file).unwrap().mtime;
    let times = [new, old].map(mtime);
    fs.write_at(new, 0, &[2; 100_000]).unwrap();
    fs.write_at(old, 8192, &[2; 100_000]).unwrap();
    fs.mount().error_tags.arm_for(DATA_IOERROR, 1, u32::MAX);
    assert!(matches!(fs.fsync(new), Err(Error::Io { .. })));
    // The first block could be written; those in front of the new end would have to be.
    assert!(matches!(fs.truncate(old, 8193), Err(Error::Io { .. })));
    assert_eq!(fs.stat(old).unwrap().size, 108_192);
    for (file, size) in [(new, 0), (old, 8192), (old, 4096)] {
        fs.truncate(file, size).unwrap();
        assert_eq!(fs.stat(file).unwrap().size, size);
    }
    assert!([new, old].map(mtime) > times);
    // The tag's last failure.
    fs.mount().error_tags.arm(DATA_IOERROR, 1);
    fs.mount().error_tags.strikes(DATA_IOERROR);
    fs.sync().unwrap();
    assert_eq!(fs.statfs().free_blocks, before.free_blocks + 1);
    fs.write_at(old, 8192, &[3; 10]).unwrap();
    image.close(fs);
    let fs = image.open();
    let mut found = [9; 9000];
    assert_eq!(fs.read_at(old, 0, &mut found).unwrap(), 8202);
    assert!(found[..4096] == [1; 4096] && found[4096..8192] == [0; 4096] && found[8192..8202] == [3; 10]);
    image.close(fs);
}

/// A backup that compares times must not miss bytes of a write that failed half-way.
#[test]
fn a_write_that_fails_on_the_device_changes_the_time() {
    let image = stress::Image::new(320, &[]);
    let fs = image.open();
    let file = make(&fs, "file");
    fs.write_at(file, 0, &[1; 8192]).unwrap();
    fs.sync().unwrap();
    let before = fs.stat(file).unwrap().mtime;
    std::thread::sleep(std::time::Duration::from_millis(2));
    fs.mount().error_tags.arm(DATA_IOERROR, 1);
    assert!(matches!(fs.write_at(file, 0, &[2; 8192]), Err(Error::Io { .. })));
    assert!(fs.stat(file).unwrap().mtime > before);
    image.close(fs);
}

/// The same of one for which there is not enough space: as much as fits is written.
#[test]
fn a_write_for_which_there_is_no_space_changes_the_time() {
    let image = stress::Image::new(320, &[]);
    let fs = image.open();
    let (file, filler) = (make(&fs, "file"), make(&fs, "filler"));
    fs.write_at(file, 0, &[1; MEBIBYTE]).unwrap();
    let piece = vec![7; MEBIBYTE];
    for size in [MEBIBYTE, 4096] {
        while fs.append(filler, &piece[..size]).and_then(|_| fs.fsync(filler)).is_ok() {}
    }
    fs.sync().unwrap();
    let before = fs.stat(file).unwrap().mtime;
    std::thread::sleep(std::time::Duration::from_millis(2));
    assert!(matches!(fs.write_at(file, 0, &[2; 2 * MEBIBYTE]), Err(Error::NoSpace)));
    let mut found = [0; 1];
    fs.read_at(file, 0, &mut found).unwrap();
    assert_eq!((found, fs.stat(file).unwrap().size), ([2], MEBIBYTE as u64));
    assert!(fs.stat(file).unwrap().mtime > before);
    image.close(fs);
}

/// What waits in memory when the filesystem has shut down is lost, so nothing must be accepted there any more.
#[test]
fn after_a_shutdown_no_write_is_accepted() {
    let image = stress::Image::new(320, &[]);
    let fs = image.open();
    let file = make(&fs, "file");
    fs.write_at(file, 0, &[1; 8192]).unwrap();
    fs.sync().unwrap();
    fs.mount().journal.shut_down("a test");
    let in_place = fs.write_at(file, 0, &[2; 100]);
    let new_block = fs.write_at(file, 100_000, &[2; 100]);
    let late = fs.write_keeping_times(file, 1_000_000, &[2; 4096]);
    let appended = fs.append(file, &[2; 100]).map(drop);
    for result in [in_place, new_block, late, appended] {
        assert!(matches!(result, Err(Error::Shutdown(_))), "{result:?}");
    }
}

/// A cache that writes late changes nothing that an append-only file had before, appended bytes included.
#[test]
fn a_cache_changes_nothing_that_was_appended() {
    let image = stress::Image::new(320, &[]);
    let fs = image.open();
    let file = make(&fs, "file");
    fs.write_at(file, 0, &[1; 4096]).unwrap();
    let flags = fs.flags(file).unwrap();
    let append_only = Flags { xflags: flags.xflags | u32::from(xfskit::ondisk::inode::flags::APPEND), ..flags };
    fs.set_flags(file, &append_only, &Caller::root()).unwrap();
    fs.append(file, &[2; 4096]).unwrap();
    for offset in [0, 4096] {
        let late = fs.write_keeping_times(file, offset, &[3; 4096]);
        assert!(matches!(late, Err(Error::NotPermitted)), "{offset}: {late:?}");
    }
    fs.write_keeping_times(file, 4096, &[[2; 4096], [3; 4096]].concat()).unwrap();
    assert_eq!(fs.stat(file).unwrap().size, 3 * 4096);
    image.close(fs);
}

/// The name goes, and that the file's blocks cannot be found is said at the end. The image can be opened to write all
/// the same, and the kernel mounts it.
#[test]
fn a_file_with_a_damaged_map_can_be_removed_and_the_image_opened_again() {
    let image = stress::Image::new(320, &[]);
    let fs = image.open();
    let [file, other] = ["file", "other"].map(|name| make(&fs, name));
    (0..400).for_each(|n| fs.write_at(file, n * 8192, &[7; 4096]).unwrap());
    image.close(fs);
    let mut bytes = std::fs::read(&image.path).unwrap();
    let block = bytes.chunks(4096).position(|block| block.starts_with(b"BMA3")).expect("a block of the map");
    bytes[block * 4096 + 300] ^= 1;
    let is_corrupt = |result: Result<(), Error>| {
        assert!(matches!(&result, Err(Error::Corrupt(corruption)) if corruption.owner == Some(file.0)), "{result:?}");
    };
    type Change = fn(&Volume, InodeNumber);
    let changes: [Change; 3] = [
        |fs, _| fs.unlink(fs.root(), b"file", &Caller::root()).unwrap(),
        |fs, _| {
            let root = fs.root();
            fs.rename(root, b"other", root, b"file", RenameFlags::default(), &Caller::root()).unwrap();
        },
        |fs, file| {
            fs.add_reference(file).unwrap();
            fs.unlink(fs.root(), b"file", &Caller::root()).unwrap();
            fs.drop_references(file, 1).unwrap();
        },
    ];
    for change in changes {
        std::fs::write(&image.path, &bytes).unwrap();
        let fs = image.open();
        change(&fs, file);
        fs.sync().unwrap();
        is_corrupt(fs.unmount());
        let fs = image.open();
        fs.write_at(other, 0, &[1; 10]).unwrap();
        fs.unmount().unwrap();
        if let Some(mount) = xfskit_testkit::kernel_mount(&image.path) {
            mount.unmount();
        }
    }
}

/// The places of the log's records, in their order.
fn records(image: &[u8]) -> Vec<usize> {
    let is_record = |offset: &usize| image[*offset..].starts_with(&[0xfe, 0xed, 0xba, 0xbe]);
    (0..image.len()).step_by(512).filter(is_record).collect()
}

/// How many names a dirty image shows after recovery; an error if it is refused as damaged.
fn recovered(image: &Path) -> Result<usize, String> {
    let device = Arc::new(FileDevice::open(image, Access::Write).unwrap());
    let fs = match Volume::open(device, MountOptions::default()) {
        Err(error @ Error::Corrupt(_)) => return Err(error.to_string()),
        other => other.unwrap(),
    };
    let count = fs.entries(fs.root()).unwrap().count();
    fs.unmount().unwrap();
    Ok(count)
}

/// The same, by the kernel; `None` where it refuses the image.
fn recovered_by_the_kernel(image: &Path) -> Option<Option<usize>> {
    let mount = xfskit_testkit::try_kernel_mount(image, None, &[])?.ok();
    Some(mount.map(|mount| {
        let count = std::fs::read_dir(mount.path()).unwrap().count();
        mount.unmount();
        count
    }))
}

/// A record that is not whole was in flight when the power failed, if it is one of the last eight. Otherwise those
/// behind it were written when it was durable, and it is damaged: to end there would drop what an fsync has answered.
#[test]
fn a_bad_record_is_the_end_of_the_log_only_where_it_may_have_been_in_flight() {
    let image = stress::Image::new(320, &[]);
    let fs = image.open();
    for number in 0..30 {
        let file = make(&fs, &format!("file {number}"));
        fs.fsync(file).unwrap();
    }
    let dirty = std::fs::read(&image.path).unwrap();
    image.close(fs);
    let records = records(&dirty);
    assert!(records.len() > 30, "{} records", records.len());
    let path = image.path.with_extension("damaged");
    let newest = records.len() - 1;
    for (bad, place) in [(3, 600), (newest - 9, 600), (newest - 7, 600), (newest - 2, 600), (5, 0)] {
        let mut bytes = dirty.clone();
        bytes[records[bad] + place] ^= 0x55;
        std::fs::write(&path, &bytes).unwrap();
        let kernels = recovered_by_the_kernel(&path);
        std::fs::write(&path, &bytes).unwrap();
        let ours = recovered(&path);
        assert_eq!(ours.is_ok(), newest - bad < 8, "record {bad} of {newest}: {ours:?}");
        if let Some(kernels) = kernels {
            assert_eq!(ours.ok(), kernels, "record {bad} of {newest}");
        }
    }
}

/// The same where the log has fewer records, whatever part of one is wrong: its magic, its length, its place, the
/// number of the pass, what it contains. What is whole before it counts.
#[test]
fn what_is_whole_before_a_bad_record_is_recovered() {
    let image = stress::Image::new(320, &[]);
    let fs = image.open();
    for number in 0..3 {
        let file = make(&fs, &format!("file {number}"));
        fs.fsync(file).unwrap();
    }
    let dirty = std::fs::read(&image.path).unwrap();
    image.close(fs);
    let records = records(&dirty);
    assert!((4..8).contains(&records.len()), "{} records", records.len());
    let path = image.path.with_extension("damaged");
    let mut names = std::collections::BTreeSet::new();
    for (bad, record) in records.iter().enumerate().skip(1) {
        for place in [0, 13, 14, 22, 600] {
            let mut bytes = dirty.clone();
            bytes[record + place] ^= 0x55;
            std::fs::write(&path, &bytes).unwrap();
            let kernels = recovered_by_the_kernel(&path);
            std::fs::write(&path, &bytes).unwrap();
            let ours = recovered(&path);
            names.extend(ours.clone());
            // The kernel takes a bad header at the tail for one that torn records have overwritten, although none is
            // torn, and replays what is behind it.
            assert!(ours.is_ok() || bad == 1 && place < 600, "byte {place} of record {bad}: {ours:?}");
            if let (Ok(ours), Some(kernels)) = (ours, kernels) {
                assert_eq!(Some(ours), kernels, "byte {place} of record {bad} of {}", records.len());
            }
        }
    }
    assert_eq!(names, (0..3).collect());
}

/// As the kernel has it.
#[test]
fn a_write_of_nothing_changes_no_time() {
    let image = stress::Image::new(320, &[]);
    let fs = image.open();
    let file = make(&fs, "file");
    let before = fs.stat(file).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(2));
    fs.write_at(file, 10, &[]).unwrap();
    assert_eq!(fs.stat(file).unwrap(), before);
    image.close(fs);
}

/// A slash at the end of a link's target asks for a directory, as one at the end of a path does.
#[test]
fn links_lead_where_the_systems_do() {
    let (scratch, image) = (xfskit_testkit::scratch(), stress::Image::new(64, &[]));
    let (fs, me, host) = (image.open(), Caller::root(), scratch.path().join("tree"));
    std::fs::create_dir_all(host.join("dir")).unwrap();
    std::fs::write(host.join("file"), "").unwrap();
    fs.create(fs.root(), b"dir", &NewFile::dir(0o755), &me).unwrap();
    fs.create(fs.root(), b"file", &NewFile::file(0o644), &me).unwrap();
    let targets = [
        "file",
        "file/",
        "file/.",
        "dir",
        "dir/",
        "dir/.",
        "dir/../file/",
        "./dir//",
        "link 1",
        "link 1/",
        "link 4/",
        "link 11",
    ];
    for (index, target) in targets.iter().enumerate() {
        let name = format!("link {index}");
        std::os::unix::fs::symlink(target, host.join(&name)).unwrap();
        fs.symlink(fs.root(), name.as_bytes(), target.as_bytes(), &me).unwrap();
    }
    for (index, target) in targets.iter().enumerate() {
        for end in ["", "/", "/."] {
            let path = format!("link {index}{end}");
            let ours = fs.resolve(path.as_bytes(), LastLink::Follow).err().map(|error| error.errno());
            let theirs = std::fs::metadata(host.join(&path)).err().map(|error| error.raw_os_error().unwrap());
            assert_eq!(ours, theirs, "{path} -> {target}");
        }
    }
    // A chain of links, up to the longest that is allowed, and longer.
    for length in 1..=42 {
        let (name, target) = (format!("chain {length}"), format!("chain {}", length - 1));
        let target = if length == 1 { "file" } else { &target };
        std::os::unix::fs::symlink(target, host.join(&name)).unwrap();
        fs.symlink(fs.root(), name.as_bytes(), target.as_bytes(), &me).unwrap();
        let ours = fs.resolve(name.as_bytes(), LastLink::Follow).err().map(|error| error.errno());
        let theirs = std::fs::metadata(host.join(&name)).err().map(|error| error.raw_os_error().unwrap());
        assert_eq!(ours, theirs, "{name}");
    }
    image.close(fs);
}

#[test]
fn entries_are_read_in_batches_that_miss_none() {
    let image = stress::Image::new(64, &[]);
    let (fs, me) = (image.open(), Caller::root());
    let mut names = Vec::new();
    let dir = fs.create(fs.root(), b"dir", &NewFile::dir(0o755), &me).unwrap().inode;
    for count in [0, 1, 127, 128, 129, 256, 300] {
        while names.len() < count {
            let name = format!("name {:03}", names.len()).into_bytes();
            fs.create(dir, &name, &NewFile::file(0o644), &me).unwrap();
            names.push(name);
        }
        let mut listed: Vec<_> = fs.entries(dir).unwrap().map(|entry| entry.unwrap().name).collect();
        listed.sort();
        assert_eq!(listed, names);
    }
    // What is removed meanwhile is not missed by the others, and the directory stays as long as it is listed.
    let mut listing = fs.entries(dir).unwrap();
    let first = listing.next().unwrap().unwrap();
    names.iter().for_each(|name| fs.unlink(dir, name, &me).unwrap());
    fs.rmdir(fs.root(), b"dir", &me).unwrap();
    let seen: Vec<_> = listing.map(|entry| entry.unwrap().name).collect();
    assert!(seen.len() <= 127 && !seen.contains(&first.name), "{}", seen.len());
    assert!(matches!(fs.entries(dir), Err(Error::Stale(_))));
    image.close(fs);
}
