//! Every operation, judged by xfs_repair and by the kernel's view of the same image.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xfskit_device::{Access, FileDevice};
use xfskit_engine::{
    Caller, Error, MountOptions, NewFile, Permissions, RenameFlags, SetAttr, SetMode, SetTime, Volume, XattrChange,
};
use xfskit_ondisk::Timestamp;
use xfskit_testkit::{Reference, Scratch};

struct Image {
    reference: Reference,
    _scratch: Scratch,
    path: PathBuf,
}

fn image(options: &[&str]) -> Option<Image> {
    let reference = xfskit_testkit::reference()?;
    let scratch = xfskit_testkit::scratch();
    let path = scratch.image("a.img", 512 << 20);
    reference.mkfs(&path, options);
    Some(Image { reference, _scratch: scratch, path })
}

fn open(path: &Path) -> Volume {
    Volume::open(Arc::new(FileDevice::open(path, Access::Write).unwrap()), MountOptions::default()).unwrap()
}

#[test]
fn a_tree_of_everything_is_the_same_for_the_kernel() {
    let Some(image) = image(&[]) else { return };
    let fs = open(&image.path);
    let me = Caller { uid: 1000, gid: 1000, groups: vec![] };
    let root = fs.root();
    let dir = fs.create(root, b"dir", &NewFile::dir(0o755), &me).unwrap().inode;
    let sub = fs.create(dir, b"sub", &NewFile::dir(0o2775), &me).unwrap().inode;
    for n in 0..300 {
        let name = format!("file {n:04}");
        let file = fs.create(sub, name.as_bytes(), &NewFile::file(0o644), &me).unwrap().inode;
        fs.set_xattr(file, b"user.color", b"blue", SetMode::Create, &me).unwrap();
        if n % 3 == 0 {
            fs.link(dir, format!("link {n}").as_bytes(), file, &Caller::root()).unwrap();
        }
        if n % 5 == 0 {
            fs.unlink(sub, name.as_bytes(), &me).unwrap();
        }
    }
    fs.symlink(dir, b"short", b"target", &me).unwrap();
    let link = fs.symlink(dir, b"long", &[b'x'; 1023], &me).unwrap().inode;
    // The kernel lists such an attribute and then does not find it.
    let refused = fs.set_xattr(link, b"user.color", b"blue", SetMode::Any, &me);
    assert!(matches!(refused, Err(Error::NotPermitted)), "{refused:?}");
    fs.set_xattr(link, b"trusted.color", b"blue", SetMode::Any, &me).unwrap();
    for (name, mode) in [("fifo", 0o010_600), ("socket", 0o140_700), ("null", 0o020_666), ("disk", 0o060_660)] {
        let new = NewFile::of_mode(mode).unwrap();
        let new = NewFile { device: if new.file_type.is_device() { 0x0103 } else { 0 }, ..new };
        fs.create(dir, name.as_bytes(), &new, &Caller::root()).unwrap();
    }
    fs.rename(dir, b"short", root, b"moved link", RenameFlags::default(), &me).unwrap();
    fs.rename(dir, b"sub", root, b"sub moved", RenameFlags::default(), &me).unwrap();
    let exchange = RenameFlags { exchange: true, ..Default::default() };
    fs.rename(dir, b"fifo", root, b"sub moved", exchange, &me).unwrap();
    let whiteout = RenameFlags { whiteout: true, ..Default::default() };
    fs.rename(dir, b"socket", root, b"socket", whiteout, &Caller::root()).unwrap();
    fs.rename(sub, b"file 0001", sub, b"file 0002", RenameFlags::default(), &me).unwrap();
    let acl: Vec<u8> = [
        &2u32.to_le_bytes()[..],
        &[1, 0, 7, 0, 0xff, 0xff, 0xff, 0xff],
        &[2, 0, 6, 0, 0xe8, 3, 0, 0],
        &[4, 0, 5, 0, 0xff, 0xff, 0xff, 0xff],
        &[16, 0, 7, 0, 0xff, 0xff, 0xff, 0xff],
        &[32, 0, 4, 0, 0xff, 0xff, 0xff, 0xff],
    ]
    .concat();
    fs.set_xattr(sub, b"system.posix_acl_default", &acl, SetMode::Any, &me).unwrap();
    fs.set_xattr(sub, b"security.selinux", b"system_u:object_r:etc_t:s0\0", SetMode::Any, &me).unwrap();
    fs.create(sub, b"heir", &NewFile::file(0o666), &me).unwrap();
    let heir = fs.create(sub, b"heir dir", &NewFile::dir(0o777), &me).unwrap().inode;
    assert_eq!(fs.get_xattr(heir, b"system.posix_acl_default").unwrap(), acl);
    let paths = fs.paths(heir).unwrap();
    assert_eq!(paths, [b"/dir/fifo/heir dir".to_vec()]);
    fs.unmount().unwrap();
    image.reference.repair_finds_nothing(&image.path);

    let Some(kernel) = xfskit_testkit::kernel_mount(&image.path) else { return };
    let tree = xfskit_testkit::tree(kernel.path());
    eprintln!("{} entries", tree.len());
    let heir = tree.iter().find(|e| e.path.ends_with("heir")).unwrap();
    eprintln!("{heir:?}");
    kernel.unmount();
    image.reference.repair_finds_nothing(&image.path);
}

