//! Times of files whose contents an operation changes in several links, when it does not get to its end.

use super::stress::Image;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};
use xfskit_engine::error_tags::{BMAP_REMOVE, BMAP_SHARE, ROLL};
use xfskit_engine::{Caller, Fallocate, NewFile, Result, Volume};
use xfskit_ondisk::{InodeNumber, Timestamp};
use xfskit_testkit::kernel_mount;

const BLOCK: u64 = 4096;

fn make(fs: &Volume, name: &str) -> InodeNumber {
    fs.create(fs.root(), name.as_bytes(), &NewFile::file(0o644), &Caller::root()).unwrap().inode
}

fn read(fs: &Volume, inode: InodeNumber) -> Vec<u8> {
    let mut bytes = vec![0; fs.stat(inode).unwrap().size as usize];
    assert_eq!(fs.read_at(inode, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// A source of three extents, and a file of many, of which some time has gone since.
fn prepare(fs: &Volume) -> [InodeNumber; 2] {
    let (source, file) = (make(fs, "s"), make(fs, "f"));
    for block in [0, 2, 4] {
        fs.write_at(source, block * BLOCK, &[7; BLOCK as usize]).unwrap();
    }
    for block in 0..20 {
        fs.write_at(file, 2 * block * BLOCK, &[9; BLOCK as usize]).unwrap();
    }
    fs.sync().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    [source, file]
}

type Change = fn(&Volume, [InodeNumber; 2]) -> Result<()>;

fn allocate(fs: &Volume, file: InodeNumber, what: Fallocate) -> Result<()> {
    fs.fallocate(file, 0, 38 * BLOCK, what)
}

const CHANGES: [(&str, Change); 4] = [
    ("clone", |fs, [source, file]| fs.clone_range(source, 0, file, 0, 5 * BLOCK)),
    ("hole", |fs, [_, file]| allocate(fs, file, Fallocate::PunchHole)),
    ("zeros", |fs, [_, file]| allocate(fs, file, Fallocate::ZeroRange)),
    ("collapse", |fs, [_, file]| allocate(fs, file, Fallocate::CollapseRange)),
];

#[test]
fn an_operation_that_fails_half_way_changes_the_times_of_what_it_changed() {
    for (name, change) in CHANGES.into_iter().filter(|(name, _)| *name != "zeros") {
        let image = Image::new(320, &[]);
        let fs = image.open();
        let files = prepare(&fs);
        let (before, old) = (fs.stat(files[1]).unwrap(), read(&fs, files[1]));
        fs.mount().error_tags.arm(if name == "clone" { BMAP_SHARE } else { BMAP_REMOVE }, 2);
        change(&fs, files).unwrap_err();
        fs.mount().journal.check().unwrap();
        assert_ne!(read(&fs, files[1]), old, "{name}: some of it was done");
        let after = fs.stat(files[1]).unwrap();
        assert!(after.mtime > before.mtime && after.ctime > before.ctime, "{name}: {before:?}, then {after:?}");
        image.close(fs);
    }
}

#[test]
fn an_operation_that_the_power_cuts_changes_the_times_of_what_it_changed() {
    for (name, change) in CHANGES {
        for links in 1.. {
            let image = Image::new(320, &[]);
            let fs = image.open();
            let files = prepare(&fs);
            let (before, old) = (fs.stat(files[1]).unwrap(), read(&fs, files[1]));
            fs.mount().error_tags.arm(ROLL, links);
            let done = change(&fs, files);
            if fs.mount().journal.check().is_ok() {
                done.unwrap();
                assert!(links > 3, "{name} takes several links");
                break;
            }
            drop(fs);
            let Some(kernel) = kernel_mount(&image.path) else { return };
            let found = std::fs::read(kernel.path().join("f")).unwrap();
            let mtime = kernel.path().join("f").metadata().unwrap().modified().unwrap();
            kernel.unmount();
            let mtime = mtime.duration_since(UNIX_EPOCH).unwrap();
            let mtime = Timestamp { seconds: mtime.as_secs() as i64, nanoseconds: mtime.subsec_nanos() };
            assert!(found == old || mtime > before.mtime, "{name}, link {links}: contents changed, and their time not");
        }
    }
}

/// A write in place holds the file's lock and notes its time behind it, so the operation often comes in between.
#[test]
fn an_operation_that_keeps_times_keeps_those_of_writes_beside_it() {
    const LENGTH: u64 = 4 << 20;
    let image = Image::new(64, &[]);
    let fs = image.open();
    let file = make(&fs, "file");
    fs.write_at(file, 0, &[1; LENGTH as usize]).unwrap();
    fs.truncate(file, LENGTH + 8 * BLOCK).unwrap();
    fs.fsync(file).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..200 {
                fs.fallocate_keeping_times(file, LENGTH + BLOCK, BLOCK, Fallocate::PunchHole).unwrap();
            }
            is_over.store(true, Ordering::Release);
        });
        let mut last = fs.stat(file).unwrap().mtime;
        while !is_over.load(Ordering::Acquire) {
            fs.write_at(file, 0, &[2; LENGTH as usize]).unwrap();
            let mtime = fs.stat(file).unwrap().mtime;
            assert!(mtime > last, "the time of a write is forgotten: {mtime:?} after {last:?}");
            last = mtime;
        }
    });
    image.close(fs);
}
