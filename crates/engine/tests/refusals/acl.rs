//! ACLs that are damaged, or too long: operations that need them are refused before they have changed anything.

use crate::shapes::{file, refused};
use crate::stress::{DIR, FILE, Image};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use std::path::Path;
use std::time::Duration;
use xfskit_engine::attr::Attr;
use xfskit_engine::attr::update::{self, Logging};
use xfskit_engine::mount::BlockPool;
use xfskit_engine::trans::Reservation;
use xfskit_engine::{
    Caller, Error, Fallocate, LastLink, NewFile, Permissions, SetAttr, SetMode, Volume, WholeFile, XattrChange,
};
use xfskit_ondisk::{InodeNumber, Timestamp};

/// An ACL in the form for users, with so many named users.
pub fn acl(users: u32) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    let mut push = |tag: u16, permissions: u16, id: u32| {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    };
    push(1, 7, u32::MAX);
    (0..users).for_each(|user| push(2, 5, 1000 + user));
    [(4, 5), (0x10, 7), (0x20, 1)].into_iter().for_each(|(tag, permissions)| push(tag, permissions, u32::MAX));
    bytes
}

/// Stores a value where an ACL lies, which no call does.
fn plant(fs: &Volume, inode: InodeNumber, name: &[u8], value: &[u8]) {
    let inode = fs.mount().inode(inode).unwrap();
    let reservation = Reservation { log_bytes: 1 << 20, log_count: 1, blocks: 200, pool: BlockPool::Ordinary };
    let mut tx = fs.mount().transaction(reservation).unwrap();
    let id = tx.join_inode(&inode);
    update::put(&mut tx, id, Attr::new(2, name, value), Logging::NotLogged).unwrap();
    tx.commit().unwrap();
}

/// The kernel takes it, and then answers EUCLEAN to every look-up of the file.
#[test]
fn what_is_no_acl_is_refused_under_the_name_on_disk_too() {
    let image = Image::new(64, &[]);
    let (fs, me) = (image.open(), Caller::root());
    let file = file(&fs, "file");
    let garbage: [&[u8]; 5] = [b"garbage", b"", &[0xff; 3000], &[0; 4], &on_disk(3)[..40]];
    for name in [&b"trusted.SGI_ACL_FILE"[..], b"trusted.SGI_ACL_DEFAULT"] {
        for value in garbage {
            let set = refused(&fs, "a set", fs.set_xattr(file, name, value, SetMode::Any, &me));
            assert!(matches!(set, Error::Invalid(_)), "{set}");
            let change = XattrChange { name: name.to_vec(), value: Some(value.to_vec()) };
            let other = XattrChange { name: b"user.a".to_vec(), value: Some(b"1".to_vec()) };
            refused(&fs, "a batch", fs.change_xattrs(file, &[other, change], SetMode::Any, &me));
            let xattrs = [(name.to_vec(), value.to_vec())];
            let time = Timestamp::default();
            let permissions = Permissions::new(0o644);
            let whole = WholeFile {
                name: b"w",
                permissions,
                uid: 0,
                gid: 0,
                atime: time,
                mtime: time,
                xattrs: &xattrs,
                contents: b"",
            };
            refused(&fs, "a whole file", fs.make_files(fs.root(), &[whole]));
        }
    }
    assert!(fs.list_xattrs(file).unwrap().is_empty());
    // What is one is taken, as by the kernel.
    fs.set_xattr(file, b"trusted.SGI_ACL_FILE", &on_disk(3), SetMode::Any, &me).unwrap();
    assert_eq!(fs.get_xattr(file, b"system.posix_acl_access").unwrap(), acl(3));
    fs.set_xattr(file, b"trusted.SGI_ACL_FILELESS", b"garbage", SetMode::Any, &me).unwrap();
    fs.set_xattr(file, b"user.SGI_ACL_FILE", b"garbage", SetMode::Any, &me).unwrap();
    image.close(fs);
}