#[test]
fn a_batch_of_attributes_is_one_transaction() {
    let Some(image) = image(&[]) else { return };
    let me = Caller::root();
    let fs = open(&image.path);
    let file = fs.create(fs.root(), b"file", &NewFile::file(0o644), &me).unwrap().inode;
    let batch = |count: usize, bytes: usize| -> Vec<XattrChange> {
        let name = |n| format!("user.{bytes}-{n}").into_bytes();
        (0..count).map(|n| XattrChange { name: name(n), value: Some(vec![n as u8; bytes]) }).collect()
    };
    for (count, bytes) in [(4, 20), (100, 2900), (300, 40), (20, 65536)] {
        let before = fs.mount().counters.transactions.get();
        fs.change_xattrs(file, &batch(count, bytes), SetMode::Any, &me).unwrap();
        assert_eq!(fs.mount().counters.transactions.get() - before, 1, "{count} of {bytes} bytes");
    }
    // A batch that must fail changes nothing.
    let mut bad = batch(3, 10);
    bad.push(XattrChange { name: b"user.missing".to_vec(), value: None });
    fs.change_xattrs(file, &bad, SetMode::Any, &me).unwrap_err();
    let twice = vec![XattrChange { name: b"user.20-0".to_vec(), value: None }; 2];
    fs.change_xattrs(file, &twice, SetMode::Any, &me).unwrap_err();
    let value = Some(b"\x02\0\0\0nonsense".to_vec());
    let acl = XattrChange { name: b"system.posix_acl_access".to_vec(), value };
    let first = XattrChange { name: b"user.20-0".to_vec(), value: Some(vec![]) };
    fs.change_xattrs(file, &[first, acl], SetMode::Any, &me).unwrap_err();
    assert_eq!(fs.get_xattr(file, b"user.20-0").unwrap().len(), 20);
    assert_eq!(fs.list_xattrs(file).unwrap().len(), 424);
    assert!(
        fs.change_xattrs(file, &batch(100_000, 10), SetMode::Any, &me)
            .unwrap_err()
            .to_string()
            .contains("split the batch")
    );
    fs.unmount().unwrap();
    image.reference.repair_finds_nothing(&image.path);
}

/// An ACL takes more bytes on disk than in the form for users, so one that fits in that form may be too long for the
/// disk. The change of a mode must reserve what a long ACL takes on small blocks.
#[test]
fn an_acl_has_at_most_the_entries_that_fit_on_disk() {
    let Some(image) = image(&["-b", "size=1024"]) else { return };
    let me = Caller::root();
    let fs = open(&image.path);
    let file = fs.create(fs.root(), b"file", &NewFile::file(0o644), &me).unwrap().inode;
    let acl = |users: u32| -> Vec<u8> {
        let entry = |tag: u16, id: u32| [&tag.to_le_bytes()[..], &[6, 0], &id.to_le_bytes()].concat();
        let mut bytes = [2u32.to_le_bytes().to_vec(), entry(1, u32::MAX)].concat();
        (0..users).for_each(|id| bytes.extend(entry(2, id)));
        [4, 16, 32].iter().for_each(|tag| bytes.extend(entry(*tag, u32::MAX)));
        bytes
    };
    let most = (65536 - 4) / 12 - 4;
    let set = |users| fs.set_xattr(file, b"system.posix_acl_access", &acl(users), SetMode::Any, &me);
    assert!(matches!(set(most + 1), Err(Error::Invalid(_))));
    for users in [3000, most] {
        set(users).unwrap();
        fs.sync().unwrap();
        fs.set_attr(file, &SetAttr { permissions: Some(Permissions::new(0o640)), ..SetAttr::default() }, &me).unwrap();
        let found = fs.get_xattr(file, b"system.posix_acl_access").unwrap();
        assert_eq!(found.len(), acl(users).len());
        let mask = found.len() - 16;
        assert_eq!(found[mask..mask + 4], [16, 0, 4, 0], "the mask is the group's part of the mode");
    }
    fs.unmount().unwrap();
    image.reference.repair_finds_nothing(&image.path);
    let Some(kernel) = xfskit_testkit::kernel_mount(&image.path) else { return };
    assert_eq!(std::fs::metadata(kernel.path().join("file")).unwrap().mode() & 0o777, 0o640);
    kernel.unmount();
}

