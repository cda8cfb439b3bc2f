//! Partition tables as sfdisk makes them.

mod common;

use common::{Loop, choose, file, have, is_root, open, put, run, run_with, superblock};
use std::path::Path;
use xfskit_device::{Access, BlockDevice};
use xfskit_disk::{DiskError, Disks, TableKind};

const MIB: u64 = 1 << 20;

/// sfdisk without its call of sync(), which waits for every filesystem of the machine.
fn sfdisk(disk: &Path, script: &str) {
    run_with("sfdisk", &["-q", "--no-tell-kernel", disk.to_str().unwrap()], script);
}

/// Compares the partitions with what sfdisk says of the same disk.
fn compare(disk: &str, disks: &Disks) {
    let json: serde_json::Value = serde_json::from_str(&run("sfdisk", &["--json", disk])).unwrap();
    let said = json["partitiontable"]["partitions"].as_array().unwrap();
    let table = disks.disks[0].table.as_ref().unwrap();
    let sector = json["partitiontable"]["sectorsize"].as_u64().unwrap();
    assert_eq!(table.partitions.len(), said.len(), "{disks}");
    for (ours, theirs) in table.partitions.iter().zip(said) {
        let node = theirs["node"].as_str().unwrap();
        assert!(node.ends_with(&ours.number.to_string()), "{node}: {ours:?}");
        assert_eq!(ours.offset, theirs["start"].as_u64().unwrap() * sector, "{ours:?}");
        assert_eq!(ours.length, theirs["size"].as_u64().unwrap() * sector, "{ours:?}");
        let kind = theirs["type"].as_str().unwrap().to_lowercase();
        assert_eq!(ours.kind.trim_start_matches('0'), kind.trim_start_matches('0'));
        assert_eq!(ours.name.as_deref(), theirs["name"].as_str());
        if let Some(uuid) = theirs["uuid"].as_str() {
            assert_eq!(ours.uuid.as_deref(), Some(&*uuid.to_lowercase()));
        }
    }
}

fn gpt(dir: &Path) -> std::path::PathBuf {
    let disk = dir.join("gpt.img");
    file(&disk, 64 * MIB);
    sfdisk(&disk, "label: gpt\nstart=1MiB,size=8MiB,name=boot\nstart=10MiB,size=20MiB,name=\"a b\"\nsize=16MiB\n");
    put(&disk, 10 * MIB, &superblock("root", 7));
    disk
}

#[test]
fn a_gpt_of_sfdisk() {
    if !have("sfdisk") {
        return;
    }
    let dir = xfskit_testkit::scratch();
    let disk = gpt(dir.path());
    let name = disk.to_str().unwrap();
    let disks = open(name, Access::Read).unwrap();
    compare(name, &disks);
    assert_eq!(disks.disks[0].table.as_ref().unwrap().kind, TableKind::Gpt { sector_bytes: 512 });
    assert!(disks.disks[0].warnings.is_empty());
    drop(disks);
    let uuid = uuid::Uuid::from_bytes([7; 16]);
    for part in ["", "#2", "#label=root", "#partlabel=a b", &format!("#uuid={uuid}")] {
        let device = choose(&format!("{name}{part}"), Access::Write).unwrap();
        assert_eq!(device.size_bytes(), 20 * MIB);
        let mut magic = [0; 4];
        device.read(0, &mut magic).unwrap();
        assert_eq!(&magic, b"XFSB");
    }
    for part in ["#4", "#label=x", "#uuid=x", "#partlabel=x", "#partuuid=x", "#lv=a/b"] {
        let error = choose(&format!("{name}{part}"), Access::Read).err().unwrap();
        assert!(matches!(error, DiskError::Part { .. }) && error.to_string().contains("label \"root\""), "{error}");
    }
    // It lies in partition 2, "a b", and ends with it.
    assert_eq!(choose(&format!("{name}#offset=10M"), Access::Read).unwrap().size_bytes(), 20 * MIB);
    assert_eq!(choose(&format!("{name}#whole"), Access::Read).unwrap().size_bytes(), 64 * MIB);
    assert!(choose(&format!("{name}#offset=64M"), Access::Read).is_err());
}

