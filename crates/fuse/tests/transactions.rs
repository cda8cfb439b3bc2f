//! What a request through the mount costs the journal: what the operation costs in the library, and no more.

mod common;

use common::{Fixture, IMAGE_BYTES, format, mounted};
use rustix::fs::XattrFlags;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use xfskit_device::MemoryDevice;
use xfskit_engine::{Caller, MountOptions, NewFile, RenameFlags, SetMode, Volume};
use xfskit_ondisk::InodeNumber;

const FILES: usize = 200;

/// What the mount has counted.
fn counter(fixture: &Fixture, name: &str) -> u64 {
    let mut value = vec![0; 16 << 10];
    let length = rustix::fs::getxattr(fixture.path(""), xfskit_fuse::STATS_XATTR, &mut value).unwrap();
    let stats: serde_json::Value = serde_json::from_slice(&value[..length]).unwrap();
    stats["counters"][name].as_u64().unwrap()
}

/// Transactions that the mount has committed.
fn transactions(fixture: &Fixture) -> u64 {
    counter(fixture, "transactions")
}

/// Transactions that `work` takes for each file, those for what the kernel's cache sends afterwards included.
fn for_each_file(fixture: &Fixture, work: impl Fn(usize)) -> f64 {
    let before = transactions(fixture);
    (0..FILES).for_each(work);
    (transactions(fixture) - before) as f64 / FILES as f64
}

/// Waits until the kernel has let go of the files that were removed, and they are freed: `left` files remain.
fn await_forgotten(fixture: &Fixture, left: usize) {
    let used = || {
        let space = rustix::fs::statvfs(fixture.path("")).unwrap();
        space.f_files - space.f_ffree
    };
    let end = Instant::now() + Duration::from_secs(20);
    // The root and the folder besides.
    while used() > left as u64 + 10 {
        assert!(Instant::now() < end, "{} inodes are in use", used());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The kernel sends the times of an inode after each of these, in a request of its own.
#[test]
fn changes_of_names_and_attributes_are_one_transaction_each() {
    let Some(fixture) = mounted() else { return };
    let dir = fixture.path("dir");
    fs::create_dir(&dir).unwrap();
    let at = |prefix: &str, n: usize| -> PathBuf { dir.join(format!("{prefix}{n}")) };
    let set = |path: &Path, byte: u8| rustix::fs::setxattr(path, "user.a", &[byte; 64], XattrFlags::empty()).unwrap();
    let verbs: [(&str, &dyn Fn(usize)); 8] = [
        ("create", &|n| drop(fs::File::create_new(at("a", n)).unwrap())),
        ("setxattr", &|n| set(&at("a", n), 1)),
        ("replace", &|n| set(&at("a", n), 2)),
        ("removexattr", &|n| rustix::fs::removexattr(at("a", n), "user.a").unwrap()),
        ("rename", &|n| fs::rename(at("a", n), at("b", n)).unwrap()),
        ("link", &|n| fs::hard_link(at("b", n), at("c", n)).unwrap()),
        ("unlink of one name of two", &|n| fs::remove_file(at("c", n)).unwrap()),
        ("chmod", &|n| fs::set_permissions(at("b", n), std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap()),
    ];
    for (verb, work) in verbs {
        let each = for_each_file(&fixture, work);
        // A commit of the whole mount may fall into the work.
        assert!((1.0..=1.05).contains(&each), "{verb}: {each} transactions");
    }
    // The kernel lets go of each file after the answer, and the server then frees many in one transaction.
    let before = transactions(&fixture);
    (FILES..2 * FILES).for_each(|n| drop(fs::File::create_new(at("d", n)).unwrap()));
    let made = transactions(&fixture) - before;
    (FILES..2 * FILES).for_each(|n| fs::remove_file(at("d", n)).unwrap());
    await_forgotten(&fixture, FILES);
    let each = (transactions(&fixture) - before - made) as f64 / FILES as f64;
    assert!((1.0..=1.05).contains(&each), "unlink: {each} transactions");
    let times =
        fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000));
    let each = for_each_file(&fixture, |n| fs::File::open(at("b", n)).unwrap().set_times(times).unwrap());
    assert!(each < 0.05, "times alone: {each} transactions");
    fixture.judge(|kernel| {
        let modified = fs::metadata(kernel.join("dir/b0")).unwrap().modified().unwrap();
        assert_eq!(modified, std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000));
    });
}

/// Changes of files, each by its number, that a program makes through a mount and a caller of the library.
trait Changes {
    fn create(&self, n: usize);
    fn set(&self, n: usize, value: &[u8]);
    fn remove(&self, n: usize);
    fn rename(&self, n: usize);
    fn link(&self, n: usize);
    fn unlink(&self, name: &str);
    /// Waits until files without a name are freed.
    fn settle(&self);
    /// Makes everything durable and returns the bytes that the log has taken so far.
    fn log_bytes(&self) -> u64;
}

fn old_name(n: usize) -> String {
    format!("old{n}")
}

fn new_name(n: usize) -> String {
    format!("new{n}")
}

fn link_name(n: usize) -> String {
    format!("link{n}")
}

struct ThroughMount(Fixture);

impl ThroughMount {
    fn path(&self, name: &str) -> PathBuf {
        self.0.path("dir").join(name)
    }
}

