//! Ordinary programs use a mounted image; afterwards the kernel and xfs_repair check it.

mod common;

use common::{mounted, run, serve};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use xfskit_fuse::{STATS_XATTR, Unmounted};
use xfskit_testkit::{kernel_mount, reference, tree};

fn errno(result: std::io::Result<impl Sized>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

fn set_time(path: &Path, seconds: i64, nanoseconds: i64) {
    let time = rustix::fs::Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn make_tree(fixture: &common::Fixture) {
    fs::create_dir_all(fixture.path("a/b/c")).unwrap();
    for n in 0..200 {
        fs::File::create(fixture.path(&format!("a/b/file-{n}"))).unwrap();
    }
    symlink("../b/file-3", fixture.path("a/b/c/link")).unwrap();
    fs::hard_link(fixture.path("a/b/file-4"), fixture.path("a/four")).unwrap();
    run("mknod", &[fixture.path("a/zero").to_str().unwrap(), "c", "1"], Path::new("5"));
    run("mkfifo", &[], &fixture.path("a/fifo"));
    fs::set_permissions(fixture.path("a/four"), fs::Permissions::from_mode(0o6751)).unwrap();
    std::os::unix::fs::chown(fixture.path("a/b/file-7"), Some(1234), Some(70_000)).unwrap();
    run("setfattr", &["-n", "user.colour", "-v", "blue"], &fixture.path("a/four"));
    run("setfattr", &["-n", "security.note", "-v", "0sAAEC"], &fixture.path("a/b"));
    run("setfattr", &["-n", "trusted.large", "-v", &"x".repeat(5000)], &fixture.path("a/b/file-9"));
    run("setfacl", &["-m", "u:1000:rw,g:50:r"], &fixture.path("a/b/file-10"));
    run("setfacl", &["-d", "-m", "u:1000:rwx,o::-"], &fixture.path("a/b/c"));
    fs::File::create(fixture.path("a/b/c/heir")).unwrap();
    fs::create_dir(fixture.path("a/b/c/heirs")).unwrap();
    fs::rename(fixture.path("a/b/file-11"), fixture.path("moved")).unwrap();
    fs::rename(fixture.path("a/b/c"), fixture.path("a/c")).unwrap();
    for n in 100..150 {
        fs::remove_file(fixture.path(&format!("a/b/file-{n}"))).unwrap();
    }
    set_time(&fixture.path("moved"), -2, 500_000_000);
    set_time(&fixture.path("a/fifo"), 5_000_000_000, 7);
}

#[test]
fn what_programs_make_is_there_for_the_kernel() {
    let Some(fixture) = mounted() else { return };
    make_tree(&fixture);
    assert_eq!(fs::metadata(fixture.path("moved")).unwrap().mtime(), -2);
    assert_eq!(fs::metadata(fixture.path("moved")).unwrap().mtime_nsec(), 500_000_000);
    let ours = tree(&fixture.path(""));
    let scratch = fixture.unmount();
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&scratch.file("a.img"));
    }
    // A second mount by xfskit reads what the first one wrote.
    let mut second = serve(&scratch);
    let again = tree(&scratch.file("mount"));
    second.stop().unwrap();
    let Some(kernel) = kernel_mount(&scratch.file("a.img")) else { return };
    let theirs = tree(kernel.path());
    kernel.unmount();
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours.to_string(), theirs.to_string());
    }
    assert_eq!(ours.len(), theirs.len());
    assert_eq!(again, theirs);
}

#[test]
fn a_removed_file_lives_while_it_is_open_and_is_gone_after() {
    let Some(fixture) = mounted() else { return };
    let path = fixture.path("open");
    let file = fs::File::create(&path).unwrap();
    let before = rustix::fs::statvfs(fixture.path("")).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    file.sync_all().unwrap();
    assert_eq!(errno(fs::metadata(&path)), Some(2));
    drop(file);
    // The kernel forgets the file a moment later.
    let gone = |_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        rustix::fs::statvfs(fixture.path("")).unwrap().f_ffree > before.f_ffree
    };
    assert!((0..500).any(gone), "the inode was not freed");
    let scratch = fixture.unmount();
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&scratch.file("a.img"));
    }
}

#[test]
fn a_mount_in_use_is_detached_and_its_image_is_closed() {
    let Some(mut fixture) = mounted() else { return };
    let file = fs::File::create(fixture.path("open")).unwrap();
    fs::remove_file(fixture.path("open")).unwrap();
    fs::File::create(fixture.path("kept")).unwrap();
    assert_eq!(fixture.mount.unmounter.unmount().unwrap(), Unmounted::Detached);
    assert_eq!(errno(file.set_permissions(fs::Permissions::from_mode(0o600))), Some(5));
    drop(file);
    fixture.mount.thread.take().unwrap().join().unwrap().unwrap();
    if let Some(reference) = reference() {
        reference.repair_finds_nothing(&fixture.scratch.file("a.img"));
    }
}

