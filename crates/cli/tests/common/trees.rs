//! Trees with everything that a copy must preserve, and functions that compare them.
#![allow(dead_code)] // Each test uses a part.

use rustix::fs::{CWD, FileType, Mode, SeekFrom};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use xfskit_testkit::{TreeEntry, tree};

/// Makes a tree of all kinds of files. As root, with owners and device nodes.
pub fn make_tree(root: &Path) {
    let at = |name: &str| root.join(name);
    fs::create_dir_all(at("dir/empty")).unwrap();
    fs::create_dir(at("dir/many")).unwrap();
    for n in 0..300 {
        fs::write(at(&format!("dir/many/file-with-a-name-{n:03}")), vec![n as u8; n * 17]).unwrap();
    }
    let big: Vec<u8> = (0..3_000_001_u32).map(|n| (n * 7 + n / 1000) as u8).collect();
    fs::write(at("big"), big).unwrap();
    fs::write(at("empty"), "").unwrap();
    fs::write(at("zeros"), vec![0; 100_000]).unwrap();
    let sparse = File::create(at("sparse")).unwrap();
    sparse.set_len(10_000_000).unwrap();
    sparse.write_all_at(b"in the middle", 5_000_000).unwrap();
    sparse.write_all_at(&[1; 70_000], 8_388_608).unwrap();
    File::create(at("hole")).unwrap().set_len(1 << 20).unwrap();
    fs::hard_link(at("big"), at("dir/again")).unwrap();
    symlink("../big", at("dir/link")).unwrap();
    symlink("/nowhere/".repeat(60), at("long-link")).unwrap();
    symlink("target", at("many-links")).unwrap();
    fs::hard_link(at("many-links"), at("dir/many-links")).unwrap();
    fs::write(root.join(OsStr::from_bytes(b"not \xff text = %41")), "x").unwrap();
    fs::write(at(&"n".repeat(255)), "long").unwrap();
    let node = |name: &str, kind, device| {
        rustix::fs::mknodat(CWD, at(name), kind, Mode::from_raw_mode(0o640), device).unwrap();
    };
    node("pipe", FileType::Fifo, 0);
    node("socket", FileType::Socket, 0);
    node("null", FileType::CharacterDevice, rustix::fs::makedev(1, 3));
    node("disk", FileType::BlockDevice, rustix::fs::makedev(259, 70_000));
    attributes(root);
}

fn attributes(root: &Path) {
    let at = |name: &str| root.join(name);
    let set = |name: &str, key: &str, value: &[u8]| {
        rustix::fs::lsetxattr(at(name), key, value, rustix::fs::XattrFlags::empty()).unwrap();
    };
    set("big", "user.one", b"1");
    set("big", "trusted.a=b%41", b"\0binary\xff");
    set("empty", "user.large", &[7; 3000]);
    set("long-link", "trusted.on-a-link", b"yes");
    set("null", "trusted.on-a-device", b"yes");
    set("dir", "user.dir", b"");
    for n in 0..20 {
        set("sparse", &format!("user.number-{n:02}"), &vec![n; usize::from(n) * 30]);
    }
    run(Command::new("setfacl").args(["-m", "u:1234:rwx,g:77:r-x"]).arg(at("zeros")));
    run(Command::new("setfacl").args(["-m", "d:u:1234:rwx,u:99:r--"]).arg(at("dir/many")));
    let mode = |name: &str, mode| fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
    rustix::fs::chownat(CWD, at("big"), Some(owner(1000)), None, rustix::fs::AtFlags::empty()).unwrap();
    let huge = Some(owner(3_000_000_000));
    rustix::fs::chownat(CWD, at("long-link"), huge, None, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).unwrap();
    mode("big", 0o6755);
    mode("dir/empty", 0o1777);
    mode("dir/many", 0o2770);
    let time = |seconds, nanoseconds| rustix::fs::Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    for (name, seconds, nanoseconds) in
        [("big", 1_000_000_000, 123_456_789), ("zeros", -5, 250), ("dir", 7_000_000_000, 0)]
    {
        let times =
            rustix::fs::Timestamps { last_access: time(seconds, 1), last_modification: time(seconds, nanoseconds) };
        rustix::fs::utimensat(CWD, at(name), &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

fn owner(uid: u32) -> rustix::fs::Uid {
    rustix::fs::Uid::from_raw(uid)
}

/// Runs a command that must succeed.
pub fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Everything that a comparison covers: all but attributes that XFS generates.
pub fn listing(root: &Path) -> Vec<String> {
    let mut entries = tree(root);
    for entry in &mut entries {
        entry.xattrs.retain(|(name, _)| !name.starts_with("trusted.SGI_ACL_") && name != "trusted.xfs:autofsck");
    }
    entries.iter().map(TreeEntry::to_string).collect()
}

/// Asserts that two trees are the same, holes included.
pub fn assert_same(left: &Path, right: &Path, what: &str) {
    let (ours, theirs) = (listing(left), listing(right));
    for (a, b) in ours.iter().zip(&theirs) {
        assert_eq!(a, b, "{what}");
    }
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for name in ["sparse", "hole", "zeros", "big"] {
        let (left, right) = (left.join(name), right.join(name));
        if left.exists() {
            assert_eq!(parts(&left), parts(&right), "{what}: holes of {name}");
        }
    }
}

/// The parts of a file that contain data.
fn parts(path: &PathBuf) -> Vec<(u64, u64)> {
    let file = File::open(path).unwrap();
    let mut parts = Vec::new();
    let mut at = 0;
    while let Ok(start) = rustix::fs::seek(&file, SeekFrom::Data(at)) {
        at = rustix::fs::seek(&file, SeekFrom::Hole(start)).unwrap();
        parts.push((start, at));
    }
    parts
}

/// Whether this is root, which a test needs that sets owners and makes device nodes.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        xfskit_testkit::skip("owners and device nodes need root");
    }
    root
}
