//! Files of very many extents.

use super::model::{Random, make, open};
use std::time::{Duration, Instant};
use xfskit_engine::{Caller, Fallocate, Volume};

/// The fastest of some rounds of reads from random places, for each read.
fn read_time(fs: &Volume, file: xfskit_ondisk::InodeNumber, blocks: u64, stride: u64) -> Duration {
    const READS: u32 = 20_000;
    let mut random = Random(1);
    let round = || {
        let start = Instant::now();
        for _ in 0..READS {
            let mut byte = [1; 4];
            fs.read_at(file, random.below(blocks) * stride + 40, &mut byte).unwrap();
            assert_eq!(byte, [5; 4]);
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
    fs.truncate(many, 2048 * extents).unwrap();
    for at in (0..extents * 1024).step_by(1 << 20) {
        fs.write_at(one, at, &vec![5; (extents * 1024 - at).min(1 << 20) as usize]).unwrap();
    }
    let mut order: Vec<u64> = (0..extents).collect();
    let mut random = Random(3);
    for at in (1..order.len()).rev() {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
    let start = Instant::now();
    for at in order {
        fs.fallocate(many, at * 2048, 1024, Fallocate::AllocateKeepSize).unwrap();
    }
    let made = start.elapsed();
    assert_eq!(fs.file_extents(many).unwrap().len() as u64, extents);
    for at in 0..extents {
        fs.write_at(many, at * 2048, &[5; 1024]).unwrap();
    }
    fs.sync().unwrap();
    let (of_many, of_one) = (read_time(&fs, many, extents, 2048), read_time(&fs, one, extents, 1024));
    fs.unmount().unwrap();
    reference.repair_finds_nothing(&image);
    let fs = open(&image);
    let start = Instant::now();
    fs.read_at(many, 0, &mut [0; 1]).unwrap();
    let loaded = start.elapsed();
    let start = Instant::now();
    fs.unlink(fs.root(), b"many", &Caller::root()).unwrap();
    let freed = start.elapsed();
    fs.unmount().unwrap();
    reference.repair_finds_nothing(&image);
    println!(
        "{extents} extents: made {made:?}, read in {loaded:?}, freed {freed:?}; a read {of_many:?}, of one {of_one:?}"
    );
    // Without optimization the search itself is what takes time.
    assert!(
        cfg!(debug_assertions) || of_many < 3 * of_one,
        "a read takes {of_many:?} among {extents} extents, {of_one:?} in one"
    );
}
