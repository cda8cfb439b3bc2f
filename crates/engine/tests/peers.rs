//! Cases in which other implementations failed: one test for each.

mod stress;

use std::sync::Arc;
use stress::Image;
use xfskit_device::{Access, BlockDevice, FileDevice, MemoryDevice};
use xfskit_engine::mount::Mount;
use xfskit_engine::{Caller, Error, MountOptions, NewFile, SetAttr, SetMode, SetTime, Volume};
use xfskit_ondisk::InodeNumber;
use xfskit_testkit::{kernel_mount, tree};

fn files(fs: &Volume, count: u32) -> Vec<InodeNumber> {
    let new = NewFile::file(0o644);
    let name = |n: u32| format!("file-{n}").into_bytes();
    (0..count).map(|n| fs.create(fs.root(), &name(n), &new, &Caller::root()).unwrap().inode).collect()
}

#[test]
fn more_files_than_one_chunk_holds_are_sound_for_kernel_and_repair() {
    for count in [60, 65, 129, 300] {
        let image = Image::new(64, &[]);
        let fs = image.open();
        files(&fs, count);
        let (inodes, free) = fs.mount().space.inodes();
        assert_eq!(inodes - free, u64::from(count) + 3, "root and the two inodes of realtime");
        image.close(fs);
        let fs = image.open();
        assert_eq!(fs.mount().space.inodes(), (inodes, free));
        drop(fs);
        let Some(kernel) = kernel_mount(&image.path) else { return };
        assert_eq!(std::fs::read_dir(kernel.path()).unwrap().count(), count as usize);
        kernel.unmount();
    }
}

#[test]
fn files_with_attributes_survive_a_crash_by_the_kernels_recovery() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    for inode in files(&fs, 62) {
        fs.set_xattr(inode, b"user.a", b"value", SetMode::Any, &Caller::root()).unwrap();
    }
    fs.sync().unwrap();
    drop(fs);
    let Some(kernel) = kernel_mount(&image.path) else { return };
    let entries = tree(kernel.path());
    kernel.unmount();
    let with = entries.iter().filter(|entry| entry.xattrs.iter().any(|(_, value)| value == b"value")).count();
    assert_eq!(with, 62);
    image.assert_sound();
}

#[test]
fn attributes_are_set_beside_parent_pointers() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    let file = files(&fs, 1)[0];
    for length in [1, 100, 1000, 10_000, 65_536] {
        fs.set_xattr(file, b"user.a", &vec![1; length], SetMode::Any, &Caller::root()).unwrap();
        assert_eq!(fs.paths(file).unwrap(), [b"/file-0".to_vec()]);
    }
    image.close(fs);
}

#[test]
fn creates_go_on_in_an_ag_of_twenty_thousand_fragments() {
    let image = Image::new(300, &[('b', "size=1024"), ('d', "agcount=1"), ('i', "maxpct=0")]);
    let fs = image.open();
    let me = Caller::root();
    let files = files(&fs, 42_000);
    // A value of one block each, and every second one is removed.
    for &file in &files {
        fs.set_xattr(file, b"user.a", &[7; 900], SetMode::Any, &me).unwrap();
    }
    for file in files.iter().step_by(2) {
        fs.remove_xattr(*file, b"user.a", SetMode::Any, &me).unwrap();
    }
    fs.sync().unwrap();
    for n in 0..20_000 {
        fs.create(fs.root(), format!("more-{n}").as_bytes(), &NewFile::file(0o644), &me).unwrap();
    }
    image.close(fs);
}

#[test]
fn a_change_does_not_take_longer_the_more_attributes_there_are() {
    let image = Image::new(128, &[]);
    let fs = image.open();
    let me = Caller::root();
    let file = files(&fs, 1)[0];
    let log_bytes = || fs.mount().counters.list().iter().find(|(name, _)| *name == "log_bytes").unwrap().1;
    let mut spent = Vec::new();
    for n in 0..8000 {
        fs.set_xattr(file, format!("user.name-{n}").as_bytes(), b"some value", SetMode::Any, &me).unwrap();
        if n == 500 || n == 7900 {
            fs.sync().unwrap();
            let before = log_bytes();
            for _ in 0..50 {
                fs.set_xattr(file, format!("user.name-{n}").as_bytes(), b"other val.", SetMode::Any, &me).unwrap();
                fs.sync().unwrap();
            }
            spent.push(log_bytes() - before);
        }
    }
    assert!(spent[1] <= 2 * spent[0], "log bytes for 50 changes of one of 500 and one of 7900 attributes: {spent:?}");
    image.close(fs);
}