#[test]
fn a_gpt_with_partitions_that_are_not_in_order() {
    if !have("sfdisk") {
        return;
    }
    let dir = xfskit_testkit::scratch();
    let disk = dir.file("d.img");
    file(&disk, 64 * MIB);
    let entries = "d.img7 : start=40960,size=8MiB,name=\"d\u{e4}ta\"\nd.img2 : start=2048,size=3000\n\
                   d.img128 : start=90000,size=2\n";
    sfdisk(&disk, &format!("label: gpt\n{entries}"));
    let disks = open(disk.to_str().unwrap(), Access::Read).unwrap();
    assert_eq!(disks.disks[0].table.as_ref().unwrap().partitions.len(), 3);
    compare(disk.to_str().unwrap(), &disks);
}

#[test]
fn a_gpt_with_sectors_of_4096_bytes() {
    if !have("sfdisk") || !is_root() {
        return;
    }
    let dir = xfskit_testkit::scratch();
    let disk = dir.file("4k.img");
    file(&disk, 64 * MIB);
    let device = Loop::new(&disk, 4096);
    sfdisk(Path::new(&device.0), "label: gpt\nstart=1MiB,size=8MiB,name=boot\nstart=10MiB,size=20MiB,name=root\n");
    let said = run("sfdisk", &["--json", &device.0]);
    drop(device);
    put(&disk, 10 * MIB, &superblock("root", 7));
    let disks = open(disk.to_str().unwrap(), Access::Read).unwrap();
    let table = disks.disks[0].table.as_ref().unwrap();
    assert_eq!(table.kind, TableKind::Gpt { sector_bytes: 4096 });
    let json: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(json["partitiontable"]["partitions"][1]["start"].as_u64().unwrap() * 4096, table.partitions[1].offset);
    assert_eq!(disks.disks[0].partitions[1].contents.label.as_deref(), Some("root"));
}

#[test]
fn the_backup_is_used_where_the_primary_is_damaged() {
    if !have("sfdisk") {
        return;
    }
    let damages: [(u64, &[u8], &str); 4] = [
        (512, &[0; 512], "its header is gone"),
        (512 + 40, &[1], "the checksum of its header is wrong"),
        (1024 + 56, b"x", "the checksum of its entries is wrong"),
        (512 + 12, &[0xff; 4], "the size of its header is wrong"),
    ];
    for (offset, bytes, why) in damages {
        let dir = xfskit_testkit::scratch();
        let disk = gpt(dir.path());
        let name = disk.to_str().unwrap();
        let before = open(name, Access::Read).unwrap().disks[0].table.clone().unwrap();
        put(&disk, offset, bytes);
        let after = open(name, Access::Read).unwrap();
        assert_eq!(after.disks[0].table.as_ref().unwrap().partitions, before.partitions, "{why}");
        assert!(after.disks[0].warnings[0].contains(why), "{:?}", after.disks[0].warnings);
        drop(after);
        // With the backup damaged too there is no partition, but the reason.
        put(&disk, 64 * MIB - 512 + 16, &[1; 4]);
        let neither = open(name, Access::Read).unwrap();
        assert!(neither.disks[0].partitions.is_empty());
        if why != "its header is gone" {
            assert!(neither.disks[0].warnings[0].contains("both copies"), "{neither}");
        }
    }
}

