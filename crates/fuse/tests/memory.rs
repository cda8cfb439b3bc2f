//! The server of a mount takes any filesystem: here one in memory, which knows nothing of XFS.

mod common;

use common::{Served, run, skip_without_fuse};
use rustix::fs::XattrFlags;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use xfskit_fuse::{Options, Session, Unmounted};
use xfskit_testkit::{scratch, tree};
use xfskit_vfs::{LastLink, MemoryVolume, Volume};

fn make(dir: &Path) {
    fs::create_dir_all(dir.join("a/b")).unwrap();
    fs::write(dir.join("a/file"), vec![7; 300_000]).unwrap();
    fs::hard_link(dir.join("a/file"), dir.join("a/b/further name")).unwrap();
    symlink("../a/file", dir.join("a/link")).unwrap();
    fs::set_permissions(dir.join("a/file"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::set_permissions(dir.join("a/b"), fs::Permissions::from_mode(0o1777)).unwrap();
    File::create(dir.join("sparse")).unwrap().write_all_at(b"end", 5 << 20).unwrap();
    for number in 0..300 {
        fs::write(dir.join("a/b").join(number.to_string()), number.to_string()).unwrap();
    }
}

#[test]
fn a_filesystem_in_memory_is_mounted_and_keeps_what_programs_write() {
    if skip_without_fuse() {
        return;
    }
    let scratch = scratch();
    let (at, folder) = (scratch.file("mount"), scratch.file("folder"));
    fs::create_dir(&at).unwrap();
    let volume = MemoryVolume::new(256 << 20);
    let session = Session::mount(volume.clone(), &at, &Options { allow_other: true, ..Options::default() }).unwrap();
    let unmounter = session.unmounter();
    let mut served = Served { unmounter, thread: Some(std::thread::spawn(|| session.run())) };

    make(&folder);
    run("cp", &["-a", folder.to_str().unwrap()], &at.join("tree"));
    let differs = tree(&at.join("tree")).into_iter().zip(tree(&folder)).find(|(copy, original)| copy != original);
    assert_eq!(differs, None);
    // A file without a name lives while it is open.
    let mut open = OpenOptions::new().read(true).write(true).create_new(true).open(at.join("gone")).unwrap();
    open.write_all(b"still there").unwrap();
    fs::remove_file(at.join("gone")).unwrap();
    let mut contents = String::new();
    open.seek(SeekFrom::Start(0)).unwrap();
    open.read_to_string(&mut contents).unwrap();
    assert_eq!((contents.as_str(), open.metadata().unwrap().nlink()), ("still there", 0));
    open.sync_all().unwrap();
    drop(open);

    let file = at.join("tree/a/file");
    rustix::fs::setxattr(&file, "user.note", b"one", XattrFlags::CREATE).unwrap();
    assert!(rustix::fs::setxattr(&file, "user.note", b"two", XattrFlags::CREATE).is_err());
    fs::rename(at.join("tree/a"), at.join("tree/moved")).unwrap();
    assert!(fs::rename(at.join("tree"), at.join("tree/moved/b/below itself")).is_err());
    let file = at.join("tree/moved/file");
    File::options().write(true).open(&file).unwrap().set_len(10).unwrap();
    assert_eq!(fs::read(at.join("tree/moved/b/further name")).unwrap(), [7; 10]);
    assert_eq!(fs::read_dir(at.join("tree/moved/b")).unwrap().count(), 301);
    assert!(fs::remove_dir(at.join("tree/moved/b")).is_err());
    let free = rustix::fs::statvfs(&at).unwrap();
    assert!(free.f_bfree > 0 && free.f_blocks * free.f_frsize <= 256 << 20);
    assert_eq!(served.stop().unwrap(), Unmounted::Gone);

    let found = volume.resolve(b"/tree/moved/file", LastLink::Keep).unwrap();
    assert_eq!((found.size, found.links, found.permissions.bits()), (10, 2, 0o4751));
    assert_eq!(volume.get_xattr(found.inode, b"user.note").unwrap(), b"one");
}
