//! What is on a disk is not written over by a slip.

use crate::common::disks::{GPT, MIB, have, run, run_with, table};
use crate::common::{fails, ok};
use crate::{PROGRAMS, operand};
use std::fs;
use std::os::unix::fs::FileExt;
use xfskit_testkit::scratch;

#[test]
fn mkfs_looks_at_the_part_before_it_writes() {
    if !have(&PROGRAMS) {
        return;
    }
    let scratch = scratch();
    let disk = table(&scratch, "gpt", GPT, MIB);
    let image = scratch.file("a.qcow2");
    run("qemu-img", &["convert", "-O", "qcow2", disk.to_str().unwrap(), image.to_str().unwrap()]);
    for disk in [&disk, &image] {
        let before = fs::read(disk).unwrap();
        for (line, part, what) in [
            ("mkfs IMAGE --small", "#1", "ext2, ext3 or ext4"),
            ("mkfs IMAGE --small --from /etc", "#1", "ext2, ext3 or ext4"),
            ("mkfs IMAGE --small", "", "a GPT partition table"),
            ("mkfs IMAGE --small --size 1G", "#2", "leave --size out"),
            ("mkfs IMAGE --small -b size=3", "#2", "-b size"),
            ("mkfs IMAGE", "#2", "too small"),
        ] {
            let (code, text) = fails(line, &operand(disk, part));
            // A raw disk as a whole is a file as every other.
            assert!(code == 2 && text.contains(what), "{line} {part}: {code} {text}");
        }
        assert_eq!(fails("mkfs IMAGE --small", &operand(disk, "#3")).0, 2);
        assert!(fs::read(disk).unwrap() == before);
        ok("mkfs --small -q --into IMAGE", &operand(disk, "#2"));
        let (code, text) = fails("mkfs IMAGE --small", &operand(disk, "#2"));
        assert!(code == 2 && text.contains("#2: it holds an XFS"), "{code} {text}");
        ok("mkfs IMAGE --small -q -f", &operand(disk, "#2"));
    }
    for line in ["mkfs IMAGE --size 1G", "mkfs IMAGE --from /etc/alternatives"] {
        let (code, text) = fails(line, &scratch.file("new.qcow2"));
        assert!(code == 2 && text.contains("qemu-img create"), "{line}: {code} {text}");
        assert!(!scratch.file("new.qcow2").exists());
    }
    // No file is made under a name that means a part of a disk that is not there.
    let (code, text) = fails("mkfs IMAGE --size 1G", &scratch.file("none.img#3"));
    assert!(code == 6 && text.contains("none.img: no such"), "{code} {text}");
    assert!(!scratch.file("none.img#3").exists());
}

/// One byte that is not zero, anywhere, is something.
#[test]
fn all_of_a_part_is_searched_before_it_is_written_over() {
    if !have(&PROGRAMS) {
        return;
    }
    let scratch = scratch();
    let disk = scratch.image("disk.img", 2048 * MIB);
    run_with("sfdisk", &["-q", disk.to_str().unwrap()], "label: gpt\nstart=1MiB\n");
    let part = operand(&disk, "#1");
    fs::File::options().write(true).open(&disk).unwrap().write_all_at(b"x", 700_123_456).unwrap();
    let (code, message) = fails("mkfs IMAGE -q", &part);
    assert!(code == 2 && message.contains("699074880 is not zero"), "{code} {message}");
    let image = scratch.file("disk.qcow2");
    run("qemu-img", &["convert", "-O", "qcow2", disk.to_str().unwrap(), image.to_str().unwrap()]);
    let (code, message) = fails("mkfs IMAGE -q", &operand(&image, "#1"));
    assert!(code == 2 && message.contains("is not zero"), "{code} {message}");
}
