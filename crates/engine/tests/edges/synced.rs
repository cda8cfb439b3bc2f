//! What an fsync, a crash or a shutdown leaves of contents.

use crate::{make, open, stress};
use std::sync::atomic::{AtomicBool, Ordering};
use xfskit_engine::{Caller, Error, Fallocate, Flags, Seek};

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

/// A program empties a file to write it anew. What another program syncs makes the loss of the old contents durable,
/// and must not leave the new ones behind. They come from a cache when the file is closed, or the caller says that.
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
    let append_only = Flags { xflags: flags.xflags | u32::from(xfskit_ondisk::inode::flags::APPEND), ..flags };
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
