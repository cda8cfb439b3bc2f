//! Chains on the smallest log: chains that have begun roll on while others begin, and there is not enough space for
//! all.

use crate::device::Device;
use crate::{below, close, explore, image, open};
use shuttle::thread;
use std::sync::{Arc, LazyLock};
use xfskit_engine::error_tags::BMAP_ALLOC_MINLEN_EXTENT;
use xfskit_engine::journal::Grant;
use xfskit_engine::{AttrLogging, AttrPath, Caller, MountOptions, NewFile, SetMode, Volume};

static IMAGE: LazyLock<Arc<Vec<u8>>> = LazyLock::new(image);
const THREADS: usize = 2;

/// Sets values whose blocks are mapped one by one: a link and an intent for each.
fn roll(fs: &Volume, thread: usize) {
    let me = Caller::root();
    let file = fs.create(fs.root(), format!("{thread}").as_bytes(), &NewFile::file(0o644), &me).unwrap().inode;
    for round in 0..2 {
        let value = vec![round as u8; 4000 + below(4000)];
        fs.set_xattr(file, b"user.value", &value, SetMode::Any, &me).unwrap();
        assert!(fs.get_xattr(file, b"user.value").unwrap() == value);
    }
}

/// Takes space for chains of one link until so little is left that a chain that rolls has to wait for it.
fn crowd(fs: &Volume) -> Vec<Grant<'_>> {
    let journal = &fs.mount().journal;
    let (used, size) = journal.usage();
    let unit = 32 << 10;
    let left = |used: u64| size - size / 8 - used;
    let mut grants = Vec::new();
    let mut used = used;
    while left(used) > 6 * u64::from(unit) {
        grants.push(journal.reserve(unit, 1).unwrap());
        used = journal.usage().0;
    }
    grants
}

fn model() {
    let device = Device::new(&IMAGE);
    let fs = open(
        &device,
        MountOptions { attr_logging: AttrLogging::Always, attr_path: AttrPath::Intents, ..MountOptions::default() },
    );
    fs.mount().error_tags.arm_for(BMAP_ALLOC_MINLEN_EXTENT, 1, u32::MAX);
    let mut grants = crowd(&fs);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let fs = &fs;
            scope.spawn(move || roll(fs, thread));
        }
        scope.spawn(|| {
            while grants.pop().is_some() {
                (0..below(100)).for_each(|_| thread::yield_now());
            }
        });
        scope.spawn(|| {
            for n in 0..3 {
                fs.create(fs.root(), format!("new-{n}").as_bytes(), &NewFile::file(0o644), &Caller::root()).unwrap();
            }
        });
    });
    drop(grants);
    let journal = &fs.mount().journal;
    journal.quiesce().unwrap();
    assert_eq!(journal.usage().0, 0, "log space stays granted without a transaction");
    close(fs, &device);
}

#[test]
fn chains_roll_while_others_begin() {
    LazyLock::force(&IMAGE);
    explore("chains", 300, model);
}
