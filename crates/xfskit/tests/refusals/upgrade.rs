//! A feature that was switched on later: inodes from before get it when they are written, as by the kernel.

use crate::shapes::{OLD, file};
use crate::stress::{DIR, Image};
use std::os::unix::fs::MetadataExt;
use xfskit::ondisk::Timestamp;
use xfskit::{Caller, NewFile, SetAttr, SetTime};
use xfskit_testkit::{kernel_mount, reference};

/// A time that inodes have room for only with the feature: 2222-02-22.
const LATE: Timestamp = Timestamp { seconds: 7_956_835_200, nanoseconds: 123_456_789 };

#[test]
fn inodes_from_before_bigtime_take_late_times() {
    let image = Image::new(320, OLD);
    let Some(reference) = reference() else { return };
    let (fs, me) = (image.open(), Caller::root());
    let inodes = [
        file(&fs, "file"),
        fs.create(fs.root(), b"dir", &NewFile::new(DIR | 0o755), &me).unwrap().inode,
        fs.symlink(fs.root(), b"link", b"target", &me).unwrap().inode,
    ];
    let change = SetAttr { mtime: Some(SetTime::To(LATE)), atime: Some(SetTime::To(LATE)), ..Default::default() };
    let clamped = fs.set_attr(inodes[0], &change, &me).unwrap().mtime;
    assert_eq!(clamped.seconds, i64::from(i32::MAX), "without the feature there is no room");
    fs.unmount().unwrap();
    reference.tool_output("xfs_repair", ["-c".as_ref(), "bigtime=1".as_ref(), image.path.as_os_str()]);
    let fs = image.open();
    for inode in inodes {
        assert_eq!(fs.set_attr(inode, &change, &me).unwrap().mtime, LATE);
    }
    fs.unmount().unwrap();
    let fs = image.open();
    for inode in inodes {
        let stat = fs.stat(inode).unwrap();
        assert_eq!((stat.mtime, stat.atime), (LATE, LATE));
    }
    image.close(fs);
    let Some(kernel) = kernel_mount(&image.path) else { return };
    for name in ["file", "dir", "link"] {
        let found = std::fs::symlink_metadata(kernel.path().join(name)).unwrap();
        assert_eq!((found.mtime(), found.mtime_nsec()), (LATE.seconds, LATE.nanoseconds.into()), "{name}");
    }
    kernel.unmount();
}
