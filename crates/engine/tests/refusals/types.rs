//! Inodes have a valid type, whatever a caller asks for.

use crate::shapes::refused;
use crate::stress::{FILE, Image};
use std::os::unix::fs::MetadataExt;
use xfskit_engine::{Caller, Error, FileType, NewFile, Permissions, SetAttr, SetTime};
use xfskit_ondisk::Timestamp;
use xfskit_testkit::kernel_mount;

#[test]
fn every_mode_makes_a_sound_inode_or_none() {
    let image = Image::new(64, &[]);
    let (fs, me) = (image.open(), Caller::root());
    let mut made = Vec::new();
    for kind in 0..16_u16 {
        for target in [&b""[..], b"target"] {
            let (mode, name) = (kind << 12 | 0o644, format!("{kind:x} {}", target.len()));
            let exists = matches!(kind, 0 | 1 | 2 | 4 | 6 | 8 | 10 | 12);
            let Some(new) = NewFile::of_mode(mode) else {
                assert!(!exists, "{name}");
                continue;
            };
            assert!(exists, "{name}");
            let device = if new.file_type.is_device() { 0x0103 } else { 0 };
            let new = NewFile { target, device, ..new };
            let result = fs.create(fs.root(), name.as_bytes(), &new, &me);
            if (kind == 10) != target.is_empty() {
                let stat = result.unwrap();
                assert_eq!(stat.mode(), if kind == 0 { FILE | 0o644 } else { mode });
                made.push((name.clone(), stat));
            } else {
                assert!(matches!(refused(&fs, &name, result), Error::Invalid(_)), "{name}");
            }
            let unnamed = fs.tmpfile(fs.root(), &new, &me);
            assert_eq!(unnamed.is_ok(), matches!(kind, 0 | 8) && target.is_empty(), "{name} without a name");
        }
    }
    assert!(matches!(fs.create(fs.root(), b"dir", &NewFile::dir(0o755), &me), Ok(stat) if stat.links == 2));
    image.close(fs);
    let Some(kernel) = kernel_mount(&image.path) else { return };
    for (name, stat) in made {
        let found = std::fs::symlink_metadata(kernel.path().join(&name)).unwrap();
        assert_eq!((found.mode(), found.rdev()), (stat.mode().into(), stat.device.into()), "{name}");
    }
    kernel.unmount();
}

/// What would be left out or mean something else is refused, and nothing is made.
#[test]
fn what_a_call_has_no_use_for_is_refused() {
    let image = Image::new(64, &[]);
    let (fs, me) = (image.open(), Caller::root());
    let made = [
        ("a file with a device", NewFile { device: 7, ..NewFile::file(0o644) }),
        ("a directory with a device", NewFile { device: 7, ..NewFile::dir(0o755) }),
        ("a pipe with a device", NewFile { device: 7, ..NewFile::new(FileType::Fifo, Permissions::new(0o600)) }),
        ("a file by a directory's mode", NewFile::file(0o040_755)),
        ("a file by its own mode", NewFile::file(0o100_644)),
        ("a directory by its own mode", NewFile::dir(0o040_755)),
    ];
    for (what, new) in made {
        let error = refused(&fs, what, fs.create(fs.root(), b"new", &new, &me));
        assert!(matches!(error, Error::Invalid(_)), "{what}: {error}");
        assert!(fs.tmpfile(fs.root(), &new, &me).is_err(), "{what}, without a name");
    }
    assert!(fs.list_dir(fs.root()).unwrap().is_empty());
    // Permissions leave the type out where they are made, as they say.
    let permissions = Permissions::new(0o100_640);
    let file = fs.create(fs.root(), b"file", &NewFile::new(FileType::File, permissions), &me).unwrap();
    assert_eq!(file.mode(), FILE | 0o640);
    let wrong = Timestamp { seconds: 5, nanoseconds: 1_000_000_000 };
    let most = Timestamp { seconds: 5, nanoseconds: 999_999_999 };
    let changes = [
        SetAttr { atime: Some(SetTime::To(wrong)), ..SetAttr::default() },
        SetAttr { mtime: Some(SetTime::To(wrong)), ..SetAttr::default() },
        SetAttr { ctime: Some(wrong), uid: Some(5), ..SetAttr::default() },
        SetAttr { mtime: Some(SetTime::To(wrong)), size: Some(9), ..SetAttr::default() },
    ];
    for change in changes {
        let error = refused(&fs, "times", fs.set_attr(file.inode, &change, &me));
        assert_eq!(error.errno(), rustix::io::Errno::INVAL.raw_os_error(), "{change:?}");
    }
    assert_eq!(fs.stat(file.inode).unwrap(), file);
    let change = SetAttr { mtime: Some(SetTime::To(most)), ..SetAttr::default() };
    assert_eq!(fs.set_attr(file.inode, &change, &me).unwrap().mtime, most);
    image.close(fs);
    // The kernel's mount, too.
    let Some(kernel) = kernel_mount(&image.path) else { return };
    let time = |nanoseconds| rustix::fs::Timespec { tv_sec: 5, tv_nsec: nanoseconds };
    let set = |nanoseconds| {
        let times = rustix::fs::Timestamps { last_access: time(0), last_modification: time(nanoseconds) };
        rustix::fs::utimensat(rustix::fs::CWD, kernel.path().join("file"), &times, rustix::fs::AtFlags::empty())
    };
    assert_eq!((set(1_000_000_000), set(999_999_999)), (Err(rustix::io::Errno::INVAL), Ok(())));
    kernel.unmount();
}
