//! Pin and evict: caches that are always too small, while some threads read, some change, and some write back.
//!
//! Names in a directory are the contents of buffers, attributes those of inodes. Each contains a mark. A thread that
//! writes a mark in place while the log has no durable copy of it has written a pinned object.

use crate::device::Device;
use crate::{below, close, explore, image, open};
use shuttle::thread;
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Weak};
use xfskit_engine::buffer::{BufferKey, Fill};
use xfskit_engine::space::cluster::{INODE_CLUSTER_KIND, locate};
use xfskit_engine::sync::{IfLocked, LockMode};
use xfskit_engine::{Caller, MountOptions, NewFile, SetAttr, SetMode, Volume};
use xfskit_ondisk::{InodeNumber, Lsn};

static IMAGE: LazyLock<Arc<Vec<u8>>> = LazyLock::new(image);
const WRITERS: usize = 2;
const READERS: usize = 2;
const ROUNDS: usize = 4;
/// Enough for more clusters than one, and for a directory in blocks.
const FILES: usize = 80;
/// The files that are changed, by writer.
const CHANGED: [[usize; 2]; WRITERS] = [[0, 70], [1, 40]];

const MARK: &[u8] = b"<mark-";

#[derive(Default)]
struct Seen {
    /// Marks that were given out; 0 stands for none.
    last_mark: usize,
    /// The oldest and the newest mark that a reader of a file may find.
    values: HashMap<usize, (usize, usize)>,
    /// The object that represents an address or a number, while it lives.
    objects: HashMap<(&'static str, u64), Weak<dyn Any + Send + Sync>>,
}

struct Scene {
    fs: Volume,
    dir: InodeNumber,
    files: Vec<InodeNumber>,
    seen: Arc<Mutex<Seen>>,
}

fn text(mark: usize) -> Vec<u8> {
    format!("<mark-{mark:04}>").into_bytes()
}

/// The marks in a piece of the device.
fn marks(data: &[u8]) -> impl Iterator<Item = usize> {
    let digits = |start: usize| data.get(start + MARK.len()..start + MARK.len() + 4);
    let found = data.windows(MARK.len()).enumerate().filter(|(_, window)| *window == MARK);
    found.filter_map(move |(start, _)| std::str::from_utf8(digits(start)?).ok()?.parse().ok())
}

impl Scene {
    fn new(device: &Arc<Device>) -> Self {
        let fs = open(device, MountOptions { cache_bytes: 0, ..MountOptions::default() });
        let me = Caller::root();
        let dir = fs.create(fs.root(), b"dir", &NewFile::dir(0o755), &me).unwrap().inode;
        let make = |n: usize| {
            let name = format!("some-long-name-of-file-{n:04}");
            fs.create(dir, name.as_bytes(), &NewFile::file(0o644), &me).unwrap().inode
        };
        let files = (0..FILES).map(make).collect();
        fs.mount().journal.quiesce().unwrap();
        Self { fs, dir, files, seen: Arc::default() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    /// From now on no mark may be written in place before it is durable in the log, which is too large to be
    /// overwritten here.
    fn watch(&self, device: &Device) {
        let geometry = &self.fs.mount().geometry;
        let start =
            geometry.log_start.and_then(|start| geometry.fs_block_address(start)).expect("an internal log").bytes();
        let log = start..start + (u64::from(geometry.log_blocks) << geometry.block_log);
        device.watch(Box::new(move |device, offset, data| {
            if log.contains(&offset) {
                return;
            }
            for mark in marks(data) {
                assert!(
                    device.has_logged(log.clone(), &text(mark)),
                    "mark {mark} is written back, and the log does not hold it"
                );
            }
        }));
    }

    fn new_mark(&self) -> usize {
        let mut seen = self.seen();
        seen.last_mark += 1;
        seen.last_mark
    }

    /// While an object lives, no other object may represent the same thing.
    fn only_one(&self, what: &'static str, which: u64, object: Arc<dyn Any + Send + Sync>) {
        let mut seen = self.seen();
        let old = seen.objects.insert((what, which), Arc::downgrade(&object)).and_then(|old| old.upgrade());
        drop(seen);
        assert!(old.is_none_or(|old| Arc::ptr_eq(&old, &object)), "two objects for {what} {which}");
    }

    fn write(&self, writer: usize) {
        let me = Caller::root();
        for round in 0..ROUNDS {
            let file = CHANGED[writer][below(2)];
            let mark = self.new_mark();
            self.seen().values.entry(file).or_default().1 = mark;
            self.fs.set_xattr(self.files[file], b"user.mark", &text(mark), SetMode::Any, &me).unwrap();
            self.seen().values.entry(file).or_default().0 = mark;
            // Logs less of the inode than the attribute did.
            self.fs.set_attr(self.files[file], &SetAttr { uid: Some(mark as u32), ..SetAttr::default() }, &me).unwrap();
            let mark = self.new_mark();
            let new = [&text(mark)[..], format!("-{writer}-{round}").as_bytes()].concat();
            self.fs.create(self.dir, &new, &NewFile::file(0o600), &me).unwrap();
            if below(2) == 0 {
                self.fs.unlink(self.dir, &new, &me).unwrap();
            }
        }
    }

    /// A reader finds a mark no older than the one that was committed when it began, and no newer than those whose
    /// change had begun by its end.
    fn read(&self) {
        for _ in 0..8 {
            let file = CHANGED[below(WRITERS)][below(2)];
            let oldest = self.seen().values.get(&file).map_or(0, |(committed, _)| *committed);
            let value = self.fs.get_xattr(self.files[file], b"user.mark");
            let newest = self.seen().values.get(&file).map_or(0, |(_, begun)| *begun);
            let found = value.ok().and_then(|value| marks(&value).next()).unwrap_or(0);
            assert!((oldest..=newest).contains(&found), "file {file}: {found} instead of {oldest} to {newest}");
            self.fs.lookup_number(self.dir, format!("some-long-name-of-file-{file:04}").as_bytes()).unwrap();
            let mount = self.fs.mount();
            // Any file, so that other files leave the cache.
            let number = self.files[below(FILES)];
            self.only_one("inode", number.0, mount.inode(number).unwrap());
            let (address, _) = locate(&mount.geometry, number).unwrap();
            let key = BufferKey::new(address, mount.geometry.inode_cluster_bytes());
            let (buffer, held) =
                mount.cache.lock(&key, &INODE_CLUSTER_KIND, Fill::Read, LockMode::Shared, IfLocked::Wait).unwrap();
            drop(held);
            self.only_one("buffer", address.0, buffer);
        }
    }

    fn write_back(&self) {
        let mount = self.fs.mount();
        for _ in 0..8 {
            match below(3) {
                0 => self.fs.sync().unwrap(),
                1 => mount.trim_inodes().unwrap(),
                _ => {}
            }
            mount.journal.push_tail(Lsn(u64::MAX)).unwrap();
        }
    }
}

/// After a power cut everything that was synced is in place or in the log.
fn judge(device: &Arc<Device>, files: &[InodeNumber], values: &HashMap<usize, (usize, usize)>) {
    let fs = open(device, MountOptions::default());
    for (&file, &(committed, _)) in values {
        let value = fs.get_xattr(files[file], b"user.mark").unwrap();
        assert_eq!((marks(&value).next(), fs.stat(files[file]).unwrap().uid), (Some(committed), committed as u32));
    }
    close(fs, device);
}

fn model() {
    let device = Device::new(&IMAGE);
    let scene = Scene::new(&device);
    scene.watch(&device);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let scene = &scene;
            scope.spawn(move || scene.write(writer));
        }
        for _ in 0..READERS {
            scope.spawn(|| scene.read());
        }
        scope.spawn(|| scene.write_back());
    });
    let mount = scene.fs.mount();
    scene.fs.sync().unwrap();
    judge(&device.power_cut(), &scene.files, &scene.seen().values);
    mount.journal.quiesce().unwrap();
    assert_eq!(mount.journal.usage().0, 0, "log space stays granted without a transaction");
    close(scene.fs, &device);
}

#[test]
fn nothing_stale_is_read_and_nothing_pinned_is_written() {
    LazyLock::force(&IMAGE);
    explore("caches", 300, model);
}
