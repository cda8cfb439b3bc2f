//! `xfskit admin` and `info --export`: by their output and exit codes, beside xfs_repair, blkid and the kernel's mount.

mod common;

use common::loops::Loop;
use common::mounts::{SmallHost, prepared};
use common::{fails, image, ok};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use xfskit_device::{Access, FileDevice};
use xfskit_engine::{Caller, HostSpace, MountOptions, NewFile, Volume};
use xfskit_testkit::{kernel_mount, reference, scratch, skip};

const MIB: u64 = 1 << 20;

fn stored_mib(image: &Path) -> u64 {
    fs::metadata(image).unwrap().blocks() * 512 / MIB
}

/// Leaves an image with a file that only its journal has.
fn make_dirty(image: &Path) {
    let device = FileDevice::open(image, Access::Write).unwrap();
    let filesystem = Volume::open(Arc::new(device), MountOptions::default()).unwrap();
    filesystem.create(filesystem.root(), b"late", &NewFile::file(0o644), &Caller::root()).unwrap();
    filesystem.sync().unwrap();
}

#[test]
fn a_file_grows_with_its_filesystem() {
    let scratch = scratch();
    let image = image(&scratch);
    ok("mkdir IMAGE /dir", &image);
    make_dirty(&image);
    let text = ok("admin grow IMAGE 1G", &image);
    assert!(text.contains("131072 blocks of 4096 bytes become 262144, 4 AGs become 8"), "{text}");
    assert_eq!(fs::metadata(&image).unwrap().len(), 1 << 30);
    assert!(ok("ls IMAGE", &image).contains("late"), "the journal is replayed first");
    assert!(ok("admin grow IMAGE", &image).contains("as before"));
    ok("admin grow IMAGE +100M", &image);
    assert_eq!(fs::metadata(&image).unwrap().len(), (1 << 30) + 100 * MIB);
    File::options().write(true).open(&image).unwrap().set_len(2 << 30).unwrap();
    let json: serde_json::Value = serde_json::from_str(&ok("--json admin grow IMAGE", &image)).unwrap();
    assert_eq!(json["blocks"]["new"], 524_288);
    let Some(reference) = reference() else { return };
    reference.repair_finds_nothing(&image);
    let Some(mount) = kernel_mount(&image) else { return };
    assert!(mount.path().join("late").exists());
}

#[test]
fn what_is_refused_changes_nothing() {
    let scratch = scratch();
    let image = image(&scratch);
    make_dirty(&image);
    let before = fs::read(&image).unwrap();
    let refused = |line: &str, code: i32, words: &str| {
        let (found, message) = fails(line, &image);
        assert!(found == code && message.contains(words), "{line}: {found} {message}");
    };
    refused("admin grow IMAGE 100M", 2, "does not shrink");
    refused("admin grow IMAGE 10", 2, "does not shrink");
    refused("admin grow IMAGE much", 2, "expected a size");
    refused("admin label IMAGE more-than-twelve", 2, "12 bytes");
    refused("admin uuid IMAGE 1234", 2, "expected a UUID");
    refused("admin trim IMAGE --min x", 2, "expected a size");
    assert!(fs::read(&image).unwrap() == before);
    let text = scratch.file("text");
    fs::write(&text, "no image ".repeat(10_000)).unwrap();
    for command in ["grow IMAGE 1G", "label IMAGE x", "uuid IMAGE random", "trim IMAGE"] {
        assert_eq!(fails(&format!("admin {command}"), &text).0, 3, "{command}");
        assert_eq!(fails(&format!("admin {command}"), &scratch.file("none")).0, 6, "{command}");
    }
    assert_eq!(fs::read_to_string(&text).unwrap(), "no image ".repeat(10_000));
    let device = FileDevice::open(&image, Access::Read).unwrap();
    for command in ["grow IMAGE 1G", "label IMAGE x", "uuid IMAGE random", "trim IMAGE"] {
        assert_eq!(fails(&format!("admin {command}"), &image).0, 4, "{command}");
    }
    drop(device);
    assert!(fs::read(&image).unwrap() == before);
}

