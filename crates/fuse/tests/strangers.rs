//! Who unmounts, undoes or ends a mount acts on that one, whatever has its place or its numbers by then.

mod common;

use common::{mounted, run};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use xfskit_fuse::{MountError, Mounting, Options, Served, mount_at, unmount_entry};
use xfskit_testkit::{Scratch, scratch, skip};

/// A server that has ended.
struct Nobody;

impl Served for Nobody {
    fn close(&self) -> Result<(), MountError> {
        Ok(())
    }

    fn ends_within(&self, _: Duration) -> bool {
        true
    }
}

/// A folder with the folder `mount` in it; `None`, after printing the reason, if nothing can be mounted there.
fn folder() -> Option<Scratch> {
    if !rustix::process::geteuid().is_root() || fs::File::open("/dev/fuse").is_err() {
        skip("other mounts need root and /dev/fuse");
        return None;
    }
    let scratch = scratch();
    fs::create_dir(scratch.file("mount")).unwrap();
    Some(scratch)
}

/// A mount that no server has taken over.
fn mount(dir: &Path) -> (Mounting, OwnedFd) {
    let (mounting, connection, _) = Mounting::new(dir, &Options::default()).unwrap();
    (mounting, connection)
}

/// Mounts something else there, with the file `theirs` in it.
fn other_mount(dir: &Path) {
    run("mount", &["-t", "tmpfs", "none"], dir);
    fs::write(dir.join("theirs"), "").unwrap();
}

fn umount(dir: &Path) {
    run("umount", &["-i", "-l"], dir);
}

/// Whether connections can be ended; says so if not.
fn has_fusectl(device: &str) -> bool {
    let number = device.strip_prefix("0:").unwrap();
    let has = Path::new("/sys/fs/fuse/connections").join(number).join("abort").exists();
    if !has {
        skip("no fusectl is mounted at /sys/fs/fuse/connections");
    }
    has
}

#[test]
fn what_lies_over_a_mount_that_failed_stays() {
    let Some(scratch) = folder() else { return };
    let dir = scratch.file("mount");
    let (mounting, connection) = mount(&dir);
    other_mount(&dir);
    mounting.undo();
    assert!(dir.join("theirs").exists());
    umount(&dir);
    // It is on top again.
    assert!(mount_at(&dir).unwrap().is_some());
    mounting.undo();
    assert!(mount_at(&dir).unwrap().is_none());
    drop(connection);
}

#[test]
fn what_is_in_its_place_stays() {
    let Some(scratch) = folder() else { return };
    let dir = scratch.file("mount");
    let (mounting, connection) = mount(&dir);
    let unmounter = mounting.unmounter(Arc::new(Nobody));
    let entry = mount_at(&dir).unwrap().unwrap();
    umount(&dir);
    drop(connection);
    // Perhaps with the same numbers.
    let (second, connection) = mount(&dir);
    mounting.undo();
    unmounter.unmount().unwrap();
    assert!(mount_at(&dir).unwrap().is_some(), "a mount of the same kind is gone");
    second.undo();
    drop(connection);
    other_mount(&dir);
    mounting.undo();
    unmounter.unmount().unwrap();
    assert!(unmount_entry(&entry).is_err() && dir.join("theirs").exists());
    umount(&dir);
}

#[test]
fn a_folder_on_the_way_that_is_exchanged_leads_to_no_other_mount() {
    let Some(scratch) = folder() else { return };
    let (ours, theirs) = (scratch.file("ours"), scratch.file("theirs"));
    for dir in [&ours, &theirs] {
        fs::create_dir_all(dir.join("mount")).unwrap();
    }
    let (mounting, connection) = mount(&ours.join("mount"));
    let entry = mount_at(&ours.join("mount")).unwrap().unwrap();
    other_mount(&theirs.join("mount"));
    fs::rename(&ours, scratch.file("moved")).unwrap();
    std::os::unix::fs::symlink(&theirs, &ours).unwrap();
    mounting.undo();
    assert!(unmount_entry(&entry).is_err());
    assert!(theirs.join("mount/theirs").exists());
    umount(&theirs.join("mount"));
    umount(&scratch.file("moved/mount"));
    drop(connection);
}

#[test]
fn the_end_of_a_connection_ends_no_other_one() {
    let Some(scratch) = folder() else { return };
    let dir = scratch.file("mount");
    for _ in 0..50 {
        let (mounting, connection) = mount(&dir);
        let unmounter = mounting.unmounter(Arc::new(Nobody));
        let device = mount_at(&dir).unwrap().unwrap().device;
        if !has_fusectl(&device) {
            return mounting.undo();
        }
        umount(&dir);
        drop(connection);
        let Some(fixture) = mounted() else { return };
        let is_same = mount_at(&fixture.path("").canonicalize().unwrap()).unwrap().unwrap().device == device;
        unmounter.abort();
        fs::write(fixture.path("file"), "contents").expect("the mount of another is dead");
        fixture.unmount();
        if is_same {
            return;
        }
    }
    skip("no number of a device was used again");
}

#[test]
fn the_end_of_a_connection_ends_its_own() {
    let Some(scratch) = folder() else { return };
    let dir = scratch.file("mount");
    let (mounting, connection) = mount(&dir);
    if !has_fusectl(&mount_at(&dir).unwrap().unwrap().device) {
        return mounting.undo();
    }
    mounting.unmounter(Arc::new(Nobody)).abort();
    // The first request of the kernel may still be there.
    let read = || rustix::io::read(&connection, &mut [0; 8192]);
    let error = read().and_then(|_| read()).unwrap_err();
    assert!([rustix::io::Errno::NODEV, rustix::io::Errno::CONNABORTED].contains(&error), "{error}");
    mounting.undo();
    assert!(mount_at(&dir).unwrap().is_none());
}
