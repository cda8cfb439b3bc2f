//! The thread that follows a client that is alone.
//!
//! A lone client and the thread that answers it take turns: when one runs, the other waits. On two processors each turn
//! wakes a processor that sleeps, which takes several times as long as the request. So this thread runs on the client's
//! processor and gives way there (`processor.rs`): the client goes on at once when it is answered, and by the time that
//! it waits again its next request is there to be read.
//!
//! ```text
//! client ──▶ request     ┌──▶ next request
//!                  └─▶ answer  └─▶ answer            one processor, no wake-up of another
//! ```
//! Another thread on that processor would be served before this one each time. What it takes is the time for which this
//! thread waited for the processor, without that for which the client ran; when that is much, the pool reads again.
//!
//! The client may be moved to another processor, so the thread looks after it every few requests. What it cannot
//! follow, a client of another process namespace for example, it answers where it is.
//!
//! States and their changes: `readers.rs`. The follower reads without waiting and waits by poll, so that a thread of
//! the pool which begins to read comes before it.

use crate::processor::{Claim, Thread, Usage, Watched, is_refused};
use crate::readers::{Readers, Stuck, Why};
use parking_lot::Mutex;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Requests and time between two looks for the client's processor.
const LOOK_EVERY: u32 = 16;
const LOOK_AFTER: Duration = Duration::from_millis(1);
/// Other threads have the processor when they have had a quarter of it for so long. A virtual processor may be lent to
/// other work for some milliseconds, which looks the same and is over by itself.
const SHARE_OF_OTHERS: u32 = 4;
const JUDGED_OVER: Duration = Duration::from_millis(20);
/// Requests between two looks whether further ones wait.
const PROBE_EVERY: u32 = 4;
/// After so many requests it is judged whether the client is still alone.
const WINDOW: u32 = 64;
/// Signs of a crowd in a window that are too many. A request that waits while another is read counts as much as four
/// requests of changing clients.
const TOO_MANY: u32 = 32;
const SIGNS_OF_OVERLAP: u32 = 4;

/// Whether the follower is bound to the client's processor, and gives way there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Bound,
    Released,
}

/// What the follower and the guard both know of the follower.
///
/// Locking: the mutex is held while the system is asked to bind or release. The guard never waits for it, for the
/// follower may hold it and get no processor.
pub(crate) struct Place {
    thread: Thread,
    /// Whether the follower may take back that it gives way.
    can_return: bool,
    hold: Mutex<Hold>,
    /// The processor to which it is bound, and one; 0 for none.
    processor: AtomicUsize,
    watched: Option<Watched>,
}

impl Place {
    /// The place of the thread that calls, which gives way from here on.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn of_this_thread() -> io::Result<Self> {
        let thread = Thread::current()?;
        thread.set_claim(Claim::GivesWay)?;
        let can_return = match thread.set_claim(Claim::Equal) {
            Ok(()) => true,
            Err(error) if is_refused(&error) => false,
            Err(error) => return Err(error),
        };
        let watched = thread.watch();
        Ok(Self { thread, can_return, hold: Mutex::new(Hold::Released), processor: AtomicUsize::new(0), watched })
    }

    /// Lets the follower run anywhere, with a claim like every other's if the system permits that.
    pub(crate) fn release(&self) {
        let Some(mut hold) = self.hold.try_lock() else { return };
        if std::mem::replace(&mut *hold, Hold::Released) == Hold::Bound {
            self.processor.store(0, Ordering::Relaxed);
            // Where the system refuses, the follower goes on as it is, only later.
            let _ = self.thread.unbind();
            if self.can_return {
                let _ = self.thread.set_claim(Claim::Equal);
            }
        }
    }

    fn is_released(&self) -> bool {
        *self.hold.lock() == Hold::Released
    }

    fn take(&self, processor: usize) -> io::Result<()> {
        let mut hold = self.hold.lock();
        self.thread.bind(processor)?;
        self.processor.store(processor + 1, Ordering::Relaxed);
        match std::mem::replace(&mut *hold, Hold::Bound) {
            Hold::Released => self.thread.set_claim(Claim::GivesWay),
            Hold::Bound => Ok(()),
        }
    }
}

/// The place of the guard: beside the follower. Elsewhere it would wake a processor that sleeps at each tick, which
/// then looks for work before it sleeps again, finds the client waiting for its turn with the follower, and takes it
/// away.
pub(crate) struct Post<'a> {
    place: &'a Place,
    thread: Option<Thread>,
    processor: usize,
}

impl<'a> Post<'a> {
    /// The thread that calls is the guard, until the result is dropped.
    pub(crate) fn beside(place: &'a Place) -> Self {
        let mut post = Self { place, thread: Thread::current().ok(), processor: 0 };
        post.go_beside();
        post
    }