#[test]
fn name_spaces_have_linux_names_and_parents_are_not_attributes() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    let file = files(&fs, 1)[0];
    fs.set_xattr(file, b"security.selinux", b"label", SetMode::Any, &Caller::root()).unwrap();
    assert_eq!(fs.list_xattrs(file).unwrap(), [b"security.selinux".to_vec()]);
    assert!(matches!(fs.get_xattr(file, b"user.file-0"), Err(Error::NoAttribute)));
    image.close(fs);
    let Some(kernel) = kernel_mount(&image.path) else { return };
    let entries = tree(kernel.path());
    assert_eq!(entries[1].xattrs, [("security.selinux".to_owned(), b"label".to_vec())]);
    kernel.unmount();
}

#[test]
fn an_extent_map_of_several_leaves_is_read_right() {
    // Values of one block between others' make a fork of thousands of extents.
    let image = Image::new(128, &[('b', "size=1024"), ('d', "agcount=1")]);
    let fs = image.open();
    let me = Caller::root();
    let files = files(&fs, 2);
    let value = |n: u32, file: usize| vec![(n + file as u32) as u8; 900];
    for n in 0..3000 {
        for (index, &file) in files.iter().enumerate() {
            fs.set_xattr(file, format!("user.{n}").as_bytes(), &value(n, index), SetMode::Any, &me).unwrap();
        }
    }
    image.close(fs);
    let fs = image.open();
    for n in 0..3000 {
        for (index, &file) in files.iter().enumerate() {
            assert_eq!(fs.get_xattr(file, format!("user.{n}").as_bytes()).unwrap(), value(n, index));
        }
    }
}

#[test]
fn a_dirty_log_is_not_passed_over() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    files(&fs, 10);
    fs.sync().unwrap();
    drop(fs);
    let device = || FileDevice::open(&image.path, Access::Write).unwrap();
    let fs = Volume::open(Arc::new(device()), MountOptions::default()).unwrap();
    assert_eq!(fs.list_dir(fs.root()).unwrap().len(), 10);
}

#[test]
fn dates_of_bigtime_and_large_extent_counts_are_the_kernels() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    let file = files(&fs, 1)[0];
    let seconds = [-2_147_483_648, 915_148_800, 4_000_000_000, 16_299_260_424];
    for seconds in seconds {
        let time = xfskit_ondisk::Timestamp { seconds, nanoseconds: 123_456_789 };
        let change = SetAttr { mtime: Some(SetTime::To(time)), ..SetAttr::default() };
        // The kernel keeps no nanoseconds in the first and the last second that inodes can store.
        let nanoseconds = if [-2_147_483_648, 16_299_260_424].contains(&seconds) { 0 } else { 123_456_789 };
        let kept = xfskit_ondisk::Timestamp { seconds, nanoseconds };
        assert_eq!(fs.set_attr(file, &change, &Caller::root()).unwrap().mtime, kept);
        assert_eq!(fs.stat(file).unwrap().mtime, kept);
    }
    image.close(fs);
    let Some(kernel) = kernel_mount(&image.path) else { return };
    assert_eq!(tree(kernel.path())[1].mtime, (16_299_260_424, 0));
    kernel.unmount();
}

#[test]
fn a_missing_or_empty_image_is_an_error() {
    assert!(FileDevice::open(std::path::Path::new("no such image"), Access::Write).is_err());
    for bytes in [0, 100, 512, 4096, 1 << 20] {
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(bytes));
        assert!(Mount::open(device, None, MountOptions::default()).is_err(), "{bytes} bytes");
    }
}

#[test]
fn what_is_open_and_unlinked_is_gone_after_an_unmount() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    let me = Caller::root();
    for inode in files(&fs, 5) {
        fs.add_reference(inode).unwrap();
        fs.set_xattr(inode, b"user.a", &[1; 20_000], SetMode::Any, &me).unwrap();
    }
    let dir = fs.create(fs.root(), b"dir", &NewFile::dir(0o755), &me).unwrap().inode;
    fs.add_reference(dir).unwrap();
    fs.rmdir(fs.root(), b"dir", &me).unwrap();
    (0..5).for_each(|n| fs.unlink(fs.root(), format!("file-{n}").as_bytes(), &me).unwrap());
    image.close(fs);
}