#[test]
fn a_damaged_acl_stops_a_chmod_and_nothing_else() {
    let image = Image::new(64, &[]);
    let (fs, me) = (image.open(), Caller::root());
    let file = file(&fs, "file");
    for garbage in [&b"garbage"[..], &[0xff; 3000], &[0; 20_000]] {
        plant(&fs, file, b"SGI_ACL_FILE", garbage);
        let change = SetAttr { permissions: Some(Permissions::new(0o600)), uid: Some(7), ..Default::default() };
        assert!(matches!(refused(&fs, "a chmod", fs.set_attr(file, &change, &me)), Error::Corrupt(_)));
        let truncation = SetAttr { size: Some(77), ..change };
        assert!(matches!(refused(&fs, "a truncation", fs.set_attr(file, &truncation, &me)), Error::Corrupt(_)));
        let stat = fs.stat(file).unwrap();
        assert_eq!((stat.mode(), stat.uid, stat.size), (FILE | 0o644, 0, 0), "nothing was changed");
    }
    // What a user can do about it.
    fs.set_xattr(file, b"system.posix_acl_access", &acl(1), SetMode::Any, &me).unwrap();
    fs.set_attr(file, &SetAttr { permissions: Some(Permissions::new(0o600)), ..Default::default() }, &me).unwrap();
    assert_eq!(fs.stat(file).unwrap().mode(), FILE | 0o600);
    plant(&fs, file, b"SGI_ACL_FILE", b"garbage");
    fs.remove_xattr(file, b"system.posix_acl_access", SetMode::Any, &me).unwrap();
    fs.set_attr(file, &SetAttr { permissions: Some(Permissions::new(0o640)), ..Default::default() }, &me).unwrap();
    image.close(fs);
}

#[test]
fn a_damaged_default_acl_stops_what_would_inherit_it() {
    let image = Image::new(64, &[]);
    let (fs, me) = (image.open(), Caller::root());
    let dir = fs.create(fs.root(), b"dir", &NewFile::dir(0o755), &me).unwrap().inode;
    plant(&fs, dir, b"SGI_ACL_DEFAULT", b"garbage");
    for mode in [FILE, DIR] {
        refused(&fs, "a create", fs.create(dir, b"new", &NewFile::of_mode(mode | 0o755).unwrap(), &me));
        refused(&fs, "a file without a name", fs.tmpfile(dir, &NewFile::file(0o755), &me));
    }
    assert_eq!(fs.list_dir(dir).unwrap().len(), 0);
    fs.remove_xattr(dir, b"system.posix_acl_default", SetMode::Any, &me).unwrap();
    fs.create(dir, b"new", &NewFile::file(0o755), &me).unwrap();
    image.close(fs);
}

#[test]
fn the_longest_acl_is_inherited() {
    for block in ["size=1024", "size=4096"] {
        let image = Image::new(64, &[('b', block)]);
        let (fs, me) = (image.open(), Caller::root());
        let dir = fs.create(fs.root(), b"dir", &NewFile::dir(0o755), &me).unwrap().inode;
        let longest = acl(5_450);
        fs.set_xattr(dir, b"system.posix_acl_default", &longest, SetMode::Any, &me).unwrap();
        for (name, mode) in [("file", FILE), ("dir", DIR)] {
            let made = fs.create(dir, name.as_bytes(), &NewFile::of_mode(mode | 0o777).unwrap(), &me).unwrap().inode;
            assert!(fs.get_xattr(made, b"system.posix_acl_access").unwrap() == longest, "{name}");
            fs.set_attr(made, &SetAttr { permissions: Some(Permissions::new(0o700)), ..Default::default() }, &me)
                .unwrap();
        }
        image.close(fs);
    }
}

#[test]
fn a_chmod_that_was_overtaken_by_a_long_acl_begins_anew() {
    let image = Image::new(64, &[('b', "size=1024"), ('d', "agcount=2")]);
    let (fs, me) = (image.open(), Caller::root());
    let file = file(&fs, "file");
    let filler = crate::shapes::file(&fs, "filler");
    // While space is scarce, transactions that may allocate run one at a time, so the chmod waits after it has
    // reserved.
    let free = fs.statfs().free_blocks;
    fs.fallocate(filler, 0, (free - 400) * 1024, Fallocate::Allocate).unwrap();
    let inode = fs.mount().inode(file).unwrap();
    let reservation = Reservation { log_bytes: 1 << 20, log_count: 1, blocks: 200, pool: BlockPool::Ordinary };
    let mut tx = fs.mount().transaction(reservation).unwrap();
    let change = SetAttr { permissions: Some(Permissions::new(0o600)), ..Default::default() };
    std::thread::scope(|scope| {
        let chmod = scope.spawn(|| fs.set_attr(file, &change, &Caller::root()));
        std::thread::sleep(Duration::from_millis(100));
        let id = tx.join_inode(&inode);
        let acl = on_disk(5_400);
        update::put(&mut tx, id, Attr::new(2, b"SGI_ACL_FILE", &acl), Logging::NotLogged).unwrap();
        tx.commit().unwrap();
        assert_eq!(chmod.join().unwrap().unwrap().mode(), FILE | 0o600);
    });
    assert!(fs.get_xattr(file, b"system.posix_acl_access").unwrap().len() > 5_400 * 8);
    fs.unlink(fs.root(), b"filler", &me).unwrap();
    image.close(fs);
}

