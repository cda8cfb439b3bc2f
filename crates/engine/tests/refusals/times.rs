//! The times of a new file do not depend on the file that had its inode before.

use crate::shapes::file;
use crate::stress::{FILE, Image};
use xfskit_engine::{Caller, Permissions, Volume, WholeFile};
use xfskit_ondisk::{InodeNumber, Timestamp};

fn make_small(fs: &Volume, name: &[u8], contents: &[u8]) -> InodeNumber {
    let then = Timestamp { seconds: 5, nanoseconds: 0 };
    let file = WholeFile {
        name,
        permissions: Permissions::new(0o644),
        uid: 0,
        gid: 0,
        atime: then,
        mtime: then,
        xattrs: &[],
        contents,
    };
    fs.make_files(fs.root(), &[file]).unwrap()[0].inode
}

/// A file that was written in place and then removed, before the time of the write was in its core.
fn leave_a_note(fs: &Volume, name: &str) -> InodeNumber {
    let old = file(fs, name);
    fs.write_at(old, 0, &[1; 4096]).unwrap();
    fs.fsync(old).unwrap();
    fs.write_at(old, 0, &[2; 4096]).unwrap();
    fs.unlink(fs.root(), name.as_bytes(), &Caller::root()).unwrap();
    old
}

#[test]
fn a_new_file_has_no_times_of_its_inodes_former_file() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    let old = leave_a_note(&fs, "old");
    let new = file(&fs, "new");
    assert_eq!(new, old, "the inode is used again");
    fs.fsync(new).unwrap();
    let stat = fs.stat(new).unwrap();
    assert!(stat.mtime >= stat.birth_time, "{:?} before {:?}", stat.mtime, stat.birth_time);
    image.close(fs);
}

#[test]
fn a_write_in_place_gives_a_small_file_its_time() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    let old = leave_a_note(&fs, "old");
    let new = make_small(&fs, b"new", &[1; 4096]);
    assert_eq!(new, old, "the inode is used again");
    fs.write_at(new, 0, &[3; 4096]).unwrap();
    let written = fs.stat(new).unwrap().mtime;
    assert!(written.seconds > 5);
    fs.unmount().unwrap();
    let fs = image.open();
    assert_eq!(fs.stat(new).unwrap().mtime, written, "the time of the write is in the image");
    assert_eq!(fs.stat(new).unwrap().mode(), FILE | 0o644);
    image.close(fs);
}
