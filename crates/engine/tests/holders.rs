//! One writing filesystem for a device, and references to inodes, whose counts no caller can break.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use xfskit_device::{BlockDevice, MemoryDevice};
use xfskit_engine::{Caller, Error, MountOptions, NewFile, Volume};
use xfskit_mkfs::{Options, make};
use xfskit_ondisk::{InodeNumber, Timestamp};
use xfskit_vfs::{ByNumber, Fallocate, Handle, Handles, Mtime, Stat, SyncKind};

fn device() -> Arc<MemoryDevice> {
    let device = MemoryDevice::new(32 << 20);
    let options = Options { uuid: Some([7; 16]), allow_small: true, ..Options::default() };
    make(&device, None, &options, Timestamp::default()).unwrap();
    Arc::new(device)
}

fn open(device: Arc<dyn BlockDevice>) -> Result<Volume, Error> {
    Volume::open(device, MountOptions::default())
}

/// Two of them would take the same free blocks, and the files of one would vanish.
#[test]
fn one_device_has_one_writing_filesystem() {
    let device = device();
    let first = open(Arc::clone(&device) as _).unwrap();
    assert!(matches!(open(Arc::clone(&device) as _), Err(Error::DeviceInUse)));
    // A device object inside another one is the same device.
    assert!(matches!(open(Arc::new(Arc::clone(&device))), Err(Error::DeviceInUse)));
    let log = Volume::open_with_log(self::device(), Arc::clone(&device) as _, MountOptions::default());
    assert!(matches!(log, Err(Error::DeviceInUse)));
    let mount = Arc::clone(first.mount());
    first.unmount().unwrap();
    let second = open(Arc::clone(&device) as _).unwrap();
    drop(mount);
    // Dropping the filesystem without an unmount releases the device as well.
    assert!(matches!(open(Arc::clone(&device) as _), Err(Error::DeviceInUse)));
    drop(second);
    open(device).unwrap().unmount().unwrap();
}

/// The count needs more than 32 bits: if it wrapped, the inode would be freed while it is referenced.
#[test]
fn an_inode_is_held_more_than_four_thousand_million_times() {
    let fs = open(device()).unwrap();
    let file = fs.create(fs.root(), b"file", &NewFile::file(0o644), &Caller::root()).unwrap().inode;
    fs.add_reference(file).unwrap();
    // As if it had been looked up so often; doing that takes minutes.
    fs.mount().inode(file).unwrap().opens.store(u32::MAX.into(), Ordering::Release);
    fs.add_reference(file).unwrap();
    fs.unlink(fs.root(), b"file", &Caller::root()).unwrap();
    assert!(fs.is_in_use(file).unwrap());
    fs.drop_references(file, u64::from(u32::MAX)).unwrap();
    assert!(fs.is_in_use(file).unwrap());
    fs.drop_references(file, 1).unwrap();
    assert!(!fs.is_in_use(file).unwrap());
    fs.unmount().unwrap();
}

/// What the kernel knows of a mount has no bound: a server must not keep every inode of it in memory.
#[test]
fn inodes_that_are_referenced_leave_the_cache_and_stay_what_they_are() {
    const FILES: usize = 3000;
    let options = MountOptions { cache_bytes: 0, ..MountOptions::default() };
    let fs = Volume::open(device(), options).unwrap();
    let name = |number: usize| number.to_string().into_bytes();
    let files: Vec<_> = (0..FILES)
        .map(|number| {
            let made = fs.create(fs.root(), &name(number), &NewFile::file(0o644), &Caller::root()).unwrap();
            for _ in 0..2 {
                fs.add_reference(made.inode).unwrap();
            }
            made
        })
        .collect();
    fs.sync().unwrap();
    // A look at each lets the cache drop others.
    for file in &files {
        assert_eq!(fs.stat(file.inode).unwrap().generation, file.generation);
    }
    fs.mount().trim_inodes().unwrap();
    assert!(fs.mount().inodes.len() < FILES / 2, "{} inodes are cached", fs.mount().inodes.len());
    assert!(files.iter().all(|file| fs.has_references(file.inode)));
    for (number, file) in files.iter().enumerate() {
        fs.drop_references(file.inode, 1).unwrap();
        fs.unlink(fs.root(), &name(number), &Caller::root()).unwrap();
        assert!(fs.is_in_use(file.inode).unwrap(), "file {number} is freed although it is referenced");
        fs.drop_references(file.inode, 1).unwrap();
        assert!(!fs.is_in_use(file.inode).unwrap(), "file {number} is not freed");
    }
    fs.unmount().unwrap();
}

