//! Where the attr fork starts: in an inode of every shape, where the kernel starts it. Among them the first attribute
//! of an inode whose extent map has a wide root, which makes way.

use crate::attr_plans::{Step, on_both};
use crate::shapes::{OLD, scattered};
use crate::stress::{DIR, FILE, Image};
use rustix::fs::XattrFlags;
use std::path::Path;
use xfskit_engine::{Caller, Fallocate, LastLink, NewFile, SetMode, Volume};
use xfskit_ondisk::InodeNumber;
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

/// What is done to the inodes of a shape, one after another.
fn plans() -> Vec<Vec<Step>> {
    let one = (0..=330).step_by(10).map(|bytes| vec![(0, Some(bytes))]);
    let more: [&[Step]; 8] = [
        &[(0, Some(20)), (0, None)],
        &[(0, Some(20)), (1, Some(60)), (0, None)],
        &[(0, Some(60)), (1, Some(20)), (0, None)],
        &[(0, Some(150)), (1, Some(150)), (1, None)],
        &[(0, Some(250)), (1, Some(250)), (1, None), (0, Some(9))],
        &[(0, Some(1)), (1, Some(8)), (2, Some(120)), (1, Some(64))],
        &[(0, Some(30)), (1, Some(30)), (2, Some(30)), (3, Some(30)), (4, Some(30)), (5, Some(30))],
        &[(0, Some(2000)), (1, Some(3)), (0, None)],
    ];
    one.chain(more.into_iter().map(<[Step]>::to_vec)).collect()
}

/// Makes an inode of each shape for each plan, and returns their names. The shapes differ in what the data fork holds.
fn shapes(fs: &Volume, plans: usize) -> Vec<Vec<String>> {
    let me = Caller::root();
    let make = |name: &str, mode: u16| {
        fs.create(fs.root(), name.as_bytes(), &NewFile::of_mode(mode).unwrap(), &me).unwrap().inode
    };
    let block = u64::from(fs.statfs().block_bytes);
    let mut shapes = Vec::new();
    let mut shape = |kind: &str, make: &dyn Fn(&str)| {
        let names: Vec<_> = (0..plans).map(|plan| format!("{kind} {plan}")).collect();
        names.iter().for_each(|name| make(name));
        shapes.push(names);
    };
    for extents in [0, 1, 3, 4, 6, 7, 8, 10, 12, 15, 19, 21, 22, 60] {
        shape(&format!("{extents} extents"), &|name| _ = scattered(fs, name, extents));
    }
    for extents in [2, 9, 30] {
        shape(&format!("{extents} extents beside an attribute"), &|name| {
            let file = make(name, FILE | 0o644);
            fs.set_xattr(file, b"trusted.0", &[0; 10], SetMode::Any, &me).unwrap();
            for index in 0..extents {
                fs.fallocate(file, 2 * index * block, block, Fallocate::Allocate).unwrap();
            }
        });
    }
    for entries in [0, 1, 4, 8, 12, 16] {
        shape(&format!("directory of {entries}"), &|name| {
            let dir = make(name, DIR | 0o755);
            for entry in 0..entries {
                let new = NewFile::file(0o644);
                fs.create(dir, format!("entry {entry:02}").as_bytes(), &new, &me).unwrap();
            }
        });
    }
    for bytes in [1, 33, 70, 120, 200, 300, 336] {
        let target = vec![b't'; bytes];
        shape(&format!("link of {bytes}"), &|name| _ = fs.symlink(fs.root(), name.as_bytes(), &target, &me).unwrap());
    }
    shape("pipe", &|name| _ = make(name, 0o010_644));
    shapes
}

/// The fields that decide how the inodes are laid out, of all of them.
fn layouts(reference: &Reference, image: &Path, inodes: &[(String, InodeNumber)]) -> Vec<String> {
    let commands: Vec<_> = inodes
        .iter()
        .flat_map(|(_, inode)| {
            let print = "print core.format core.nextents core.forkoff core.aformat core.naextents core.nblocks";
            [format!("inode {inode}"), print.to_owned()]
        })
        .collect();
    let commands: Vec<_> = commands.iter().map(String::as_str).collect();
    let all = reference.db(image, &commands);
    let lines: Vec<_> = all.lines().collect();
    assert_eq!(lines.len(), 6 * inodes.len(), "each inode has six fields");
    lines.chunks(6).zip(inodes).map(|(fields, (name, _))| format!("{name}: {}", fields.join(", "))).collect()
}

#[test]
fn the_attr_fork_of_every_shape_starts_where_the_kernel_starts_it() {
    for size in ["size=512", "size=1024"] {
        let image = Image::new(320, &[OLD, &[('i', size)]].concat());
        let (fs, plans) = (image.open(), plans());
        let shapes = shapes(&fs, plans.len());
        let inode = |name: &String| (name.clone(), fs.lookup(fs.root(), name.as_bytes()).unwrap().inode);
        let inodes: Vec<_> = shapes.iter().flatten().map(inode).collect();
        fs.unmount().unwrap();
        let copy = image.path.with_extension("kernel");
        copy_image(&image.path, &copy);
        let todo: Vec<_> =
            inodes.iter().zip(plans.iter().cycle()).map(|((name, _), plan)| (&**name, &**plan)).collect();
        let Some(reference) = on_both(&image, &copy, &todo) else { return };
        let ours = layouts(&reference, &image.path, &inodes);
        let kernels = layouts(&reference, &copy, &inodes);
        let differing: Vec<_> = ours.iter().zip(&kernels).filter(|(ours, kernels)| ours != kernels).collect();
        assert!(differing.is_empty(), "{} of {}: {:#?}", differing.len(), ours.len(), &differing);
    }
}
