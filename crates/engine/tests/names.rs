//! Directories and attributes in every form: made by the kernel and read by us, made by us and read by the kernel.

mod common;

use common::{add_attr, colliding, make_inode, remove_attr};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use xfskit_device::{Access, FileDevice};
use xfskit_engine::attr::{self, Attr, flags};
use xfskit_engine::dir::{self, FileType};
use xfskit_engine::error::Result;
use xfskit_engine::mount::Mount;
use xfskit_engine::trans::{InoId, Transaction};
use xfskit_engine::{Caller, LastLink, MountOptions, SetMode, Volume};
use xfskit_ondisk::InodeNumber;
use xfskit_testkit::{Reference, Scratch, kernel_mount, reference, scratch};

/// Block size, directory block size.
const SHAPES: [(u32, u32); 5] = [(1024, 4096), (4096, 4096), (1024, 16384), (4096, 65536), (65536, 65536)];

fn make_image(reference: &Reference, scratch: &Scratch, shape: (u32, u32)) -> std::path::PathBuf {
    let image = scratch.image(&format!("{}-{}.img", shape.0, shape.1), 600 << 20);
    let (block, dir) = (format!("size={}", shape.0), format!("size={},parent=0", shape.1));
    let arguments = ["-q", "-f", "-b", &block, "-n", &dir, "-i", "size=512"];
    reference.tool_output("mkfs.xfs", arguments.into_iter().chain([image.to_str().unwrap()]));
    image
}

fn open(image: &Path, access: Access) -> Arc<Mount> {
    let options = if access == Access::Write { MountOptions::default() } else { MountOptions::read_only() };
    Mount::open(Arc::new(FileDevice::open(image, access).unwrap()), None, options).unwrap()
}

fn change<T>(mount: &Arc<Mount>, inode: InodeNumber, work: impl FnOnce(&mut Transaction, InoId) -> Result<T>) -> T {
    common::change(mount, inode, work).unwrap()
}

fn look<T>(mount: &Arc<Mount>, inode: InodeNumber, work: impl FnOnce(&mut Transaction, InoId) -> Result<T>) -> T {
    common::look(mount, inode, work).unwrap()
}

fn names(count: u32) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(|n| match n % 10 {
        0 => colliding(n / 10),
        1 => vec![b'a' + (n / 10 % 26) as u8; (n / 260 % 255 + 1) as usize],
        _ => format!("a file by the name of {n:07}").into_bytes(),
    })
}

#[test]
fn directories_made_here_are_the_kernels() {
    let Some(reference) = reference() else { return };
    let scratch = scratch();
    for shape in SHAPES {
        let image = make_image(&reference, &scratch, shape);
        let mount = open(&image, Access::Write);
        let mut expected: BTreeMap<String, BTreeMap<Vec<u8>, u64>> = BTreeMap::new();
        let mut total = 0;
        let most = if shape == (4096, 4096) { 100_000 } else { 30_000 };
        for count in [1, 4, 12, 60, 400, 3000, most] {
            // Names are links of one file for each directory, so that link counts are easy to know.
            let (file_name, dir_name) = (format!("file-{count}"), format!("dir-{count}"));
            let folder = make_inode(&mount, &dir_name, 0o40_755, 2).unwrap();
            let list: BTreeMap<Vec<u8>, usize> = names(count).enumerate().map(|(n, name)| (name, n)).collect();
            let removed = |n: usize| count > 4 && n.is_multiple_of(3);
            let kept = list.values().filter(|&&n| !removed(n)).count() as u32;
            let file = make_inode(&mount, &file_name, 0o100_644, kept + 1).unwrap();
            for name in list.keys() {
                change(&mount, folder, |tx, dir| dir::add(tx, dir, name, file, FileType::Regular));
            }
            for (name, n) in &list {
                if removed(*n) {
                    change(&mount, folder, |tx, dir| dir::remove(tx, dir, name));
                }
            }
            let left: BTreeMap<_, _> =
                list.into_iter().filter(|(_, n)| !removed(*n)).map(|(name, _)| (name, file.0)).collect();
            total += left.len();
            expected.insert(dir_name, left);
        }
        mount.unmount().unwrap();
        drop(mount);
        reference.repair_finds_nothing(&image);
        let mount = open(&image, Access::Read);
        let root = mount.geometry.root_inode;
        for (folder, list) in &expected {
            let found = look(&mount, root, |tx, dir| dir::lookup(tx, dir, folder.as_bytes())).unwrap();
            assert_eq!(&read_names(&mount, found.inode), list);
        }
        drop(mount);
        if shape.0 > 4096 {
            continue;
        }
        let Some(kernel) = kernel_mount(&image) else { return };
        for (folder, list) in &expected {
            let entries = std::fs::read_dir(kernel.path().join(folder)).unwrap().map(|entry| entry.unwrap());
            let found: BTreeMap<_, _> = entries
                .map(|entry| (entry.file_name().as_bytes().to_vec(), std::os::unix::fs::DirEntryExt::ino(&entry)))
                .collect();
            assert_eq!(&found, list);
            // A look-up by name goes through the hash index.
            for name in list.keys() {
                let path = kernel.path().join(folder).join(std::ffi::OsStr::from_bytes(name));
                std::fs::symlink_metadata(path).unwrap();
            }
        }
        assert!(total > 20_000);
        kernel.unmount();
    }
}

