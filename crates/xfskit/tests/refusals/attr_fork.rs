//! The first attribute of an inode whose extent map has a wide root: the root makes way, as it does for the kernel.

use crate::shapes::{OLD, scattered};
use crate::stress::Image;
use rustix::fs::XattrFlags;
use std::path::Path;
use xfskit::ondisk::InodeNumber;
use xfskit::volume::{Caller, Fallocate, LastLink, NewFile, SetMode, Volume};
use xfskit_testkit::{Reference, copy_image, kernel_mount, reference};

/// An ACL of user, a named user, group, mask and other.
const ACL: &[u8] = b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x02\0\x04\0\x01\0\0\0\x04\0\x04\0\xff\xff\xff\xff\
    \x10\0\x04\0\xff\xff\xff\xff\x20\0\x04\0\xff\xff\xff\xff";

/// The fields that decide how an inode is laid out.
fn layout(reference: &Reference, image: &Path, inode: InodeNumber) -> String {
    let all = reference.db(image, &[&format!("inode {inode}"), "print"]);
    let kept = ["core.forkoff", "core.aformat", "core.format", "core.nblocks", "u3.bmbt.level", "u3.bmbt.numrecs"];
    all.lines().filter(|line| kept.iter().any(|name| line.starts_with(name))).map(|line| format!("{line}\n")).collect()
}

/// Sets an attribute with us and, on a copy of the image, with the kernel; the inodes must be laid out the same.
fn compare(image: &Image, fs: Volume, path: &str, name: &str, value: &[u8]) {
    let inode = fs.resolve(path.as_bytes(), LastLink::Keep).unwrap().inode;
    fs.sync().unwrap();
    let copy = image.path.with_extension("kernel");
    fs.unmount().unwrap();
    copy_image(&image.path, &copy);
    let fs = image.open();
    fs.set_xattr(inode, name.as_bytes(), value, SetMode::Any, &Caller::root()).unwrap();
    fs.mount().journal.check().unwrap();
    // The power fails: the kernel recovers what we logged.
    fs.sync().unwrap();
    drop(fs);
    let (Some(reference), Some(ours)) = (reference(), kernel_mount(&image.path)) else { return };
    let mut found = vec![0; value.len() + 1];
    let length = rustix::fs::getxattr(ours.path().join(&path[1..]), name, &mut found[..]).unwrap();
    assert!(found[..length] == *value);
    ours.unmount();
    image.assert_sound();
    let theirs = kernel_mount(&copy).expect("it mounted the other");
    rustix::fs::setxattr(theirs.path().join(&path[1..]), name, value, XattrFlags::empty()).unwrap();
    theirs.unmount();
    assert_eq!(layout(&reference, &image.path, inode), layout(&reference, &copy, inode), "{path} {name}");
    std::fs::remove_file(copy).unwrap();
}

#[test]
fn a_file_of_thousands_of_extents_gets_its_first_attribute() {
    for (extents, length) in [(3_400, 100), (4_600, 1), (4_600, 20_000)] {
        let image = Image::new(320, OLD);
        let fs = image.open();
        scattered(&fs, "file", extents);
        compare(&image, fs, "/file", "user.first", &vec![7; length]);
    }
}

#[test]
fn a_file_of_thousands_of_extents_gets_an_acl() {
    let image = Image::new(320, OLD);
    let fs = image.open();
    scattered(&fs, "file", 4_600);
    compare(&image, fs, "/file", "system.posix_acl_access", ACL);
}

#[test]
fn a_large_fragmented_directory_gets_its_first_attribute() {
    let image = Image::new(64, &[OLD, &[('b', "size=1024")]].concat());
    let fs = image.open();
    let dir = fs.create(fs.root(), b"dir", &NewFile::dir(0o755), &Caller::root()).unwrap().inode;
    let target = fs.create(fs.root(), b"target", &NewFile::file(0o644), &Caller::root()).unwrap().inode;
    // Blocks of a file lie between those of the directory.
    for number in 0..14_000 {
        fs.link(dir, format!("{number:0200}").as_bytes(), target, &Caller::root()).unwrap();
        if number % 3 == 0 {
            fs.fallocate(target, number * 1024, 1024, Fallocate::Allocate).unwrap();
        }
    }
    compare(&image, fs, "/dir", "security.long", &[7; 120]);
}
