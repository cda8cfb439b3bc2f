//! Label and UUID, beside xfs_admin, and read by blkid.

use crate::{SHAPES, device, fill, open};
use std::path::Path;
use std::process::Command;
use xfskit_engine::{Error, MountOptions, NewUuid, Volume};
use xfskit_testkit::{Reference, copy_image, kernel_mount, reference, scratch, scrub, skip, try_kernel_mount};

const NEW: [u8; 16] = *b"\x01\x23\x45\x67\x89\xab\x4d\xef\x81\x23\x45\x67\x89\xab\xcd\xef";
const NEW_TEXT: &str = "01234567-89ab-4def-8123-456789abcdef";

/// What blkid says of an image.
fn blkid(image: &Path, tag: &str) -> Option<String> {
    let Ok(output) = Command::new("blkid").args(["-p", "-o", "value", "-s", tag]).arg(image).output() else {
        skip("this machine has no blkid");
        return None;
    };
    Some(String::from_utf8(output.stdout).unwrap().trim_end_matches('\n').to_owned())
}

/// The first superblock, as xfs_db prints it, without what two programs need not write alike: LSN, checksum, counters,
/// and whether "no such inode" is 0 or all ones. Of the copies, which mkfs.xfs leaves unfinished, what names the image.
fn superblocks(reference: &Reference, image: &Path, ags: u32) -> Vec<String> {
    let print = |ag: u32| {
        let text = reference.db(image, &[&format!("sb {ag}"), "print"]);
        let starts = |line: &str, names: &[&str]| names.iter().any(|name| line.starts_with(name));
        let is_kept = |line: &&str| match ag {
            0 => !starts(line, &["lsn", "crc", "icount", "ifree", "fdblocks", "uquotino", "gquotino", "pquotino"]),
            _ => starts(line, &["uuid", "meta_uuid", "fname", "features", "dblocks", "agcount"]),
        };
        text.lines().filter(is_kept).collect::<Vec<_>>().join("\n")
    };
    (0..ags).map(print).collect()
}

/// A filled image, closed in good order, and its number of AGs.
fn make(reference: &Reference, image: &Path, options: &[&str]) -> u32 {
    std::fs::File::create(image).unwrap().set_len(320 << 20).unwrap();
    reference.mkfs(image, options);
    let fs = open(image);
    fill(&fs, 10);
    let ags = fs.geometry().ag_count;
    fs.unmount().unwrap();
    ags
}

/// Steps that xfs_admin makes and we make, each on what the one before left.
fn steps() -> Vec<(&'static str, &'static str, NewUuid)> {
    vec![
        ("-U", NEW_TEXT, NewUuid::Given(NEW)),
        ("-U", "nil", NewUuid::Nil),
        ("-U", "restore", NewUuid::Restored),
        ("-U", NEW_TEXT, NewUuid::Given(NEW)),
        ("-U", NEW_TEXT, NewUuid::Given(NEW)),
        ("-U", "restore", NewUuid::Restored),
        ("-U", "restore", NewUuid::Restored),
    ]
}

#[test]
fn superblocks_are_those_of_xfs_admin() {
    let Some(reference) = reference() else { return };
    for options in SHAPES {
        let folder = scratch();
        let (ours, theirs) = (folder.file("ours.img"), folder.file("theirs.img"));
        let ags = make(&reference, &ours, options);
        copy_image(&ours, &theirs);
        for (option, text, uuid) in steps() {
            let what = format!("{options:?}: {option} {text}");
            // xfs_admin is a script that needs a shell of its own; this is what it runs.
            let command = format!("uuid {text}");
            reference.tool_output("xfs_db", ["-x", "-p", "xfs_admin", "-c", &command, theirs.to_str().unwrap()]);
            open(&ours).set_uuid(uuid).unwrap();
            assert_eq!(superblocks(&reference, &ours, ags), superblocks(&reference, &theirs, ags), "{what}");
            reference.repair_finds_nothing(&ours);
            assert!(reference.log_is_clean(&ours), "{what}");
            if let (Some(mine), Some(other)) = (blkid(&ours, "UUID"), blkid(&theirs, "UUID")) {
                assert_eq!(mine, other, "{what}");
            }
            let Some(mount) = kernel_mount(&ours) else { return };
            std::fs::write(mount.path().join("written"), text).unwrap();
            mount.unmount();
            assert_eq!(open(&ours).superblock().uuid, open(&theirs).superblock().uuid);
        }
    }
}