#[test]
fn listings_are_whole_and_go_on_where_they_stopped() {
    let Some(fixture) = mounted() else { return };
    let names: BTreeSet<String> = (0..3000).map(|n| format!("{}-{n}", "n".repeat(n % 100 + 1))).collect();
    for name in &names {
        fs::File::create(fixture.path(name)).unwrap();
    }
    let list = || -> BTreeSet<String> {
        let entries = fs::read_dir(fixture.path("")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    assert!(list() == names);
    // With attributes (the kernel asks for them when a program reads those of the entries) and again from its cache.
    assert_eq!(run("ls", &["-l"], &fixture.path("")).lines().count(), names.len() + 1);
    assert!(list() == names);
    for name in names.iter().step_by(2) {
        fs::remove_file(fixture.path(name)).unwrap();
    }
    let left: BTreeSet<String> = names.iter().skip(1).step_by(2).cloned().collect();
    assert!(list() == left);
    fixture.unmount();
}

#[test]
fn names_and_attributes_answer_as_posix_wants() {
    let Some(fixture) = mounted() else { return };
    let (a, b) = (fixture.path("a"), fixture.path("b"));
    let file = fs::File::create(&a).unwrap();
    assert_eq!(errno(fs::create_dir(&a)), Some(17));
    assert_eq!(errno(fs::remove_dir(&a)), Some(20));
    assert_eq!(errno(fs::metadata(fixture.path(&"x".repeat(256)))), Some(36));
    assert_eq!(fs::read(&a).unwrap(), b"");
    file.write_all_at(b"x", 0).unwrap();
    assert_eq!(fs::read(&a).unwrap(), b"x");
    drop(file);
    fs::File::options().write(true).truncate(true).open(&a).unwrap();
    assert_eq!(fs::read(&a).unwrap(), b"");
    let rename = |flags| rustix::fs::renameat_with(rustix::fs::CWD, &a, rustix::fs::CWD, &b, flags);
    fs::create_dir(&b).unwrap();
    assert_eq!(rename(rustix::fs::RenameFlags::NOREPLACE), Err(rustix::io::Errno::EXIST));
    rename(rustix::fs::RenameFlags::EXCHANGE).unwrap();
    assert!(a.is_dir() && b.is_file());
    let set = |flags| rustix::fs::setxattr(&b, "user.x", b"1", flags);
    assert_eq!(set(rustix::fs::XattrFlags::REPLACE), Err(rustix::io::Errno::NODATA));
    set(rustix::fs::XattrFlags::CREATE).unwrap();
    assert_eq!(set(rustix::fs::XattrFlags::CREATE), Err(rustix::io::Errno::EXIST));
    let value = |bytes: usize| rustix::fs::getxattr(&b, "user.x", &mut vec![0u8; bytes]);
    set(rustix::fs::XattrFlags::REPLACE).unwrap();
    assert_eq!(value(2), Ok(1));
    rustix::fs::setxattr(&b, "user.x", b"12345", rustix::fs::XattrFlags::empty()).unwrap();
    assert_eq!(value(2), Err(rustix::io::Errno::RANGE));
    assert_eq!(run("getfattr", &["--absolute-names", "--only-values", "-n", "user.x"], &b), "12345");
    assert_eq!(run("setfacl", &["-b"], &b), "");
    fixture.unmount();
}

#[test]
fn the_umask_counts_only_where_no_default_acl_does() {
    let Some(fixture) = mounted() else { return };
    for name in ["plain", "acl"] {
        fs::create_dir(fixture.path(name)).unwrap();
    }
    run("setfacl", &["-d", "-m", "u::rwx,g::rwx,o::r"], &fixture.path("acl"));
    let script = format!(
        "umask 077; touch {0}/plain/f {0}/acl/f; mkdir {0}/plain/d {0}/acl/d",
        fixture.scratch.file("mount").display()
    );
    run("sh", &["-c"], Path::new(&script));
    let mode = |name| fs::metadata(fixture.path(name)).unwrap().mode() & 0o7777;
    assert_eq!(["plain/f", "acl/f", "plain/d", "acl/d"].map(mode), [0o600, 0o664, 0o700, 0o774]);
    fixture.unmount();
}

#[test]
fn an_attribute_of_the_root_has_the_figures_of_the_mount() {
    let Some(fixture) = mounted() else { return };
    fs::File::create(fixture.path("a")).unwrap();
    let mut value = vec![0u8; 65536];
    let length = rustix::fs::getxattr(fixture.path(""), STATS_XATTR, &mut value).unwrap();
    let figures: serde_json::Value = serde_json::from_slice(&value[..length]).unwrap();
    assert!(figures["counters"]["transactions"].as_u64() >= Some(1));
    assert!(figures["log"]["size_bytes"].as_u64() > figures["log"]["used_bytes"].as_u64());
    assert!(!run("getfattr", &["-m", "-"], &fixture.path("")).contains(STATS_XATTR));
    fixture.unmount();
}
