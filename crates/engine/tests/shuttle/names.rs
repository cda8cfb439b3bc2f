//! The lock order of inodes: renames between directories in both directions, links, removals, directories that move,
//! files that are unlinked while they are referenced.

use crate::device::Device;
use crate::{below, close, explore, image, open};
use shuttle::sync::atomic::{AtomicI64, Ordering};
use shuttle::thread;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use xfskit_engine::{Caller, Error, LastLink, MountOptions, NewFile, RenameFlags, Volume};
use xfskit_ondisk::InodeNumber;

static IMAGE: LazyLock<Arc<Vec<u8>>> = LazyLock::new(image);
const THREADS: usize = 3;
const ROUNDS: usize = 5;
const NAMES: usize = 4;
/// The root directory, and two that contain the bitmap of the realtime section and its summary.
const INODES_OF_THE_SYSTEM: u64 = 3;

struct Scene {
    fs: Volume,
    /// `a`, `b` and one that begins as `a/0`.
    dirs: Vec<InodeNumber>,
    /// The number of names that must exist.
    names: AtomicI64,
}

/// Whether an operation was done; otherwise another thread was faster.
fn done<T>(what: &str, result: Result<T, Error>) -> bool {
    match result {
        Ok(_) => true,
        Err(
            Error::NotFound
            | Error::Exists
            | Error::NotEmpty
            | Error::IsADirectory
            | Error::NotADirectory
            | Error::NotPermitted
            | Error::Invalid("a directory cannot move below itself")
            | Error::Stale(_),
        ) => false,
        Err(error) => panic!("{what}: {error}"),
    }
}

impl Scene {
    fn new(device: &Arc<Device>) -> Self {
        let fs = open(device, MountOptions::default());
        let me = Caller::root();
        let make = |dir, name: &str, new| fs.create(dir, name.as_bytes(), &new, &me).unwrap().inode;
        let a = make(fs.root(), "a", NewFile::dir(0o755));
        let b = make(fs.root(), "b", NewFile::dir(0o755));
        let moving = make(a, "0", NewFile::dir(0o755));
        make(a, "1", NewFile::file(0o644));
        make(b, "2", NewFile::file(0o644));
        make(b, "3", NewFile::file(0o644));
        // It stays in use, whatever happens to its name.
        fs.add_reference(moving).unwrap();
        Self { fs, dirs: vec![a, b, moving], names: AtomicI64::new(6) }
    }

    fn count(&self, change: i64, done: bool) {
        if done {
            self.names.fetch_add(change, Ordering::SeqCst);
        }
    }

    fn operate(&self) {
        let (fs, me) = (&self.fs, Caller::root());
        let (dir, other) = (self.dirs[below(3)], self.dirs[below(3)]);
        let (name, new) = (below(NAMES).to_string().into_bytes(), below(NAMES).to_string().into_bytes());
        let rename = |flags| done("rename", fs.rename(dir, &name, other, &new, flags, &me));
        match below(10) {
            0..=3 => drop(rename(RenameFlags { no_replace: true, ..RenameFlags::default() })),
            4 => drop(rename(RenameFlags { exchange: true, ..RenameFlags::default() })),
            5 => self.count(1, done("create", fs.create(dir, &name, &NewFile::file(0o644), &me))),
            6 => {
                // A directory's number too, which must be refused without a deadlock.
                let inode = if below(2) == 0 { Ok(dir) } else { fs.lookup_number(dir, &name) };
                if let Ok(inode) = inode {
                    self.count(1, done("link", fs.link(other, &new, inode, &Caller::root())));
                }
            }
            7 => self.count(-1, done("unlink", fs.unlink(dir, &name, &me))),
            8 => self.count(-1, done("rmdir", fs.rmdir(dir, &name, &me))),
            _ => {
                if let Ok(inode) = fs.lookup_number(dir, &name)
                    && done("hold", fs.add_reference(inode))
                {
                    self.count(-1, done("unlink", fs.unlink(dir, &name, &me)));
                    done("stat", fs.stat(inode));
                    fs.drop_references(inode, 1).unwrap();
                }
            }
        }
    }

    /// The names of every inode below a directory.
    fn walk(&self, dir: InodeNumber, seen: &mut BTreeMap<InodeNumber, u32>) {
        for entry in self.fs.list_dir(dir).unwrap() {
            *seen.entry(entry.inode).or_default() += 1;
            if self.fs.stat(entry.inode).unwrap().file_type.is_dir() {
                assert_eq!(self.fs.lookup_number(entry.inode, b"..").unwrap(), dir);
                self.walk(entry.inode, seen);
            }
        }
    }

    fn judge(&self) {
        let fs = &self.fs;
        fs.drop_references(self.dirs[2], 1).unwrap();
        let mut seen = BTreeMap::new();
        self.walk(fs.root(), &mut seen);
        assert_eq!(seen.values().map(|names| i64::from(*names)).sum::<i64>(), self.names.load(Ordering::SeqCst));
        for (inode, names) in &seen {
            let stat = fs.stat(*inode).unwrap();
            assert!(stat.file_type.is_dir() || stat.links == *names, "{inode:?} has {names} names: {stat:?}");
            assert_eq!(fs.parents(*inode).unwrap().len() as u32, *names, "parents of {inode:?}");
        }
        let (inodes, free) = fs.mount().space.inodes();
        assert_eq!(inodes - free, seen.len() as u64 + INODES_OF_THE_SYSTEM, "an inode without a name is free");
    }
}

fn model() {
    let device = Device::new(&IMAGE);
    let scene = Scene::new(&device);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..ROUNDS).for_each(|_| scene.operate()));
        }
        scope.spawn(|| scene.fs.sync().unwrap());
    });
    scene.judge();
    close(scene.fs, &device);
}

#[test]
fn names_change_in_all_directions() {
    LazyLock::force(&IMAGE);
    explore("names", 600, model);
}

/// A thread that follows a name references the number that it finds, and drops the reference when the name is gone. The
/// number may be that of a new file without a name by then, whose maker is its owner.
fn model_of_old_names() {
    let device = Device::new(&IMAGE);
    let fs = open(&device, MountOptions::default());
    let me = Caller::root();
    fs.create(fs.root(), b"name", &NewFile::file(0o644), &me).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| done("resolve", fs.resolve(b"/name", LastLink::Follow)));
        scope.spawn(|| {
            fs.unlink(fs.root(), b"name", &me).unwrap();
            let made = fs.tmpfile(fs.root(), &NewFile::file(0o644), &me).unwrap();
            let before = made.stat().unwrap();
            thread::yield_now();
            let found = fs.stat(made.number()).expect("a file without a name is its maker's until the maker drops it");
            assert_eq!((found.generation, found.links), (before.generation, 0));
            made.release().unwrap();
        });
    });
    close(fs, &device);
}

#[test]
fn a_file_without_a_name_stays_while_its_number_is_an_old_name() {
    LazyLock::force(&IMAGE);
    explore("old names", 600, model_of_old_names);
}
