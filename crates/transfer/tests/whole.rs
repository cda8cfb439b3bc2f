//! A tree that is copied in and out by one call: the kernel finds in the image what was in the folder, and the copy is
//! the same as the original.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use xfskit::MkfsOptions;
use xfskit_testkit::{kernel_mount, scratch, tree};
use xfskit_transfer::{copy_in, copy_out};

/// A tree with further names, attributes, a hole, links, and permissions of all kinds.
fn make(dir: &Path) {
    fs::create_dir_all(dir.join("a/b")).unwrap();
    fs::write(dir.join("a/file"), "contents").unwrap();
    fs::hard_link(dir.join("a/file"), dir.join("a/b/further name")).unwrap();
    symlink("../a/file", dir.join("a/link")).unwrap();
    fs::set_permissions(dir.join("a/file"), Permissions::from_mode(0o4751)).unwrap();
    fs::set_permissions(dir.join("a/b"), Permissions::from_mode(0o1777)).unwrap();
    File::create(dir.join("sparse")).unwrap().write_all_at(b"end", 5 << 20).unwrap();
    let value = [b'v'; 20];
    for (path, name) in [("a/file", "user.one"), ("a/b", "user.two"), ("sparse", "user.three")] {
        // Not every filesystem of a host takes them, and then there are none in the image either.
        let _ = rustix::fs::setxattr(dir.join(path), name, &value, rustix::fs::XattrFlags::empty());
    }
}

#[test]
fn a_tree_goes_in_and_out_by_one_call() {
    let scratch = scratch();
    let (folder, image, copy) = (scratch.file("folder"), scratch.file("a.img"), scratch.file("copy"));
    make(&folder);
    let fs = xfskit::create(&image, 512 << 20, &MkfsOptions::new()).unwrap();
    assert!(!copy_in(fs.volume(), &folder, "/tree").unwrap().are_real());
    // A file, what is in a folder, and a name that needs its directory.
    copy_in(fs.volume(), folder.join("a/file"), "/again").unwrap();
    assert_eq!(fs.read("/again").unwrap(), b"contents");
    fs.remove_file("/again").unwrap();
    copy_in(fs.volume(), &folder, "/").unwrap();
    assert_eq!(fs.read("/a/b/further name").unwrap(), b"contents");
    assert!(
        copy_in(fs.volume(), &folder, "/none/tree").is_err()
            && copy_in(fs.volume(), scratch.file("none"), "/x").is_err()
    );
    assert!(!copy_out(fs.volume(), "/tree", &copy).unwrap().are_real());
    assert!(copy_out(fs.volume(), "/none", scratch.file("x")).is_err());
    fs.close().unwrap();
    let original = tree(&folder);
    assert_eq!(tree(&copy), original);
    let Some(kernel) = kernel_mount(&image) else { return };
    assert_eq!(tree(&kernel.path().join("tree")), original);
    kernel.unmount();
}
