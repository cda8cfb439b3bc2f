//! A client that is alone is answered by the thread that follows it; others by the threads of the pool, and never by
//! one that gets no processor.

mod common;

use common::skip_without_fuse;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use xfskit_fuse::protocol::abi::{ROOT, RawAttr};
use xfskit_fuse::protocol::{
    Answer, Attr, Counters, Entry, Errno, Features, Filesystem, Placement, Requester, Session, Version,
};
use xfskit_fuse::{Options, attach, unmount};
use xfskit_testkit::{Scratch, scratch, skip};

/// How long anything here may take that is not stuck.
const PATIENCE: Duration = Duration::from_secs(60);
const REQUESTS: u64 = 4000;

/// A filesystem without files. A question for the attribute `user.gate` is answered when one for `user.key` has come.
struct Gate(Arc<Barrier>);

impl Filesystem for Gate {
    fn init(&mut self, _: Features, _: Version) -> Features {
        Features::empty()
    }

    fn lookup(&self, _: &Requester, _: u64, _: &[u8]) -> Answer<Entry> {
        Err(Errno::NOENT)
    }

    fn getattr(&self, _: u64, _: bool) -> Answer<Attr> {
        let attr = RawAttr { ino: ROOT, mode: 0o040_755, nlink: 2, ..RawAttr::default() };
        Ok(Attr { valid: Duration::from_secs(3600), attr })
    }

    fn getxattr(&self, _: &Requester, _: u64, name: &[u8]) -> Answer<Vec<u8>> {
        if name == b"user.gate" || name == b"user.key" {
            self.0.wait();
        }
        Err(Errno::NODATA)
    }
}

/// One test at a time: some take all processors.
static ALONE: Mutex<()> = Mutex::new(());

struct Mounted {
    _alone: MutexGuard<'static, ()>,
    scratch: Scratch,
    counters: Arc<Counters>,
    server: Option<JoinHandle<std::io::Result<()>>>,
}

impl Mounted {
    /// `None`, after printing the reason, if FUSE cannot be used.
    fn new(placement: Placement, threads: usize) -> Option<Self> {
        if skip_without_fuse() {
            return None;
        }
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let scratch = scratch();
        let dir = scratch.file("mount");
        std::fs::create_dir(&dir).unwrap();
        let options = Options { placement, threads, ..Options::default() };
        let attached = attach(&dir, &options).unwrap();
        let session = Session::begin(Gate(Arc::new(Barrier::new(2))), attached.connection, options.session()).unwrap();
        let counters = session.counters();
        let server = Some(std::thread::spawn(|| session.run()));
        Some(Self { _alone: alone, scratch, counters, server })
    }

    fn root(&self) -> PathBuf {
        self.scratch.file("mount")
    }

    /// Asks many times for an attribute that no cache has the answer for.
    fn ask(&self, times: u64) {
        let root = self.root();
        for _ in 0..times {
            assert_eq!(ask(&root, "user.none"), rustix::io::Errno::NODATA);
        }
    }

    fn stop(mut self) {
        unmount(&self.root(), false).unwrap();
        self.server.take().unwrap().join().unwrap().unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.server.is_some() {
            let _ = unmount(&self.root(), true);
        }
    }
}

fn ask(root: &std::path::Path, name: &str) -> rustix::io::Errno {
    rustix::fs::getxattr(root, name, &mut [0; 64]).unwrap_err()
}

/// Does `work` on a thread of its own; fails when that takes too long.
fn in_time(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(work);
    let begun = Instant::now();
    while !thread.is_finished() {
        assert!(begun.elapsed() < PATIENCE, "it is stuck");
        std::thread::sleep(Duration::from_millis(1));
    }
    thread.join().unwrap();
}

/// By `/dev/fuse`: queues of io_uring belong to processors already.
fn has_queues() -> bool {
    std::fs::read_to_string("/sys/module/fuse/parameters/enable_uring").is_ok_and(|text| text.trim() == "Y")
}

/// Asks until the client is followed for some of its requests: where other programs want the processors, for few.
fn is_followed(mounted: &Mounted) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let before = mounted.counters.followed();
        mounted.ask(REQUESTS);
        if mounted.counters.followed() > before {
            return true;
        }
    }
    false
}

#[test]
fn a_lone_client_is_followed_again_after_each_pause() {
    if has_queues() {
        return skip("requests come by queues of processors here");
    }
    let Some(mounted) = Mounted::new(Placement::WithLoneClient, 4) else { return };
    for _ in 0..5 {
        assert!(is_followed(&mounted));
        std::thread::sleep(Duration::from_millis(50));
    }
    mounted.stop();
}

/// The follower waits for the next request of a client that computes in between, longer than it takes to find none.
#[test]
fn a_client_that_computes_between_its_requests_stays_followed() {
    const ASKED: u64 = 400;
    if has_queues() {
        return skip("requests come by queues of processors here");
    }
    let Some(mounted) = Mounted::new(Placement::WithLoneClient, 4) else { return };
    let mut most = 0;
    let begun = Instant::now();
    // Where other programs want the processors, it is followed for some time only.
    while most < ASKED * 7 / 8 && begun.elapsed() < PATIENCE {
        let before = mounted.counters.followed();
        for _ in 0..ASKED {
            mounted.ask(1);
            let answered = Instant::now();
            while answered.elapsed() < Duration::from_micros(500) {
                std::hint::spin_loop();
            }
        }
        most = most.max(mounted.counters.followed() - before);
    }
    assert!(most >= ASKED * 7 / 8, "{most} of {ASKED}");
    mounted.stop();
}

#[test]
fn no_client_is_followed_where_that_is_not_wanted_or_one_thread_serves() {
    for (placement, threads) in [(Placement::Scheduler, 4), (Placement::WithLoneClient, 1)] {
        let Some(mounted) = Mounted::new(placement, threads) else { return };
        mounted.ask(REQUESTS);
        assert_eq!(mounted.counters.followed(), 0);
        mounted.stop();
    }
}

#[test]
fn a_followed_client_that_waits_keeps_no_other_waiting() {
    let Some(mounted) = Mounted::new(Placement::WithLoneClient, 2) else { return };
    for _ in 0..5 {
        let root = mounted.root();
        in_time(move || {
            let lone = {
                let root = root.clone();
                std::thread::spawn(move || {
                    for _ in 0..200 {
                        ask(&root, "user.none");
                    }
                    ask(&root, "user.gate")
                })
            };
            // By now the gate is being asked for by a client that is followed; only another request opens it.
            std::thread::sleep(Duration::from_millis(100));
            ask(&root, "user.key");
            lone.join().unwrap();
        });
    }
    mounted.stop();
}

#[test]
fn a_follower_without_a_processor_gives_its_work_up() {
    let Some(mounted) = Mounted::new(Placement::WithLoneClient, 2) else { return };
    let is_over = Arc::new(AtomicBool::new(false));
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let hogs: Vec<_> = (0..2 * processors)
        .map(|_| {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    let root = mounted.root();
    // By a thread that runs only where no other wants to, each of these would take a large part of a second.
    in_time(move || {
        for _ in 0..1000 {
            ask(&root, "user.none");
        }
    });
    is_over.store(true, Ordering::Relaxed);
    hogs.into_iter().for_each(|hog| hog.join().unwrap());
    mounted.stop();
}

#[test]
fn a_mount_ends_while_a_client_is_followed() {
    for _ in 0..20 {
        let Some(mounted) = Mounted::new(Placement::WithLoneClient, 3) else { return };
        mounted.ask(100);
        mounted.stop();
    }
}
