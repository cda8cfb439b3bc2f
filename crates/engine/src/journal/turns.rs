//! Turns at something that one thread uses at a time, for which others wait, or until it is done without them.
//!
//! ```text
//! turn of A      ├── checkpoint 7 ──┤
//! B wants 7        ▲ waits ─────────▶ goes: 7 is durable
//! C wants 8            ▲ waits ─────▶├── checkpoint 8 ──┤   one of those that still want something takes the turn
//! D wants 8                ▲ waits ─────────────────────▶ goes
//! ```
//! At a mutex the waiting threads would be woken one by one: B might come after C, and wait for checkpoint 8.
//!
//! Invariant: what a turn does is visible to a thread that looks after its end, and every end wakes all that wait.
//!
//! Locking: the mutex is held only to look and to wait, and no other lock is taken below it.

use crate::sync::{Condvar, Mutex};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// A thread that waits looks again after this time, even if no thread has notified it.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// What is used in turns.
pub(super) struct Turns<T> {
    /// `None` during a turn.
    free: Mutex<Option<T>>,
    ended: Condvar,
}

/// A turn, until it is dropped.
pub(super) struct Turn<'a, T> {
    turns: &'a Turns<T>,
    /// `None` once it is being dropped.
    used: Option<T>,
}

impl<T> Turns<T> {
    pub(super) fn new(used: T) -> Self {
        Self { free: Mutex::new(Some(used)), ended: Condvar::new() }
    }

    /// Waits for a turn; `None` as soon as `is_done` says that the caller needs none.
    pub(super) fn take_unless(&self, is_done: impl Fn() -> bool) -> Option<Turn<'_, T>> {
        let mut free = self.free.lock();
        loop {
            if is_done() {
                return None;
            }
            if let Some(used) = free.take() {
                return Some(Turn { turns: self, used: Some(used) });
            }
            self.ended.wait_for(&mut free, LOOK_AGAIN_AFTER);
        }
    }

    /// Waits for a turn.
    pub(super) fn take(&self) -> Turn<'_, T> {
        self.take_unless(|| false).expect("a caller that is never done gets a turn")
    }

    /// A turn, unless another thread has one.
    pub(super) fn try_take(&self) -> Option<Turn<'_, T>> {
        let used = self.free.lock().take()?;
        Some(Turn { turns: self, used: Some(used) })
    }
}

impl<T> Deref for Turn<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.used.as_ref().expect("it is there until the turn is dropped")
    }
}

impl<T> DerefMut for Turn<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.used.as_mut().expect("it is there until the turn is dropped")
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        *self.turns.free.lock() = self.used.take();
        self.turns.ended.notify_all();
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn those_that_are_done_go_when_a_turn_ends_and_one_of_the_others_takes_the_next() {
        let (turns, done) = (Turns::new(()), AtomicU64::new(0));
        let turn = turns.try_take().unwrap();
        assert!(turns.try_take().is_none());
        let wait_for = |wanted| turns.take_unless(|| done.load(Ordering::Acquire) >= wanted).map(drop).is_none();
        std::thread::scope(|scope| {
            let waits = [7, 8].map(|wanted| scope.spawn(move || wait_for(wanted)));
            std::thread::sleep(Duration::from_millis(10));
            done.store(7, Ordering::Release);
            drop(turn);
            assert_eq!(waits.map(|wait| wait.join().unwrap()), [true, false]);
        });
        assert!(turns.try_take().is_some());
    }
}
