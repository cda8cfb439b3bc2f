//! The figures of a whole filesystem, beside those of the kernel's mount.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use xfskit_device::{Access, FileDevice};
use xfskit_engine::{Caller, FsStat, MountOptions, NewFile, Volume};
use xfskit_testkit::{kernel_mount_with, scratch};

/// What stat(1) says of a mount: blocks, free blocks, inodes, free inodes.
fn of_kernel(dir: &Path) -> [u64; 4] {
    let output = Command::new("stat").args(["-f", "-c", "%b %f %c %d"]).arg(dir).output().unwrap();
    let words = String::from_utf8(output.stdout).unwrap();
    let numbers: Vec<u64> = words.split_whitespace().map(|word| word.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

fn of(stat: FsStat) -> [u64; 4] {
    [stat.blocks, stat.free_blocks, stat.inodes, stat.free_inodes]
}

fn open(path: &Path, access: Access, options: MountOptions) -> Volume {
    Volume::open(Arc::new(FileDevice::open(path, access).unwrap()), options).unwrap()
}

#[test]
fn figures_are_those_of_the_kernel() {
    let images: [&[(char, &str)]; 7] = [
        &[],
        &[('i', "maxpct=1")],
        &[('i', "maxpct=3"), ('b', "size=1024")],
        &[('i', "maxpct=0")],
        &[('i', "maxpct=1,size=2048"), ('d', "agcount=7")],
        &[('m', "rmapbt=0,reflink=0"), ('i', "maxpct=100")],
        &[('b', "size=8192"), ('i', "maxpct=1"), ('s', "size=4096")],
    ];
    for options in images {
        let scratch = scratch();
        let path = scratch.image("a.img", 411 << 20);
        let mut all = xfskit_mkfs::Options { uuid: Some([9; 16]), allow_small: true, ..Default::default() };
        options.iter().for_each(|(letter, option)| all.apply(*letter, option).unwrap());
        let device = FileDevice::open(&path, Access::Write).unwrap();
        xfskit_mkfs::make(&device, None, &all, xfskit_ondisk::Timestamp::default()).unwrap();
        drop(device);
        let fs = open(&path, Access::Write, MountOptions::default());
        for n in 0..300_u32 {
            let new = NewFile::file(0o644);
            let file = fs.create(fs.root(), format!("f{n}").as_bytes(), &new, &Caller::root()).unwrap();
            fs.write_at(file.inode, 0, &vec![1; 20_000]).unwrap();
        }
        let writable = fs.statfs();
        fs.unmount().unwrap();
        let readable = open(&path, Access::Read, MountOptions::read_only()).statfs();
        let Some(kernel) = kernel_mount_with(&path, None, &["ro"]) else { return };
        assert_eq!(of(readable), of_kernel(kernel.path()), "{options:?}, read-only");
        kernel.unmount();
        let Some(kernel) = kernel_mount_with(&path, None, &[]) else { return };
        let theirs = of_kernel(kernel.path());
        let ours = of(writable);
        kernel.unmount();
        // Who may write keeps blocks back for trees; how many, each decides on its own.
        assert_eq!(ours[0], theirs[0], "{options:?}");
        let share = ours[1].abs_diff(theirs[1]) * 100 / theirs[1];
        assert!(share <= 1, "{options:?}: {ours:?}, kernel {theirs:?}");
        let is_limited =
            |option: &str| ["maxpct=1", "maxpct=3"].iter().any(|limit| option.split(',').any(|part| part == *limit));
        if options.iter().any(|(_, option)| is_limited(option)) {
            assert_eq!(ours[2], theirs[2], "{options:?}: {ours:?}, kernel {theirs:?}");
        }
    }
}