/// An ACL as it is stored, with so many named users.
fn on_disk(users: u32) -> Vec<u8> {
    let entries = acl(users).split_off(4);
    let entry = |e: &[u8]| {
        let id = if matches!(e[0], 2 | 8) { [e[7], e[6], e[5], e[4]] } else { [0xff; 4] };
        [&[0, 0, e[1], e[0]][..], &id, &[e[3], e[2], 0, 0]].concat()
    };
    let count = (entries.len() / 8) as u32;
    [count.to_be_bytes().to_vec(), entries.chunks(8).flat_map(entry).collect()].concat()
}

/// A value for an ACL and the way to set it.
#[derive(Debug)]
struct Attempt {
    file: &'static str,
    name: &'static str,
    mode: SetMode,
    had_one: bool,
    value: Vec<u8>,
}

/// Headers cut at any byte and with one entry, of three versions; a full ACL and one that the mode says already.
fn attempts() -> Vec<Attempt> {
    let mut values: Vec<Vec<u8>> = vec![acl(1), minimal()];
    for version in [1_u32, 2, 3] {
        let one_entry = [&version.to_le_bytes()[..], &acl(0)[4..12]].concat();
        values.extend((0..=12).map(|length| one_entry[..length].to_vec()));
    }
    let mut attempts = Vec::new();
    for (file, name) in ["file", "dir"].into_iter().flat_map(|file| NAMES.map(|name| (file, name))) {
        for mode in [SetMode::Any, SetMode::Create, SetMode::Replace] {
            for had_one in [false, true] {
                attempts.extend(values.iter().map(|value| Attempt { file, name, mode, had_one, value: value.clone() }));
            }
        }
    }
    attempts
}

const NAMES: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];

fn minimal() -> Vec<u8> {
    let full = acl(0);
    [&full[..4], &full[4..12], &full[12..20], &full[28..36]].concat()
}

/// The error number, if it failed, and what is there afterwards.
type Found = (Option<i32>, Option<Vec<u8>>);

fn by_the_kernel(dir: &Path, attempt: &Attempt) -> Found {
    let path = dir.join(attempt.file);
    let any = XattrFlags::empty();
    let _ = rustix::fs::removexattr(&path, attempt.name);
    if attempt.had_one {
        let _ = setxattr(&path, attempt.name, &acl(2), any);
    }
    let flags = match attempt.mode {
        SetMode::Any => any,
        SetMode::Create => XattrFlags::CREATE,
        SetMode::Replace => XattrFlags::REPLACE,
    };
    let set = setxattr(&path, attempt.name, &attempt.value, flags);
    let mut there = vec![0; 65536];
    let there = getxattr(&path, attempt.name, &mut there[..]).ok().map(|length| there[..length].to_vec());
    (set.err().map(|error| error.raw_os_error()), there)
}

fn by_us(fs: &Volume, attempt: &Attempt, in_batch: bool) -> Found {
    let (inode, name, me) =
        (fs.resolve(attempt.file.as_bytes(), LastLink::Follow).unwrap().inode, attempt.name.as_bytes(), Caller::root());
    let _ = fs.remove_xattr(inode, name, SetMode::Any, &me);
    if attempt.had_one {
        let _ = fs.set_xattr(inode, name, &acl(2), SetMode::Any, &me);
    }
    let set = if in_batch {
        let other = XattrChange { name: b"user.other".to_vec(), value: Some(vec![1]) };
        let change = XattrChange { name: name.to_vec(), value: Some(attempt.value.clone()) };
        fs.change_xattrs(inode, &[other, change], SetMode::Any, &me)
    } else {
        fs.set_xattr(inode, name, &attempt.value, attempt.mode, &me)
    };
    (set.err().map(|error| error.errno()), fs.get_xattr(inode, name).ok())
}

#[test]
fn what_is_no_acl_is_refused_as_the_kernel_does_and_removes_none() {
    let image = Image::new(64, &[]);
    let fs = image.open();
    file(&fs, "file");
    fs.create(fs.root(), b"dir", &NewFile::dir(0o755), &Caller::root()).unwrap();
    image.close(fs);
    let Some(kernel) = xfskit_testkit::kernel_mount(&image.path) else { return };
    let expected: Vec<Found> = attempts().iter().map(|attempt| by_the_kernel(kernel.path(), attempt)).collect();
    kernel.unmount();
    let fs = image.open();
    for (attempt, expected) in attempts().iter().zip(&expected) {
        assert_eq!(&by_us(&fs, attempt, false), expected, "{attempt:?}");
        if attempt.mode == SetMode::Any {
            assert_eq!(&by_us(&fs, attempt, true), expected, "in a batch: {attempt:?}");
        }
    }
    image.close(fs);
}
