//! Immutable and append-only inodes: each operation has the result of the kernel's system call on the same image.

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, IFlags, Mode, OFlags, RenameFlags as Flags, Timespec, Timestamps,
    XattrFlags,
};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xfskit_device::{Access, FileDevice};
use xfskit_engine::{
    Caller, Error, Fallocate, LastLink, MountOptions, NewFile, Permissions, RenameFlags, SetAttr, SetMode, SetTime,
    Volume, WholeFile,
};
use xfskit_ondisk::{InodeNumber, Timestamp};

/// A system call on one case's folder.
type Call = fn(&Path) -> Result<(), Errno>;
/// The same with us.
type Verb = fn(&Case<'_>) -> Result<(), Error>;

const CONTENTS: &[u8] = b"0123456789";
/// An ACL of user, a named user, group, mask and other.
const ACL: &[u8] = b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x02\0\x04\0\x01\0\0\0\x04\0\x04\0\xff\xff\xff\xff\
    \x10\0\x04\0\xff\xff\xff\xff\x20\0\x04\0\xff\xff\xff\xff";

/// One folder of our mount: a protected `file`, and a protected `dir` with `entry`, `sub` and `full`; `other` is not
/// protected.
struct Case<'a> {
    fs: &'a Volume,
    folder: String,
}

impl Case<'_> {
    fn inode(&self, path: &str) -> InodeNumber {
        self.fs.resolve(format!("{}/{path}", self.folder).as_bytes(), LastLink::Keep).expect("a name").inode
    }

    fn set(&self, path: &str, change: SetAttr) -> Result<(), Error> {
        self.fs.set_attr(self.inode(path), &change, &Caller::root()).map(drop)
    }

    fn create(&self, path: &str, mode: u16) -> Result<(), Error> {
        self.fs.create(self.inode(path), b"new", &NewFile::of_mode(mode).unwrap(), &Caller::root()).map(drop)
    }

    fn rename(&self, from: (&str, &str), to: (&str, &str), flags: RenameFlags) -> Result<(), Error> {
        let (dir, new_dir) = (self.inode(from.0), self.inode(to.0));
        self.fs.rename(dir, from.1.as_bytes(), new_dir, to.1.as_bytes(), flags, &Caller::root())
    }

    fn allocate(&self, what: Fallocate, offset: u64) -> Result<(), Error> {
        self.fs.fallocate(self.inode("file"), offset, 4096, what)
    }
}

fn write(path: PathBuf, offset: Option<u64>) -> Result<(), Errno> {
    let flags = if offset.is_none() { OFlags::APPEND } else { OFlags::empty() };
    let file = rustix::fs::open(path, OFlags::WRONLY | flags, Mode::empty())?;
    rustix::io::pwrite(&file, b"abc", offset.unwrap_or_default()).map(drop)
}

/// The file, for writing: an append-only one for appending.
fn open_to_write(case: &Path) -> Result<OwnedFd, Errno> {
    let open = |flags| rustix::fs::open(case.join("file"), OFlags::WRONLY | flags, Mode::empty());
    open(OFlags::empty()).or_else(|_| open(OFlags::APPEND))
}

fn allocate(case: &Path, flags: FallocateFlags, offset: u64) -> Result<(), Errno> {
    rustix::fs::fallocate(open_to_write(case)?, flags, offset, 4096)
}

fn truncate(case: &Path, size: u64) -> Result<(), Errno> {
    rustix::fs::ftruncate(open_to_write(case)?, size)
}

fn times(case: &Path, path: &str, nsecs: i64) -> Result<(), Errno> {
    let time = Timespec { tv_sec: 7, tv_nsec: nsecs };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, case.join(path), &times, AtFlags::empty())
}

fn set_acl(path: PathBuf) -> Result<(), Errno> {
    rustix::fs::setxattr(path, "system.posix_acl_access", ACL, XattrFlags::empty())
}

fn node(path: PathBuf, kind: FileType) -> Result<(), Errno> {
    rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(0o644), 0)
}

fn exchange(one: PathBuf, other: PathBuf) -> Result<(), Errno> {
    rustix::fs::renameat_with(CWD, one, CWD, other, Flags::EXCHANGE)
}

fn clone_into(case: &Path) -> Result<(), Errno> {
    let target = rustix::fs::open(case.join("file"), OFlags::WRONLY, Mode::empty())?;
    rustix::fs::ioctl_ficlone(&target, std::fs::File::open(case.join("other")).expect("a file"))
}