fn read_names(mount: &Arc<Mount>, folder: InodeNumber) -> BTreeMap<Vec<u8>, u64> {
    look(mount, folder, |tx, dir| {
        let mut found = BTreeMap::new();
        let (mut from, mut before) = (0, 0);
        loop {
            // In portions, as a server of directories reads.
            let mut count = 0;
            dir::read(tx, dir, from, &mut |entry| {
                assert!(entry.cookie >= before);
                (from, before) = (entry.next, entry.cookie);
                count += 1;
                if entry.name != b"." && entry.name != b".." {
                    assert_eq!(found.insert(entry.name.to_vec(), entry.inode.0), None);
                }
                if count == 100 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            if count < 100 {
                return Ok(found);
            }
        }
    })
}

#[test]
fn directories_and_attributes_made_by_the_kernel_are_read() {
    let Some(reference) = reference() else { return };
    let scratch = scratch();
    for shape in SHAPES.into_iter().filter(|shape| shape.0 <= 4096) {
        let image = make_image(&reference, &scratch, shape);
        let Some(kernel) = kernel_mount(&image) else { return };
        let mut folders = BTreeMap::new();
        for count in [0, 3, 30, 300, 5000] {
            let folder = kernel.path().join(format!("dir-{count}"));
            std::fs::create_dir(&folder).unwrap();
            let file = folder.join("the-first");
            std::fs::write(&file, b"x").unwrap();
            for (n, name) in names(count).enumerate() {
                std::fs::hard_link(&file, folder.join(std::ffi::OsStr::from_bytes(&name))).unwrap();
                if n % 7 == 5 {
                    std::fs::remove_file(folder.join(std::ffi::OsStr::from_bytes(&name))).unwrap();
                }
            }
            let list: BTreeMap<_, _> = std::fs::read_dir(&folder)
                .unwrap()
                .map(|e| e.unwrap())
                .map(|e| (e.file_name().as_bytes().to_vec(), std::os::unix::fs::DirEntryExt::ino(&e)))
                .collect();
            folders.insert(format!("dir-{count}"), list);
            for n in 0..count {
                let value = vec![n as u8; if n % 50 == 3 { 9000 } else { n as usize % 100 }];
                let name = format!("trusted.name-{n}");
                rustix::fs::setxattr(&folder, &*name, &value, rustix::fs::XattrFlags::empty()).unwrap();
            }
        }
        kernel.unmount();
        let mount = open(&image, Access::Read);
        let root = mount.geometry.root_inode;
        for (folder, list) in &folders {
            let found = look(&mount, root, |tx, dir| dir::lookup(tx, dir, folder.as_bytes())).unwrap();
            assert_eq!(&read_names(&mount, found.inode), list);
            for (name, inode) in list {
                let entry = look(&mount, found.inode, |tx, dir| dir::lookup(tx, dir, name)).unwrap();
                assert_eq!((entry.inode.0, entry.file_type), (*inode, FileType::Regular));
            }
            let count: u32 = folder[4..].parse().unwrap();
            for n in 0..count {
                let name = format!("name-{n}");
                let key = Attr::key(flags::ROOT, name.as_bytes());
                let value = look(&mount, found.inode, |tx, ino| attr::get(tx, ino, &key)).unwrap();
                assert_eq!(value, vec![n as u8; if n % 50 == 3 { 9000 } else { n as usize % 100 }]);
            }
            let listed = look(&mount, found.inode, |tx, ino| {
                let mut listed = 0;
                attr::list(tx, ino, &mut |_| {
                    listed += 1;
                    ControlFlow::Continue(())
                })?;
                Ok(listed)
            });
            assert_eq!(listed, count);
        }
    }
}

#[test]
fn attributes_made_here_are_the_kernels() {
    let Some(reference) = reference() else { return };
    let scratch = scratch();
    for shape in SHAPES.into_iter().filter(|shape| shape.1 == shape.0.max(4096)) {
        let image = make_image(&reference, &scratch, shape);
        let mount = open(&image, Access::Write);
        let mut expected = BTreeMap::new();
        for count in [1, 5, 12, 60, 400, 10_000u32] {
            let file = make_inode(&mount, &format!("file-{count}"), 0o100_644, 1).unwrap();
            let mut attrs = BTreeMap::new();
            for n in 0..count {
                let name = if n % 10 == 0 { colliding(n / 10 % 1024) } else { format!("name-{n}").into_bytes() };
                let length = match n % 100 {
                    7 => 65536 - n as usize,
                    8 => 3000,
                    other => other as usize * 2,
                };
                attrs.insert(name, vec![n as u8; length]);
            }
            for (name, value) in &attrs {
                add_attr(&mount, file, &Attr::new(0, name, value)).unwrap();
            }
            let names: Vec<_> = attrs.keys().filter(|_| count > 10).step_by(3).cloned().collect();
            for name in names {
                remove_attr(&mount, file, &Attr::key(0, &name)).unwrap();
                attrs.remove(&name);
            }
            for (name, value) in &attrs {
                let found = look(&mount, file, |tx, ino| attr::get(tx, ino, &Attr::key(0, name)));
                assert_eq!(found.as_ref(), Some(value), "{count}: {}", name.escape_ascii());
            }
            expected.insert(format!("file-{count}"), attrs);
        }
        mount.unmount().unwrap();
        drop(mount);
        reference.repair_finds_nothing(&image);
        if shape.0 > 4096 {
            continue;
        }
        let Some(kernel) = kernel_mount(&image) else { return };
        for (file, attrs) in &expected {
            let path = kernel.path().join(file);
            assert_eq!(std::fs::metadata(&path).unwrap().nlink(), 1);
            for (name, value) in attrs {
                let full = [b"user.", name.as_slice()].concat();
                let mut found = vec![0; 65536];
                let length = rustix::fs::getxattr(&path, std::ffi::OsStr::from_bytes(&full), &mut found).unwrap();
                assert_eq!(&found[..length], value);
            }
        }
        kernel.unmount();
    }
}

#[test]
fn what_is_in_the_way_of_attributes_leaves_the_inode() {
    let Some(reference) = reference() else { return };
    let scratch = scratch();
    let image = make_image(&reference, &scratch, (4096, 4096));
    let Some(kernel) = kernel_mount(&image) else { return };
    for (n, extents) in [5, 14, 21].into_iter().enumerate() {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::create(kernel.path().join(format!("file-{n}"))).unwrap();
        for extent in 0..extents {
            file.write_all_at(&[extent as u8 + 1; 4096], extent * 40960).unwrap();
            file.sync_all().unwrap();
        }
        std::fs::create_dir(kernel.path().join(format!("dir-{n}"))).unwrap();
        for entry in 0..[4, 9, 13][n] {
            std::fs::write(kernel.path().join(format!("dir-{n}/name-of-entry-{entry}")), b"").unwrap();
        }
        let target = "t".repeat([100, 220, 330][n]);
        std::os::unix::fs::symlink(target, kernel.path().join(format!("link-{n}"))).unwrap();
    }
    let before = kernel.into_tree();
    let device = FileDevice::open(&image, Access::Write).unwrap();
    let filesystem = Volume::open(Arc::new(device), MountOptions::default()).unwrap();
    for n in 0..3 {
        for kind in ["file", "dir", "link"] {
            let inode = filesystem.resolve(format!("/{kind}-{n}").as_bytes(), LastLink::Keep).unwrap().inode;
            let value = vec![n as u8; [30, 100, 220][n]];
            filesystem.set_xattr(inode, b"trusted.new", &value, SetMode::Create, &Caller::root()).unwrap();
        }
    }
    filesystem.unmount().unwrap();
    reference.repair_finds_nothing(&image);
    let Some(kernel) = kernel_mount(&image) else { return };
    let after = xfskit_testkit::tree(kernel.path());
    assert_eq!(before.len(), after.len());
    for (before, mut after) in before.into_iter().zip(after) {
        let changed = before.path.components().count() == 1 && !before.path.as_os_str().is_empty();
        assert_eq!(after.xattrs.len(), usize::from(changed), "{}", after.path.display());
        after.xattrs.clear();
        assert_eq!(before, after);
    }
    kernel.unmount();
}
