//! What the long tests share: images of any shape, random numbers, a watchdog.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use xfskit_device::{Access, FileDevice};
use xfskit_engine::{Caller, Error, Fallocate, MountOptions, SetMode, Volume};
use xfskit_mkfs::{Options, make};
use xfskit_ondisk::{InodeNumber, Timestamp};
use xfskit_testkit::{Scratch, scratch};

pub const FILE: u16 = 0o100_000;
pub const DIR: u16 = 0o040_000;

/// An image in a folder of its own.
pub struct Image {
    _scratch: Scratch,
    pub path: PathBuf,
}

impl Image {
    /// Makes an image of `mib` MiB with options of mkfs.xfs, in the form `("b", "size=1024")`.
    pub fn new(mib: u64, arguments: &[(char, &str)]) -> Self {
        let scratch = scratch();
        let path = scratch.image("image", mib << 20);
        let mut options = Options { uuid: Some([7; 16]), allow_small: true, ..Options::default() };
        for (letter, value) in arguments {
            options.apply(*letter, value).expect("an option of mkfs.xfs");
        }
        let device = FileDevice::open(&path, Access::Write).unwrap();
        make(&device, None, &options, Timestamp::default()).unwrap();
        Self { _scratch: scratch, path }
    }

    pub fn open(&self) -> Volume {
        self.open_with(MountOptions::default())
    }

    pub fn open_with(&self, options: MountOptions) -> Volume {
        Volume::open(Arc::new(FileDevice::open(&self.path, Access::Write).unwrap()), options).unwrap()
    }

    /// Unmounts and lets xfs_repair check the image.
    pub fn close(&self, fs: Volume) {
        fs.unmount().unwrap();
        self.assert_sound();
    }

    pub fn assert_sound(&self) {
        if let Some(reference) = xfskit_testkit::reference() {
            keep_if_broken(&self.path, || reference.repair_finds_nothing(&self.path));
        }
    }
}

/// Runs a check; an image that fails it stays where `XFSKIT_KEEP` says.
pub fn keep_if_broken(image: &Path, check: impl FnOnce()) {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check));
    if let Err(panic) = result {
        if let Some(to) = std::env::var_os("XFSKIT_KEEP") {
            drop(std::fs::copy(image, to));
        }
        std::panic::resume_unwind(panic);
    }
}

/// How much longer than usual the tests run: `XFSKIT_STRESS` times.
pub fn scale() -> u64 {
    std::env::var("XFSKIT_STRESS").ok().and_then(|value| value.parse().ok()).unwrap_or(1)
}

/// A number for the first random sequence: `XFSKIT_SEED`.
pub fn first_seed() -> u64 {
    std::env::var("XFSKIT_SEED").ok().and_then(|value| value.parse().ok()).unwrap_or(1)
}

/// Numbers that look random and are the same for one seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xd134_2543_de82_ef95))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        list.get(self.below(list.len()))
    }
}

/// Names of the same hash: shifting a bit seven places from one byte to the next keeps it.
pub fn colliding(number: u32) -> Vec<u8> {
    (0..10).flat_map(|bit| if number >> bit & 1 == 1 { *b"bz" } else { [b'c', b'z' ^ 0x80] }).collect()
}

/// Ends the process with a message when it is not dropped in time: a deadlock cannot be caught otherwise.
pub struct Watchdog {
    done: Arc<AtomicBool>,
}

impl Watchdog {
    pub fn new(what: &'static str, seconds: u64) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&done);
        std::thread::spawn(move || {
            let end = Instant::now() + Duration::from_secs(seconds * scale());
            while Instant::now() < end {
                if seen.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            eprintln!("{what}: not done after {} s, probably a deadlock", seconds * scale());
            std::process::abort();
        });
        Self { done }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
    }
}

/// Sets an attribute of an inode, again and again, until three quarters of the log are taken.
pub fn fill_log(fs: &Volume, inode: InodeNumber) -> Result<(), Error> {
    let journal = &fs.mount().journal;
    let (_, size) = journal.usage();
    for n in (0..=u8::MAX).cycle() {
        if journal.usage().0 > size / 4 * 3 {
            break;
        }
        fs.set_xattr(inode, b"user.other", &[n; 60_000], SetMode::Any, &Caller::root())?;
        fs.sync()?;
    }
    Ok(())
}

/// Lets a file take all blocks that an ordinary operation can have.
pub fn fill(fs: &Volume, filler: InodeNumber) {
    let block = u64::from(fs.statfs().block_bytes);
    let (mut end, mut step) = (0, 4096 * block);
    while step >= block {
        match fs.fallocate(filler, end, step, Fallocate::Allocate) {
            Ok(()) => end += step,
            Err(Error::NoSpace) => {
                fs.truncate(filler, end).unwrap();
                step /= 4;
            }
            Err(error) => panic!("{error}"),
        }
    }
    fs.sync().unwrap();
}
