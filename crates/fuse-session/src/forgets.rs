//! Forgets that are on their way: sent by the kernel, and not dealt with yet.
//!
//! A file that has lost its name takes space until the kernel lets go of it, by a FORGET for which no program waits. A
//! program that has removed a file may ask for its space before that is read, or while another thread deals with it.
//! So who finds no space, and who asks how much there is, waits for the forgets that were sent before:
//!
//! ```text
//! in the kernel's queue ──▶ read, by a thread ──▶ dealt with there ──▶ done
//!   no request is there,      the thread is      └▶ by a thread that waits ──▶ done
//!   or many were read         awake
//! ```
//! - **In the queue.** A poll that finds no request has found no forget either. Where requests come all the time, the
//!   kernel lets at most eight go before the forgets that wait, and a read takes all of those.
//! - **Just read.** A thread says that it is going to read before it does, and what it has when it has looked. In
//!   between it may have a forget. It has none if it sleeps: then it waits in the kernel for a request.
//! - **Being dealt with.** The thread says so, and those that are left to threads that wait are counted.
//!
//! - **Kept by a notice.** While the server has the kernel drop contents of a file, the kernel keeps the file, and its
//!   forget comes afterwards. A notice waits for contents that are written back, so who writes those waits for none.
//!
//! A file that a program still has open is not on its way, and is not waited for.
//!
//! Source of facts: `fuse_dev_do_read` in `fs/fuse/dev.c`, Linux 6.18; proc_pid_stat(5).

use crate::processor::{Thread, Watched};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Requests with replies that were read since, after which the forgets that waited then have been read.
const REQUESTS: u64 = 32;
/// The first pause between two looks, and the longest.
const PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);
/// How long a thread may take from its read to its look at what it has read, where it is not seen whether it sleeps.
const GRACE: Duration = Duration::from_millis(5);

/// What a thread that reads requests does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Doing {
    /// Nothing with requests, or it answers one.
    Other,
    /// It waits for one, or has just read one.
    Reads,
    /// It has read something, and deals with it if it is a forget.
    Forgets,
}

/// A thread that reads requests.
pub(crate) struct Reader {
    doing: AtomicU8,
    watched: Option<Watched>,
}

impl Reader {
    /// Says what the thread does from now on.
    pub(crate) fn set(&self, doing: Doing) {
        self.doing.store(doing as u8, Ordering::SeqCst);
    }

    /// Whether it may have a forget. `waited`: for how long it has been looked at.
    fn may_have_one(&self, waited: Duration) -> bool {
        let doing = self.doing.load(Ordering::SeqCst);
        if doing != Doing::Reads as u8 {
            return doing == Doing::Forgets as u8;
        }
        match self.watched.as_ref().and_then(Watched::is_asleep) {
            Some(is_asleep) => !is_asleep,
            None => waited < GRACE,
        }
    }
}

/// The forgets of a session.
#[derive(Default)]
pub(crate) struct Forgets {
    readers: Mutex<Vec<Arc<Reader>>>,
    /// Requests with replies that were read.
    requests: AtomicU64,
    /// Forgets that threads that wait deal with.
    late: AtomicUsize,
    /// Notices that may keep files.
    notices: AtomicUsize,
    /// What the filesystem said of its files without names when the forgets were last waited for.
    seen: AtomicU64,
}

/// A place in the list of readers.
pub(crate) struct Registered<'a> {
    forgets: &'a Forgets,
    pub reader: Arc<Reader>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.forgets.readers.lock().retain(|other| !Arc::ptr_eq(other, &self.reader));
    }
}

/// Work that is left to a thread that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Forget,
    Notice,
}

/// Who waits for forgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// Contents that are written back, for which notices wait.
    WriteBack,
    Others,
}