#[test]
fn a_block_device_is_as_large_as_it_is() {
    let scratch = scratch();
    let file = image(&scratch);
    File::options().write(true).open(&file).unwrap().set_len(700 * MIB).unwrap();
    let Some(device) = Loop::attach(&[], &file) else { return };
    let (code, message) = fails("admin grow IMAGE 1G", &device.0);
    assert!(code == 2 && message.contains("its limit"), "{code} {message}");
    assert!(ok("admin grow IMAGE", &device.0).contains("become 179200"));
    drop(device);
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&file);
    }
}

#[test]
fn label_and_uuid_are_shown_and_changed() {
    let scratch = scratch();
    let image = image(&scratch);
    assert_eq!(ok("admin label IMAGE", &image), "\n");
    ok("admin label IMAGE data", &image);
    assert_eq!(ok("admin label IMAGE", &image), "data\n");
    make_dirty(&image);
    let first = ok("admin uuid IMAGE", &image);
    let new = ok("admin uuid IMAGE random", &image);
    assert_ne!(first, new);
    assert_eq!(ok("admin uuid IMAGE", &image), new);
    assert!(ok("ls IMAGE", &image).contains("late"));
    let given = "01234567-89ab-4def-8123-456789abcdef\n";
    assert_eq!(ok(&format!("admin uuid IMAGE {}", given.trim()), &image), given);
    assert_eq!(ok("admin uuid IMAGE rewrite", &image), given);
    assert_eq!(ok("admin uuid IMAGE nil", &image), "00000000-0000-0000-0000-000000000000\n");
    assert_eq!(ok("admin uuid IMAGE restore", &image), first);
    let output = Command::new(env!("CARGO_BIN_EXE_xfskit")).args(["admin", "label"]).arg(&image).arg("").output();
    assert!(output.unwrap().status.success());
    assert_eq!(ok("admin label IMAGE", &image), "\n");
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&image);
    }
}

/// Variables that a shell has after it has read lines of a program.
fn variables(lines: &str) -> BTreeMap<String, String> {
    let script = format!("set -a; {lines}\nenv -0");
    let output = Command::new("env").args(["-i", "bash", "-c", &script]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split('\0').filter_map(|line| line.split_once('=')).map(|(n, v)| (n.to_owned(), v.to_owned())).collect()
}

#[test]
fn exported_variables_are_those_of_blkid() {
    let scratch = scratch();
    for (name, options) in [("a", "-L plain"), ("b", "-b size=1024 -L $(x)"), ("c", "-s size=4096"), ("d", "-L a'b")] {
        let image = scratch.file(name);
        ok(&format!("mkfs IMAGE --size 512M -q {options}"), &image);
        let ours = variables(&ok("info IMAGE --export", &image));
        let Ok(blkid) = Command::new("blkid").args(["-p", "-o", "full"]).arg(&image).output() else {
            return skip("this machine has no blkid");
        };
        let text = String::from_utf8(blkid.stdout).unwrap();
        let (_, fields) = text.split_once(": ").unwrap();
        let mut compared = 0;
        for field in fields.trim().split("\" ") {
            let (name, value) = field.split_once("=\"").unwrap();
            assert_eq!(ours.get(name).map(String::as_str), Some(value.trim_end_matches('"')), "{name} of {options}");
            compared += 1;
        }
        assert!(compared >= 4, "{text}");
        assert_eq!(ours.contains_key("LABEL"), text.contains("LABEL="), "{options}");
        assert_eq!(ours["XFS_JOURNAL"], "clean");
    }
}

#[test]
fn what_rm_frees_goes_back_on_request_and_what_is_free_by_a_trim() {
    let scratch = scratch();
    let (image, big) = (image(&scratch), scratch.file("big"));
    fs::write(&big, vec![0x5a; 200 << 20]).unwrap();
    let copy_in = format!("cp {} IMAGE:/", big.display()).replace("IMAGE", image.to_str().unwrap());
    ok(&copy_in, &image);
    let full = stored_mib(&image);
    ok("rm IMAGE /big", &image);
    assert!(stored_mib(&image) >= full - 1, "rm alone leaves the bytes on the host");
    let text = ok("admin trim IMAGE", &image);
    assert!(text.contains("given back; the file takes"), "{text}");
    let empty = stored_mib(&image);
    assert!(empty <= full - 199, "{empty} of {full} MiB");
    ok(&copy_in, &image);
    ok("rm --discard IMAGE /big", &image);
    assert!(stored_mib(&image) <= empty + 1);
    ok("admin trim --zero IMAGE", &image);
    assert!(stored_mib(&image) <= empty + 1, "a sparse file stays sparse");
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&image);
    }
}

