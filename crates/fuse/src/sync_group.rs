//! Fsyncs that wait together.
//!
//! ```text
//! a thread that answers: begin, join ──▶ waiting ──┐
//! a thread that answers: begin, join ──▶ waiting ──┴─▶ one of two threads: await_durable, reply to all ─▶ again
//! ```
//! A thread for each fsync would be woken twice for it: when it gets the request, and when the flush is done. Here the
//! thread that waits for the flush takes along all that have begun until then. There are two, so that one waits for the
//! device while the other one replies.
//!
//! Invariant: if something waits, a thread is on its way to it. Locking: one mutex, under which nothing is done.

use crate::server::Server;
use parking_lot::Mutex;
use std::sync::Arc;
use xfskit_engine::SyncPoint;
use xfskit_fuse_session::{ReplyLater, Work};

const MOST_THREADS: usize = 2;
/// Waits after which a thread ends, so that other work that waits for one gets its turn where the system has no more
/// threads to give.
const MOST_WAITS: u32 = 256;

#[derive(Default)]
struct State {
    waiting: Vec<(SyncPoint, ReplyLater)>,
    threads: usize,
}

/// The fsyncs that have begun.
#[derive(Default)]
pub(crate) struct SyncGroup(Mutex<State>);

impl SyncGroup {
    /// Adds one; returns work for a thread that may wait, if those that are there are not enough.
    pub(crate) fn join(self: &Arc<Self>, server: &Arc<Server>, point: SyncPoint, reply: ReplyLater) -> Option<Work> {
        let mut state = self.0.lock();
        state.waiting.push((point, reply));
        if state.threads == MOST_THREADS {
            return None;
        }
        state.threads += 1;
        let thread = GroupThread { group: Arc::clone(self), server: Arc::clone(server), counts: true };
        Some(Box::new(move || thread.run()))
    }
}

/// A thread that waits for others' fsyncs, until none is left.
struct GroupThread {
    group: Arc<SyncGroup>,
    server: Arc<Server>,
    /// Whether it is among the group's threads.
    counts: bool,
}

impl GroupThread {
    fn run(mut self) {
        let mut waits = 0;
        while self.counts
            && let Some((point, replies)) = self.take(waits == MOST_WAITS)
        {
            waits += 1;
            let answer = self.server.with(|fs| fs.await_durable(point));
            replies.into_iter().for_each(|reply| reply.send(answer));
        }
    }

    /// All that wait, and the point at which they are done; `None` when there are none. After the last ones, and when
    /// there are none, this thread is not the group's any more: the next that comes brings another one along.
    fn take(&mut self, are_last: bool) -> Option<(SyncPoint, Vec<ReplyLater>)> {
        let mut state = self.group.0.lock();
        let (points, replies): (Vec<_>, Vec<_>) = std::mem::take(&mut state.waiting).into_iter().unzip();
        let point = points.into_iter().reduce(SyncPoint::and);
        if are_last || point.is_none() {
            state.threads -= 1;
            self.counts = false;
        }
        point.zip(Some(replies))
    }
}

impl Drop for GroupThread {
    /// After a panic nobody may be on the way to what waits; it is answered with EIO, as those were for which this
    /// thread waited.
    fn drop(&mut self) {
        if self.counts {
            let mut state = self.group.0.lock();
            state.threads -= 1;
            let lost = std::mem::take(&mut state.waiting);
            drop(state);
            drop(lost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::sync::mpsc::{Sender, channel};
    use xfskit_device::{BlockDevice, MemoryDevice, WrapsDevice};
    use xfskit_engine::{MountOptions, SyncKind, Volume};
    use xfskit_fuse_session::Errno;
    use xfskit_ondisk::Timestamp;

    /// An image in memory whose flush panics when that is wanted.
    struct Device(MemoryDevice, Arc<AtomicBool>);

    impl WrapsDevice for Device {
        type Below = MemoryDevice;

        fn below(&self) -> &MemoryDevice {
            &self.0
        }

        fn pass_flush(&self) -> io::Result<()> {
            assert!(!self.1.load(Ordering::SeqCst), "a panic on purpose");
            self.0.flush()
        }
    }

    struct Fixture {
        group: Arc<SyncGroup>,
        server: Arc<Server>,
        panics: Arc<AtomicBool>,
        refills: AtomicU32,
    }

    fn fixture() -> Fixture {
        let (device, panics) = (MemoryDevice::new(64 << 20), Arc::default());
        let options = xfskit_mkfs::Options { uuid: Some([7; 16]), allow_small: true, ..Default::default() };
        xfskit_mkfs::make(&device, None, &options, Timestamp::default()).unwrap();
        let device = Device(device, Arc::clone(&panics));
        let volume = Volume::open(Arc::new(device), MountOptions::default()).unwrap();
        Fixture { group: Arc::default(), server: Arc::new(Server::new(volume)), panics, refills: AtomicU32::new(0) }
    }

    impl Fixture {
        fn point(&self) -> SyncPoint {
            self.server.with(|fs| fs.begin_fsync(fs.root(), SyncKind::Full)).unwrap()
        }
    }

    #[test]
    fn a_thread_that_panics_answers_all_and_leaves_its_place_to_another() {
        let fixture = fixture();
        let Fixture { group, server, panics, .. } = &fixture;
        let make = |name: &[u8]| {
            let file = xfskit_engine::NewFile::file(0o644);
            server.with(|fs| fs.create(fs.root(), name, &file, &xfskit_engine::Caller::root())).unwrap();
        };
        let (answers, answered) = channel();
        let join = || {
            let answers = answers.clone();
            group.join(server, fixture.point(), ReplyLater::new(move |answer| answers.send(answer).unwrap()))
        };
        make(b"a");
        let (first, second) = (join().unwrap(), join().unwrap());
        assert!(join().is_none(), "two are enough");
        panics.store(true, Ordering::SeqCst);
        assert!(catch_unwind(AssertUnwindSafe(first)).is_err());
        assert_eq!(answered.try_iter().collect::<Vec<_>>(), [Err(Errno::IO); 3]);
        second();
        assert_eq!(group.0.lock().threads, 0);
    }

    /// As many programs that sync one after the other do it.
    fn refill(fixture: &Arc<Fixture>, handed_on: &Sender<Work>) -> Option<Work> {
        let (theirs, handed_to) = (Arc::clone(fixture), handed_on.clone());
        let reply = ReplyLater::new(move |answer| {
            // At the end of the test the work is dropped, and the last fsync refused.
            if answer.is_err() || theirs.refills.fetch_add(1, Ordering::Relaxed) > 2 * MOST_WAITS {
                return;
            }
            refill(&theirs, &handed_to).into_iter().for_each(|work| handed_to.send(work).unwrap());
        });
        fixture.group.join(&fixture.server, fixture.point(), reply)
    }

    #[test]
    fn a_thread_that_never_runs_out_of_fsyncs_hands_them_on() {
        let fixture = Arc::new(fixture());
        let (handed_on, next) = channel();
        let first = refill(&fixture, &handed_on).unwrap();
        // So that the group wants no thread besides.
        fixture.group.0.lock().threads = MOST_THREADS;
        first();
        assert!(next.try_recv().is_ok(), "what came last waits for a thread that has been asked for");
    }
}
