//! What the commands say of a dirty or damaged journal is what recovery makes of it, xfskit's and the kernel's.

mod common;

use common::{fails, ok, words, xfskit};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xfskit_device::{Access, FileDevice};
use xfskit_engine::{Caller, MountOptions, NewFile, Volume};
use xfskit_testkit::{Scratch, scratch, try_kernel_mount};

const MIB: usize = 1 << 20;

/// An image of 64 MiB whose journal has a record for each of so many files and was not closed.
fn dirty_image(scratch: &Scratch, files: usize) -> Vec<u8> {
    let image = scratch.file("dirty.img");
    ok("mkfs -q -f --small --size 64M IMAGE", &image);
    let device = Arc::new(FileDevice::open(&image, Access::Write).unwrap());
    let filesystem = Volume::open(device, MountOptions::default()).unwrap();
    for n in 0..files {
        let name = format!("file{n}");
        let made = filesystem.create(filesystem.root(), name.as_bytes(), &NewFile::file(0o644), &Caller::root());
        filesystem.fsync(made.unwrap().inode).unwrap();
    }
    let bytes = fs::read(&image).unwrap();
    drop(filesystem);
    bytes
}

fn records(image: &[u8]) -> Vec<usize> {
    (0..image.len()).step_by(512).filter(|&at| image[at..].starts_with(&[0xfe, 0xed, 0xba, 0xbe])).collect()
}

/// What a command prints as JSON, if anything, and its exit code.
fn json(line: &str, image: &Path) -> (i32, Value) {
    let output = xfskit(words(line, image));
    (output.status.code().unwrap(), serde_json::from_slice(&output.stdout).unwrap_or_default())
}

/// What is said of the journal of a partition.
fn state_in_a_partition(scratch: &Scratch, image: &[u8]) -> String {
    let mut disk = vec![0; MIB];
    let sectors = |bytes: usize| u32::try_from(bytes / 512).unwrap().to_le_bytes();
    disk[446 + 4] = 0x83;
    disk[446 + 8..446 + 12].copy_from_slice(&sectors(MIB));
    disk[446 + 12..446 + 16].copy_from_slice(&sectors(image.len()));
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk.extend(image);
    let path = scratch.file("disk");
    fs::write(&path, disk).unwrap();
    let (_, tree) = json("--json info IMAGE", &path);
    tree["disks"][0]["table"]["partitions"][0]["contents"]["journal"].as_str().unwrap().into()
}

/// The names that the kernel finds after its recovery: none if it refuses the image. `None` without such a kernel.
fn names_by_the_kernel(image: &Path) -> Option<Option<usize>> {
    let mount = try_kernel_mount(image, None, &[])?.ok();
    Some(mount.map(|mount| {
        let count = fs::read_dir(mount.path()).unwrap().count();
        mount.unmount();
        count
    }))
}

/// All commands must say the same of an image, and what a mount would find. Returns that: a state and names.
fn verdict(scratch: &Scratch, bytes: &[u8], what: &str) -> (String, usize) {
    let image: PathBuf = scratch.file("image");
    fs::write(&image, bytes).unwrap();
    let listed = xfskit(words("ls IMAGE", &image));
    let names = String::from_utf8(listed.stdout).unwrap().lines().count();
    let (info_code, info) = json("--json info IMAGE", &image);
    let (print_code, print) = json("--json log print IMAGE", &image);
    let (check_code, check) = json("--json check IMAGE", &image);
    let in_partition = state_in_a_partition(scratch, bytes);
    let codes = [listed.status.code().unwrap(), info_code, print_code, check_code];
    assert!(fs::read(&image).unwrap() == bytes, "{what}: the image was changed");
    // The kernel replays some journals that are refused here (docs/design/recovery.md).
    if let Some(kernels) = names_by_the_kernel(&image).filter(|_| codes[0] == 0) {
        assert_eq!(Some(names), kernels, "{what}");
    }
    if codes[0] != 0 {
        assert_eq!(codes, [3, 3, 3, 1], "{what}");
        assert!(in_partition.starts_with("damaged"), "{what}: {in_partition}");
        let faults = check["faults"].as_array().unwrap();
        assert!(faults.iter().any(|fault| fault["check"] == "can be replayed"), "{what}: {check}");
        return ("damaged".into(), 0);
    }
    assert_eq!(codes, [0; 4], "{what}: {check}");
    let state = info["log"]["state"].as_str().unwrap().to_owned();
    assert_eq!((print["state"].as_str().unwrap(), in_partition.as_str()), (&*state, &*state), "{what}");
    // What is left out is said by all of them.
    let left_out = print["recovery"]["torn_bytes"].as_u64().unwrap_or(0);
    assert_eq!(check["notes"].to_string().contains("no whole record"), left_out > 0, "{what}: {check} {print}");
    assert_eq!(String::from_utf8_lossy(&listed.stderr).contains("no whole record"), left_out > 0, "{what}");
    (state, names)
}

#[test]
fn all_commands_say_the_same_of_a_journal_with_a_damaged_record() {
    let scratch = scratch();
    let dirty = dirty_image(&scratch, 3);
    let of_whole = verdict(&scratch, &dirty, "whole");
    assert_eq!(of_whole, ("dirty".into(), 3));
    let records = records(&dirty);
    assert!((4..8).contains(&records.len()), "{records:?}");
    let mut states = std::collections::BTreeSet::new();
    for (number, record) in records.iter().enumerate().skip(1) {
        // Its magic number, its length, and what it contains.
        for place in [0, 13, 600] {
            let mut bytes = dirty.clone();
            bytes[record + place] ^= 0x55;
            states.insert(verdict(&scratch, &bytes, &format!("byte {place} of record {number}")));
        }
    }
    let has = |state: &str, names: usize| states.contains(&(state.to_owned(), names));
    assert!(has("clean", 0) && has("dirty", 1) && has("dirty", 2), "{states:?}");
}

/// Behind it there are records that were written when it was durable: it did not end in a crash.
#[test]
fn all_commands_refuse_a_journal_that_is_damaged_further_back() {
    let scratch = scratch();
    let mut bytes = dirty_image(&scratch, 14);
    let second = records(&bytes)[2];
    bytes[second + 600] ^= 0x55;
    assert_eq!(verdict(&scratch, &bytes, "an old record").0, "damaged");
    let image = scratch.file("image");
    for line in ["ls IMAGE", "info IMAGE", "mkdir IMAGE /new", "log replay IMAGE", "log print IMAGE"] {
        let (code, message) = fails(line, &image);
        let says = ["corrupt log", "--norecovery", "`xfskit check`"];
        assert!(code == 3 && says.iter().all(|part| message.contains(part)), "{line}: {code} {message}");
    }
    // What is on disk can be seen all the same.
    ok("ls --norecovery IMAGE", &image);
    assert_eq!(fails("check --norecovery IMAGE", &image).0, 4);
}