/// It is called when the host is full: it must not ask for the journal's space first.
#[test]
fn a_trim_takes_no_space_of_the_host() {
    let scratch = scratch();
    let image = scratch.file("a.img");
    ok("mkfs -q --size 512M IMAGE", &image);
    let before = fs::metadata(&image).unwrap().blocks();
    for line in ["admin trim IMAGE", "admin trim --zero IMAGE"] {
        ok(line, &image);
        assert!(fs::metadata(&image).unwrap().blocks() <= before, "{line}");
    }
    let Some(host) = SmallHost::new(scratch.file("host"), "24m") else { return };
    let (full, filler) = (host.0.join("a.img"), host.0.join("filler"));
    assert!(Command::new("cp").arg("--sparse=always").args([&image, &full]).status().unwrap().success());
    // A file that is gone has left its bytes there, and the rest of the host is full.
    let device = FileDevice::open(&full, Access::Write).unwrap();
    let options = MountOptions { host_space: HostSpace::Least, ..MountOptions::default() };
    let filesystem = Volume::open(Arc::new(device), options).unwrap();
    let file = filesystem.create(filesystem.root(), b"gone", &NewFile::file(0o644), &Caller::root()).unwrap();
    filesystem.write_at(file.inode, 0, &vec![0x5a; 8 << 20]).unwrap();
    filesystem.sync().unwrap();
    filesystem.unlink(filesystem.root(), b"gone", &Caller::root()).unwrap();
    filesystem.unmount().unwrap();
    assert!(std::io::copy(&mut std::io::repeat(1), &mut File::create(&filler).unwrap()).is_err());
    let stored = fs::metadata(&full).unwrap().blocks();
    let text = ok("admin trim IMAGE", &full);
    let left = fs::metadata(&full).unwrap().blocks();
    assert!(left + (8 * MIB / 512) <= stored, "{left} of {stored} sectors: {text}");
    if let Some(reference) = reference() {
        let copy = scratch.file("copy");
        fs::copy(&full, &copy).unwrap();
        reference.repair_finds_nothing(&copy);
    }
}

#[test]
fn a_mount_is_labelled_and_trimmed_and_gives_back_what_is_freed() {
    let Some(prepared) = prepared() else { return };
    prepared.line("mount -o discard IMAGE DIR");
    prepared.line("admin label DIR live");
    assert_eq!(prepared.line("admin label DIR"), "live\n");
    assert!(prepared.line("info --export DIR").starts_with("LABEL=live\n"));
    let file = prepared.dir.join("file");
    fs::write(&file, vec![0x5a; 64 << 20]).unwrap();
    File::open(&file).unwrap().sync_all().unwrap();
    let full = stored_mib(&prepared.image);
    assert!(prepared.line("admin trim DIR").contains("given back"));
    assert!(fs::read(&file).unwrap() == vec![0x5a; 64 << 20]);
    assert!(stored_mib(&prepared.image) >= full - 8);
    for (line, words) in [("admin grow DIR", "comes first"), ("admin uuid DIR random", "comes first")] {
        let (code, message) = fails(&line.replace("DIR", prepared.dir.to_str().unwrap()), &prepared.image);
        assert!(code == 2 && message.contains(words), "{line}: {code} {message}");
    }
    assert_eq!(fails("admin label IMAGE x", &prepared.image).0, 4);
    fs::remove_file(&file).unwrap();
    prepared.line("umount DIR");
    assert!(stored_mib(&prepared.image) <= full - 63);
    assert_eq!(ok("admin label IMAGE", &prepared.image), "live\n");
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&prepared.image);
    }
}

/// A longer file would hide that its end is missing.
#[test]
fn an_image_that_was_cut_short_does_not_grow() {
    let scratch = scratch();
    let image = image(&scratch);
    let file = File::options().write(true).open(&image).unwrap();
    file.set_len(300 * MIB).unwrap();
    for line in ["admin grow IMAGE 1G", "admin grow IMAGE"] {
        let (code, message) = fails(line, &image);
        assert!(code == 3 && message.contains("cut short"), "{line}: {code} {message}");
        assert_eq!(file.metadata().unwrap().len(), 300 * MIB);
    }
}