const NOW: Option<SetTime> = Some(SetTime::Now);
const THEN: Option<SetTime> = Some(SetTime::To(Timestamp { seconds: 7, nanoseconds: 0 }));
const NONE: SetAttr =
    SetAttr { permissions: None, uid: None, gid: None, atime: None, mtime: None, ctime: None, size: None };
const PLAIN: RenameFlags = RenameFlags { no_replace: false, exchange: false, whiteout: false };
const EXCHANGE: RenameFlags = RenameFlags { exchange: true, ..PLAIN };

/// The operations on files.
const OF_FILES: &[(&str, Call, Verb)] = &[
    (
        "read",
        |p| std::fs::read(p.join("file")).map(drop).map_err(|_| Errno::IO),
        |c| c.fs.read_at(c.inode("file"), 0, &mut [0; 4]).map(drop),
    ),
    ("write", |p| write(p.join("file"), Some(2)), |c| c.fs.write_at(c.inode("file"), 2, b"abc")),
    ("append", |p| write(p.join("file"), None), |c| c.fs.append(c.inode("file"), b"abc").map(drop)),
    ("write at the end", |p| write(p.join("file"), None), |c| c.fs.write_at(c.inode("file"), 10, b"abc")),
    ("truncate", |p| truncate(p, 3), |c| c.fs.truncate(c.inode("file"), 3)),
    ("grow", |p| truncate(p, 30), |c| c.set("file", SetAttr { size: Some(30), ..NONE })),
    ("allocate", |p| allocate(p, FallocateFlags::empty(), 0), |c| c.allocate(Fallocate::Allocate, 0)),
    ("allocate behind", |p| allocate(p, FallocateFlags::KEEP_SIZE, 0), |c| c.allocate(Fallocate::AllocateKeepSize, 0)),
    (
        "punch",
        |p| allocate(p, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0),
        |c| c.allocate(Fallocate::PunchHole, 0),
    ),
    ("zero", |p| allocate(p, FallocateFlags::ZERO_RANGE, 0), |c| c.allocate(Fallocate::ZeroRange, 0)),
    ("insert", |p| allocate(p, FallocateFlags::INSERT_RANGE, 0), |c| c.allocate(Fallocate::InsertRange, 0)),
    // The kernel wants a file that is open for writing and not for appending.
    ("clone", clone_into, |c| c.fs.clone_range(c.inode("other"), 0, c.inode("file"), 0, 0)),
    (
        "chmod",
        |p| rustix::fs::chmod(p.join("file"), Mode::from_raw_mode(0o600)),
        |c| c.set("file", SetAttr { permissions: Some(Permissions::new(0o600)), ..NONE }),
    ),
    (
        "chown",
        |p| std::os::unix::fs::chown(p.join("file"), Some(7), None).map_err(|e| Errno::from_io_error(&e).unwrap()),
        |c| c.set("file", SetAttr { uid: Some(7), ..NONE }),
    ),
    ("times", |p| times(p, "file", 0), |c| c.set("file", SetAttr { atime: THEN, mtime: THEN, ..NONE })),
    (
        "touch",
        |p| times(p, "file", rustix::fs::UTIME_NOW),
        |c| c.set("file", SetAttr { atime: NOW, mtime: NOW, ..NONE }),
    ),
    (
        "set xattr",
        |p| rustix::fs::setxattr(p.join("file"), "user.b", b"b", XattrFlags::empty()),
        |c| c.fs.set_xattr(c.inode("file"), b"user.b", b"b", SetMode::Any, &Caller::root()),
    ),
    (
        "set a long xattr",
        |p| rustix::fs::setxattr(p.join("file"), "user.b", &[7; 9999], XattrFlags::empty()),
        |c| c.fs.set_xattr(c.inode("file"), b"user.b", &[7; 9999], SetMode::Any, &Caller::root()),
    ),
    (
        "remove xattr",
        |p| rustix::fs::removexattr(p.join("file"), "user.a"),
        |c| c.fs.remove_xattr(c.inode("file"), b"user.a", SetMode::Any, &Caller::root()),
    ),
    (
        "get xattr",
        |p| rustix::fs::getxattr(p.join("file"), "user.a", &mut [0_u8; 9][..]).map(drop),
        |c| c.fs.get_xattr(c.inode("file"), b"user.a").map(drop),
    ),
    (
        "set ACL",
        |p| set_acl(p.join("file")),
        |c| c.fs.set_xattr(c.inode("file"), b"system.posix_acl_access", ACL, SetMode::Any, &Caller::root()),
    ),
    ("unlink", |p| rustix::fs::unlink(p.join("file")), |c| c.fs.unlink(c.inode("."), b"file", &Caller::root())),
    ("rmdir of a file", |p| rustix::fs::rmdir(p.join("file")), |c| c.fs.rmdir(c.inode("."), b"file", &Caller::root())),
    ("rename", |p| rustix::fs::rename(p.join("file"), p.join("new")), |c| c.rename((".", "file"), (".", "new"), PLAIN)),
    (
        "replace",
        |p| rustix::fs::rename(p.join("other"), p.join("file")),
        |c| c.rename((".", "other"), (".", "file"), PLAIN),
    ),
    ("exchange", |p| exchange(p.join("other"), p.join("file")), |c| c.rename((".", "other"), (".", "file"), EXCHANGE)),
    (
        "link",
        |p| rustix::fs::link(p.join("file"), p.join("new")),
        |c| c.fs.link(c.inode("."), b"new", c.inode("file"), &Caller::root()).map(drop),
    ),
];

