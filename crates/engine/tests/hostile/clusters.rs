//! Inodes that are damaged on the device beside others that change: their wrong checksums stay.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xfskit_device::{Access, FileDevice};
use xfskit_engine::space::cluster::locate;
use xfskit_engine::{Caller, Error, MountOptions, NewFile, Permissions, SetAttr, Volume};
use xfskit_ondisk::{Geometry, InodeNumber, Lsn};
use xfskit_testkit::{Reference, Scratch};

/// Lists of unlinked inodes in an AG; the number of an inode says on which it is.
const LISTS: usize = 64;
/// Offset of the seconds of an inode's modification time.
const MTIME: u64 = 40;

fn open(path: &Path) -> Volume {
    let device = FileDevice::open(path, Access::Write).expect("an image");
    Volume::open(Arc::new(device), MountOptions::default()).expect("a sound image")
}

/// An image with `count` files in its root directory.
fn image_of_files(reference: &Reference, count: usize) -> (Scratch, PathBuf, Vec<InodeNumber>) {
    let scratch = xfskit_testkit::scratch();
    let path = scratch.image("a.img", 320 << 20);
    reference.mkfs(&path, &[]);
    let fs = open(&path);
    let make = |n: usize| fs.create(fs.root(), name(n).as_bytes(), &NewFile::file(0o644), &Caller::root());
    let files = (0..count).map(|n| make(n).expect("room").inode).collect();
    fs.unmount().expect("a clean end");
    (scratch, path, files)
}

fn name(n: usize) -> String {
    format!("f{n}")
}

/// Flips a bit of an inode on the device.
fn rot(path: &Path, geometry: &Geometry, inode: InodeNumber) {
    let (address, offset) = locate(geometry, inode).expect("an inode's place");
    let image = OpenOptions::new().read(true).write(true).open(path).expect("an image");
    let mut byte = [0];
    let at = address.bytes() + offset as u64 + MTIME;
    image.read_exact_at(&mut byte, at).expect("an inode");
    image.write_all_at(&[byte[0] ^ 4], at).expect("a device that takes it");
}

fn chmod(fs: &Volume, inode: InodeNumber, mode: u16) {
    let change = SetAttr { permissions: Some(Permissions::new(mode)), ..SetAttr::default() };
    fs.set_attr(inode, &change, &Caller::root()).expect("a sound inode");
}

/// Asserts that xfs_db, xfs_repair and we find a wrong checksum in the inode, and no other damage.
fn assert_rotten(reference: &Reference, path: &Path, inode: InodeNumber) {
    let checksum = reference.db(path, &[&format!("inode {}", inode.0), "print v3.crc"]);
    assert!(checksum.contains("(bad)"), "{checksum}");
    let findings = reference.repair_findings(path, None).expect("damage");
    assert!(findings.contains(&format!("bad CRC for inode {}", inode.0)), "{findings}");
    let error = open(path).stat(inode).expect_err("damage");
    assert!(matches!(&error, Error::Corrupt(found) if found.check == "checksum"), "{error}");
}

/// A bit of an inode has flipped on the device, and its neighbour changes. Write-back must not give the damaged inode a
/// new checksum, which would hide the damage.
#[test]
fn a_rotten_inode_is_not_made_right_by_a_change_beside_it() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let (_scratch, path, files) = image_of_files(&reference, 60);
    let fs = open(&path);
    let cluster = |inode| locate(&fs.mount().geometry, inode).unwrap().0;
    // The root directory's cluster is in memory from the start.
    let is_apart =
        |pair: &&[InodeNumber]| cluster(pair[0]) == cluster(pair[1]) && cluster(pair[0]) != cluster(fs.root());
    let pair = files.windows(2).find(is_apart).expect("two files of one cluster");
    rot(&path, &fs.mount().geometry, pair[1]);
    chmod(&fs, pair[0], 0o600);
    assert!(matches!(fs.stat(pair[1]), Err(Error::Corrupt(_))));
    fs.unmount().expect("a clean end");
    assert_rotten(&reference, &path, pair[1]);
    assert_eq!(open(&path).stat(pair[0]).expect("a sound inode").mode(), 0o100_600);
}

/// As before, but the rotten inode's own link of the unlinked list changes, while memory has the sound inode. The
/// change of the link sets no right checksum; write-back of the whole inode from memory does.
#[test]
fn a_rotten_inode_gets_the_right_checksum_only_when_it_is_written_from_memory() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let (_scratch, path, files) = image_of_files(&reference, 2 * LISTS);
    let fs = open(&path);
    let geometry = Arc::clone(&fs.mount().geometry);
    let (first, last) = (files[0], files[LISTS]);
    assert_eq!(first.0 % LISTS as u64, last.0 % LISTS as u64);
    let cluster = locate(&geometry, last).unwrap().0;
    assert_ne!(cluster, locate(&geometry, first).unwrap().0);
    // All inodes of the cluster change, so that its buffer leaves memory when they are written back.
    files
        .iter()
        .filter(|file| locate(&geometry, **file).unwrap().0 == cluster)
        .for_each(|file| chmod(&fs, *file, 0o600));
    for (n, inode) in [(0, first), (LISTS, last)] {
        write_back(&fs);
        if inode == last {
            rot(&path, &geometry, last);
        }
        fs.add_reference(inode).expect("a sound inode");
        fs.unlink(fs.root(), name(n).as_bytes(), &Caller::root()).expect("a sound inode");
    }
    // The inode is written back before its link may be.
    write_back(&fs);
    for inode in [first, last] {
        assert_eq!(fs.stat(inode).expect("a sound inode").links, 0);
        fs.drop_references(inode, 1).expect("a sound inode");
    }
    fs.unmount().expect("a clean end");
    reference.repair_finds_nothing(&path);
}

/// Writes everything back.
fn write_back(fs: &Volume) {
    fs.sync().expect("a device that works");
    while fs.mount().journal.push_tail(Lsn(u64::MAX)).expect("a device that works") > 0 {}
}
