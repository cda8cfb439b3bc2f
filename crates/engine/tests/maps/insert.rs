//! Insertions within a record of the map, which cut it in two: counted before anything moves, and with the kernel's map
//! as the result.

use super::kernel::kernel_extents;
use super::model::{File, Random, make, open};
use rustix::fs::{FallocateFlags, fallocate};
use std::path::Path;
use xfskit_engine::error_tags::REDUCE_MAX_IEXTENTS;
use xfskit_engine::{Error, Fallocate, Volume};

const BLOCK: u64 = 4096;

/// The record that an insertion cuts moves last: that the map cannot count its second part must be found first, or the
/// file would have some contents moved and others not. The kernel counts first, too (`xfs_insert_file_space`).
#[test]
fn an_insertion_that_the_map_cannot_count_changes_nothing() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let image = scratch.image("a.img", 320 << 20);
    reference.mkfs(&image, &[]);
    let fs = open(&image);
    let mut file = make(&fs, "file");
    let mut random = Random(3);
    // Ten records of two blocks. Of the eight behind the second, four move in each transaction.
    for record in 0..10 {
        file.write(&fs, 3 * record * BLOCK as usize, &random.bytes(2 * BLOCK as usize));
    }
    fs.sync().unwrap();
    let before = fs.file_extents(file.inode).unwrap();
    assert_eq!(before.len(), 10);
    fs.mount().error_tags.arm(REDUCE_MAX_IEXTENTS, 1);
    let result = fs.fallocate(file.inode, 4 * BLOCK, BLOCK, Fallocate::InsertRange);
    assert!(matches!(result, Err(Error::TooLarge)), "{result:?}");
    file.compare(&fs);
    assert_eq!(fs.file_extents(file.inode).unwrap(), before);
    let block = BLOCK as usize;
    file.fallocate(&fs, Fallocate::InsertRange, 4 * block, block, block);
    file.compare(&fs);
    assert_eq!(fs.file_extents(file.inode).unwrap().len(), 11);
    fs.unmount().unwrap();
    reference.repair_finds_nothing(&image);
}

/// Numbers of records around which a map leaves the inode for a tree, and a tree its only leaf, in inodes of 512 bytes
/// and blocks of 1 KiB.
const RECORDS: [u64; 9] = [1, 2, 18, 19, 20, 21, 58, 59, 60];

fn shape_of(reference: &xfskit_testkit::Reference, image: &Path, inode: u64) -> String {
    let shape = ["core.nextents", "core.format", "core.nblocks", "core.size"].map(|field| format!("print {field}"));
    let commands: Vec<&str> = shape.iter().map(String::as_str).collect();
    reference.db(image, &[&[format!("inode {inode}").as_str()][..], &commands].concat())
}

fn insert_and_collapse(fs: &Volume, file: &mut File, at: usize, block: usize, collapse: bool) {
    file.fallocate(fs, Fallocate::InsertRange, at, 2 * block, block);
    if collapse {
        file.fallocate(fs, Fallocate::CollapseRange, at, 2 * block, block);
    }
}

/// An insertion within a record, at every number of records at which the map changes its form, and the way back:
/// counts, form, blocks and extents are the kernel's.
#[test]
fn an_insertion_within_a_record_makes_the_map_that_the_kernel_makes() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let [theirs, ours] = ["theirs.img", "ours.img"].map(|name| scratch.image(name, 400 << 20));
    reference.mkfs(&theirs, &["-b", "size=1024"]);
    let block = 1024;
    let Some(kernel) = xfskit_testkit::kernel_mount(&theirs) else { return };
    let mut random = Random(9);
    let mut files: Vec<(u64, u64, bool, File)> = Vec::new();
    for records in RECORDS {
        for (place, collapse) in [(0, false), (records / 2, true), (records - 1, false)] {
            let name = format!("{}-of-{records}-at-{place}", files.len());
            let path = kernel.path().join(&name);
            let file = std::fs::File::create(&path).unwrap();
            let mut bytes = Vec::new();
            for record in 0..records {
                bytes.resize(3 * record as usize * block, 0);
                bytes.extend(random.bytes(2 * block));
            }
            for record in 0..records as usize {
                let range = 3 * record * block..(3 * record + 2) * block;
                std::os::unix::fs::FileExt::write_all_at(&file, &bytes[range.clone()], range.start as u64).unwrap();
            }
            let inode = std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap());
            files.push((records, place, collapse, File { inode: xfskit_ondisk::InodeNumber(inode), name, bytes }));
        }
    }
    kernel.unmount();
    xfskit_testkit::copy_image(&theirs, &ours);

    let Some(kernel) = xfskit_testkit::kernel_mount(&theirs) else { return };
    for (_, place, collapse, file) in &files {
        let open = std::fs::File::options().write(true).open(kernel.path().join(&file.name)).unwrap();
        let (at, length) = ((3 * place + 1) * block as u64, 2 * block as u64);
        fallocate(&open, FallocateFlags::INSERT_RANGE, at, length).unwrap();
        if *collapse {
            fallocate(&open, FallocateFlags::COLLAPSE_RANGE, at, length).unwrap();
        }
    }
    kernel.unmount();
    let fs = open(&ours);
    for (_, place, collapse, file) in &mut files {
        let at = (3 * *place as usize + 1) * block;
        insert_and_collapse(&fs, file, at, block, *collapse);
        file.compare(&fs);
    }
    fs.unmount().unwrap();
    reference.repair_finds_nothing(&ours);
    for (.., file) in &files {
        let [their_shape, our_shape] = [&theirs, &ours].map(|image| shape_of(&reference, image, file.inode.0));
        assert_eq!(our_shape, their_shape, "{}", file.name);
    }
    let extents = [&theirs, &ours].map(|image| {
        let kernel = xfskit_testkit::kernel_mount(image)?;
        let of = |(.., file): &(u64, u64, bool, File)| {
            file.compare_in(kernel.path());
            kernel_extents(&kernel.path().join(&file.name))
        };
        let extents: Vec<_> = files.iter().map(of).collect();
        kernel.unmount();
        Some(extents)
    });
    assert!(extents[0] == extents[1], "{extents:?}");
}