impl Changes for ThroughMount {
    fn create(&self, n: usize) {
        fs::File::create_new(self.path(&old_name(n))).unwrap();
    }

    fn set(&self, n: usize, value: &[u8]) {
        rustix::fs::setxattr(self.path(&old_name(n)), "user.a", value, XattrFlags::empty()).unwrap();
    }

    fn remove(&self, n: usize) {
        rustix::fs::removexattr(self.path(&old_name(n)), "user.a").unwrap();
    }

    fn rename(&self, n: usize) {
        fs::rename(self.path(&old_name(n)), self.path(&new_name(n))).unwrap();
    }

    fn link(&self, n: usize) {
        fs::hard_link(self.path(&new_name(n)), self.path(&link_name(n))).unwrap();
    }

    fn unlink(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }

    fn settle(&self) {
        await_forgotten(&self.0, 0);
    }

    fn log_bytes(&self) -> u64 {
        // A checkpoint takes along all that has gathered, so the directory and any file that was changed will do.
        let changed = fs::read_dir(self.0.path("dir")).unwrap().map(|entry| entry.unwrap().path());
        for path in changed.take(1).chain([self.0.path("dir")]) {
            fs::File::open(path).unwrap().sync_all().unwrap();
        }
        counter(&self.0, "log_bytes")
    }
}

struct InLibrary {
    fs: Volume,
    dir: InodeNumber,
    caller: Caller,
}

impl InLibrary {
    fn file(&self, name: &str) -> InodeNumber {
        self.fs.lookup(self.dir, name.as_bytes()).unwrap().inode
    }
}

impl Changes for InLibrary {
    fn create(&self, n: usize) {
        self.fs.create(self.dir, old_name(n).as_bytes(), &NewFile::file(0o644), &self.caller).unwrap();
    }

    fn set(&self, n: usize, value: &[u8]) {
        self.fs.set_xattr(self.file(&old_name(n)), b"user.a", value, SetMode::Any, &self.caller).unwrap();
    }

    fn remove(&self, n: usize) {
        self.fs.remove_xattr(self.file(&old_name(n)), b"user.a", SetMode::Any, &self.caller).unwrap();
    }

    fn rename(&self, n: usize) {
        let (old, new) = (old_name(n), new_name(n));
        let (dir, none) = (self.dir, RenameFlags::default());
        self.fs.rename(dir, old.as_bytes(), dir, new.as_bytes(), none, &self.caller).unwrap();
    }

    fn link(&self, n: usize) {
        let inode = self.file(&new_name(n));
        self.fs.link(self.dir, link_name(n).as_bytes(), inode, &self.caller).unwrap();
    }

    fn unlink(&self, name: &str) {
        self.fs.unlink(self.dir, name.as_bytes(), &self.caller).unwrap();
    }

    fn settle(&self) {}

    fn log_bytes(&self) -> u64 {
        self.fs.sync().unwrap();
        self.fs.counters().log_bytes.get()
    }
}

const LAST: &str = "unlink of the last name";

/// Bytes of log that each verb takes, for all files together.
fn log_bytes_of_verbs(changes: &dyn Changes) -> Vec<(&'static str, u64)> {
    type Verb = (&'static str, fn(&dyn Changes, usize));
    let verbs: [Verb; 8] = [
        ("create", |changes, n| changes.create(n)),
        ("setxattr", |changes, n| changes.set(n, &[1; 64])),
        ("replace", |changes, n| changes.set(n, &[2; 48])),
        ("removexattr", |changes, n| changes.remove(n)),
        ("rename", |changes, n| changes.rename(n)),
        ("link", |changes, n| changes.link(n)),
        ("unlink", |changes, n| changes.unlink(&link_name(n))),
        (LAST, |changes, n| changes.unlink(&new_name(n))),
    ];
    let mut before = changes.log_bytes();
    let of = |(name, work): Verb| {
        (0..FILES).for_each(|n| work(changes, n));
        if name == LAST {
            changes.settle();
        }
        let after = changes.log_bytes();
        (name, after - std::mem::replace(&mut before, after))
    };
    verbs.map(of).into()
}

/// What reaches the log is the same, too: the times that the kernel sends are those of the change, and add nothing.
#[test]
fn changes_take_no_more_log_than_in_the_library() {
    let Some(fixture) = mounted() else { return };
    fs::create_dir(fixture.path("dir")).unwrap();
    let mount = ThroughMount(fixture);
    let device = MemoryDevice::new(IMAGE_BYTES as usize);
    format(&device);
    let fs = Volume::open(Arc::new(device), MountOptions::default()).unwrap();
    let caller = Caller::root();
    let dir = fs.create(fs.root(), b"dir", &NewFile::dir(0o755), &caller).unwrap().inode;
    let library = InLibrary { fs, dir, caller };
    for ((verb, ours), (_, theirs)) in log_bytes_of_verbs(&mount).iter().zip(log_bytes_of_verbs(&library)) {
        let ratio = *ours as f64 / theirs as f64;
        // The server frees many files in one transaction, which logs less.
        let least = if *verb == LAST { 0.0 } else { 0.95 };
        assert!((least..=1.05).contains(&ratio), "{verb}: {ours} bytes through the mount, {theirs} in the library");
    }
    mount.0.judge(|_| {});
}
