//! The superblock says that there are attributes, from the first attr fork on.

use crate::shapes::{OLD, file};
use crate::stress::Image;
use rustix::fs::XattrFlags;
use std::path::Path;
use xfskit_engine::{Caller, NewFile, SetMode, Volume};
use xfskit_testkit::{Reference, copy_image, kernel_mount, reference};

fn version(reference: &Reference, image: &Path) -> String {
    reference.db(image, &["sb 0", "print versionnum"])
}

#[test]
fn the_first_attr_fork_is_announced_as_by_the_kernel() {
    for arguments in [OLD, &[('n', "parent=0")]] {
        let image = Image::new(64, arguments);
        let Some(reference) = reference() else { return };
        let fs = image.open();
        file(&fs, "file");
        fs.unmount().unwrap();
        let plain = version(&reference, &image.path);
        let copy = image.path.with_extension("kernel");
        copy_image(&image.path, &copy);
        let Some(kernel) = kernel_mount(&copy) else { return };
        rustix::fs::setxattr(kernel.path().join("file"), "user.a", b"value", XattrFlags::empty()).unwrap();
        kernel.unmount();
        let announced = version(&reference, &copy);
        assert_ne!(plain, announced, "the kernel announces it");
        let fs = image.open();
        fs.set_xattr(fs.lookup(fs.root(), b"file").unwrap().inode, b"user.a", b"value", SetMode::Any, &Caller::root())
            .unwrap();
        // The power fails; recovery writes the bit into the superblock.
        fs.sync().unwrap();
        drop(fs);
        kernel_mount(&image.path).unwrap().unmount();
        assert_eq!(version(&reference, &image.path), announced);
        image.assert_sound();
        let fs = image.open();
        file(&fs, "other");
        image.close(fs);
        assert_eq!(version(&reference, &image.path), announced, "it stays");
    }
}

#[test]
fn nothing_is_announced_without_an_attr_fork() {
    let image = Image::new(64, OLD);
    let Some(reference) = reference() else { return };
    let plain = version(&reference, &image.path);
    let fs = image.open();
    for number in 0..300 {
        file(&fs, &format!("file {number}"));
    }
    fs.unmount().unwrap();
    assert_eq!(version(&reference, &image.path), plain);
}

#[test]
fn threads_that_make_the_first_attr_forks_announce_them_once() {
    let image = Image::new(64, OLD);
    let fs = image.open();
    let made: Vec<_> = (0..8).map(|number| file(&fs, &format!("file {number}"))).collect();
    let set = |fs: &Volume, inode| fs.set_xattr(inode, b"user.a", b"value", SetMode::Any, &Caller::root()).unwrap();
    std::thread::scope(|scope| made.iter().for_each(|inode| drop(scope.spawn(|| set(&fs, *inode)))));
    fs.create(fs.root(), b"last", &NewFile::file(0o644), &Caller::root()).unwrap();
    image.close(fs);
    let Some(reference) = reference() else { return };
    assert!(version(&reference, &image.path).contains("0xb4b5"));
}
