//! Directories and attributes in every form: made by the kernel and read by us, made by us and read by the kernel.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use xfskit::attr::{self, Attr, Form, Outcome, flags, remote, shortform, tree};
use xfskit::device::{Access, FileDevice};
use xfskit::dir::{self, FileType};
use xfskit::inode::NewInode;
use xfskit::ondisk::InodeNumber;
use xfskit::trans::{InoId, InodeFields, Reservation, Transaction};
use xfskit::{Mount, MountOptions, Result};
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

/// Runs one transaction.
fn change<T>(mount: &Arc<Mount>, inode: InodeNumber, work: impl FnOnce(&mut Transaction, InoId) -> Result<T>) -> T {
    let reservation = Reservation { log_bytes: 1 << 20, log_count: 1, blocks: 400, may_dip: false };
    let inode = mount.inode(inode).unwrap();
    let mut tx = mount.transaction(reservation).unwrap();
    let id = tx.join_inode(&inode);
    let result = work(&mut tx, id);
    tx.finish(result).unwrap()
}

fn look<T>(mount: &Arc<Mount>, inode: InodeNumber, work: impl FnOnce(&mut Transaction, InoId) -> Result<T>) -> T {
    let inode = mount.inode(inode).unwrap();
    let mut tx = Transaction::read_only(mount);
    let id = tx.join_inode(&inode);
    work(&mut tx, id).unwrap()
}

/// Makes a file or directory in the root directory.
fn make(mount: &Arc<Mount>, name: &str, mode: u16, links: u32) -> InodeNumber {
    let root = mount.geometry.root_inode;
    change(mount, root, |tx, dir| {
        let number = xfskit::space::inodes::allocate_inode(tx, root, mode)?.unwrap();
        let new = NewInode { mode, uid: 0, gid: 0, links, device: 0, attr_fork: false };
        let id = xfskit::inode::create(tx, number, &new, Some(dir))?;
        let is_dir = FileType::from_mode(mode) == FileType::Directory;
        if is_dir {
            dir::init(tx, id, root);
            tx.inode_mut(dir, InodeFields::CORE).core.links += 1;
        }
        dir::add(tx, dir, name.as_bytes(), number, FileType::from_mode(mode))?;
        Ok(number)
    })
}

/// Names of the same hash: shifting a bit seven places from one byte to the next keeps it.
fn colliding(number: u32) -> Vec<u8> {
    (0..10).flat_map(|bit| if number >> bit & 1 == 1 { *b"bz" } else { [b'c', b'z' ^ 0x80] }).collect()
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
        for count in [1, 4, 12, 60, 400, 3000, 30000] {
            // Names are links of one file for each directory, so that link counts are easy to know.
            let (file_name, dir_name) = (format!("file-{count}"), format!("dir-{count}"));
            let folder = make(&mount, &dir_name, 0o40_755, 2);
            let list: BTreeMap<Vec<u8>, usize> = names(count).enumerate().map(|(n, name)| (name, n)).collect();
            let removed = |n: usize| count > 4 && n % 3 == 0;
            let kept = list.values().filter(|&&n| !removed(n)).count() as u32;
            let file = make(&mount, &file_name, 0o100_644, kept + 1);
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

/// Adds an attribute in as many steps as its form needs.
fn add_attr(mount: &Arc<Mount>, inode: InodeNumber, new: &Attr<'_>) {
    let done = change(mount, inode, |tx, ino| {
        if attr::form(tx, ino) != Form::Tree && shortform::add(tx, ino, new)? == Outcome::Done {
            return Ok(true);
        }
        if attr::form(tx, ino) != Form::Tree {
            assert_eq!(tree::from_shortform(tx, ino)?, Outcome::Done);
        }
        Ok(false)
    });
    if done {
        return;
    }
    change(mount, inode, |tx, ino| {
        if tree::is_local_value(tx.geometry(), new.name.len(), new.value.len()) {
            return tree::add(tx, ino, new, tree::NewValue::Local(new.value), false);
        }
        let place = remote::write(tx, ino, new.value)?;
        tree::add(tx, ino, new, tree::NewValue::Remote { block: place.block, length: place.length }, false)
    });
}

fn remove_attr(mount: &Arc<Mount>, inode: InodeNumber, key: &Attr<'_>) {
    change(mount, inode, |tx, ino| {
        if attr::form(tx, ino) == Form::Shortform {
            assert!(shortform::remove(tx, ino, key, false)?);
            return Ok(());
        }
        if let Some(place) = tree::lookup(tx, ino, key, false)?.expect("the attribute is there") {
            remote::free(tx, ino, place)?;
        }
        assert!(tree::remove(tx, ino, key, false)?);
        tree::to_shortform(tx, ino, false)?;
        Ok(())
    });
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
            let file = make(&mount, &format!("file-{count}"), 0o100_644, 1);
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
                add_attr(&mount, file, &Attr { namespace: 0, name, value });
            }
            let names: Vec<_> = attrs.keys().filter(|_| count > 10).step_by(3).cloned().collect();
            for name in names {
                remove_attr(&mount, file, &Attr::key(0, &name));
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
