//! Commit, push and force: changes that a force has acknowledged survive a power cut, and of each thread's steps the
//! first ones, without a gap.

use crate::device::Device;
use crate::{below, close, explore, image, open};
use shuttle::thread;
use std::sync::{Arc, LazyLock, Mutex};
use xfskit_engine::{Caller, Error, MountOptions, NewFile, SetMode, Volume};
use xfskit_ondisk::{InodeNumber, Lsn};

static IMAGE: LazyLock<Arc<Vec<u8>>> = LazyLock::new(image);
const THREADS: usize = 3;
/// In each round a thread makes a name in the directory that all share, then an attribute of the file that all share.
const ROUNDS: usize = 3;

/// How many steps each thread has begun, and how many of them were acknowledged as durable.
#[derive(Clone, Copy, Default)]
struct Progress {
    begun: [usize; THREADS],
    durable: [usize; THREADS],
}

struct Scene {
    fs: Volume,
    device: Arc<Device>,
    shared: InodeNumber,
    progress: Mutex<Progress>,
    cuts: Mutex<Vec<(Arc<Device>, Progress)>>,
}

impl Scene {
    fn new() -> Self {
        let device = Device::new(&IMAGE);
        let fs = open(&device, MountOptions { wsync: below(3) == 0, ..MountOptions::default() });
        let shared = fs.create(fs.root(), b"shared", &NewFile::file(0o644), &Caller::root()).unwrap().inode;
        fs.sync().unwrap();
        Self { fs, device, shared, progress: Mutex::default(), cuts: Mutex::default() }
    }

    fn cut(&self) {
        let at = *self.progress.lock().unwrap();
        self.cuts.lock().unwrap().push((self.device.power_cut(), at));
    }

    /// All steps of a thread so far were acknowledged; the power may fail right now.
    fn acknowledged(&self, thread: usize) {
        let mut progress = self.progress.lock().unwrap();
        progress.durable[thread] = progress.begun[thread];
        drop(progress);
        if below(6) == 0 {
            self.cut();
        }
    }

    fn begin(&self, thread: usize) {
        self.progress.lock().unwrap().begun[thread] += 1;
    }

    fn commit(&self, thread: usize) {
        let (fs, me) = (&self.fs, Caller::root());
        let journal = &fs.mount().journal;
        for round in 1..=ROUNDS {
            self.begin(thread);
            fs.create(fs.root(), format!("{thread}-{round}").as_bytes(), &NewFile::file(0o644), &me).unwrap();
            if fs.mount().options.wsync {
                self.acknowledged(thread);
            }
            self.begin(thread);
            let name = format!("user.{thread}");
            fs.set_xattr(self.shared, name.as_bytes(), &[round as u8], SetMode::Any, &me).unwrap();
            match below(4) {
                _ if fs.mount().options.wsync => {}
                0 => fs.sync().unwrap(),
                1 => fs.fsync(self.shared).unwrap(),
                2 => {
                    // Other threads may push the gathered checkpoint meanwhile.
                    let seq = journal.current();
                    (0..below(20)).for_each(|_| thread::yield_now());
                    journal.force(seq).unwrap();
                }
                _ => continue,
            }
            self.acknowledged(thread);
        }
    }
}

fn push(fs: &Volume) {
    for _ in 0..4 {
        match below(3) {
            0 => fs.sync().unwrap(),
            1 => drop(fs.mount().journal.push_tail(Lsn(u64::MAX)).unwrap()),
            _ => thread::yield_now(),
        }
    }
}

/// Recovers what the power left; every thread's steps are there up to one that was not acknowledged.
fn judge(device: &Arc<Device>, progress: &Progress) {
    let fs = open(device, MountOptions::default());
    let shared = fs.lookup_number(fs.root(), b"shared").unwrap();
    let mut names = 1;
    for thread in 0..THREADS {
        let is_there = |round: &usize| fs.lookup_number(fs.root(), format!("{thread}-{round}").as_bytes()).is_ok();
        let created = (1..=ROUNDS).take_while(is_there).count();
        let set = match fs.get_xattr(shared, format!("user.{thread}").as_bytes()) {
            Ok(value) => usize::from(value[0]),
            Err(Error::NoAttribute) => 0,
            Err(error) => panic!("{error}"),
        };
        names += created;
        assert!(created == set || created == set + 1, "thread {thread}: {created} names, attribute {set}");
        let (durable, begun) = (progress.durable[thread], progress.begun[thread]);
        assert!(
            (durable..=begun).contains(&(created + set)),
            "thread {thread}: {} steps of {begun} survived, {durable} were acknowledged",
            created + set
        );
    }
    assert_eq!(fs.list_dir(fs.root()).unwrap().len(), names);
    close(fs, device);
}

fn model() {
    let scene = Scene::new();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let scene = &scene;
            scope.spawn(move || scene.commit(thread));
        }
        scope.spawn(|| push(&scene.fs));
        scope.spawn(|| {
            (0..below(200)).for_each(|_| thread::yield_now());
            scene.cut();
        });
    });
    let Scene { fs, device, progress, cuts, .. } = scene;
    fs.sync().unwrap();
    let mut last = progress.into_inner().unwrap();
    assert_eq!(last.begun, [2 * ROUNDS; THREADS]);
    last.durable = last.begun;
    judge(&device.power_cut(), &last);
    for (device, at) in cuts.into_inner().unwrap() {
        judge(&device, &at);
    }
    let journal = &fs.mount().journal;
    journal.quiesce().unwrap();
    assert_eq!(journal.usage().0, 0, "log space stays granted without a transaction");
    close(fs, &device);
}

#[test]
fn what_a_force_acknowledged_survives_a_power_cut() {
    LazyLock::force(&IMAGE);
    explore("journal", 600, model);
}