/// The operations on directories and in them.
const OF_DIRS: &[(&str, Call, Verb)] = &[
    ("create", |p| node(p.join("dir/new"), FileType::RegularFile), |c| c.create("dir", 0o100_644)),
    (
        "create what is there",
        |p| node(p.join("dir/entry"), FileType::RegularFile),
        |c| c.fs.create(c.inode("dir"), b"entry", &NewFile::file(0o644), &Caller::root()).map(drop),
    ),
    (
        "make files",
        |p| node(p.join("dir/new"), FileType::RegularFile),
        |c| {
            let time = Timestamp { seconds: 1, nanoseconds: 0 };
            let (name, xattrs, contents) = (b"new", &[], &[]);
            let file = WholeFile {
                name,
                permissions: Permissions::new(0o644),
                uid: 0,
                gid: 0,
                atime: time,
                mtime: time,
                xattrs,
                contents,
            };
            c.fs.make_files(c.inode("dir"), &[file]).map(drop)
        },
    ),
    ("mkdir", |p| rustix::fs::mkdir(p.join("dir/new"), Mode::RWXU), |c| c.create("dir", 0o040_755)),
    ("fifo", |p| node(p.join("dir/new"), FileType::Fifo), |c| c.create("dir", 0o010_644)),
    (
        "symlink",
        |p| rustix::fs::symlink("target", p.join("dir/new")),
        |c| c.fs.symlink(c.inode("dir"), b"new", b"target", &Caller::root()).map(drop),
    ),
    (
        "tmpfile",
        |p| rustix::fs::open(p.join("dir"), OFlags::TMPFILE | OFlags::WRONLY, Mode::RWXU).map(drop),
        |c| c.fs.tmpfile(c.inode("dir"), &NewFile::file(0o644), &Caller::root())?.release(),
    ),
    ("unlink", |p| rustix::fs::unlink(p.join("dir/entry")), |c| c.fs.unlink(c.inode("dir"), b"entry", &Caller::root())),
    (
        "unlink a directory",
        |p| rustix::fs::unlink(p.join("dir/sub")),
        |c| c.fs.unlink(c.inode("dir"), b"sub", &Caller::root()),
    ),
    ("rmdir", |p| rustix::fs::rmdir(p.join("dir/sub")), |c| c.fs.rmdir(c.inode("dir"), b"sub", &Caller::root())),
    (
        "rmdir a full one",
        |p| rustix::fs::rmdir(p.join("dir/full")),
        |c| c.fs.rmdir(c.inode("dir"), b"full", &Caller::root()),
    ),
    ("rmdir itself", |p| rustix::fs::rmdir(p.join("dir")), |c| c.fs.rmdir(c.inode("."), b"dir", &Caller::root())),
    (
        "rename itself",
        |p| rustix::fs::rename(p.join("dir"), p.join("new")),
        |c| c.rename((".", "dir"), (".", "new"), PLAIN),
    ),
    (
        "rename out",
        |p| rustix::fs::rename(p.join("dir/entry"), p.join("new")),
        |c| c.rename(("dir", "entry"), (".", "new"), PLAIN),
    ),
    (
        "rename in",
        |p| rustix::fs::rename(p.join("other"), p.join("dir/new")),
        |c| c.rename((".", "other"), ("dir", "new"), PLAIN),
    ),
    (
        "rename within",
        |p| rustix::fs::rename(p.join("dir/entry"), p.join("dir/new")),
        |c| c.rename(("dir", "entry"), ("dir", "new"), PLAIN),
    ),
    (
        "replace in it",
        |p| rustix::fs::rename(p.join("other"), p.join("dir/entry")),
        |c| c.rename((".", "other"), ("dir", "entry"), PLAIN),
    ),
    (
        "replace a directory by a file",
        |p| rustix::fs::rename(p.join("other"), p.join("dir/sub")),
        |c| c.rename((".", "other"), ("dir", "sub"), PLAIN),
    ),
    (
        "exchange",
        |p| exchange(p.join("other"), p.join("dir/entry")),
        |c| c.rename((".", "other"), ("dir", "entry"), EXCHANGE),
    ),
    (
        "link in",
        |p| rustix::fs::link(p.join("other"), p.join("dir/new")),
        |c| c.fs.link(c.inode("dir"), b"new", c.inode("other"), &Caller::root()).map(drop),
    ),
    (
        "link what is there",
        |p| rustix::fs::link(p.join("other"), p.join("dir/entry")),
        |c| c.fs.link(c.inode("dir"), b"entry", c.inode("other"), &Caller::root()).map(drop),
    ),
    (
        "chmod",
        |p| rustix::fs::chmod(p.join("dir"), Mode::RWXU),
        |c| c.set("dir", SetAttr { permissions: Some(Permissions::new(0o700)), ..NONE }),
    ),
    ("write in it", |p| write(p.join("dir/entry"), Some(0)), |c| c.fs.write_at(c.inode("dir/entry"), 0, b"abc")),
];