#[test]
fn labels_are_those_of_xfs_admin_and_blkid_reads_them() {
    let Some(reference) = reference() else { return };
    for options in SHAPES {
        let folder = scratch();
        let (ours, theirs) = (folder.file("ours.img"), folder.file("theirs.img"));
        let ags = make(&reference, &ours, options);
        copy_image(&ours, &theirs);
        for label in ["data", "twelve-bytes", "é", ""] {
            let written = if label.is_empty() { "--" } else { label };
            let command = format!("label {written}");
            reference.tool_output("xfs_db", ["-x", "-p", "xfs_admin", "-c", &command, theirs.to_str().unwrap()]);
            let fs = open(&ours);
            fs.set_label(label.as_bytes()).unwrap();
            assert_eq!(fs.label(), label.as_bytes());
            fs.unmount().unwrap();
            assert_eq!(superblocks(&reference, &ours, ags), superblocks(&reference, &theirs, ags), "{label}");
            reference.repair_finds_nothing(&ours);
            let Some(found) = blkid(&ours, "LABEL") else { return };
            assert_eq!(found, label);
        }
    }
}

/// xfs_admin refuses such an image, or throws the journal away.
#[test]
fn a_dirty_journal_is_replayed_first() {
    let Some(reference) = reference() else { return };
    let folder = scratch();
    let image = folder.file("image");
    make(&reference, &image, &[]);
    let Some(mount) = kernel_mount(&image) else { return };
    std::fs::create_dir(mount.path().join("new")).unwrap();
    reference.shut_down(mount.path(), true);
    mount.unmount();
    assert!(!reference.log_is_clean(&image));
    let fs = open(&image);
    fs.set_label(b"dirty").unwrap();
    fs.set_uuid(NewUuid::Given(NEW)).unwrap();
    reference.repair_finds_nothing(&image);
    let tree = kernel_mount(&image).unwrap().into_tree();
    assert!(tree.iter().any(|entry| entry.path.ends_with("new")));
}

/// The kernel refuses a second filesystem of the same UUID.
#[test]
fn a_copy_with_another_uuid_is_mounted_beside_its_original() {
    let Some(reference) = reference() else { return };
    let folder = scratch();
    let (image, copy) = (folder.file("image"), folder.file("copy"));
    make(&reference, &image, &[]);
    copy_image(&image, &copy);
    // `nouuid` is among the options of the testkit; this takes it back.
    let Some(first) = mount_with_uuid(&image) else { return };
    let first = first.unwrap();
    let Some(refused) = mount_with_uuid(&copy) else { return };
    assert!(refused.is_err(), "the kernel mounts two filesystems of one UUID");
    open(&copy).set_uuid(NewUuid::Random).unwrap();
    let second = mount_with_uuid(&copy).unwrap().unwrap();
    std::fs::write(second.join("mine"), "copy").unwrap();
    assert!(!first.join("mine").exists());
    for place in [first, second] {
        assert!(Command::new("umount").arg(&place).status().unwrap().success());
        std::fs::remove_dir(place).unwrap();
    }
    reference.repair_finds_nothing(&copy);
}