/// Each look-up through FUSE touches an inode twice, and those that are looked up may lie far apart.
#[test]
fn inodes_that_lie_far_apart_leave_the_cache_while_they_are_only_read() {
    const FILES: usize = 24_000;
    const LIMIT: usize = 1024;
    let device = MemoryDevice::new(64 << 20);
    let options = Options { uuid: Some([7; 16]), allow_small: true, ..Options::default() };
    make(&device, None, &options, Timestamp::default()).unwrap();
    let device = Arc::new(device);
    let fs = open(Arc::clone(&device) as _).unwrap();
    let name = |number: usize| number.to_string().into_bytes();
    let make = |number| fs.create(fs.root(), &name(number), &NewFile::file(0o644), &Caller::root()).unwrap().inode;
    let files: Vec<_> = (0..FILES).map(make).collect();
    fs.unmount().unwrap();
    let fs = Volume::open(device, MountOptions { cache_bytes: 768 * LIMIT, ..MountOptions::read_only() }).unwrap();
    for file in files.iter().step_by(16) {
        fs.add_reference(*file).unwrap();
        fs.stat(*file).unwrap();
    }
    let cached = fs.mount().inodes.len();
    assert!(cached <= LIMIT + LIMIT / 4, "{cached} of {} inodes are cached", FILES / 16);
    fs.unmount().unwrap();
}

/// A request that releases more references than there are must be harmless: an assertion would end the server.
#[test]
fn dropping_more_references_than_there_are_harms_no_other_file() {
    let fs = open(device()).unwrap();
    let [kept, freed] = [b"a", b"b"].map(|name| {
        let file = fs.create(fs.root(), name, &NewFile::file(0o644), &Caller::root()).unwrap().inode;
        fs.add_reference(file).unwrap();
        file
    });
    fs.unlink(fs.root(), b"b", &Caller::root()).unwrap();
    for count in [2, u64::MAX] {
        fs.drop_references(kept, count).unwrap();
        fs.drop_references(freed, count).unwrap();
    }
    assert!(fs.is_in_use(kept).unwrap() && !fs.is_in_use(freed).unwrap());
    fs.unmount().unwrap();
}

/// The kernel answers a handle of one of them with ESTALE as well. A write to one would damage the image.
#[test]
fn inodes_of_the_filesystem_itself_cannot_be_used() {
    let fs = open(device()).unwrap();
    let superblock = fs.mount().superblock();
    for number in [superblock.rt_bitmap_inode.get(), superblock.rt_summary_inode.get()] {
        assert!(fs.stat(InodeNumber(number)).is_ok(), "there is such an inode");
        assert!(!fs.is_in_use(InodeNumber(number)).unwrap());
    }
    assert!(fs.is_in_use(fs.root()).unwrap());
    fs.unmount().unwrap();
}

/// Look-ups of inodes that a call takes.
fn lookups<T>(fs: &Volume, call: impl FnOnce() -> T) -> (T, u64) {
    let count = || fs.counters().inode_hits.get() + fs.counters().inode_misses.get();
    let before = count();
    (call(), count() - before)
}

/// A server answers most requests by several calls on one inode.
#[test]
fn an_inode_that_is_held_is_looked_up_once() {
    let (fs, caller) = (open(device()).unwrap(), Caller::root());
    let root = Handles::inode(&fs, fs.root()).unwrap();
    let (made, count) = lookups(&fs, || root.create(b"file", &NewFile::file(0o644), &caller).unwrap());
    assert_eq!((count, fs.mount().inodes.references(made.inode)), (0, 1), "a create returns its inode held");
    let (unnamed, count) = lookups(&fs, || root.tmpfile(&NewFile::file(0o644), &caller).unwrap());
    assert_eq!((count, fs.mount().inodes.references(unnamed.inode)), (0, 1));
    // The directory, and the inode.
    let (file, count) = lookups(&fs, || fs.lookup_inode(fs.root(), b"file").unwrap());
    assert_eq!((count, file.number()), (2, made.inode));
    let ((), count) = lookups(&fs, || {
        assert!(!file.write(0, &[1; 100], Mtime::Update).unwrap().was_truncated);
        file.write(100, &[2; 100], Mtime::Keep).unwrap();
        file.fallocate(0, 200, Fallocate::Allocate, Mtime::Update).unwrap();
        assert!(!file.drop_privileges(None).unwrap() && file.fsync_is_cheap());
        let begun = file.begin_fsync(SyncKind::Full).unwrap();
        fs.await_durable(begun.point).unwrap();
        assert_eq!(file.stat().unwrap().blocks, begun.blocks);
        file.grab().unwrap();
        file.flush_truncated();
    });
    assert_eq!((count, fs.mount().inodes.references(made.inode)), (0, 2));
    let (_, count) = lookups(&fs, || file.link(fs.root(), b"link", &caller).unwrap());
    assert_eq!((count, fs.mount().inodes.references(made.inode)), (1, 3), "the directory alone is looked up");
    fs.unmount().unwrap();
}

