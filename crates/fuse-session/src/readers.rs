//! Which threads read requests: those of the pool, or one that follows a client that is alone.
//!
//! ```text
//!              so many requests one after the other, all of one thread of a program
//!  pool reads ───────────────────────────────────────────────────────────────────▶ follower reads
//!             ◀───────────────────────────────────────────────────────────────────
//!              no request for some time; requests overlap; the follower gets no processor
//! ```
//! Invariant: at any time a thread reads requests, or is about to, that has a claim to a processor like every other, or
//! the guard looks at the follower at every tick. The guard is a thread of the pool, which has nothing else to do
//! meanwhile. A thread of the pool that waits in a read when the follower begins answers one more request.
//!
//! Locking: the mutex is held only to look, to change who reads, and to wait; no other lock is taken under it.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Requests one after the other after which a client is alone.
const ALONE_AFTER: u32 = 16;
/// How often the guard looks. It acts when it has seen the same twice.
const TICK: Duration = Duration::from_millis(2);
/// How long no client is followed after requests that overlap.
const PAUSE_OF_CROWD: Duration = Duration::from_millis(50);
/// How long no client is followed when the follower got no processor: at first, and at most.
const PAUSE_OF_STARVED: Duration = Duration::from_millis(500);
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
    /// It gets no processor, or waits in a request while others come.
    Stuck,
}

/// What a thread of the pool does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolTurn {
    Read,
    End,
}

#[derive(Debug)]
struct State {
    /// The client that is followed.
    client: Option<u32>,
    since: Instant,
    not_before: Instant,
    pause: Duration,
    has_ended: bool,
}

/// Who reads.
#[derive(Debug)]
pub(crate) struct Readers {
    /// Whether the follower reads; changes under the mutex.
    is_followed: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
    /// Whether there is a follower.
    may_follow: AtomicBool,
    /// Of the last requests that the pool has read: the client, and how many came one after the other.
    last_client: AtomicU32,
    in_a_row: AtomicU32,
    /// Requests that threads of the pool answer now.
    busy: AtomicUsize,
    /// Odd while the follower answers a request.
    progress: AtomicU64,
}

/// The guard's memory from tick to tick.
#[derive(Debug, Default)]
pub(crate) struct Ticks {
    progress: u64,
    same: u32,
}

impl Readers {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        let state = State { client: None, since: now, not_before: now, pause: PAUSE_OF_STARVED, has_ended: false };
        Self {
            is_followed: AtomicBool::new(false),
            state: Mutex::new(state),
            changed: Condvar::new(),
            may_follow: AtomicBool::new(false),
            last_client: AtomicU32::new(0),
            in_a_row: AtomicU32::new(0),
            busy: AtomicUsize::new(0),
            progress: AtomicU64::new(0),
        }
    }

    /// There is a follower, or none any more.
    pub(crate) fn set_may_follow(&self, may_follow: bool) {
        self.may_follow.store(may_follow, Ordering::Relaxed);
    }

    /// Whether the follower reads.
    pub(crate) fn is_followed(&self) -> bool {
        self.is_followed.load(Ordering::Acquire)
    }

    /// Waits until threads of the pool are to read. One of them is the guard, and does `at_tick` meanwhile.
    pub(crate) fn await_pool_turn(&self, mut at_tick: Option<impl FnMut()>) -> PoolTurn {
        if !self.is_followed() {
            return PoolTurn::Read;
        }
        let mut state = self.state.lock();
        loop {
            match (state.has_ended, state.client) {
                (true, _) => return PoolTurn::End,
                (false, None) => return PoolTurn::Read,
                (false, Some(_)) => {}
            }
            match &mut at_tick {
                None => self.changed.wait(&mut state),
                Some(at_tick) => {
                    if self.changed.wait_for(&mut state, TICK).timed_out() {
                        drop(state);
                        at_tick();
                        state = self.state.lock();
                    }
                }
            }
        }
    }

    /// Waits for a client to follow; `None` at the session's end.
    pub(crate) fn await_client(&self) -> Option<u32> {
        let mut state = self.state.lock();
        loop {
            if state.has_ended {
                return None;
            }
            if state.client.is_some() {
                return state.client;
            }
            self.changed.wait(&mut state);
        }
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
        let mut state = self.state.lock();
        let now = Instant::now();
        if state.client.is_none() && now >= state.not_before && !state.has_ended {
            state.client = Some(client);
            state.since = now;
            self.is_followed.store(true, Ordering::Release);
            self.changed.notify_all();
        }
    }

    /// Lets the pool read again.
    pub(crate) fn end_to_follow(&self, why: Why) {
        let mut state = self.state.lock();
        if state.client.take().is_none() {
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
        self.state.lock().has_ended = true;
        self.changed.notify_all();
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