#[test]
fn a_gpt_without_its_mbr_is_used_and_one_behind_another_mbr_is_not() {
    if !have("sfdisk") {
        return;
    }
    let dir = xfskit_testkit::scratch();
    let disk = gpt(dir.path());
    let name = disk.to_str().unwrap();
    put(&disk, 0, &[0; 512]);
    let disks = open(name, Access::Read).unwrap();
    assert_eq!((disks.disks[0].partitions.len(), disks.disks[0].warnings.len()), (3, 1));
    drop(disks);
    let mut mbr = vec![0; 512];
    mbr[446 + 4] = 0x83;
    mbr[446 + 9] = 8;
    mbr[446 + 13] = 8;
    mbr[510..].copy_from_slice(&[0x55, 0xaa]);
    put(&disk, 0, &mbr);
    let disks = open(name, Access::Read).unwrap();
    assert_eq!(disks.disks[0].table.as_ref().unwrap().kind, TableKind::Mbr);
    drop(disks);
    put(&disk, 0, &superblock("whole", 1));
    let disks = open(name, Access::Read).unwrap();
    assert!(disks.disks[0].table.is_none() && disks.disks[0].whole.contents.is_xfs(), "{disks}");
}

#[test]
fn an_mbr_with_logical_partitions() {
    if !have("sfdisk") {
        return;
    }
    let dir = xfskit_testkit::scratch();
    let disk = dir.file("mbr.img");
    file(&disk, 128 * MIB);
    let script = "label: dos\nlabel-id: 0x1234abcd\nstart=1MiB,size=8MiB,type=83\nstart=20MiB,type=f\n\
                  start=21MiB,size=8MiB,type=83\nstart=40MiB,size=8MiB,type=83\nstart=50MiB,size=8MiB,type=82\n";
    sfdisk(&disk, script);
    put(&disk, MIB, &superblock("one", 1));
    put(&disk, 40 * MIB, &superblock("six", 6));
    let name = disk.to_str().unwrap();
    let disks = open(name, Access::Read).unwrap();
    compare(name, &disks);
    let count = disks.disks[0].partitions.len();
    drop(disks);
    // Left of a FAT over the whole disk: the boot code that a loader kept.
    put(&disk, 54, b"MSDOS5.0");
    put(&disk, 82, b"MSWIN4.1");
    let disks = open(name, Access::Read).unwrap();
    assert_eq!(disks.disks[0].partitions.len(), count);
    assert!(disks.disks[0].warnings.is_empty(), "{disks}");
    drop(disks);
    let error = choose(name, Access::Read).err().unwrap().to_string();
    assert!(error.contains("several XFS") && error.contains("#6"), "{error}");
    assert!(choose(&format!("{name}#2"), Access::Read).is_err());
    for part in ["#6", "#label=six", "#partuuid=1234abcd-06"] {
        let device = choose(&format!("{name}{part}"), Access::Write).unwrap();
        assert_eq!(device.size_bytes(), 8 * MIB);
        device.write(4096, b"here").unwrap();
        device.flush().unwrap();
        drop(device);
        assert_eq!(&std::fs::read(&disk).unwrap()[40 * MIB as usize + 4096..][..4], b"here");
        put(&disk, 40 * MIB + 4096, b"away");
    }
}

#[test]
fn a_disk_that_was_cut_short_is_read_and_not_written() {
    if !have("sfdisk") {
        return;
    }
    let dir = xfskit_testkit::scratch();
    let disk = gpt(dir.path());
    let name = disk.to_str().unwrap();
    std::fs::OpenOptions::new().write(true).open(&disk).unwrap().set_len(20 * MIB).unwrap();
    let device = choose(name, Access::Read).unwrap();
    assert_eq!(device.size_bytes(), 10 * MIB);
    drop(device);
    let error = choose(&format!("{name}#2"), Access::Write).err().unwrap().to_string();
    assert!(error.contains("past the end"), "{error}");
}

#[test]
fn a_disk_is_locked_as_a_whole() {
    if !have("sfdisk") {
        return;
    }
    let dir = xfskit_testkit::scratch();
    let disk = gpt(dir.path());
    let name = disk.to_str().unwrap();
    let device = choose(&format!("{name}#2"), Access::Write).unwrap();
    let error = choose(&format!("{name}#1"), Access::Write).err().unwrap();
    assert!(matches!(error, DiskError::Open(xfskit_device::OpenError::Busy(_))), "{error}");
    drop(device);
    choose(&format!("{name}#1"), Access::Write).unwrap();
}
