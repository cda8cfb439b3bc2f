//! Options of a mount: those of xfs(5) and of lines that the kernel's XFS has.

mod common;

use common::mounts::prepared;
use common::{fails, ok};
use std::fs;
use std::os::unix::fs::MetadataExt;
use xfskit_testkit::{kernel_mount, reference, skip};

/// Options that the kernel's XFS takes and that have no meaning here, or the same.
const TAKEN: &[&str] = &[
    "ro,norecovery,nouuid",
    "rw,relatime,attr2,inode64,logbufs=8,logbsize=32k,noquota",
    "defaults,noatime,largeio,swalloc,allocsize=1m,nolargeio,sunit=8,swidth=64,noalign,filestreams,ikeep,noikeep",
    "rw,nosuid,nodev,lazytime,iversion,nofail,x-systemd.device-timeout=5,x-gvfs-show,_netdev,loop,discard,barrier",
    "sysvgroups,nogrpid,dax=inode,nolifetime,lifetime",
];
/// Options that ask for what a mount would not have.
const REFUSED: &[&str] =
    &["usrquota", "gquota", "pqnoenforce", "rtdev=/dev/null", "dax", "grpid", "offset=512", "uid=7"];

#[test]
fn a_line_of_the_kernels_xfs_is_taken() {
    let Some(prepared) = prepared() else { return };
    let mut lines: Vec<String> = TAKEN.iter().map(|line| (*line).to_owned()).collect();
    if let Some(kernel) = kernel_mount(&prepared.image) {
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let place = kernel.path().canonicalize().unwrap();
        let line = mounts.lines().find(|line| line.split(' ').nth(1) == place.to_str()).unwrap();
        lines.push(line.split(' ').nth(3).unwrap().to_owned());
        kernel.unmount();
    }
    for line in lines {
        prepared.line(&format!("mount -o {line} IMAGE DIR"));
        prepared.line("umount DIR");
    }
    for option in REFUSED {
        let line = format!("mount -o {option} IMAGE DIR").replace("DIR", prepared.dir.to_str().unwrap());
        let (code, message) = fails(&line, &prepared.image);
        assert!(code == 2 && message.contains(option) && !message.contains("no such option"), "{code}: {message}");
    }
    let line = "mount -o usrqota IMAGE DIR".replace("DIR", prepared.dir.to_str().unwrap());
    assert!(fails(&line, &prepared.image).1.contains("no such option"));
}

/// A program of 32 bits without large files gets EOVERFLOW from stat for a larger number.
#[test]
fn with_inode32_numbers_have_32_bits() {
    let Some(prepared) = prepared() else { return };
    fs::remove_file(&prepared.image).unwrap();
    if fs::File::create(&prepared.image).and_then(|file| file.set_len(8 << 40)).is_err() {
        return skip("the host has no files of 8 TiB");
    }
    ok("mkfs -q IMAGE", &prepared.image);
    let numbers = |options: &str, folder: &str| {
        prepared.line(&format!("mount -o {options} IMAGE DIR"));
        let made = (0..40).flat_map(|number| {
            let dir = prepared.dir.join(format!("{folder}{number}"));
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("file"), "contents").unwrap();
            [dir.metadata().unwrap().ino(), dir.join("file").metadata().unwrap().ino()]
        });
        let made: Vec<u64> = made.collect();
        // What has a large number stays, and files in it get small ones.
        let below = fs::read_dir(&prepared.dir).unwrap().map(|entry| {
            let path = entry.unwrap().path().join(folder);
            fs::write(&path, "").unwrap();
            path.metadata().unwrap().ino()
        });
        let below: Vec<u64> = below.collect();
        prepared.line("umount DIR");
        (made, below)
    };
    let is_large = |number: &u64| *number > u64::from(u32::MAX);
    assert!(numbers("inode64", "a").0.iter().any(is_large), "the image is too small for the test");
    let (made, below) = numbers("inode32", "b");
    assert!(!made.iter().chain(&below).any(is_large), "{made:?} {below:?}");
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&prepared.image);
    }
}
