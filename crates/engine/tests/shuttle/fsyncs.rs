//! Writes in place, fsyncs that share flushes of the device and turns of the log writer, and files that take another's
//! name: what an fsync has acknowledged survives a power cut, and no name stands for contents older than its rename.

use crate::device::Device;
use crate::{below, close, explore, image, open};
use shuttle::thread;
use std::sync::{Arc, LazyLock, Mutex};
use xfskit_engine::{Caller, MountOptions, NewFile, RenameFlags, Volume};
use xfskit_ondisk::{InodeNumber, Lsn};

static IMAGE: LazyLock<Arc<Vec<u8>>> = LazyLock::new(image);
const WRITERS: usize = 3;
/// The last one replaces files.
const THREADS: usize = WRITERS + 1;
const ROUNDS: usize = 4;
const BLOCK: usize = 1024;
/// What a file contains that is written in place and then takes another's name: no name that was replaced may show it.
const UNWRITTEN: u8 = 0xee;

/// How many rounds each thread has begun, and how many of them were acknowledged as durable.
#[derive(Clone, Copy, Default)]
struct Progress {
    begun: [usize; THREADS],
    durable: [usize; THREADS],
}

struct Scene {
    fs: Volume,
    device: Arc<Device>,
    files: Vec<InodeNumber>,
    progress: Mutex<Progress>,
    cuts: Mutex<Vec<(Arc<Device>, Progress)>>,
}

fn name_of(thread: usize) -> Vec<u8> {
    format!("file-{thread}").into_bytes()
}

fn make(fs: &Volume, name: &[u8], byte: u8) -> InodeNumber {
    let file = fs.create(fs.root(), name, &NewFile::file(0o644), &Caller::root()).unwrap().inode;
    fs.write_at(file, 0, &[byte; BLOCK]).unwrap();
    file
}

impl Scene {
    fn new() -> Self {
        let device = Device::new(&IMAGE);
        let fs = open(&device, MountOptions::default());
        let files = (0..THREADS).map(|thread| make(&fs, &name_of(thread), 0)).collect();
        for round in 1..=ROUNDS {
            make(&fs, format!("new-{round}").as_bytes(), UNWRITTEN);
        }
        fs.sync().unwrap();
        Self { fs, device, files, progress: Mutex::default(), cuts: Mutex::default() }
    }

    fn cut(&self) {
        let at = *self.progress.lock().unwrap();
        self.cuts.lock().unwrap().push((self.device.power_cut(), at));
    }

    fn begin(&self, thread: usize) {
        self.progress.lock().unwrap().begun[thread] += 1;
    }

    /// All rounds of a thread so far were acknowledged; the power may fail right now.
    fn acknowledged(&self, thread: usize) {
        let mut progress = self.progress.lock().unwrap();
        progress.durable[thread] = progress.begun[thread];
        drop(progress);
        if below(6) == 0 {
            self.cut();
        }
    }

    fn write(&self, thread: usize) {
        let file = self.files[thread];
        for round in 1..=ROUNDS {
            self.begin(thread);
            let bytes = [round as u8; BLOCK];
            match below(4) {
                // Without its times: no checkpoint is forced.
                0 | 1 => self.fs.write_keeping_times(file, 0, &bytes).unwrap(),
                _ => self.fs.write_at(file, 0, &bytes).unwrap(),
            }
            match below(5) {
                0 => self.fs.fdatasync(file).unwrap(),
                1 => self.fs.sync().unwrap(),
                2 => continue,
                _ => self.fs.fsync(file).unwrap(),
            }
            self.acknowledged(thread);
        }
    }

    fn replace(&self, thread: usize) {
        let (fs, me) = (&self.fs, Caller::root());
        for round in 1..=ROUNDS {
            let name = format!("new-{round}").into_bytes();
            let file = fs.lookup_number(fs.root(), &name).unwrap();
            self.begin(thread);
            fs.write_keeping_times(file, 0, &[round as u8; BLOCK]).unwrap();
            fs.rename(fs.root(), &name, fs.root(), &name_of(thread), RenameFlags::default(), &me).unwrap();
            if below(2) == 0 {
                fs.fsync(file).unwrap();
                self.acknowledged(thread);
            }
        }
    }
}

/// Recovers what the power left.
fn judge(device: &Arc<Device>, progress: &Progress) {
    let fs = open(device, MountOptions::default());
    for thread in 0..THREADS {
        let file = fs.lookup_number(fs.root(), &name_of(thread)).unwrap();
        let mut bytes = [0; BLOCK];
        assert_eq!(fs.read_at(file, 0, &mut bytes).unwrap(), BLOCK);
        let found = usize::from(bytes[0]);
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "thread {thread}: the device writes a request at once");
        let (durable, begun) = (progress.durable[thread], progress.begun[thread]);
        assert!(
            (durable..=begun).contains(&found),
            "thread {thread}: round {found} of {begun} survived, {durable} were acknowledged"
        );
    }
    close(fs, device);
}

fn model() {
    let scene = Scene::new();
    thread::scope(|scope| {
        let scene = &scene;
        for thread in 0..WRITERS {
            scope.spawn(move || scene.write(thread));
        }
        scope.spawn(move || scene.replace(WRITERS));
        scope.spawn(|| {
            (0..below(200)).for_each(|_| thread::yield_now());
            scene.fs.mount().journal.push_tail(Lsn(u64::MAX)).unwrap();
            scene.cut();
        });
    });
    let Scene { fs, device, progress, cuts, .. } = scene;
    fs.sync().unwrap();
    let mut last = progress.into_inner().unwrap();
    assert_eq!(last.begun, [ROUNDS; THREADS]);
    last.durable = last.begun;
    judge(&device.power_cut(), &last);
    for (device, at) in cuts.into_inner().unwrap() {
        judge(&device, &at);
    }
    close(fs, &device);
}

#[test]
fn what_an_fsync_acknowledged_survives_whichever_thread_flushed_it() {
    LazyLock::force(&IMAGE);
    explore("fsyncs", 400, model);
}