    /// Goes to where the follower is now. A guard that the system does not let go there stays where it is.
    pub(crate) fn go_beside(&mut self) {
        let processor = self.place.processor.load(Ordering::Relaxed);
        let Some(thread) = self.thread.as_ref().filter(|_| processor != self.processor) else { return };
        let _ = match processor.checked_sub(1) {
            Some(number) => thread.bind(number),
            None => thread.unbind(),
        };
        self.processor = processor;
    }
}

impl Drop for Post<'_> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.as_ref().filter(|_| self.processor != 0) {
            // It may run where it did before; a thread that is refused that answers where it is.
            let _ = thread.unbind();
        }
    }
}

/// One look of the guard.
pub(crate) fn guard(readers: &Readers, place: &Place, stuck: Option<Stuck>) {
    match stuck {
        None => {}
        // It may be waiting for the device, or for a processor.
        Some(Stuck::Alone) => place.release(),
        Some(Stuck::KeepsOthers) => {
            place.release();
            readers.end_to_follow(Why::Stuck);
        }
    }
}

/// What other threads have taken of the processor.
struct Taken {
    since: Instant,
    time: Duration,
}

impl Taken {
    fn since(since: Instant) -> Self {
        Self { since, time: Duration::ZERO }
    }

    /// Adds what they have taken until `now`; whether that is too much. The answer is known every [`JUDGED_OVER`].
    fn add(&mut self, time: Duration, now: Instant) -> bool {
        self.time += time;
        let elapsed = now - self.since;
        if elapsed < JUDGED_OVER {
            return false;
        }
        std::mem::replace(self, Self::since(now)).time > elapsed / SHARE_OF_OTHERS
    }
}

/// The client that is followed.
pub(crate) struct Client {
    watched: Option<Watched>,
    processor: Option<usize>,
    last: u32,
    requests: u32,
    signs: u32,
    /// The next request came while another was answered.
    overlaps: bool,
    looked: Instant,
    /// What the client and this thread had used at the last look.
    used: Option<(Usage, Usage)>,
    taken: Taken,
    /// Other threads have used the processor.
    is_displaced: bool,
}

impl Client {
    /// Begins to follow a client.
    pub(crate) fn new(id: u32, place: &Place) -> Self {
        let now = Instant::now();
        let mut client = Self {
            watched: None,
            processor: None,
            last: id,
            requests: 0,
            signs: 0,
            overlaps: false,
            looked: now,
            used: None,
            taken: Taken::since(now),
            is_displaced: false,
        };
        client.look(place);
        client
    }

    /// A request with a reply has been read. `has_request`: whether another one waits.
    pub(crate) fn note(&mut self, client: u32, has_request: impl FnOnce() -> bool) {
        self.requests += 1;
        if std::mem::take(&mut self.overlaps) {
            self.signs += SIGNS_OF_OVERLAP;
        }
        // The kernel itself asks in nobody's name.
        if client != 0 && std::mem::replace(&mut self.last, client) != client {
            self.signs += 1;
        }
        if self.requests.is_multiple_of(PROBE_EVERY) {
            self.overlaps = has_request();
        }
    }

    /// A request without a reply has been read: no client waits for it.
    pub(crate) fn note_silent(&mut self) {
        self.overlaps = false;
    }

    /// Why it is to be followed no more.
    pub(crate) fn is_over(&mut self) -> Option<Why> {
        let is_crowd = self.signs > TOO_MANY;
        if self.requests.is_multiple_of(WINDOW) {
            self.signs = 0;
        }
        match (is_crowd, self.is_displaced) {
            (true, _) => Some(Why::Crowd),
            (false, true) => Some(Why::Stuck),
            (false, false) => None,
        }
    }

    /// Goes to where the client is, from time to time, or when the guard has released this thread.
    pub(crate) fn follow(&mut self, place: &Place) {
        let is_due = self.requests.is_multiple_of(LOOK_EVERY) || self.looked.elapsed() >= LOOK_AFTER;
        if is_due || place.is_released() {
            self.look(place);
        }
    }

    fn look(&mut self, place: &Place) {
        let looked = Instant::now();
        self.looked = looked;
        if self.watched.as_ref().is_none_or(|watched| watched.id() != self.last) {
            self.watched = Watched::open(self.last);
            self.used = None;
        }
        let Some(processor) = self.watched.as_ref().and_then(Watched::processor) else {
            // It has ended, or cannot be seen.
            self.watched = None;
            return;
        };
        let usage = |watched: Option<&Watched>| watched.and_then(Watched::usage);
        let used = usage(self.watched.as_ref()).zip(usage(place.watched.as_ref()));
        if let Some((before, now)) = std::mem::replace(&mut self.used, used).zip(used) {
            let others = taken_by_others(before, now);
            self.is_displaced = self.taken.add(others, looked);
        }
        if self.processor != Some(processor) || place.is_released() {
            // A processor on which this thread may not run is left to the client.
            self.processor = place.take(processor).is_ok().then_some(processor);
        }
    }
}

