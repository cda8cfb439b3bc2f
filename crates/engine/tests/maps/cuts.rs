//! The power fails after each link of each operation: the kernel recovers the log, xfs_repair finds nothing, and the
//! file has one of the contents that it may have.

use super::model::{File, Random, make, open};
use std::path::Path;
use xfskit_engine::error_tags::ROLL;
use xfskit_engine::{Caller, Fallocate, Volume};

const BLOCK: usize = 4096;
/// Blocks of the file, every other of which is a hole.
const BLOCKS: usize = 24;

/// A file of many extents, and another one.
fn prepare(fs: &Volume) -> [File; 2] {
    let mut random = Random(9);
    let mut files = ["one", "other"].map(|name| make(fs, name));
    for file in &mut files {
        for block in (0..BLOCKS).step_by(2) {
            let data = random.bytes(BLOCK);
            file.write(fs, block * BLOCK, &data);
        }
        file.write(fs, BLOCKS * BLOCK, &random.bytes(100));
    }
    fs.sync().unwrap();
    files
}

/// Cuts `work` off after each of its links in turn; `check` gets both files as the kernel finds them after that.
fn cut(work: impl Fn(&Volume, &[File; 2]) -> xfskit_engine::Result<()>, check: impl Fn(&[File; 2], [&[u8]; 2])) {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    for links in 1.. {
        let image = scratch.image("a.img", 400 << 20);
        reference.tool_output("mkfs.xfs", ["-q", image.to_str().unwrap()]);
        let fs = open(&image);
        let files = prepare(&fs);
        fs.mount().error_tags.arm(ROLL, links);
        let done = work(&fs, &files);
        if fs.mount().journal.check().is_ok() {
            done.unwrap();
            assert!(links > 2, "an operation of several links");
            break;
        }
        drop(fs);
        let Some(kernel) = xfskit_testkit::kernel_mount(&image) else { return };
        let read = |name: &str| read_if_there(&kernel.path().join(name));
        let found = [read("one"), read("other")];
        kernel.unmount();
        reference.repair_finds_nothing(&image);
        check(&files, [&found[0], &found[1]]);
        grow_after(&image, found[0].len());
        reference.repair_finds_nothing(&image);
        std::fs::remove_file(&image).unwrap();
    }
}

fn read_if_there(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_default()
}

/// Bytes that were left behind the end of the file do not appear when it grows.
fn grow_after(image: &Path, size: usize) {
    let fs = open(image);
    if let Ok(found) = fs.lookup(fs.root(), b"one") {
        fs.truncate(found.inode, (size + 40 * BLOCK) as u64).unwrap();
        let mut bytes = vec![1; 40 * BLOCK];
        assert_eq!(fs.read_at(found.inode, size as u64, &mut bytes).unwrap(), bytes.len());
        assert!(bytes.iter().all(|byte| *byte == 0), "zeros behind the old end");
    }
    fs.unmount().unwrap();
}

/// Outside of `range` nothing has changed; inside each block is the old one or zeros.
fn zeroed_in_part(old: &[u8], found: &[u8], range: std::ops::Range<usize>) {
    for (at, (old, found)) in old.chunks(BLOCK).zip(found.chunks(BLOCK)).enumerate() {
        let zeros = range.contains(&at) && found.iter().all(|byte| *byte == 0);
        assert!(old == found || zeros, "block {at}");
    }
}

#[test]
fn a_truncation() {
    let size = 3 * BLOCK + 50;
    cut(
        |fs, files| fs.truncate(files[0].inode, size as u64),
        |files, found| {
            assert_eq!(found[0], &files[0].bytes[..size]);
            assert_eq!(found[1], files[1].bytes);
        },
    );
}

#[test]
fn an_allocation() {
    cut(
        |fs, files| fs.fallocate(files[0].inode, 0, (40 * BLOCK) as u64, Fallocate::Allocate),
        |files, found| assert_eq!(found, [files[0].bytes.as_slice(), &files[1].bytes]),
    );
}

#[test]
fn a_hole() {
    let range = (BLOCK as u64, (20 * BLOCK) as u64);
    cut(
        |fs, files| fs.fallocate(files[0].inode, range.0, range.1, Fallocate::PunchHole),
        |files, found| {
            assert_eq!(found[0].len(), files[0].bytes.len());
            zeroed_in_part(&files[0].bytes, found[0], 1..21);
        },
    );
}

#[test]
fn zeros() {
    let range = (BLOCK as u64, (20 * BLOCK) as u64);
    cut(
        |fs, files| fs.fallocate(files[0].inode, range.0, range.1, Fallocate::ZeroRange),
        |files, found| zeroed_in_part(&files[0].bytes, found[0], 1..21),
    );
}

#[test]
fn a_collapse() {
    let range = (2 * BLOCK as u64, 3 * BLOCK as u64);
    cut(
        |fs, files| fs.fallocate(files[0].inode, range.0, range.1, Fallocate::CollapseRange),
        |files, found| {
            assert_eq!(found[0].len(), files[0].bytes.len());
            assert_eq!(found[0][..2 * BLOCK], files[0].bytes[..2 * BLOCK]);
        },
    );
}

#[test]
fn an_insertion() {
    let range = (2 * BLOCK as u64, 3 * BLOCK as u64);
    cut(
        |fs, files| fs.fallocate(files[0].inode, range.0, range.1, Fallocate::InsertRange),
        |files, found| {
            assert_eq!(found[0].len(), files[0].bytes.len() + 3 * BLOCK);
            assert_eq!(found[0][..2 * BLOCK], files[0].bytes[..2 * BLOCK]);
        },
    );
}

#[test]
fn a_clone() {
    cut(
        |fs, files| fs.clone_range(files[1].inode, 0, files[0].inode, 0, 0),
        |files, found| {
            assert_eq!(found[1], files[1].bytes);
            let blocks = files[0].bytes.chunks(BLOCK).zip(files[1].bytes.chunks(BLOCK));
            for (found, (old, new)) in found[0].chunks(BLOCK).zip(blocks) {
                assert!(found == old || found == new || found.iter().all(|byte| *byte == 0));
            }
        },
    );
}

#[test]
fn an_end() {
    cut(
        |fs, _| fs.unlink(fs.root(), b"one", &Caller::root()),
        |files, found| assert_eq!(found, [&[], files[1].bytes.as_slice()]),
    );
}
