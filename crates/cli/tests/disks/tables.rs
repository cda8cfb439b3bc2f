//! Where a partition ends: one that grows, and ones that reach into others.

use crate::common::disks::{GPT, MIB, have, partition, run, run_with, sfdisk, table};
use crate::common::{fails, ok};
use crate::{PROGRAMS, operand};
use std::fs;
use std::path::Path;
use xfskit_testkit::{kernel_mount, reference, scratch};

/// A partition grows into the room behind it, its table with it, and then the filesystem.
#[test]
fn a_partition_and_its_filesystem_grow() {
    if !have(&PROGRAMS[1..]) {
        return;
    }
    let scratch = scratch();
    for (name, lines, number) in [("gpt.img", GPT, 2), ("mbr.img", "label: dos\nstart=1MiB,size=64MiB,type=83\n", 1)] {
        let disk = table(&scratch, name, lines, if number == 2 { MIB } else { 100 * MIB });
        let part = operand(&disk, &format!("#{number}"));
        ok("mkfs IMAGE -f -q --small", &part);
        ok("mkdir IMAGE /kept", &part);
        let (code, message) = fails("admin grow IMAGE 10G", &part);
        assert!(code == 2 && message.contains("its limit"), "{code} {message}");
        assert!(ok("admin grow IMAGE +10M", &part).contains("become"), "{name}");
        let size = |disk: &Path| {
            let table = sfdisk(disk);
            table["partitions"][number as usize - 1]["size"].as_u64().unwrap() * 512
        };
        assert_eq!(size(&disk), 74 * MIB, "{name}");
        // Without a size it takes all the room that there is.
        assert!(ok("admin grow IMAGE", &part).contains("become"), "{name}");
        assert!(size(&disk) > 100 * MIB, "{name}");
        run("sfdisk", &["--verify", disk.to_str().unwrap()]);
        assert!(ok("admin grow IMAGE", &part).contains("as before"), "{name}");
        assert_eq!(ok("ls IMAGE /", &part), "kept\n");
        let extracted = partition(&scratch, &disk, number);
        if let Some(reference) = reference() {
            reference.repair_finds_nothing(&extracted);
        }
        if let Some(mount) = kernel_mount(&extracted) {
            assert!(mount.path().join("kept").is_dir());
            let space = rustix::fs::statvfs(mount.path()).unwrap();
            assert!(space.f_blocks * space.f_frsize > 80 * MIB, "{name}: the kernel sees {} blocks", space.f_blocks);
        }
    }
    let boot = operand(&scratch.file("gpt.img"), "#1");
    assert_ne!(fails("admin grow IMAGE", &boot).0, 0);
}

/// A part that is named by its first byte ends where the partition ends, and what lies between two before the next.
#[test]
fn an_offset_reaches_no_other_partition() {
    if !have(&PROGRAMS[1..]) {
        return;
    }
    let scratch = scratch();
    let disk = table(&scratch, "gpt.img", GPT, MIB);
    let (root, boot) = (operand(&disk, "#2"), operand(&disk, "#offset=1M"));
    ok("mkfs IMAGE -f -q --small -L kept", &root);
    ok("mkfs IMAGE -f -q --small -L first", &boot);
    assert!(ok("admin grow IMAGE", &boot).contains("as before"));
    let (code, message) = fails("admin grow IMAGE 60M", &boot);
    assert!(code == 2 && message.contains("its limit"), "{code} {message}");
    assert!(ok("info IMAGE", &root).contains("\"kept\"") && ok("check IMAGE", &root).contains("no faults"));
    let (code, message) = fails("mkfs IMAGE -q --small", &operand(&disk, "#offset=33M"));
    assert!(code != 0, "{message}");
}

#[test]
fn partitions_that_overlap_are_named_and_not_written() {
    if !have(&PROGRAMS[1..]) {
        return;
    }
    let scratch = scratch();
    let disk = scratch.image("overlap.img", 168 * MIB);
    run_with("sfdisk", &["-q", "--force", disk.to_str().unwrap()], "label: dos\nstart=1MiB,size=80MiB\n");
    run_with("sfdisk", &["-q", "--force", "-a", disk.to_str().unwrap()], "start=90MiB,size=40MiB\n");
    ok("mkfs IMAGE -f -q --small", &operand(&disk, "#1"));
    // sfdisk makes no such table: the second entry's start is changed to 64 MiB.
    let mut bytes = fs::read(&disk).unwrap();
    bytes[446 + 16 + 8..446 + 16 + 12].copy_from_slice(&(64u32 * 2048).to_le_bytes());
    fs::write(&disk, bytes).unwrap();
    assert!(ok("info IMAGE", &disk).contains("have bytes in common"));
    for part in ["#1", "#2"] {
        let (_, message) = fails("mkfs IMAGE -f -q --small", &operand(&disk, part));
        assert!(message.contains("have bytes in common"), "{message}");
    }
    assert!(ok("check IMAGE", &operand(&disk, "#1")).contains("no faults"));
}
