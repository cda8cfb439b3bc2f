//! Which threads read requests: those of the pool, or one that follows a client that is alone.
//!
//! ```text
//!              so many requests one after the other, all of one thread of a program
//!  pool reads ───────────────────────────────────────────────────────────────────▶ follower reads
//!             ◀───────────────────────────────────────────────────────────────────
//!              no request for some time; requests overlap; the follower gets no processor
//! ```
//! Invariant: while the follower reads, a thread of the pool that has nothing else to do is the guard and looks at it
//! at every tick, or threads of the pool read, or all of them answer requests: each that is done becomes the guard, if
//! there is none. A thread of the pool that waits in a read when the follower begins answers one more request.
//!
//! Locking: the mutex is held only to look, to change who reads, and to wait; no other lock is taken under it. The
//! follower never takes it, for it may get no processor while it holds it: it asks, and the guard does what it asked.

use parking_lot::{Condvar, Mutex};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Requests one after the other after which a client is alone.
const ALONE_AFTER: u32 = 16;
/// How often the guard looks: rarely while the follower makes progress, for each look may send the client to another
/// processor. It acts when it has seen the same twice.
const CALM_TICK: Duration = Duration::from_millis(8);
const TICK: Duration = Duration::from_millis(2);
/// How long no client is followed after requests that overlap.
const PAUSE_OF_CROWD: Duration = Duration::from_millis(50);
/// How long no client is followed when the follower got no processor: at first, and at most.
const PAUSE_OF_STARVED: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A follower that has read for so long does well here, so the next pause is the first one again.
const PROVEN_AFTER: Duration = Duration::from_secs(2);

/// Why the follower does not read any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// There are no requests.
    Quiet,
    /// Requests overlap, or are of many programs.
    Crowd,
    /// It gets no processor, or waits in a request while others come; or it has ended.
    Stuck,
}

impl Why {
    const ALL: [Self; 3] = [Self::Quiet, Self::Crowd, Self::Stuck];
}

/// What a thread of the pool does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolTurn {
    Read,
    End,
}

#[derive(Debug)]
struct State {
    since: Instant,
    not_before: Instant,
    pause: Duration,
}

/// Who reads.
#[derive(Debug)]
pub(crate) struct Readers {
    /// Whether the follower reads; changes under the mutex.
    is_followed: AtomicBool,
    has_ended: AtomicBool,
    state: Mutex<State>,
    /// For threads of the pool.
    changed: Condvar,
    /// Whether there is a follower, and its thread.
    may_follow: AtomicBool,
    follower: OnceLock<Thread>,
    /// How many times the follower has begun to read.
    stint: AtomicU64,
    /// The client that is followed, or was last.
    client: AtomicU32,
    /// The place in [`Why::ALL`] of the reason for which the follower asks to read no more, and one.
    asked: AtomicUsize,
    /// Of the last requests that the pool has read: the client, and how many came one after the other.
    last_client: AtomicU32,
    in_a_row: AtomicU32,
    /// Requests that threads of the pool answer now.
    busy: AtomicUsize,
    /// Odd while the follower answers a request.
    progress: AtomicU64,
}

/// One time that the follower reads, from begin to end.
#[derive(Debug)]
pub(crate) struct Stint {
    number: u64,
    pub client: u32,
}

/// The guard's memory from tick to tick.
#[derive(Debug, Default)]
pub(crate) struct Ticks {
    progress: u64,
    same: u32,
}

impl Ticks {
    /// How long the guard waits until it looks again.
    pub(crate) fn pause(&self) -> Duration {
        if self.same == 0 { CALM_TICK } else { TICK }
    }
}