/// An emptied file is written back when a server has written it anew: [`Handle::write`] says when that is due.
#[test]
fn a_write_tells_whether_the_file_was_truncated() {
    let fs = open(device()).unwrap();
    let number = fs.create(fs.root(), b"file", &NewFile::file(0o644), &Caller::root()).unwrap().inode;
    let file = Handles::inode(&fs, number).unwrap();
    let write = || file.write(0, &[1; 100], Mtime::Update).unwrap().was_truncated;
    assert!(!write());
    fs.fsync(number).unwrap();
    fs.truncate(number, 0).unwrap();
    assert!(write() && write());
    file.flush_truncated();
    assert!(fs.mount().inode(number).unwrap().state_lock().read().is_settled());
    fs.fsync(number).unwrap();
    assert!(!write());
    fs.unmount().unwrap();
}

/// A handle counts no reference: its number may be another file's by now.
#[test]
fn a_handle_of_a_file_that_is_gone_is_stale() {
    let (fs, caller) = (open(device()).unwrap(), Caller::root());
    let make = || fs.create(fs.root(), b"file", &NewFile::file(0o644), &caller).unwrap().inode;
    let number = make();
    let gone = Handles::inode(&fs, number).unwrap();
    fs.unlink(fs.root(), b"file", &caller).unwrap();
    let refused = [gone.stat().map(drop), gone.grab().map(drop), gone.write(0, b"a", Mtime::Update).map(drop)];
    assert!(refused.iter().all(|result| matches!(result, Err(Error::Stale(_)))), "{refused:?}");
    assert!(!fs.has_references(number));
    // The next file with the number is what the handle is of, and what it references.
    assert_eq!(make(), number);
    assert_eq!(gone.grab().unwrap(), fs.stat(number).unwrap());
    assert!(fs.has_references(number));
    fs.unmount().unwrap();
}

/// What a server does by a handle, and what has become of the file.
fn serve<H: Handle>(fs: &Volume, handle: impl Fn(InodeNumber) -> H) -> (Stat, Vec<u8>, u64) {
    let (root, caller) = (handle(fs.root()), Caller::root());
    let made = root.create(b"file", &NewFile::file(0o6755), &caller).unwrap();
    let (file, other) = (handle(made.inode), handle(root.tmpfile(&NewFile::file(0o644), &caller).unwrap().inode));
    assert!(file.drop_privileges(Some(&Caller { uid: 1000, gid: 1000, groups: Vec::new() })).unwrap());
    assert_eq!(file.write(0, &[1; 10_000], Mtime::Update).unwrap().bytes, 10_000);
    other.write(0, b"other", Mtime::Update).unwrap();
    let before = file.stat().unwrap();
    file.write(4096, &[2; 100], Mtime::Keep).unwrap();
    file.fallocate(4096, 4096, Fallocate::PunchHole, Mtime::Keep).unwrap();
    assert_eq!(file.copy_from(other.number(), 0, 9000, 5, Mtime::Keep).unwrap(), 5);
    let after = file.stat().unwrap();
    assert_eq!((before.mtime, before.ctime), (after.mtime, after.ctime), "the caller keeps the times");
    file.fallocate(0, 20_000, Fallocate::Allocate, Mtime::Update).unwrap();
    assert_eq!(file.copy_from(other.number(), 0, 9005, 5, Mtime::Update).unwrap(), 5);
    assert!(file.stat().unwrap().mtime > after.mtime);
    assert_eq!(other.link(fs.root(), b"other", &caller).unwrap().links, 1);
    assert_eq!(fs.mount().inodes.references(other.number()), 2);
    fs.await_durable(file.begin_fsync(SyncKind::Full).unwrap().point).unwrap();
    let stat = file.grab().unwrap();
    assert_eq!(file.begin_fsync(SyncKind::Data).unwrap().blocks, stat.blocks);
    let mut contents = vec![0; 30_000];
    let length = fs.read_at(made.inode, 0, &mut contents).unwrap();
    contents.truncate(length);
    (stat, contents, fs.mount().inodes.references(made.inode))
}

/// A filesystem without handles of its own is served by numbers.
#[test]
fn a_handle_by_number_does_the_same() {
    let [(held, contents, references), by_number] = [true, false].map(|is_held| {
        let fs = open(device()).unwrap();
        let found = match is_held {
            true => serve(&fs, |number| Handles::inode(&fs, number).unwrap()),
            false => serve(&fs, |number| ByNumber::new(&fs, number)),
        };
        fs.unmount().unwrap();
        found
    });
    assert_eq!((contents, references), (by_number.1, by_number.2));
    let Stat { atime, mtime, ctime, birth_time, generation, .. } = held;
    assert_eq!(held, Stat { atime, mtime, ctime, birth_time, generation, ..by_number.0 });
}
