//! Several threads on the same files, in an image of small AGs that fills up: no deadlock, no shutdown, nothing wrong
//! afterwards.

use crate::stress::{Image, Random, Watchdog, first_seed, scale};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use xfskit_engine::{Caller, Error, Fallocate, NewFile, Seek, Volume};
use xfskit_ondisk::InodeNumber;

/// Errors that are expected beside other threads and with little space.
fn succeeded(result: Result<(), Error>) -> bool {
    match result {
        Ok(()) => true,
        Err(Error::NoSpace | Error::Invalid(_) | Error::NoMoreData | Error::TooLarge) => false,
        Err(error) => panic!("{error}"),
    }
}

fn operate(fs: &Volume, random: &mut Random, files: &[InodeNumber]) -> bool {
    let (file, other) = (files[random.below(files.len())], files[random.below(files.len())]);
    let block = 1024;
    let most = [20, 500, 30_000][random.below(3)];
    let (offset, length) = (random.below(most) as u64 * block, (1 + random.below(most)) as u64 * block);
    let ranges = [
        Fallocate::Allocate,
        Fallocate::AllocateKeepSize,
        Fallocate::PunchHole,
        Fallocate::ZeroRange,
        Fallocate::CollapseRange,
        Fallocate::InsertRange,
    ];
    succeeded(match random.below(12) {
        0..=2 => fs.write_at(file, offset + random.below(100) as u64, &vec![7; length.min(70_000) as usize]),
        3 => fs.truncate(file, offset),
        4..=6 => fs.fallocate(file, offset, length, ranges[random.below(6)]),
        7 | 8 => fs.clone_range(file, offset, other, random.below(most) as u64 * block, length),
        9 => fs.copy_range(file, offset, other, random.below(most) as u64 * block, length.min(1 << 20)).map(drop),
        10 => fs.fsync(file),
        _ => fs.seek(file, offset, Seek::Data).and_then(|at| fs.read_at(file, at, &mut [0; 5000])).map(drop),
    })
}

#[test]
fn threads_share_files_that_share_blocks() {
    let _watchdog = Watchdog::new("threads on maps", 120);
    let image = Image::new(160, &[('b', "size=1024"), ('d', "agcount=8")]);
    let fs = image.open();
    let files: Vec<_> = (0..6)
        .map(|n| {
            let name = format!("file-{n}");
            fs.create(fs.root(), name.as_bytes(), &NewFile::file(0o644), &Caller::root()).unwrap().inode
        })
        .collect();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (fs, files) = (&fs, &files);
            scope.spawn(move || {
                let mut random = Random::new(first_seed() + thread);
                let steps = 3000 * scale();
                let done = (0..steps).filter(|_| operate(fs, &mut random, files)).count() as u64;
                assert!(done > steps / 3, "{done} of {steps}");
            });
        }
    });
    image.close(fs);
}

/// Dirties blocks here and there in a part of the file of its own, as fast as it can.
fn dirty_blocks(fs: &Volume, file: InodeNumber, part: u64, stop: &AtomicBool, done: &AtomicU64) {
    for place in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        fs.write_at(file, (part << 40) + place * 65_536, &[7; 100]).unwrap();
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes pieces of 1 MiB beside threads that dirty blocks. Returns how many blocks these have dirtied during the write
/// that saw most, and the longest time of a write.
fn large_beside_small(fs: &Volume, file: InodeNumber) -> (u64, Duration) {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for part in 0..3 {
            let (stop, done) = (&stop, &done);
            scope.spawn(move || dirty_blocks(fs, file, part, stop, done));
        }
        let write = |number: u64| {
            let (before, start) = (done.load(Ordering::Relaxed), Instant::now());
            fs.write_at(file, (9 << 40) + (number << 20), &vec![8; 1 << 20]).unwrap();
            (done.load(Ordering::Relaxed) - before, start.elapsed())
        };
        let turns: Vec<_> = (0..50).map(write).collect();
        stop.store(true, Ordering::Relaxed);
        let (most, longest) = (turns.iter().map(|turn| turn.0).max(), turns.iter().map(|turn| turn.1).max());
        eprintln!("{most:?} small writes beside one large at most, {longest:?} at most");
        (most.unwrap(), longest.unwrap())
    })
}

/// A large write goes to the device past the dirty blocks of the file: those of its own range have to be brought out
/// first, and all where it moves the end. Threads that go on dirtying blocks must not keep it from its turn.
#[test]
fn large_writes_get_their_turn_beside_threads_that_dirty_the_same_file() {
    let _watchdog = Watchdog::new("large writes beside small ones", 200);
    for (name, size) in [("inside", 20 << 40), ("at the end", 0)] {
        let image = Image::new(4 << 10, &[('b', "size=1024")]);
        let fs = image.open();
        let file = fs.create(fs.root(), b"file", &NewFile::file(0o644), &Caller::root()).unwrap().inode;
        fs.truncate(file, size).unwrap();
        let (most, longest) = large_beside_small(&fs, file);
        assert!(most < 60_000, "{name}: {most} small writes beside one large, which took {longest:?}");
        image.close(fs);
    }
}
