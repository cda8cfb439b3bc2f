//! Images with a tree that has every form of directory, attribute, extent map and file.
#![allow(dead_code)] // Each test uses its part.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use xfskit_check::{CheckOptions, Quiet, Report, check};
use xfskit_device::{Access, BlockDevice, FileDevice};
use xfskit_testkit::{Scratch, kernel_mount};

/// Checks the image in a file.
pub fn check_file(image: &Path) -> Report {
    let device = FileDevice::open(image, Access::Read).expect("an image");
    check_device(Arc::new(device))
}

/// Checks an image.
pub fn check_device(device: Arc<dyn BlockDevice>) -> Report {
    check(device, None, &CheckOptions::default(), &Quiet).expect("an image that can be checked")
}

/// All faults, one in each line.
pub fn findings(report: &Report) -> String {
    let lines: Vec<String> = report.faults.iter().map(|fault| format!("{fault}: {}", fault.consequence)).collect();
    format!("{} faults\n{}", report.fault_count, lines.join("\n"))
}

/// Makes an image with our mkfs and the options of mkfs.xfs, and has this machine's kernel fill it. `None` where the
/// kernel cannot.
pub fn kernel_image(scratch: &Scratch, name: &str, megabytes: u64, options: &[(char, &str)]) -> Option<PathBuf> {
    kernel_image_then(scratch, name, megabytes, options, |_| ())
}

/// As [`kernel_image`]; `look` is called with the tree before the image is unmounted.
pub fn kernel_image_then(
    scratch: &Scratch,
    name: &str,
    megabytes: u64,
    options: &[(char, &str)],
    look: impl FnOnce(&Path),
) -> Option<PathBuf> {
    let path = scratch.file(name);
    let device = FileDevice::create(&path, megabytes << 20).expect("an image file");
    let mut made = xfskit_mkfs::Options { allow_small: true, uuid: Some([7; 16]), ..Default::default() };
    for &(section, list) in options {
        made.apply(section, list).expect("options");
    }
    xfskit_mkfs::make(&device, None, &made, Default::default()).expect("an image");
    drop(device);
    let mount = kernel_mount(&path)?;
    populate(mount.path());
    look(mount.path());
    mount.unmount();
    Some(path)
}

fn write(path: &Path, bytes: usize) {
    fs::write(path, vec![b'x'; bytes]).expect("a file");
}

/// Names in a directory that grew and shrank.
fn names(dir: &Path, count: usize) {
    fs::create_dir(dir).expect("a directory");
    let name = |n: usize| dir.join(format!("a rather long name of entry {n}"));
    write(&dir.join("first"), 10);
    for n in 0..count {
        if n % 25 == 1 { write(&name(n), n) } else { fs::hard_link(dir.join("first"), name(n)).expect("a link") }
    }
    for n in (0..count).step_by(6) {
        fs::remove_file(name(n)).expect("a file to remove");
    }
}

fn attributes(path: &Path, prefix: &str, count: usize, bytes: usize) {
    let value = vec![b'v'; bytes];
    for n in 0..count {
        let name = format!("{prefix}.attribute {n}");
        rustix::fs::lsetxattr(path, name, &value, rustix::fs::XattrFlags::empty()).expect("an attribute");
    }
}

/// Makes the tree.
pub fn populate(root: &Path) {
    for (name, count) in [("shortform", 3), ("block", 30), ("leaf", 120), ("node", 2500)] {
        names(&root.join(name), count);
    }
    contents(root);
    for (name, count, bytes) in [("x short", 3, 10), ("x leaf", 12, 40), ("x node", 300, 50), ("x remote", 6, 3000)] {
        write(&root.join(name), 1);
        attributes(&root.join(name), "user", count, bytes);
    }
    attributes(&root.join("x remote"), "trusted", 2, 65536);
    for n in (0..300).step_by(3) {
        rustix::fs::lremovexattr(root.join("x node"), format!("user.attribute {n}")).expect("an attribute");
    }
    symlink("short/target", root.join("link")).expect("a link");
    symlink("t".repeat(1023), root.join("long link")).expect("a link");
    for (name, kind, device) in [("pipe", 'p', ""), ("null", 'c', "1 3"), ("loop", 'b', "7 3")] {
        let mut command = Command::new("mknod");
        command.arg(root.join(name)).arg(kind.to_string()).args(device.split_whitespace());
        assert!(command.status().expect("mknod").success());
    }
    std::os::unix::net::UnixListener::bind(root.join("socket")).expect("a socket");
    let mut deep = root.to_path_buf();
    for n in 0..20 {
        deep.push(format!("level {n}"));
        fs::create_dir(&deep).expect("a directory");
    }
    // Chunks with a few inodes left in use, and some without any.
    fs::create_dir(root.join("gone")).expect("a directory");
    for n in 0..1500 {
        write(&root.join(format!("gone/{n}")), usize::from(n % 3 == 0));
    }
    for n in (0..1500).filter(|n| n % 40 != 0) {
        fs::remove_file(root.join(format!("gone/{n}"))).expect("a file to remove");
    }
}

/// Files with contents: fragmented, sparse, unwritten, shared.
fn contents(root: &Path) {
    let file =
        |name: &str| OpenOptions::new().read(true).write(true).create(true).truncate(false).open(root.join(name));
    for name in ["fragments", "fragments too"] {
        let file = file(name).expect("a file");
        for n in 0..400u64 {
            file.write_all_at(&[b'f'; 1024], n * 16384).expect("room");
        }
        file.sync_all().expect("a sync");
    }
    let punched = file("punched").expect("a file");
    punched.write_all_at(&vec![b'p'; 1 << 19], 0).expect("room");
    use rustix::fs::FallocateFlags;
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&punched, hole, 65536, 65536).expect("a hole");
    rustix::fs::fallocate(file("unwritten").expect("a file"), FallocateFlags::KEEP_SIZE, 0, 1 << 20).expect("room");
    let source = file("source").expect("a file");
    source.write_all_at(&vec![b's'; 1 << 19], 0).expect("room");
    for n in 0..3u64 {
        let copy: File = file(&format!("copy {n}")).expect("a file");
        if rustix::fs::ioctl_ficlone(&copy, &source).is_err() {
            // The image cannot share blocks.
            return;
        }
        for part in 0..10 {
            copy.write_all_at(&[b'c'; 3000], part * 40000 + n * 5000).expect("room");
        }
    }
    let copy = file("fragments copy").expect("a file");
    rustix::fs::ioctl_ficlone(&copy, file("fragments").expect("a file")).expect("a copy");
}