/// A thread that waits does what was left to it until this is dropped.
pub(crate) struct InProgress<'a>(&'a AtomicUsize);

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Forgets {
    /// The thread that calls reads requests, until the result is dropped.
    pub(crate) fn register(&self) -> Registered<'_> {
        let watched = Thread::current().ok().and_then(|thread| thread.watch());
        let reader = Arc::new(Reader { doing: AtomicU8::new(Doing::Other as u8), watched });
        self.readers.lock().push(Arc::clone(&reader));
        Registered { forgets: self, reader }
    }

    /// A request with a reply has been read.
    pub(crate) fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    fn count_of(&self, left: Left) -> &AtomicUsize {
        match left {
            Left::Forget => &self.late,
            Left::Notice => &self.notices,
        }
    }

    /// Something is left to a thread that waits.
    pub(crate) fn leave(&self, left: Left) {
        self.count_of(left).fetch_add(1, Ordering::SeqCst);
    }

    /// The thread that waits does what was left to it.
    pub(crate) fn take(&self, left: Left) -> InProgress<'_> {
        InProgress(self.count_of(left))
    }

    /// Whether files have lost their names since the forgets were last waited for.
    pub(crate) fn are_others(&self, names_lost: u64) -> bool {
        self.seen.load(Ordering::Relaxed) != names_lost
    }

    /// Waits for the forgets that are on their way, no longer than `most`. `names_lost`: how many files had lost their
    /// names before. `has_request`: whether the kernel has a request that is not read. Returns whether all are dealt
    /// with.
    pub(crate) fn wait(&self, names_lost: u64, who: Who, has_request: impl Fn() -> bool, most: Duration) -> bool {
        let (begun, requests) = (Instant::now(), self.requests.load(Ordering::Relaxed));
        let (mut are_sent, mut are_read, mut pause) = (false, false, PAUSE);
        loop {
            let waited = begun.elapsed();
            are_sent |= who == Who::WriteBack || self.notices.load(Ordering::SeqCst) == 0;
            are_read |= are_sent && !has_request() || self.requests.load(Ordering::Relaxed) - requests >= REQUESTS;
            if are_sent && are_read && self.are_dealt_with(waited) {
                self.seen.store(names_lost, Ordering::Relaxed);
                return true;
            }
            if waited >= most {
                return false;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn are_dealt_with(&self, waited: Duration) -> bool {
        // A forget is counted before its reader goes on, so the readers are looked at first.
        let is_any = self.readers.lock().iter().any(|reader| reader.may_have_one(waited));
        !is_any && self.late.load(Ordering::SeqCst) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_thread_that_sleeps_in_a_read_has_nothing() {
        let forgets = Arc::new(Forgets::default());
        assert!(
            forgets.wait(1, Who::Others, || false, Duration::ZERO) && !forgets.are_others(1) && forgets.are_others(2)
        );
        let (end, ends) = channel::<()>();
        let (begin, begins) = channel();
        let theirs = Arc::clone(&forgets);
        let thread = std::thread::spawn(move || {
            let registered = theirs.register();
            registered.reader.set(Doing::Reads);
            begin.send(()).unwrap();
            ends.recv().unwrap();
            registered.reader.set(Doing::Forgets);
            begin.send(()).unwrap();
            ends.recv().unwrap();
        });
        begins.recv().unwrap();
        assert!(forgets.wait(1, Who::Others, || false, LONG));
        end.send(()).unwrap();
        begins.recv().unwrap();
        assert!(!forgets.wait(1, Who::Others, || false, Duration::from_millis(10)), "it has a forget");
        end.send(()).unwrap();
        thread.join().unwrap();
        assert!(forgets.wait(1, Who::Others, || false, Duration::ZERO));
    }

    #[test]
    fn a_thread_that_runs_after_its_read_may_have_one() {
        let forgets = Arc::new(Forgets::default());
        let (begin, begins) = channel();
        let end = Arc::new(AtomicU8::new(0));
        let (theirs, ends) = (Arc::clone(&forgets), Arc::clone(&end));
        let thread = std::thread::spawn(move || {
            let registered = theirs.register();
            registered.reader.set(Doing::Reads);
            begin.send(()).unwrap();
            while ends.load(Ordering::Relaxed) == 0 {
                std::hint::spin_loop();
            }
            registered.reader.set(Doing::Other);
            while ends.load(Ordering::Relaxed) == 1 {
                std::hint::spin_loop();
            }
        });
        begins.recv().unwrap();
        assert!(!forgets.wait(1, Who::Others, || false, GRACE * 4));
        end.store(1, Ordering::Relaxed);
        assert!(forgets.wait(1, Who::Others, || false, LONG), "an answer is no forget");
        end.store(2, Ordering::Relaxed);
        thread.join().unwrap();
    }

    #[test]
    fn those_in_the_queue_and_those_left_to_others_are_waited_for() {
        let forgets = Forgets::default();
        assert!(!forgets.wait(1, Who::Others, || true, Duration::from_millis(5)));
        std::thread::scope(|scope| {
            scope.spawn(|| (0..REQUESTS).for_each(|_| forgets.count_request()));
            // Some may have been read before.
            let _ = forgets.wait(1, Who::Others, || true, Duration::from_millis(50));
        });
        for left in [Left::Forget, Left::Notice] {
            forgets.leave(left);
            assert!(!forgets.wait(1, Who::Others, || false, Duration::from_millis(5)));
            assert_eq!(forgets.wait(1, Who::WriteBack, || false, Duration::ZERO), left == Left::Notice);
            drop(forgets.take(left));
            assert!(forgets.wait(1, Who::Others, || false, Duration::ZERO));
        }
    }
}