impl Readers {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        let state = State { since: now, not_before: now, pause: PAUSE_OF_STARVED };
        Self {
            is_followed: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            state: Mutex::new(state),
            changed: Condvar::new(),
            may_follow: AtomicBool::new(false),
            follower: OnceLock::new(),
            stint: AtomicU64::new(0),
            client: AtomicU32::new(0),
            asked: AtomicUsize::new(0),
            last_client: AtomicU32::new(0),
            in_a_row: AtomicU32::new(0),
            busy: AtomicUsize::new(0),
            progress: AtomicU64::new(0),
        }
    }

    /// The thread that calls is the follower, until the result is dropped.
    pub(crate) fn become_follower(&self) -> Following<'_> {
        // There is one follower, so this is the only call.
        let _ = self.follower.set(std::thread::current());
        self.may_follow.store(true, Ordering::Release);
        Following(self)
    }

    /// Whether the follower reads.
    pub(crate) fn is_followed(&self) -> bool {
        self.is_followed.load(Ordering::Acquire)
    }

    /// Waits until threads of the pool are to read. The guard does `at_tick` meanwhile, which says when it is to be
    /// done again, and what the follower asks.
    pub(crate) fn await_pool_turn(&self, mut at_tick: Option<impl FnMut() -> Duration>) -> PoolTurn {
        let mut pause = CALM_TICK;
        let mut state = self.state.lock();
        loop {
            if self.has_ended.load(Ordering::Acquire) {
                // The follower may have ended the session, without a word to those that wait.
                self.changed.notify_all();
                return PoolTurn::End;
            }
            if !self.is_followed() {
                return PoolTurn::Read;
            }
            match &mut at_tick {
                None => self.changed.wait(&mut state),
                Some(at_tick) => {
                    if self.changed.wait_for(&mut state, pause).timed_out() {
                        drop(state);
                        if let Some(why) = self.asked.load(Ordering::Relaxed).checked_sub(1) {
                            self.end_to_follow(Why::ALL[why]);
                        }
                        pause = at_tick();
                        state = self.state.lock();
                    }
                }
            }
        }
    }

    /// Waits, on the follower, for a client to follow; `None` at the session's end.
    pub(crate) fn await_client(&self) -> Option<Stint> {
        loop {
            if self.has_ended.load(Ordering::Acquire) {
                return None;
            }
            if self.is_followed() {
                let number = self.stint.load(Ordering::Relaxed);
                return Some(Stint { number, client: self.client.load(Ordering::Relaxed) });
            }
            std::thread::park();
        }
    }

    /// Whether the follower has read since it began. It may have ended and begun anew without having run meanwhile;
    /// then what it knows is of another client.
    pub(crate) fn is_in(&self, stint: &Stint) -> bool {
        self.is_followed() && self.stint.load(Ordering::Relaxed) == stint.number
    }

    /// A thread of the pool has read a request, and answers it until the result is dropped. `others`: requests that
    /// other threads answer for the pool.
    pub(crate) fn pool_answers(&self, client: u32, others: usize) -> Answering<'_> {
        let is_alone = self.busy.fetch_add(1, Ordering::Relaxed) + others == 0;
        if self.may_follow.load(Ordering::Relaxed) {
            self.note(client, is_alone);
        }
        Answering(self)
    }

    fn note(&self, client: u32, is_alone: bool) {
        // The kernel itself asks in nobody's name.
        if client == 0 {
            return;
        }
        if !is_alone || self.last_client.swap(client, Ordering::Relaxed) != client {
            self.in_a_row.store(0, Ordering::Relaxed);
        } else if self.in_a_row.fetch_add(1, Ordering::Relaxed) + 1 >= ALONE_AFTER {
            self.in_a_row.store(0, Ordering::Relaxed);
            self.begin_to_follow(client);
        }
    }

    fn begin_to_follow(&self, client: u32) {
        let Some(follower) = self.follower.get() else { return };
        let mut state = self.state.lock();
        let now = Instant::now();
        if self.is_followed() || now < state.not_before || self.has_ended.load(Ordering::Relaxed) {
            return;
        }
        state.since = now;
        self.client.store(client, Ordering::Relaxed);
        self.asked.store(0, Ordering::Relaxed);
        self.stint.fetch_add(1, Ordering::Relaxed);
        self.is_followed.store(true, Ordering::Release);
        drop(state);
        follower.unpark();
    }

    /// The follower asks to read no more. It reads on until the guard has seen that.
    pub(crate) fn ask_to_end(&self, why: Why) {
        let place = Why::ALL.iter().position(|other| *other == why);
        self.asked.store(place.map_or(0, |place| place + 1), Ordering::Relaxed);
    }

    /// Lets the pool read again.
    pub(crate) fn end_to_follow(&self, why: Why) {
        let mut state = self.state.lock();
        if !self.is_followed() {
            return;
        }
        let now = Instant::now();
        if now - state.since >= PROVEN_AFTER {
            state.pause = PAUSE_OF_STARVED;
        }
        let pause = match why {
            Why::Quiet => Duration::ZERO,
            Why::Crowd => PAUSE_OF_CROWD,
            Why::Stuck => {
                let pause = state.pause;
                state.pause = (pause * 2).min(LONGEST_PAUSE);
                pause
            }
        };
        state.not_before = now + pause;
        self.is_followed.store(false, Ordering::Release);
        self.changed.notify_all();
    }

    /// The follower answers a request until the result is dropped.
    pub(crate) fn follower_answers(&self) -> FollowerAnswering<'_> {
        self.progress.fetch_add(1, Ordering::Relaxed);
        FollowerAnswering(self)
    }

    /// One look of the guard: whether the follower has been seen twice in the same request, or without one while
    /// requests wait.
    pub(crate) fn is_stuck(&self, ticks: &mut Ticks, has_request: impl FnOnce() -> bool) -> Option<Stuck> {
        let progress = self.progress.load(Ordering::Relaxed);
        let is_answering = progress % 2 == 1;
        let is_same = std::mem::replace(&mut ticks.progress, progress) == progress;
        let has_request = is_same && has_request();
        if !is_same || !is_answering && !has_request {
            ticks.same = 0;
            return None;
        }
        ticks.same += 1;
        match (ticks.same, has_request) {
            (..2, _) => None,
            (_, true) => Some(Stuck::KeepsOthers),
            (_, false) => Some(Stuck::Alone),
        }
    }

    /// The session ends: no thread waits here any more.
    pub(crate) fn end(&self) {
        self.end_by_follower();
        // A thread that has just looked waits by now.
        drop(self.state.lock());
        self.changed.notify_all();
    }

    /// As [`Self::end`], by the follower: the guard tells the others.
    pub(crate) fn end_by_follower(&self) {
        self.has_ended.store(true, Ordering::Release);
        if let Some(follower) = self.follower.get() {
            follower.unpark();
        }
    }
}

