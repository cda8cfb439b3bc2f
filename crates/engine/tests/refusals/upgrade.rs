//! A feature that was switched on later: older inodes get it when they are written, as in the kernel.

use crate::shapes::{OLD, file, fragment};
use crate::stress::Image;
use std::os::unix::fs::MetadataExt;
use xfskit_engine::{Caller, Error, NewFile, SetAttr, SetMode, SetTime, Volume};
use xfskit_ondisk::{InodeNumber, Timestamp};
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
        fs.create(fs.root(), b"dir", &NewFile::dir(0o755), &me).unwrap().inode,
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

/// Sets attributes of single blocks until the map of the attr fork would need large counters, or cannot have them.
fn outgrow_small_counters(fs: &Volume, inode: InodeNumber) -> Result<(), Error> {
    (0..780).try_for_each(|number| {
        let name = format!("user.{number}");
        fs.set_xattr(inode, name.as_bytes(), &[7; 65_536], SetMode::Any, &Caller::root())
    })
}

#[test]
fn an_inode_from_before_large_counters_gets_them_when_it_needs_them() {
    let image = Image::new(256, &[OLD, &[('b', "size=1024"), ('l', "size=16m")]].concat());
    let Some(reference) = reference() else { return };
    let fs = image.open();
    let inode = file(&fs, "file");
    fragment(&fs, 70_000);
    let refusal = outgrow_small_counters(&fs, inode);
    assert!(matches!(refusal, Err(Error::TooLarge)), "small counters end at 32,767: {refusal:?}");
    image.close(fs);
    reference.tool_output("xfs_repair", ["-c".as_ref(), "nrext64=1".as_ref(), image.path.as_os_str()]);
    let fs = image.open();
    outgrow_small_counters(&fs, inode).unwrap();
    image.close(fs);
    let printed = reference.db(&image.path, &[&format!("inode {inode}"), "print"]);
    let extents = printed.lines().find_map(|line| line.strip_prefix("core.naextents = ")).unwrap();
    assert!(extents.parse::<u32>().unwrap() > 32_767, "{extents} extents");
    let Some(kernel) = kernel_mount(&image.path) else { return };
    let mut value = vec![0; 65_536];
    rustix::fs::getxattr(kernel.path().join("file"), "user.779", &mut value[..]).unwrap();
    assert!(value == [7; 65_536]);
    kernel.unmount();
}
