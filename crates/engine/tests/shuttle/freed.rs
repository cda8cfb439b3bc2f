//! Blocks of inodes that get another owner while the inodes wait for write-back.
//!
//! One thread removes all files of a chunk, makes that durable, and takes the blocks for a buffer of its own; the
//! others write the inodes of those files back. Once the blocks have another owner, no inode may be written there, and
//! no buffer may say that they are still a cluster.

use crate::device::Device;
use crate::{close, explore, image, open};
use shuttle::thread;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use xfskit_engine::buffer::{BufferKey, Fill};
use xfskit_engine::space::cluster::{INODE_CLUSTER_KIND, locate};
use xfskit_engine::sync::{IfLocked, LockMode};
use xfskit_engine::{Caller, MountOptions, NewFile, SetAttr, Volume};
use xfskit_ondisk::{DiskAddress, InodeNumber, Lsn};

static IMAGE: LazyLock<Arc<Vec<u8>>> = LazyLock::new(image);
const CHUNK: usize = 64;
/// Enough files to fill a chunk with them alone.
const FILES: usize = 2 * CHUNK;

struct Scene {
    fs: Volume,
    dir: InodeNumber,
    /// The files of one chunk.
    files: Vec<(String, InodeNumber)>,
    clusters: Vec<DiskAddress>,
    given: Arc<AtomicBool>,
}

impl Scene {
    fn new(device: &Arc<Device>) -> Self {
        let fs = open(device, MountOptions::default());
        let me = Caller::root();
        let dir = fs.create(fs.root(), b"dir", &NewFile::dir(0o755), &me).unwrap().inode;
        let mut chunks: BTreeMap<u64, Vec<(String, InodeNumber)>> = BTreeMap::new();
        for n in 0..FILES {
            let name = format!("file-{n}");
            let number = fs.create(dir, name.as_bytes(), &NewFile::file(0o644), &me).unwrap().inode;
            chunks.entry(number.0 / CHUNK as u64).or_default().push((name, number));
        }
        let files = chunks.into_values().find(|files| files.len() == CHUNK).expect("a chunk of nothing else");
        let geometry = &fs.mount().geometry;
        let mut clusters: Vec<_> = files.iter().map(|(_, number)| locate(geometry, *number).unwrap().0).collect();
        clusters.dedup();
        // All at once: their clusters leave the cache.
        fs.mount().journal.quiesce().unwrap();
        for (_, number) in &files {
            fs.set_attr(*number, &SetAttr { uid: Some(7), ..SetAttr::default() }, &me).unwrap();
        }
        fs.sync().unwrap();
        Self { fs, dir, files, clusters, given: Arc::default() }
    }

    fn watch(&self, device: &Device) {
        let bytes = self.fs.mount().geometry.inode_cluster_bytes() as u64;
        let places: Vec<Range<u64>> = self.clusters.iter().map(|at| at.bytes()..at.bytes() + bytes).collect();
        let given = Arc::clone(&self.given);
        device.watch(Box::new(move |_, offset, _| {
            let hit = places.iter().any(|place| place.contains(&offset));
            assert!(!hit || !given.load(Ordering::Acquire), "inodes are written to blocks that have another owner");
        }));
    }

    fn give_away(&self) {
        let me = Caller::root();
        for (name, _) in &self.files {
            self.fs.unlink(self.dir, name.as_bytes(), &me).unwrap();
        }
        self.fs.sync().unwrap();
        let cache = &self.fs.mount().cache;
        for cluster in &self.clusters {
            let key = BufferKey::new(*cluster, 1024);
            drop(cache.lock(&key, &INODE_CLUSTER_KIND, Fill::Zero, LockMode::Exclusive, IfLocked::Wait).unwrap());
        }
        self.given.store(true, Ordering::Release);
        thread::yield_now();
    }

    fn write_back(&self) {
        for _ in 0..4 {
            self.fs.mount().journal.push_tail(Lsn(u64::MAX)).unwrap();
        }
    }
}

fn model() {
    let device = Device::new(&IMAGE);
    let scene = Scene::new(&device);
    scene.watch(&device);
    thread::scope(|scope| {
        scope.spawn(|| scene.give_away());
        for _ in 0..2 {
            scope.spawn(|| scene.write_back());
        }
    });
    scene.fs.mount().journal.quiesce().unwrap();
    close(scene.fs, &device);
}

#[test]
fn inodes_are_not_written_to_blocks_that_a_file_has() {
    LazyLock::force(&IMAGE);
    explore("freed", 600, model);
}