fn folder(table: usize, protection: usize, number: usize) -> String {
    format!("{table}-{protection}-{number}")
}

const PROTECTIONS: [(&str, IFlags); 3] =
    [("nothing", IFlags::empty()), ("immutable", IFlags::IMMUTABLE), ("append-only", IFlags::APPEND)];
const TABLES: [&[(&str, Call, Verb)]; 2] = [OF_FILES, OF_DIRS];

/// The folder of every case.
fn cases() -> impl Iterator<Item = (String, String, IFlags, &'static (&'static str, Call, Verb))> {
    TABLES.iter().enumerate().flat_map(|(table, calls)| {
        PROTECTIONS.iter().enumerate().flat_map(move |(protection, (word, flags))| {
            calls.iter().enumerate().map(move |(number, call)| {
                let story = format!("{} {word}", call.0);
                (folder(table, protection, number), story, *flags, call)
            })
        })
    })
}

fn protect(path: &Path, flags: IFlags) {
    let file = std::fs::File::open(path).expect("an inode");
    let old = rustix::fs::ioctl_getflags(&file).expect("flags");
    rustix::fs::ioctl_setflags(&file, old | flags).expect("flags that are taken");
}

fn make_case(case: &Path, flags: IFlags) {
    for dir in ["dir/sub", "dir/full/sub"] {
        std::fs::create_dir_all(case.join(dir)).expect("room");
    }
    for file in ["file", "other", "dir/entry"] {
        std::fs::write(case.join(file), CONTENTS).expect("room");
    }
    rustix::fs::setxattr(case.join("file"), "user.a", b"a", XattrFlags::empty()).expect("room");
    protect(&case.join("file"), flags);
    protect(&case.join("dir"), flags);
}