/// A thread is the follower.
pub(crate) struct Following<'a>(&'a Readers);

impl Drop for Following<'_> {
    /// Also by a panic: then the pool reads again, for good.
    fn drop(&mut self) {
        self.0.may_follow.store(false, Ordering::Release);
        self.0.ask_to_end(Why::Stuck);
    }
}

/// The session ends when this is dropped, also by a panic of the thread.
pub(crate) struct EndsSession<'a>(pub(crate) &'a Readers);

impl Drop for EndsSession<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A follower that makes no progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stuck {
    /// In a request, and no other waits.
    Alone,
    /// Other requests wait.
    KeepsOthers,
}

/// A thread of the pool answers a request.
pub(crate) struct Answering<'a>(&'a Readers);

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The follower answers a request.
pub(crate) struct FollowerAnswering<'a>(&'a Readers);

impl Drop for FollowerAnswering<'_> {
    fn drop(&mut self) {
        self.0.progress.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_follower_that_did_not_run_between_two_stints_knows_the_second_one() {
        let readers = Readers::new();
        let _following = readers.become_follower();
        let ask = |client| (0..=ALONE_AFTER).for_each(|_| drop(readers.pool_answers(client, 0)));
        ask(7);
        let first = readers.await_client().unwrap();
        assert!(readers.is_in(&first) && first.client == 7);
        readers.end_to_follow(Why::Quiet);
        assert!(!readers.is_in(&first));
        ask(8);
        assert!(readers.is_followed() && !readers.is_in(&first));
        let second = readers.await_client().unwrap();
        assert!(readers.is_in(&second) && second.client == 8);
    }
}
