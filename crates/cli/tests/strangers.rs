//! Mounts of others, with names and numbers that lead to them.

mod common;

use common::mounts::prepared_for_root;
use common::{fails, ok};
use rustix::mount::MountFlags;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

const STRANGER: u32 = 65_534;

/// A mount by another user, under the name of an image, whose server never answers.
fn foreign_mount(image: &Path, dir: &Path) -> File {
    let connection = File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let fd = connection.as_raw_fd();
    let data = format!("fd={fd},rootmode=40000,user_id={STRANGER},group_id={STRANGER},subtype=xfskit");
    let (data, flags) = (CString::new(data).unwrap(), MountFlags::NODEV | MountFlags::NOSUID);
    rustix::mount::mount(image, dir, "fuse", flags, &*data).unwrap();
    connection
}

fn is_mounted(dir: &Path) -> bool {
    xfskit_fuse::mount_at(dir).unwrap().is_some()
}

#[test]
fn a_name_of_an_image_leads_to_no_mount_of_a_stranger() {
    let Some(prepared) = prepared_for_root() else { return };
    let image = prepared.image.canonicalize().unwrap();
    let dir = prepared.dir.canonicalize().unwrap();
    let _connection = foreign_mount(&image, &dir);
    let (code, message) = fails("umount IMAGE", &image);
    assert!(code == 1 && message.contains("65534") && message.contains("name the folder"), "{code}: {message}");
    assert!(is_mounted(&dir));
    // An image that is in use elsewhere is not said to be there, either.
    let other = prepared.scratch.file("other");
    std::fs::create_dir(&other).unwrap();
    ok(&format!("mount IMAGE {}", other.display()), &image);
    let (_, message) = fails("ls IMAGE /", &image);
    assert!(message.contains(other.to_str().unwrap()), "{message}");
    ok("umount IMAGE", &image);
    assert!(is_mounted(&dir) && !is_mounted(&other));
    // Its own image is another matter.
    std::os::unix::fs::chown(&image, Some(STRANGER), None).unwrap();
    ok("umount IMAGE", &image);
    assert!(!is_mounted(&dir));
}

#[test]
fn the_folder_is_enough_for_any_mount() {
    let Some(prepared) = prepared_for_root() else { return };
    let dir = prepared.dir.canonicalize().unwrap();
    let _connection = foreign_mount(&prepared.image, &dir);
    prepared.line("umount DIR");
    assert!(!is_mounted(&dir));
}
