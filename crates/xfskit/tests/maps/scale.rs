//! Files of very many extents.

use super::model::{Random, make, open};
use std::time::{Duration, Instant};
use xfskit::{Fallocate, Filesystem};

/// The fastest of some rounds of random reads, for each read.
fn read_time(fs: &Filesystem, file: xfskit::ondisk::InodeNumber, size: u64) -> Duration {
    const READS: u32 = 20_000;
    let mut random = Random(1);
    let round = || {
        let start = Instant::now();
        for _ in 0..READS {
            let mut byte = [1; 4];
            fs.read_at(file, random.below(size / 4) * 4, &mut byte).unwrap();
        }
        start.elapsed() / READS
    };
    std::iter::repeat_with(round).take(7).min().unwrap()
}

#[test]
fn a_file_of_many_extents_made_in_random_order() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    // XFSKIT_MAP_EXTENTS=1000000 for the real thing.
    let extents: u64 =
        std::env::var("XFSKIT_MAP_EXTENTS").ok().and_then(|extents| extents.parse().ok()).unwrap_or(30_000);
    let scratch = xfskit_testkit::scratch();
    let image = scratch.image("a.img", 4 << 30);
    reference.tool_output("mkfs.xfs", ["-q", "-b", "size=1024", image.to_str().unwrap()]);
    let fs = open(&image);
    let (many, one) = (make(&fs, "many").inode, make(&fs, "one").inode);
    let size = 2048 * extents;
    fs.truncate(many, size).unwrap();
    fs.fallocate(one, Fallocate::Allocate, 0, 1 << 20).unwrap();
    let mut order: Vec<u64> = (0..extents).collect();
    let mut random = Random(3);
    for at in (1..order.len()).rev() {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
    let start = Instant::now();
    for at in order {
        fs.fallocate(many, Fallocate::AllocateKeepSize, at * 2048, 1024).unwrap();
    }
    let made = start.elapsed();
    assert_eq!(fs.file_extents(many).unwrap().len() as u64, extents);
    let (of_many, of_one) = (read_time(&fs, many, size), read_time(&fs, one, 1 << 20));
    fs.unmount().unwrap();
    reference.repair_finds_nothing(&image);
    let fs = open(&image);
    let start = Instant::now();
    fs.read_at(many, 0, &mut [0; 1]).unwrap();
    let loaded = start.elapsed();
    let start = Instant::now();
    fs.unlink(fs.root(), b"many", &xfskit::Caller::root()).unwrap();
    let freed = start.elapsed();
    fs.unmount().unwrap();
    reference.repair_finds_nothing(&image);
    println!(
        "{extents} extents: made {made:?}, read in {loaded:?}, freed {freed:?}; a read {of_many:?}, of one {of_one:?}"
    );
    assert!(of_many < 3 * of_one, "a read takes {of_many:?} among {extents} extents, {of_one:?} in one");
}
