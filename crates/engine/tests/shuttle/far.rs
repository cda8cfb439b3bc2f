//! A device that takes several requests at a time: the engine's own threads write out files, write blocks back and
//! write the records of a checkpoint, while other threads flush and push, and the power fails. What was acknowledged is
//! there, and no file shows a block whose contents have not arrived.

use crate::device::Device;
use crate::{below, close, explore, image, open};
use shuttle::thread;
use std::sync::{Arc, LazyLock, Mutex};
use xfskit_engine::{AttrLogging, AttrPath, Caller, Error, MountOptions, NewFile, SetMode, Volume};
use xfskit_ondisk::{InodeNumber, Lsn};

static IMAGE: LazyLock<Arc<Vec<u8>>> = LazyLock::new(image);
const REQUESTS: usize = 3;
const FILES: usize = 3;
const ROUNDS: usize = 3;
const BLOCK: usize = 1024;
/// A value that is logged: the checkpoint has more records than one.
const VALUE_BYTES: usize = 40_000;

/// How many rounds have begun, and how many of them were acknowledged as durable.
#[derive(Clone, Copy, Default)]
struct Progress {
    begun: usize,
    durable: usize,
}

struct Scene {
    fs: Volume,
    device: Arc<Device>,
    files: Vec<InodeNumber>,
    seen: Arc<Seen>,
}

/// What the power cuts met.
#[derive(Default)]
struct Seen {
    progress: Mutex<Progress>,
    cuts: Mutex<Vec<(Arc<Device>, Progress)>>,
}

impl Seen {
    fn cut(&self, left: Arc<Device>) {
        let at = *self.progress.lock().unwrap();
        self.cuts.lock().unwrap().push((left, at));
    }
}

fn name_of(file: usize) -> Vec<u8> {
    format!("file-{file}").into_bytes()
}

fn options() -> MountOptions {
    MountOptions {
        attr_logging: AttrLogging::Always,
        attr_path: AttrPath::Intents,
        whiteouts: false,
        ..MountOptions::default()
    }
}

/// What a file has in the block of a round; never zero.
fn byte_of(file: usize, round: usize) -> u8 {
    (round * FILES + file) as u8
}

impl Scene {
    fn new() -> Self {
        let device = Device::far(&IMAGE, REQUESTS);
        let fs = open(&device, options());
        let make = |file| fs.create(fs.root(), &name_of(file), &NewFile::file(0o644), &Caller::root()).unwrap().inode;
        let files = (0..FILES).map(make).collect();
        fs.sync().unwrap();
        let seen = Arc::new(Seen::default());
        // Most is in doubt before a flush: records, and perhaps what they rely on.
        let at_flush = Arc::clone(&seen);
        device.watch_flush(Box::new(move |device| {
            if below(2) == 0 {
                at_flush.cut(device.power_cut_losing_one());
            }
        }));
        Self { fs, device, files, seen }
    }

    fn cut(&self) {
        self.seen.cut(self.device.power_cut());
    }

    /// In each round every file gets a block at its end, which waits in memory until the files are written out.
    fn write(&self) {
        for round in 1..=ROUNDS {
            self.seen.progress.lock().unwrap().begun = round;
            for (number, file) in self.files.iter().enumerate() {
                let at = ((round - 1) * BLOCK) as u64;
                self.fs.write_at(*file, at, &[byte_of(number, round); BLOCK]).unwrap();
            }
            if below(2) == 0 {
                let value = vec![round as u8; VALUE_BYTES];
                self.fs.set_xattr(self.files[0], b"user.value", &value, SetMode::Any, &Caller::root()).unwrap();
            }
            if below(4) == 0 {
                continue;
            }
            self.fs.sync().unwrap();
            let mut progress = self.seen.progress.lock().unwrap();
            progress.durable = round;
            drop(progress);
            if below(3) == 0 {
                self.cut();
            }
        }
    }

    /// Flushes and writes back meanwhile.
    fn push(&self) {
        for _ in 0..6 {
            match below(4) {
                0 => self.fs.fsync(self.files[below(FILES)]).unwrap(),
                1 => self.fs.mount().journal.force_all().unwrap(),
                2 => drop(self.fs.mount().journal.push_tail(Lsn(u64::MAX)).unwrap()),
                _ => (0..below(40)).for_each(|_| thread::yield_now()),
            }
            if below(6) == 0 {
                self.cut();
            }
        }
    }
}

/// Recovers what the power left.
fn judge(device: &Arc<Device>, progress: &Progress) {
    let fs = open(device, options());
    for number in 0..FILES {
        let file = fs.lookup_number(fs.root(), &name_of(number)).unwrap();
        let mut bytes = [0; (ROUNDS + 1) * BLOCK];
        let size = fs.read_at(file, 0, &mut bytes).unwrap();
        let rounds = size / BLOCK;
        assert!(
            size % BLOCK == 0 && (progress.durable..=progress.begun).contains(&rounds),
            "file {number} has {size} bytes: {} rounds were acknowledged and {} begun",
            progress.durable,
            progress.begun
        );
        for (block, found) in bytes[..size].chunks(BLOCK).enumerate() {
            let expected = byte_of(number, block + 1);
            assert!(found.iter().all(|byte| *byte == expected), "file {number}, block {block}: {}", found[0]);
        }
    }
    let file = fs.lookup_number(fs.root(), &name_of(0)).unwrap();
    match fs.get_xattr(file, b"user.value") {
        Ok(value) => {
            let round = usize::from(value[0]);
            assert!(
                value.len() == VALUE_BYTES && value.iter().all(|byte| *byte == value[0]) && round <= progress.begun
            );
        }
        Err(Error::NoAttribute) => {}
        Err(error) => panic!("{error}"),
    }
    close(fs, device);
}

fn model() {
    let scene = Scene::new();
    thread::scope(|scope| {
        let scene = &scene;
        scope.spawn(|| scene.write());
        scope.spawn(|| scene.push());
        scope.spawn(|| {
            (0..below(300)).for_each(|_| thread::yield_now());
            scene.cut();
        });
    });
    let Scene { fs, device, seen, .. } = scene;
    fs.sync().unwrap();
    judge(&device.power_cut(), &Progress { begun: ROUNDS, durable: ROUNDS });
    let cuts = std::mem::take(&mut *seen.cuts.lock().unwrap());
    for (device, at) in cuts {
        judge(&device, &at);
    }
    close(fs, &device);
}

#[test]
fn what_several_requests_wrote_survives_a_power_cut() {
    LazyLock::force(&IMAGE);
    explore("far", 800, model);
}
