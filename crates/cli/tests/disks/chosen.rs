//! Which part of a disk is meant, and what a disk is shown to have.

use crate::common::disks::{GPT, MBR, MIB, copy, have, run, sfdisk, table};
use crate::common::{fails, ok, xfskit};
use crate::{PROGRAMS, operand};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use xfskit_testkit::scratch;

#[test]
fn info_shows_what_sfdisk_and_blkid_say() {
    if !have(&PROGRAMS) || !have(&["blkid"]) {
        return;
    }
    let scratch = scratch();
    for (label, layout, ext4, xfs) in [("gpt", GPT, 1, 34), ("mbr", MBR, 67, 100)] {
        let disk = table(&scratch, label, layout, ext4 * MIB);
        let number = if label == "gpt" { 2 } else { 6 };
        ok("mkfs IMAGE -q --small -L data", &operand(&disk, &format!("#{number}")));
        let found: Value = serde_json::from_str(&ok("--json info IMAGE", &disk)).unwrap();
        let ours = &found["disks"][0]["table"];
        let theirs = sfdisk(&disk);
        assert_eq!(ours["kind"], theirs["label"]);
        let partitions = theirs["partitions"].as_array().unwrap();
        assert_eq!(ours["partitions"].as_array().unwrap().len(), partitions.len());
        for (ours, theirs) in ours["partitions"].as_array().unwrap().iter().zip(partitions) {
            assert_eq!(ours["offset"], json!(theirs["start"].as_u64().unwrap() * 512));
            assert_eq!(ours["size_bytes"], json!(theirs["size"].as_u64().unwrap() * 512));
            assert_eq!(ours["name"], theirs["name"]);
            if label == "gpt" {
                assert_eq!(ours["uuid"].as_str().unwrap(), theirs["uuid"].as_str().unwrap().to_lowercase());
                assert_eq!(ours["type"].as_str().unwrap(), theirs["type"].as_str().unwrap().to_lowercase());
            }
        }
        for (offset, index) in [(ext4, if label == "gpt" { 0 } else { 2 }), (xfs, if label == "gpt" { 1 } else { 3 })] {
            let offset = (offset * MIB).to_string();
            let blkid = run("blkid", &["-p", "-O", &offset, "-o", "export", disk.to_str().unwrap()]);
            let value = |key: &str| blkid.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            let contents = &ours["partitions"][index]["contents"];
            assert_eq!(contents["format"].as_str(), value("TYPE"), "{blkid}");
            assert_eq!(contents["label"].as_str(), value("LABEL"), "{blkid}");
            assert_eq!(contents["uuid"].as_str(), value("UUID"), "{blkid}");
        }
        let text = ok("info IMAGE", &disk);
        assert!(text.contains("xfs, label \"data\", journal clean, uuid ") && text.contains("ext4"), "{text}");
        // The only XFS is found without a part, and by what it is called.
        let uuid =
            found["disks"][0]["table"]["partitions"][number as usize - if label == "gpt" { 1 } else { 3 }]["contents"]
                ["uuid"]
                .as_str()
                .unwrap()
                .to_owned();
        assert_eq!(ok("ls IMAGE", &disk), "");
        for part in ["#label=data".into(), format!("#uuid={uuid}"), format!("#offset={xfs}M")] {
            assert!(ok("info IMAGE", &operand(&disk, &part)).contains("label    =\"data\""), "{part}");
        }
    }
}