/// How long others than the client kept the follower from its processor. Each pair is of the client and the follower.
fn taken_by_others(before: (Usage, Usage), now: (Usage, Usage)) -> Duration {
    let waited = now.1.waited.saturating_sub(before.1.waited);
    waited.saturating_sub(now.0.ran.saturating_sub(before.0.ran))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_a_thread(test: impl FnOnce(Place) + Send + 'static) {
        std::thread::spawn(|| test(Place::of_this_thread().unwrap())).join().unwrap();
    }

    fn this_thread() -> u32 {
        rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
    }

    #[test]
    fn a_client_whose_requests_follow_each_other_is_alone() {
        in_a_thread(|place| {
            let mut client = Client::new(this_thread(), &place);
            for _ in 0..1000 {
                client.note(this_thread(), || false);
                assert_eq!(client.is_over(), None);
            }
        });
    }

    #[test]
    fn requests_that_wait_while_others_are_read_are_a_crowd() {
        in_a_thread(|place| {
            let mut client = Client::new(this_thread(), &place);
            let mut requests = 0;
            while client.is_over().is_none() {
                client.note(this_thread(), || true);
                requests += 1;
            }
            assert!(requests <= WINDOW, "{requests}");
        });
    }

    #[test]
    fn two_clients_that_take_turns_are_a_crowd_and_programs_one_after_the_other_are_not() {
        in_a_thread(|place| {
            let mut client = Client::new(1, &place);
            let crowd = (0..WINDOW).any(|number| {
                client.note(1 + number % 2, || false);
                client.is_over() == Some(Why::Crowd)
            });
            assert!(crowd);
            let mut client = Client::new(1, &place);
            for number in 0..1000 {
                client.note(1 + number / 10, || false);
                assert_eq!(client.is_over(), None);
            }
        });
    }

    #[test]
    fn what_others_take_is_what_the_follower_waits_while_the_client_does_not_run() {
        let usage = |ran, waited| Usage { ran: Duration::from_micros(ran), waited: Duration::from_micros(waited) };
        let before = (usage(1000, 0), usage(500, 700));
        assert_eq!(taken_by_others(before, (usage(1400, 0), usage(900, 1100))), Duration::ZERO);
        assert_eq!(taken_by_others(before, (usage(1400, 900), usage(900, 2000))), Duration::from_micros(900));
        assert_eq!(taken_by_others(before, (usage(1900, 0), usage(900, 1100))), Duration::ZERO);
    }

    #[test]
    fn what_others_take_for_a_moment_is_not_much() {
        let begun = Instant::now();
        let mut taken = Taken::since(begun);
        // A processor that is lent for 4 ms, and nothing else.
        assert!(!taken.add(Duration::from_millis(4), begun + Duration::from_millis(4)));
        assert!(!taken.add(Duration::ZERO, begun + JUDGED_OVER));
        let later = begun + JUDGED_OVER;
        assert!(!taken.add(Duration::from_millis(3), later + Duration::from_millis(10)));
        assert!(taken.add(Duration::from_millis(3), later + JUDGED_OVER));
        assert!(!taken.add(Duration::ZERO, later + 2 * JUDGED_OVER), "each judgement is of its own time");
    }

    #[test]
    fn the_guard_is_where_the_follower_is_and_goes_back_afterwards() {
        in_a_thread(|place| {
            let allowed = || rustix::thread::sched_getaffinity(None).unwrap();
            let place = std::sync::Arc::new(place);
            let numbers: Vec<usize> = (0..64).filter(|number| allowed().is_set(*number)).collect();
            let follower = std::sync::Arc::clone(&place);
            let guard = move || {
                let free = allowed();
                let mut post = Post::beside(&follower);
                for number in numbers {
                    follower.take(number).unwrap();
                    post.go_beside();
                    assert!(allowed().is_set(number) && allowed().count() == 1);
                }
                drop(post);
                assert_eq!(allowed(), free);
                let mut post = Post::beside(&follower);
                assert_eq!(allowed().count(), 1);
                follower.release();
                post.go_beside();
                assert_eq!(allowed(), free);
            };
            std::thread::spawn(guard).join().unwrap();
            assert!(place.is_released());
        });
    }

    #[test]
    fn the_kernels_own_requests_say_nothing() {
        in_a_thread(|place| {
            let mut client = Client::new(1, &place);
            for number in 0..1000 {
                client.note(number % 2, || false);
                assert_eq!(client.is_over(), None);
            }
        });
    }
}