/// The kernel sends the times of a removed file before it releases it. They must not cost a transaction for every
/// unlink through a mount.
#[test]
fn times_of_a_file_without_a_name_wait_for_one() {
    let Some(image) = image(&[]) else { return };
    let me = Caller::root();
    let fs = open(&image.path);
    let unnamed = fs.tmpfile(fs.root(), &NewFile::file(0o600), &me).unwrap();
    let file = unnamed.number();
    let before = fs.mount().counters.transactions.get();
    let mtime = Timestamp { seconds: 1_234_567_890, nanoseconds: 5 };
    let times = SetAttr { mtime: Some(SetTime::To(mtime)), ..SetAttr::default() };
    assert_eq!(fs.set_attr(file, &times, &me).unwrap().mtime, mtime);
    assert_eq!(fs.mount().counters.transactions.get(), before);
    assert_eq!(fs.stat(file).unwrap().mtime, mtime);
    fs.link(fs.root(), b"named", file, &Caller::root()).unwrap();
    unnamed.release().unwrap();
    fs.unmount().unwrap();
    image.reference.repair_finds_nothing(&image.path);
    let Some(kernel) = xfskit_testkit::kernel_mount(&image.path) else { return };
    let found = std::fs::metadata(kernel.path().join("named")).unwrap();
    assert_eq!((found.mtime(), found.mtime_nsec()), (1_234_567_890, 5));
}

/// The core gets the time of a write late. That must not undo the time of a later change. And a write changes an mtime
/// that lies in the future.
#[test]
fn a_write_that_the_core_learns_of_late_moves_no_time_back() {
    let Some(image) = image(&[]) else { return };
    let me = Caller::root();
    let fs = open(&image.path);
    let [first, second, ahead] = [b"first", b"secnd", b"ahead"].map(|name| {
        let file = fs.create(fs.root(), name, &NewFile::file(0o644), &me).unwrap().inode;
        fs.write_at(file, 0, b"contents").unwrap();
        file
    });
    fs.link(fs.root(), b"other", second, &Caller::root()).unwrap();
    fs.sync().unwrap();
    let far = Timestamp { seconds: 4_000_000_000, nanoseconds: 0 };
    let times = SetAttr { mtime: Some(SetTime::To(far)), ..SetAttr::default() };
    fs.set_attr(ahead, &times, &me).unwrap();
    [first, second, ahead].into_iter().for_each(|file| fs.write_at(file, 0, b"C").unwrap());
    assert!(fs.stat(ahead).unwrap().mtime < far, "the mtime of a file is that of its last write");
    let written = [first, second].map(|file| fs.stat(file).unwrap().mtime);
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs.set_xattr(first, b"user.a", b"b", SetMode::Any, &me).unwrap();
    fs.unlink(fs.root(), b"other", &me).unwrap();
    let shown = [first, second, ahead].map(|file| fs.stat(file).unwrap());
    let later = |file: usize| shown[file].ctime > written[file] && shown[file].mtime == written[file];
    assert!(later(0) && later(1), "{shown:?}");
    fs.unmount().unwrap();
    image.reference.repair_finds_nothing(&image.path);
    let Some(kernel) = xfskit_testkit::kernel_mount(&image.path) else { return };
    for (name, shown) in ["first", "secnd", "ahead"].into_iter().zip(shown) {
        let found = std::fs::metadata(kernel.path().join(name)).unwrap();
        let of = |time: Timestamp| (time.seconds, i64::from(time.nanoseconds));
        assert_eq!((found.mtime(), found.mtime_nsec()), of(shown.mtime), "mtime of {name}");
        assert_eq!((found.ctime(), found.ctime_nsec()), of(shown.ctime), "ctime of {name}");
    }
    kernel.unmount();
}

