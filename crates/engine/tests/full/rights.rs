//! On a full image rights can be taken away, by a mode and by an ACL, as on the kernel's.

use crate::stress::{Image, fill};
use std::os::unix::fs::PermissionsExt;
use xfskit_engine::{Caller, NewFile, Permissions, SetAttr, SetMode, Volume};
use xfskit_ondisk::InodeNumber;
use xfskit_testkit::{copy_image, kernel_mount};

const ACCESS: &[u8] = b"system.posix_acl_access";

fn make(fs: &Volume, name: &str) -> InodeNumber {
    fs.create(fs.root(), name.as_bytes(), &NewFile::file(0o644), &Caller::root()).unwrap().inode
}

fn set(fs: &Volume, file: InodeNumber, name: &str, value: &[u8]) {
    fs.set_xattr(file, name.as_bytes(), value, SetMode::Any, &Caller::root()).unwrap();
}

/// An ACL in the form for programs, with an entry for one user.
fn acl(rights: u16) -> Vec<u8> {
    let entry =
        |tag: u16, rights: u16, id: u32| [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat();
    let none = u32::MAX;
    let entries = [entry(1, 6, none), entry(2, rights, 5), entry(4, 4, none), entry(16, 6, none), entry(32, 4, none)];
    [&2u32.to_le_bytes()[..], &entries.concat()].concat()
}

const FILES: [&str; 4] = ["plain", "small", "large", "acl"];

#[test]
fn modes_and_acls_are_changed_on_a_full_image() {
    let image = Image::new(64, &[('d', "agcount=1")]);
    let fs = image.open();
    let files = FILES.map(|name| make(&fs, name));
    set(&fs, files[1], "user.a", b"value");
    (0..100).for_each(|n| set(&fs, files[2], &format!("user.{n}"), &[7; 200]));
    let access = std::str::from_utf8(ACCESS).unwrap();
    set(&fs, files[3], access, &acl(6));
    let filler = make(&fs, "filler");
    fill(&fs, filler);
    fs.unmount().unwrap();
    let copy = image.path.with_extension("kernel");
    copy_image(&image.path, &copy);

    let fs = image.open();
    for file in files.into_iter().chain([fs.root()]) {
        let permissions = Some(Permissions::new(0o700));
        fs.set_attr(file, &SetAttr { permissions, ..SetAttr::default() }, &Caller::root()).unwrap();
    }
    set(&fs, files[3], access, &acl(0));
    image.close(fs);

    let Some(kernel) = kernel_mount(&copy) else { return };
    for name in FILES.into_iter().chain(["."]) {
        let path = kernel.path().join(name);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    }
    rustix::fs::setxattr(kernel.path().join("acl"), access, &acl(0), rustix::fs::XattrFlags::empty()).unwrap();
    kernel.unmount();
}