/// A file that is immutable for the kernel must not be written, renamed or removed by us.
#[test]
fn protected_inodes_are_as_protected_as_the_kernels() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let path = scratch.image("a.img", 320 << 20);
    reference.mkfs(&path, &[]);
    let Some(kernel) = xfskit_testkit::kernel_mount(&path) else { return };
    cases().for_each(|(folder, _, flags, _)| make_case(&kernel.path().join(folder), flags));
    kernel.unmount();
    let ours = scratch.file("ours.img");
    xfskit_testkit::copy_image(&path, &ours);

    let kernel = xfskit_testkit::kernel_mount(&path).expect("it was mounted before");
    let device = FileDevice::open(&ours, Access::Write).expect("an image");
    let fs = Volume::open(Arc::new(device), MountOptions::default()).expect("a sound image");
    let mut wrong = Vec::new();
    let mut refused = 0;
    for (folder, story, flags, (name, call, verb)) in cases() {
        let kernels = call(&kernel.path().join(&folder)).map_or_else(|errno| errno.raw_os_error(), |()| 0);
        let error = verb(&Case { fs: &fs, folder }).err();
        let own = error.as_ref().map_or(0, Error::errno);
        refused += i32::from(own == Errno::PERM.raw_os_error());
        // The kernel's append-only file cannot be opened for that at all.
        let expected = if *name == "clone" && flags == IFlags::APPEND { Errno::PERM.raw_os_error() } else { kernels };
        if own != expected {
            wrong.push(format!("{story}: {own} ({error:?}) instead of {kernels}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(refused > 60, "{refused}");
    fs.unmount().expect("a clean end");
    kernel.unmount();
    reference.repair_finds_nothing(&ours);
}

/// The flag that forbids symbolic links; the kernel accepts it only by the ioctl that xfs_io uses. New files must not
/// inherit it, for xfs_repair accepts it on directories only.
#[test]
fn a_directory_may_forbid_symbolic_links() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let path = scratch.image("a.img", 320 << 20);
    reference.mkfs(&path, &[]);
    let arguments = ["-x", "-c", "sb 0", "-c", "addr rootino", "-c", "write core.nosymlinks 1"];
    reference.tool_output("xfs_db", arguments.iter().copied().chain([path.to_str().expect("a name")]));
    let Some(kernel) = xfskit_testkit::kernel_mount(&path) else { return };
    assert_eq!(rustix::fs::symlink("target", kernel.path().join("link")), Err(Errno::PERM));
    std::fs::write(kernel.path().join("there"), b"").expect("room");
    assert_eq!(rustix::fs::symlink("target", kernel.path().join("there")), Err(Errno::EXIST));
    kernel.unmount();
    let device = FileDevice::open(&path, Access::Write).expect("an image");
    let fs = Volume::open(Arc::new(device), MountOptions::default()).expect("a sound image");
    let link = |name: &[u8]| fs.symlink(fs.root(), name, b"target", &Caller::root());
    assert!(matches!(link(b"link"), Err(Error::NotPermitted)));
    assert!(matches!(link(b"there"), Err(Error::Exists)));
    fs.create(fs.root(), b"file", &NewFile::file(0o644), &Caller::root()).expect("room");
    fs.unmount().expect("a clean end");
    reference.repair_finds_nothing(&path);
}

/// A write must be compared with the end of the file under the lock under which it is done. Otherwise it could
/// overwrite the bytes of a thread that appends meanwhile.
#[test]
fn writes_at_the_end_of_an_append_only_file_spare_one_another() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let path = scratch.image("a.img", 512 << 20);
    reference.mkfs(&path, &[]);
    let Some(kernel) = xfskit_testkit::kernel_mount(&path) else { return };
    for name in ["small", "large"] {
        std::fs::write(kernel.path().join(name), b"").expect("room");
        protect(&kernel.path().join(name), IFlags::APPEND);
    }
    kernel.unmount();
    let device = FileDevice::open(&path, Access::Write).expect("an image");
    let fs = Volume::open(Arc::new(device), MountOptions::default()).expect("a sound image");
    for (name, length, rounds) in [("/small", 100, 2000), ("/large", 256 << 10, 200)] {
        let inode = fs.resolve(name.as_bytes(), LastLink::Keep).expect("a name").inode;
        for round in 0..rounds {
            let end = fs.stat(inode).expect("a file").size;
            let barrier = std::sync::Barrier::new(2);
            let write = |byte: u8| {
                barrier.wait();
                fs.write_at(inode, end, &vec![byte; length])
            };
            let (one, other) = std::thread::scope(|scope| {
                let one = scope.spawn(|| write(1));
                let other = write(2);
                (one.join().expect("no panic"), other)
            });
            assert!(one.is_ok() != other.is_ok(), "{name} {round}: {one:?} {other:?}");
            let mut found = vec![0; length];
            fs.read_at(inode, end, &mut found).expect("contents");
            assert_eq!(found, vec![if one.is_ok() { 1 } else { 2 }; length], "{name} {round}");
        }
    }
    fs.unmount().expect("a clean end");
    reference.repair_finds_nothing(&path);
}

/// What several threads append counts as received without a gap, so that nothing that a cache brings late changes any
/// of it: whoever appends has to note that before another thread appends behind it.
#[test]
fn what_several_threads_append_stays_whatever_a_cache_brings() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let path = scratch.image("a.img", 320 << 20);
    reference.mkfs(&path, &[]);
    let device = FileDevice::open(&path, Access::Write).expect("an image");
    let fs = Volume::open(Arc::new(device), MountOptions::default()).expect("a sound image");
    let me = Caller::root();
    for round in 0..5 {
        let name = format!("file-{round}");
        let inode = fs.create(fs.root(), name.as_bytes(), &NewFile::file(0o644), &me).expect("room").inode;
        let mut flags = fs.flags(inode).expect("flags");
        flags.xflags |= u32::from(xfskit_ondisk::inode::flags::APPEND);
        fs.set_flags(inode, &flags, &me).expect("the flag");
        let barrier = std::sync::Barrier::new(3);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    barrier.wait();
                    (0..20_000).for_each(|_| _ = fs.append(inode, b"x").expect("room"));
                });
            }
        });
        let mut bytes = vec![0; 60_000];
        assert_eq!(fs.read_at(inode, 0, &mut bytes).expect("contents"), 60_000);
        bytes[59_999] = b'y';
        let late = fs.write_keeping_times(inode, 0, &bytes);
        assert!(matches!(late, Err(Error::NotPermitted)), "round {round}: {late:?}");
    }
    fs.unmount().expect("a clean end");
    reference.repair_finds_nothing(&path);
}

