//! The protocols between threads under one schedule after another: `make models`.
//!
//! Shuttle runs the threads of a model as coroutines and decides at every lock, atomic access and device request which
//! thread runs: at random, and with priorities that change at a few places (PCT). A deadlock, a livelock, a failed
//! assertion of the engine or of the model ends the run. `XFSKIT_SEED` names another first schedule, `XFSKIT_STRESS=50`
//! asks for fifty times as many.
//!
//! | model | what runs at once |
//! |---|---|
//! | `journal` | commit, push, force and a power cut |
//! | `fsyncs` | writes in place, fsyncs that share flushes and turns, renames that replace, and a power cut |
//! | `caches` | read, change, pin, write-back and eviction in caches that are always too small |
//! | `dirs` | a large directory's remembered blocks, and eviction |
//! | `freed` | write-back of inodes whose blocks get another owner |
//! | `names` | renames in both directions, links, removals, inactivation |
//! | `counts` | reservations when hardly anything is free, and what threads keep |
//! | `far` | records, blocks and files of a device that takes several requests at a time, a flush and a power cut |
//! | `trims` | files that are written, and removed, while free space is given back |
//! | `chains` | chains that roll and chains that begin, with too little log for all |
#![cfg(shuttle)]

mod caches;
mod chains;
mod counts;
mod device;
mod dirs;
mod far;
mod freed;
mod fsyncs;
mod journal;
mod names;
mod trims;

use device::Device;
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use xfskit_device::MemoryDevice;
use xfskit_engine::env::SeededEnvironment;
use xfskit_engine::{MountOptions, Volume};
use xfskit_mkfs::{Options, make};
use xfskit_ondisk::Timestamp;

/// xfs_repair looks at one in this many images, since it takes longer than a schedule.
const REPAIR_EVERY: usize = 100;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Runs a model under `schedules` schedules of each kind.
fn explore(name: &str, schedules: usize, model: fn()) {
    let seed = number("XFSKIT_SEED", 1);
    let schedules = schedules * number("XFSKIT_STRESS", 1) as usize;
    let run = |kind: &str, scheduler: Box<dyn Scheduler + Send>| {
        let mut config = Config::new();
        config.stack_size = 1 << 20;
        config.max_steps = MaxSteps::FailAfter(5_000_000);
        config.failure_persistence = FailurePersistence::None;
        config.silence_warnings = true;
        let count = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&count);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            Runner::new(scheduler, config).run(move || {
                seen.fetch_add(1, Ordering::Relaxed);
                model();
            });
        }));
        if let Err(panic) = result {
            eprintln!("{name}: failed in {kind} schedule {count:?}; run it again with XFSKIT_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    };
    run("random", Box::new(RandomScheduler::new_from_seed(seed, schedules)));
    for depth in [3, 20] {
        run(&format!("PCT-{depth}"), Box::new(PctScheduler::new_from_seed(seed, depth, schedules / 2)));
    }
}

/// A number below `limit` that the schedule decides.
fn below(limit: usize) -> usize {
    thread_rng().gen_range(0..limit)
}

/// The bytes of a small image with the smallest log.
fn image() -> Arc<Vec<u8>> {
    let device = MemoryDevice::new(32 << 20);
    let mut options = Options { uuid: Some([7; 16]), allow_small: true, ..Options::default() };
    for (letter, value) in [('b', "size=1024"), ('d', "agcount=2"), ('n', "parent=1")] {
        options.apply(letter, value).expect("an option of mkfs.xfs");
    }
    make(&device, None, &options, Timestamp::default()).unwrap();
    Arc::new(device.to_bytes())
}

fn open(device: &Arc<Device>, options: MountOptions) -> Volume {
    let world = Arc::new(SeededEnvironment::new(1));
    Volume::open_in(Arc::clone(device) as _, None, options, world).unwrap()
}

/// Unmounts. The free counts must be those that a mount finds, and now and then xfs_repair checks the image.
fn close(fs: Volume, device: &Arc<Device>) {
    static CLOSED: AtomicUsize = AtomicUsize::new(0);
    // Not those of statfs, in which a mount that writes keeps blocks back and one that reads does not.
    let counts = |fs: &Volume| (fs.mount().space.free_blocks(), fs.mount().space.inodes());
    let before = counts(&fs);
    fs.unmount().unwrap();
    let fs = open(device, MountOptions::read_only());
    assert_eq!(counts(&fs), before);
    if CLOSED.fetch_add(1, Ordering::Relaxed).is_multiple_of(REPAIR_EVERY)
        && let Some(reference) = xfskit_testkit::reference()
    {
        let scratch = xfskit_testkit::scratch();
        std::fs::write(scratch.file("image"), device.contents()).unwrap();
        reference.repair_finds_nothing(&scratch.file("image"));
    }
}