/// Mounts an image by the kernel, with its check of UUIDs. `None` where nothing can be mounted.
fn mount_with_uuid(image: &Path) -> Option<Result<std::path::PathBuf, String>> {
    // Whether this machine can mount at all, and `CI` asks for it.
    drop(try_kernel_mount(&scratch().image("none", 1 << 20), None, &[])?);
    let place = image.with_extension("mounted");
    std::fs::create_dir_all(&place).unwrap();
    let output = Command::new("mount").args(["-i", "-t", "xfs", "-o", "loop"]).args([image, &place]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    Some(if output.status.success() { Ok(place) } else { Err(error) })
}

/// Between the record of any filesystem and the next one lie records with another UUID, and the kernel writes on.
#[test]
fn many_changes_and_the_kernels_work_between_them_leave_a_log_that_all_read() {
    let Some(reference) = reference() else { return };
    let folder = scratch();
    let image = folder.file("image");
    make(&reference, &image, &["-l", "size=64m"]);
    for round in 0..12u8 {
        let fs = open(&image);
        fill_round(&fs, round);
        fs.set_uuid(if round % 5 == 4 { NewUuid::Nil } else { NewUuid::Random }).unwrap();
        assert!(reference.log_is_clean(&image));
        let Some(mount) = kernel_mount(&image) else { return };
        std::fs::write(mount.path().join(format!("kernel {round}")), [round; 5000]).unwrap();
        if round % 3 == 0 {
            reference.shut_down(mount.path(), true);
        }
        mount.unmount();
    }
    let fs = open(&image);
    assert_eq!(fs.list_dir(fs.root()).unwrap().iter().filter(|entry| entry.name.starts_with(b"kernel")).count(), 12);
    fs.unmount().unwrap();
    reference.repair_finds_nothing(&image);
    let Some(verdicts) = scrub(&[image]) else { return };
    assert!(verdicts[0].ends_with("clean"), "{verdicts:?}");
}

fn fill_round(fs: &Volume, round: u8) {
    let me = xfskit_engine::Caller::root();
    for n in 0..20 {
        let name = format!("round {round} {n}");
        fs.create(fs.root(), name.as_bytes(), &xfskit_engine::NewFile::file(0o644), &me).unwrap();
    }
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let image = std::sync::Arc::new(xfskit_device::MemoryDevice::new(64 << 20));
    let options = xfskit_mkfs::Options { uuid: Some([7; 16]), allow_small: true, ..Default::default() };
    xfskit_mkfs::make(&*image, None, &options, Default::default()).unwrap();
    let before = image.to_bytes();
    let fs = Volume::open(image.clone(), MountOptions::read_only()).unwrap();
    assert!(matches!(fs.set_label(b"x"), Err(Error::ReadOnly)));
    assert!(matches!(fs.write_superblock_copies(), Err(Error::ReadOnly)));
    assert!(matches!(fs.set_uuid(NewUuid::Nil), Err(Error::ReadOnly)));
    assert!(image.to_bytes() == before);
    let fs = Volume::open(image, MountOptions::default()).unwrap();
    assert!(matches!(fs.set_label(b"thirteen byte"), Err(Error::Invalid(_))));
    assert!(matches!(fs.set_label(b"a\0b"), Err(Error::Invalid(_))));
}

/// The log lies on a device of its own, whose records carry the UUID.
#[test]
fn an_external_log_follows() {
    let Some(reference) = reference() else { return };
    let folder = scratch();
    let (image, log) = (folder.image("image", 320 << 20), folder.image("log", 100 << 20));
    reference.mkfs(&image, &["-l", &format!("logdev={},size=64m", log.display())]);
    let open = || Volume::open_with_log(device(&image), device(&log), MountOptions::default()).unwrap();
    let fs = open();
    fill(&fs, 5);
    fs.set_uuid(NewUuid::Given(NEW)).unwrap();
    assert_eq!(open().superblock().uuid, NEW);
    assert_eq!(reference.repair_findings(&image, Some(&log)), None);
    let Some(mount) = xfskit_testkit::kernel_mount_with(&image, Some(&log), &[]) else { return };
    mount.unmount();
}
