//! A large directory, whose blocks are found without the cache's index, while the cache is too small to keep them: a
//! changed block is never evicted before it is written in place.

use crate::device::Device;
use crate::{below, close, explore, image, open};
use shuttle::thread;
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};
use xfskit_engine::buffer::{BufferKey, Fill};
use xfskit_engine::space::cluster::{INODE_CLUSTER_KIND, locate};
use xfskit_engine::sync::{IfLocked, LockMode};
use xfskit_engine::{Caller, MountOptions, NewFile, RenameFlags, Volume};
use xfskit_ondisk::{InodeNumber, Lsn};

/// Names of 250 bytes: some nine blocks of a directory.
const NAMES: usize = 110;
const ROUNDS: usize = 6;
/// The limit of the cache, of which buffers get a half: a few of the directory's blocks.
const CACHE_BYTES: usize = 96 << 10;

static IMAGE: LazyLock<Arc<Vec<u8>>> = LazyLock::new(image);
/// The image with the directory in it, made under the first schedule.
static LARGE: LazyLock<(Arc<Vec<u8>>, InodeNumber, Vec<InodeNumber>)> = LazyLock::new(|| {
    let device = Device::new(&IMAGE);
    let fs = open(&device, MountOptions::default());
    let dir = fs.create(fs.root(), b"dir", &NewFile::dir(0o755), &Caller::root()).unwrap().inode;
    let make = |n| fs.create(dir, &name(n), &NewFile::file(0o644), &Caller::root()).unwrap().inode;
    let files = (0..NAMES).map(make).collect();
    fs.unmount().unwrap();
    (Arc::new(device.contents()), dir, files)
});

fn name(n: usize) -> Vec<u8> {
    format!("{n:0250}").into_bytes()
}

/// Gives names other names, which needs no blocks but the directory's.
fn rename(fs: &Volume, dir: InodeNumber, names: &mut BTreeSet<usize>) {
    for round in 0..ROUNDS {
        let old = *names.iter().nth(below(names.len())).unwrap();
        let new = 1000 * (round + 1) + old;
        fs.rename(dir, &name(old), dir, &name(new), RenameFlags::default(), &Caller::root()).unwrap();
        names.remove(&old);
        names.insert(new);
        assert!(fs.lookup_number(dir, &name(old)).is_err() && fs.lookup_number(dir, &name(new)).is_ok());
    }
}

/// Fills the cache with other blocks.
fn crowd(fs: &Volume, files: &[InodeNumber]) {
    let mount = fs.mount();
    for _ in 0..4 * ROUNDS {
        let (address, _) = locate(&mount.geometry, files[below(files.len())]).unwrap();
        let key = BufferKey::new(address, mount.geometry.inode_cluster_bytes());
        drop(mount.cache.lock(&key, &INODE_CLUSTER_KIND, Fill::Read, LockMode::Shared, IfLocked::Wait).unwrap());
        if below(4) == 0 {
            fs.sync().unwrap();
            mount.journal.push_tail(Lsn(u64::MAX)).unwrap();
        }
    }
}

fn model() {
    let (image, dir, files) = &*LARGE;
    let device = Device::new(image);
    let fs = open(&device, MountOptions { cache_bytes: CACHE_BYTES, ..MountOptions::default() });
    let mut names: BTreeSet<usize> = (0..NAMES).collect();
    thread::scope(|scope| {
        let (fs, names) = (&fs, &mut names);
        scope.spawn(move || rename(fs, *dir, names));
        scope.spawn(move || crowd(fs, files));
    });
    let listed: BTreeSet<Vec<u8>> = fs.list_dir(*dir).unwrap().into_iter().map(|entry| entry.name.to_vec()).collect();
    assert!(listed == names.iter().map(|n| name(*n)).collect(), "the directory has the names that it was given");
    close(fs, &device);
}

#[test]
fn blocks_that_are_remembered_are_not_lost() {
    LazyLock::force(&IMAGE);
    explore("dirs", 300, model);
}
