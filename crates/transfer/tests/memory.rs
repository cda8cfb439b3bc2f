//! Trees go into filesystems in memory, out as archives, and in again, and are the same; and through XFS.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use xfskit_engine::MountOptions;
use xfskit_testkit::scratch;
use xfskit_transfer::{Adjust, ImageSink, ImageSource, TarSink, TarSource, copy_in, transfer};
use xfskit_vfs::{Caller, FileType, InodeNumber, MemoryVolume, NewFile, SetMode, Volume};

const BYTES: u64 = 256 << 20;

/// A tree with further names, a hole, links, permissions of all kinds, and many files.
fn make(dir: &Path) {
    fs::create_dir_all(dir.join("a/b")).unwrap();
    fs::write(dir.join("a/file"), "contents").unwrap();
    fs::hard_link(dir.join("a/file"), dir.join("a/b/further name")).unwrap();
    symlink("../a/file", dir.join("a/link")).unwrap();
    fs::set_permissions(dir.join("a/file"), Permissions::from_mode(0o4751)).unwrap();
    fs::set_permissions(dir.join("a/b"), Permissions::from_mode(0o1777)).unwrap();
    File::create(dir.join("sparse")).unwrap().write_all_at(b"end", 5 << 20).unwrap();
    fs::write(dir.join("large"), [7; 300_000]).unwrap();
    for number in 0..300 {
        fs::write(dir.join(format!("a/b/{number}")), vec![number as u8; number]).unwrap();
    }
}

/// Everything that two filesystems must agree on, a line for each name, with the first name of the same file.
fn tree(volume: &dyn Volume) -> Vec<String> {
    let mut found = Vec::new();
    let mut names = std::collections::HashMap::<InodeNumber, String>::new();
    let mut next = vec![(String::new(), volume.root())];
    while let Some((path, inode)) = next.pop() {
        let stat = volume.stat(inode).unwrap();
        let first = names.entry(inode).or_insert_with(|| path.clone()).clone();
        let mut contents = Vec::new();
        match stat.file_type {
            FileType::Dir => {
                let mut entries = volume.list_dir(inode).unwrap();
                entries.sort_by(|a, b| a.name.cmp(&b.name));
                let path = |name: &[u8]| format!("{path}/{}", String::from_utf8_lossy(name));
                next.extend(entries.into_iter().rev().map(|entry| (path(&entry.name), entry.inode)));
            }
            FileType::Symlink => contents = volume.read_link(inode).unwrap(),
            FileType::File => {
                contents = vec![0; stat.size as usize];
                assert_eq!(volume.read_at(inode, 0, &mut contents).unwrap(), contents.len());
            }
            _ => {}
        }
        let mut xattrs = volume.list_xattrs(inode).unwrap();
        // What XFS notes of itself.
        xattrs.retain(|name| !name.starts_with(b"trusted.xfs:"));
        xattrs.sort();
        let xattrs: Vec<_> = xattrs.iter().map(|name| (name, volume.get_xattr(inode, name).unwrap())).collect();
        let sum = contents.iter().fold(contents.len() as u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
        let (mode, owner, mtime) = (stat.mode(), (stat.uid, stat.gid), stat.mtime);
        found.push(format!(
            "{path} {first} {mode:o} {owner:?} {} {} {mtime:?} {sum} {xattrs:?}",
            stat.links, stat.device
        ));
    }
    found
}

fn export(volume: &dyn Volume) -> Vec<u8> {
    let mut archive = Vec::new();
    let mut source = ImageSource::new(volume, volume.root(), b"", true);
    transfer(&mut source, &mut TarSink::new(&mut archive), &Adjust::default(), &()).unwrap();
    archive
}

fn import(volume: &dyn Volume, archive: &[u8]) {
    let mut sink = ImageSink::new(volume, volume.root()).unwrap();
    transfer(&mut TarSource::new(archive), &mut sink, &Adjust::default(), &()).unwrap();
}

/// Fills a filesystem from a folder of the host, and with what a folder may not have.
fn fill(volume: &dyn Volume, folder: &Path) {
    assert!(!copy_in(volume, folder, "/").unwrap().are_real());
    let root = Caller::root();
    let null = NewFile { device: 0x0103, ..NewFile::new(FileType::CharDevice, xfskit_vfs::Permissions::new(0o666)) };
    volume.create(volume.root(), b"null", &null, &root).unwrap();
    let large = volume.lookup(volume.root(), b"large").unwrap().inode;
    for name in [b"user.one".as_slice(), b"trusted.two", b"security.three"] {
        volume.set_xattr(large, name, name, SetMode::Create, &root).unwrap();
    }
}

fn goes_round(first: &dyn Volume, second: &dyn Volume) {
    let scratch = scratch();
    let folder = scratch.file("folder");
    make(&folder);
    fill(first, &folder);
    let archive = export(first);
    import(second, &archive);
    let (before, after) = (tree(first), tree(second));
    assert!(before.len() > 300);
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(after, before);
    }
    assert_eq!(after.len(), before.len());
    let sparse = second.lookup(second.root(), b"sparse").unwrap();
    assert!(sparse.blocks * 512 < 1 << 20, "the hole is one again");
    assert_eq!(export(second), archive);
}

fn xfs() -> Box<dyn Volume> {
    let device = Arc::new(xfskit_device::MemoryDevice::new(BYTES as usize));
    xfskit::create_on(device.clone(), &xfskit::MkfsOptions::new().small()).unwrap().close().unwrap();
    Box::new(xfskit_engine::Volume::open(device, MountOptions::default()).unwrap())
}

#[test]
fn a_tree_goes_from_memory_to_memory() {
    goes_round(&MemoryVolume::new(BYTES), &MemoryVolume::new(BYTES));
}

#[test]
fn a_tree_goes_from_memory_to_xfs_and_back() {
    goes_round(&MemoryVolume::new(BYTES), &*xfs());
    goes_round(&*xfs(), &MemoryVolume::new(BYTES));
}

#[test]
fn a_filesystem_in_memory_that_is_full_says_so() {
    let scratch = scratch();
    let folder = scratch.file("folder");
    make(&folder);
    let volume = MemoryVolume::new(200 << 10);
    assert!(copy_in(&volume, &folder, "/").unwrap_err().to_string().contains("no space left"));
}