#[test]
fn what_cannot_be_chosen_is_listed() {
    if !have(&PROGRAMS) {
        return;
    }
    let scratch = scratch();
    let disk = table(&scratch, "mbr", MBR, 67 * MIB);
    let (code, text) = fails("ls IMAGE", &disk);
    assert!(code == 3 && text.contains("no XFS filesystem on it; there is:") && text.contains("#5"), "{code} {text}");
    ok("mkfs IMAGE -q --small -L one", &operand(&disk, "#1"));
    ok("mkfs IMAGE -q --small -L two", &operand(&disk, "#6"));
    let mount = format!("mount IMAGE {}", scratch.path().display());
    for line in ["ls IMAGE", "touch IMAGE /x", "log replay IMAGE", mount.as_str(), "export IMAGE"] {
        let (code, text) = fails(line, &disk);
        assert!(code == 2 && text.contains("label \"one\"") && text.contains("label \"two\""), "{line}: {code} {text}");
    }
    assert_eq!(fails("check IMAGE", &disk).0, 16);
    for (part, code, what) in [
        ("#7", 2, "no such part"),
        ("#2", 7, "extended partition"),
        ("#5", 3, "ext2, ext3 or ext4"),
        ("#nonsense", 2, "a part is #NUMBER"),
        ("#label=three", 2, "no such part"),
    ] {
        let got = fails("ls IMAGE", &operand(&disk, part));
        assert!(got.0 == code && got.1.contains(what), "{part}: {got:?}");
    }
    // A file of that very name wins.
    let (odd, other) = (operand(&disk, "#1"), scratch.file("other"));
    ok("mkfs IMAGE -q --small --size 32M -L odd", &other);
    fs::rename(&other, scratch.file("odd#1")).unwrap();
    ok("mkfs IMAGE -q --small --size 32M", &scratch.file("odd"));
    assert!(ok("info IMAGE", &scratch.file("odd#1")).contains("label    =\"odd\""));
    assert!(ok("info IMAGE", &odd).contains("label    =\"one\""));
}

/// A virtual disk may name any file that the user may read.
#[test]
fn a_disk_that_names_files_elsewhere_is_warned_of() {
    if !have(&["qemu-img"]) {
        return;
    }
    let scratch = scratch();
    let folder = scratch.file("other");
    fs::create_dir(&folder).unwrap();
    let base = folder.join("base.img");
    ok("mkfs IMAGE --size 400M -q", &base);
    let (near, far) = (scratch.file("near.qcow2"), scratch.file("far.qcow2"));
    let make = |image: &Path, base: &Path| {
        run(
            "qemu-img",
            &["create", "-q", "-f", "qcow2", "-F", "raw", "-b", base.to_str().unwrap(), image.to_str().unwrap()],
        );
    };
    make(&far, &base);
    copy(&base, &scratch.file("beside.img"), 0, 400 * MIB);
    make(&near, Path::new("beside.img"));
    let warned =
        |image: &Path| String::from_utf8(xfskit(["ls".as_ref(), image.as_os_str(), "/".as_ref()]).stderr).unwrap();
    assert!(warned(&far).contains("other/base.img, whose contents are shown"), "{}", warned(&far));
    assert!(!warned(&near).contains("whose contents"), "{}", warned(&near));
}

/// A filesystem that xfskit does not support must not be called damaged: that would lead people to xfs_repair -L.
#[test]
fn info_names_what_is_not_supported() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    if !have(&["sfdisk"]) {
        return;
    }
    let scratch = scratch();
    let disk = scratch.image("disk", 302 * MIB);
    crate::common::disks::run_with("sfdisk", &["-q", disk.to_str().unwrap()], "label: gpt\nstart=1MiB,size=300MiB\n");
    for (options, reason) in [
        (&["-m", "crc=0"][..], "version 4"),
        (&["-n", "version=ci"], "ascii-ci"),
        (&["-m", "metadir=1"], "metadir"),
        (&["-r", "rtdev=RT"], "realtime"),
    ] {
        let (part, realtime) = (scratch.image("part", 300 * MIB), scratch.image("realtime", 300 * MIB));
        let realtime = format!("rtdev={}", realtime.display());
        let options: Vec<&str> =
            options.iter().map(|word| if *word == "rtdev=RT" { &realtime } else { *word }).collect();
        reference.mkfs(&part, &options);
        copy(&part, &disk, MIB, 300 * MIB);
        let text = ok("info IMAGE", &disk);
        assert!(text.contains("not supported") && text.contains(reason) && !text.contains("damaged"), "{text}");
        let found: Value = serde_json::from_str(&ok("--json info IMAGE", &disk)).unwrap();
        let contents = &found["disks"][0]["table"]["partitions"][0]["contents"];
        assert_eq!(contents["journal"], Value::Null);
        assert!(contents["unsupported"].as_str().unwrap().contains(reason), "{contents}");
        let (code, text) = fails("info IMAGE", &operand(&disk, "#1"));
        assert!(code == 7 && text.contains(reason), "{text}");
    }
}
