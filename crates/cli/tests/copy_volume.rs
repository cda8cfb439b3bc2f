//! A whole filesystem out of a disk and back: `cp disk.qcow2#1 out.img`. Other programs say what is on the disk.

mod common;

use common::trees::run;
use common::{fails, ok, xfskit};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use xfskit_testkit::{Scratch, kernel_mount, reference, scratch, skip};

const START: u64 = 1 << 20;
const SIZE: u64 = 320 << 20;

/// A raw disk with one partition that has an image with files, and the same disk as qcow2.
fn disks(scratch: &Scratch) -> Option<(PathBuf, PathBuf)> {
    for program in ["sfdisk", "qemu-img"] {
        if Command::new(program).arg("--version").output().is_err() {
            skip(&format!("{program} is not installed"));
            return None;
        }
    }
    let (raw, qcow2) = (scratch.image("disk.img", 400 << 20), scratch.file("disk.qcow2"));
    let mut sfdisk = Command::new("sfdisk").arg("-q").arg(&raw).stdin(Stdio::piped()).spawn().unwrap();
    write!(sfdisk.stdin.take().unwrap(), "label: gpt\nstart={},size={}\nstart={}\n", START / 512, SIZE / 512, 660_000)
        .unwrap();
    assert!(sfdisk.wait().unwrap().success());
    ok(&format!("mkfs -q {}#1", raw.display()), &raw);
    let files = scratch.file("files");
    fs::create_dir(&files).unwrap();
    (0..50).for_each(|n| fs::write(files.join(n.to_string()), vec![n as u8; n * 5000]).unwrap());
    ok(&format!("cp -r {} {}#1:/", files.display(), raw.display()), &raw);
    run(Command::new("qemu-img").args(["convert", "-O", "qcow2"]).args([&raw, &qcow2]));
    Some((raw, qcow2))
}

/// The volume on a raw disk.
fn volume(raw: &Path) -> Vec<u8> {
    let mut bytes = vec![0; SIZE as usize];
    File::open(raw).unwrap().read_exact_at(&mut bytes, START).unwrap();
    bytes
}

#[test]
fn a_volume_comes_out_of_a_disk_and_goes_back() {
    let scratch = scratch();
    let Some((raw, qcow2)) = disks(&scratch) else { return };
    let (part, out) = (format!("{}#1", qcow2.display()), scratch.file("out.img"));
    ok(&format!("cp {part} IMAGE"), &out);
    assert!(fs::read(&out).unwrap() == volume(&raw), "other bytes came out");
    let data = fs::metadata(&out).unwrap();
    assert!(data.blocks() * 512 < SIZE / 2, "{} blocks", data.blocks());
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&out);
    }
    // The kernel changes it, and it goes back.
    let Some(kernel) = kernel_mount(&out) else { return };
    fs::write(kernel.path().join("new"), "from the kernel").unwrap();
    fs::remove_file(kernel.path().join("files/7")).unwrap();
    kernel.unmount();
    ok(&format!("cp IMAGE {part}"), &out);
    let back = scratch.file("back.img");
    run(Command::new("qemu-img").args(["convert", "-O", "raw"]).args([&qcow2, &back]));
    assert!(volume(&back) == fs::read(&out).unwrap(), "other bytes went back");
    assert_eq!(ok(&format!("cat {part} /new"), &qcow2), "from the kernel");
    run(Command::new("qemu-img").arg("check").arg(&qcow2));
    // What lies around it stays.
    let around = |path: &Path| {
        let bytes = fs::read(path).unwrap();
        [&bytes[..START as usize], &bytes[(START + SIZE) as usize..]].concat()
    };
    assert!(around(&back) == around(&raw));
    // The unnamed one is the only XFS on the disk, and a partition goes into another disk.
    ok(&format!("cp {} {}#1", qcow2.display(), raw.display()), &qcow2);
    assert!(volume(&raw) == volume(&back));
}

#[test]
fn what_a_copy_of_a_volume_would_destroy_is_refused() {
    let scratch = scratch();
    let Some((raw, qcow2)) = disks(&scratch) else { return };
    let (part, out) = (format!("{}#1", qcow2.display()), scratch.file("out.img"));
    let refused = |line: &str, expected: i32, what: &str| {
        let before = fs::metadata(&raw).unwrap().mtime_nsec();
        let (code, message) = fails(line, &out);
        assert!(code == expected && message.contains(what), "{line}: {code}: {message}");
        assert_eq!(fs::metadata(&raw).unwrap().mtime_nsec(), before, "{line}");
    };
    fs::write(&out, "precious").unwrap();
    refused(&format!("cp {part} IMAGE"), 2, "-f replaces it");
    assert_eq!(fs::read(&out).unwrap(), b"precious");
    ok(&format!("cp -f {part} IMAGE"), &out);
    refused(&format!("cp -r {part} IMAGE"), 2, "a volume is copied as a whole");
    refused(&format!("cp {part} {}", scratch.path().display()), 2, "name the file");
    // Another size, another filesystem of the same kind, and another kind.
    refused(&format!("cp IMAGE {}#2", raw.display()), 2, "bytes, and the source");
    let other = scratch.image("other.img", SIZE);
    ok("mkfs -q IMAGE", &other);
    refused(&format!("cp {} {}#1", other.display(), raw.display()), 2, "another filesystem of its kind");
    let ext4 = scratch.image("ext4.img", SIZE);
    run(Command::new("mkfs.ext4").arg("-q").arg(&ext4));
    refused(&format!("cp {} {}#1", ext4.display(), raw.display()), 2, "-f overwrites it");
    let copied = xfskit(["cp", "-f", other.to_str().unwrap(), &format!("{}#1", raw.display())]);
    assert!(copied.status.success() && volume(&raw) == fs::read(&other).unwrap());
    // In use by others.
    let Some(kernel) = kernel_mount(&out) else { return };
    let (code, message) = fails(&format!("cp -f {part} IMAGE"), &out);
    assert!(code == 4, "{code}: {message}");
    let (code, message) = fails(&format!("cp IMAGE {part}"), &out);
    assert!(code == 4, "{code}: {message}");
    kernel.unmount();
}