#[test]
fn files_made_and_removed_leave_nothing_behind() {
    let Some(image) = image(&[]) else { return };
    let me = Caller::root();
    let fs = open(&image.path);
    let before = fs.statfs();
    for round in 0..3 {
        let dir = fs.create(fs.root(), b"d", &NewFile::dir(0o755), &me).unwrap().inode;
        for n in 0..3000 {
            fs.create(dir, format!("{round}-{n}").as_bytes(), &NewFile::file(0o600), &me).unwrap();
        }
        for n in 0..3000 {
            fs.unlink(dir, format!("{round}-{n}").as_bytes(), &me).unwrap();
        }
        fs.rmdir(fs.root(), b"d", &me).unwrap();
    }
    assert_eq!(fs.statfs().free_blocks, before.free_blocks);
    eprintln!("{:?}", fs.mount().counters.list());
    fs.unmount().unwrap();
    image.reference.repair_finds_nothing(&image.path);
}

/// The intents of a batch commit together, with their values, and all their log space must be reserved.
#[test]
fn a_batch_of_logged_values_reserves_what_its_intents_take() {
    let Some(image) = image(&[]) else { return };
    let options = MountOptions {
        attr_logging: xfskit_engine::AttrLogging::Always,
        attr_path: xfskit_engine::AttrPath::Intents,
        ..MountOptions::default()
    };
    let fs = Volume::open(Arc::new(FileDevice::open(&image.path, Access::Write).unwrap()), options).unwrap();
    let file = fs.create(fs.root(), b"f", &NewFile::file(0o644), &Caller::root()).unwrap().inode;
    let change = |n: u32| XattrChange { name: format!("user.{n}").into_bytes(), value: Some(vec![7; 65_536]) };
    fs.change_xattrs(file, &(0..16).map(change).collect::<Vec<_>>(), SetMode::Any, &Caller::root()).unwrap();
    assert_eq!(fs.list_xattrs(file).unwrap().len(), 16);
    let many: Vec<_> = (0..1000).map(change).collect();
    assert!(matches!(fs.change_xattrs(file, &many, SetMode::Any, &Caller::root()), Err(Error::Invalid(_))));
    fs.unmount().unwrap();
    image.reference.repair_finds_nothing(&image.path);
}

/// A name that is too long must not be reported as a buffer that is too small.
#[test]
fn attributes_that_are_too_long_are_refused_as_by_the_kernel() {
    let Some(image) = image(&[]) else { return };
    let cases = [(251, 1), (255, 1), (256, 1), (256, 65_537), (3, 65_536), (3, 65_537)];
    let name = |length: usize| format!("user.{}", "n".repeat(length));
    let Some(kernel) = xfskit_testkit::kernel_mount(&image.path) else { return };
    let folder = kernel.path().join("f");
    std::fs::create_dir(&folder).unwrap();
    let kernels = cases.map(|(length, bytes)| {
        let set = rustix::fs::setxattr(&folder, name(length), &vec![7; bytes], rustix::fs::XattrFlags::empty());
        set.map_or_else(|errno| errno.raw_os_error(), |()| 0)
    });
    kernel.unmount();
    let fs = open(&image.path);
    let folder = fs.lookup(fs.root(), b"f").unwrap().inode;
    for ((length, bytes), kernels) in cases.into_iter().zip(kernels) {
        let set = fs.set_xattr(folder, name(length).as_bytes(), &vec![7; bytes], SetMode::Any, &Caller::root());
        // The kernel counts the prefix, which is not on disk, with the name, so names written by others may be longer.
        let expected = if matches!(length, 251..=255) { 0 } else { kernels };
        assert_eq!(set.as_ref().map_or_else(Error::errno, |()| 0), expected, "{length}, {bytes}: {set:?}");
        if length > 255 {
            assert_eq!(set.unwrap_err().to_string(), "the attribute's name is longer than 255 bytes");
        }
    }
    fs.unmount().unwrap();
    image.reference.repair_finds_nothing(&image.path);
}