/// No temporary name may be given in a directory from which names cannot be removed: it would stay for good.
#[test]
fn nothing_temporary_stays_in_an_append_only_directory() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let path = scratch.image("a.img", 320 << 20);
    reference.mkfs(&path, &[]);
    let Some(kernel) = xfskit_testkit::kernel_mount(&path) else { return };
    make_case(&kernel.path().join("case"), IFlags::APPEND);
    kernel.unmount();
    let device = FileDevice::open(&path, Access::Write).expect("an image");
    let fs = Volume::open(Arc::new(device), MountOptions::default()).expect("a sound image");
    let case = Case { fs: &fs, folder: "case".into() };
    let over = |dir, name: &[u8]| fs.link_over(case.inode(dir), name, case.inode("other"), &Caller::root());
    assert!(matches!(over("dir", b"entry"), Err(Error::NotPermitted)));
    assert!(matches!(over(".", b"file"), Err(Error::NotPermitted)));
    for dir in ["dir", "."] {
        assert!(fs.lookup(case.inode(dir), format!(".xfskit-{:x}", case.inode("other").0).as_bytes()).is_err());
    }
    over("dir", b"new").expect("a name more");
    fs.unmount().expect("a clean end");
    reference.repair_finds_nothing(&path);
}

/// A device number with bits for which XFS has no room must be refused. Without them 8,262145 would become 8,1.
#[test]
fn a_device_number_that_xfs_has_no_room_for_is_refused() {
    let Some(reference) = xfskit_testkit::reference() else { return };
    let scratch = xfskit_testkit::scratch();
    let path = scratch.image("a.img", 320 << 20);
    reference.mkfs(&path, &[]);
    let copy = scratch.file("copy.img");
    xfskit_testkit::copy_image(&path, &copy);
    let Some(kernel) = xfskit_testkit::kernel_mount(&copy) else { return };
    let device = FileDevice::open(&path, Access::Write).expect("an image");
    let fs = Volume::open(Arc::new(device), MountOptions::default()).expect("a sound image");
    let numbers = [(8, 262_143), (8, 262_145), (8, 0xf_ffff), (0x1ff, 0), (0x200, 0), (0xfff, 5)];
    for (kind, file_type) in [(0o060_000, FileType::BlockDevice), (0o020_000, FileType::CharacterDevice)] {
        for (major, minor) in numbers {
            let (name, number) = (format!("{kind:o}-{major}-{minor}"), rustix::fs::makedev(major, minor));
            let new = NewFile { device: number as u32, ..NewFile::of_mode(kind | 0o644).unwrap() };
            let own = fs.create(fs.root(), name.as_bytes(), &new, &Caller::root()).map_or_else(|e| e.errno(), |_| 0);
            let made =
                rustix::fs::mknodat(CWD, kernel.path().join(&name), file_type, Mode::from_raw_mode(0o644), number);
            assert_eq!(own, made.map_or_else(Errno::raw_os_error, |()| 0), "{name}");
        }
    }
    let block_device = NewFile::of_mode(0o060_644).unwrap();
    let too_large = NewFile { device: rustix::fs::makedev(0x200, 0) as u32, ..block_device };
    let again = fs.create(fs.root(), b"60000-8-262143", &too_large, &Caller::root());
    assert!(matches!(again, Err(Error::Exists)), "a name that is there comes first");
    fs.unmount().expect("a clean end");
    kernel.unmount();
    reference.repair_finds_nothing(&path);
}
