//! Several threads on the same files, in an image of small AGs that fills up: no deadlock, no shutdown, nothing wrong
//! afterwards.

use crate::stress::{Image, Random, Watchdog, first_seed, scale};
use xfskit::ondisk::InodeNumber;
use xfskit::volume::{Caller, Error, Fallocate, NewFile, Seek, Volume};

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
