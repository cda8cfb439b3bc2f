//! When a commit writes a checkpoint, and when it looks whether the tail has to move.
//!
//! ```text
//! charged bytes of the gathering checkpoint
//! 0 ─────────── look_due_at ────────────────────── push_bytes ───── + push_bytes / 16
//!               after a push: at what had           a commit         a commit of the thread that pushed last, too
//!               gathered meanwhile                  pushes
//! ```
//! Invariants
//! - A push is due from `push_bytes` on, or once a thread wants one ([`PushPolicy::want_push`]).
//! - The thread whose commit pushed last leaves the next push and look to other threads for a sixteenth of
//!   `push_bytes`, so that threads that do the same work also share the work of the journal. Beyond that every thread
//!   does what is due, so a single thread never waits for others.
//! - After each push by a commit one thread looks at the tail, once. A checkpoint that another thread forces meanwhile
//!   does not put the look off: it is then due at once.
//!
//! Locking: none. The flags are hints: the push itself looks again under the writer's lock.

use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::sync::thread_slot;

/// The fraction of `push_bytes` that the last pusher leaves to other threads.
const LEFT_TO_OTHERS: u64 = 16;
const NOT_DUE: u64 = u64::MAX;

/// What is due after a commit, and which thread does it.
pub(super) struct PushPolicy {
    /// The size at which a commit pushes the CIL.
    push_bytes: u64,
    /// The slot of the thread whose commit pushed it last.
    last_pusher: AtomicUsize,
    /// Charged bytes of the gathering checkpoint from which on a thread is to check whether the last one left the log
    /// too full.
    look_due_at: AtomicU64,
    /// A thread needs extents that the gathering checkpoint keeps busy.
    push_wanted: AtomicBool,
}

impl PushPolicy {
    /// Nothing is due before `push_bytes` bytes have gathered.
    pub(super) fn new(push_bytes: u64) -> Self {
        Self {
            push_bytes,
            last_pusher: AtomicUsize::new(usize::MAX),
            look_due_at: AtomicU64::new(NOT_DUE),
            push_wanted: AtomicBool::new(false),
        }
    }

    /// The next commit is to push, however little has gathered.
    pub(super) fn want_push(&self) {
        self.push_wanted.store(true, Ordering::Relaxed);
    }

    /// Whether this thread is to push, with a gathering checkpoint that is charged `charged` bytes.
    #[inline]
    pub(super) fn is_push_due(&self, charged: u64) -> bool {
        self.is_due_for(thread_slot, charged, self.push_bytes) || self.push_wanted.load(Ordering::Relaxed)
    }

    /// A commit of this thread pushes.
    pub(super) fn push_begins(&self) {
        self.last_pusher.store(thread_slot(), Ordering::Relaxed);
    }

    /// That push is done; `charged` bytes have gathered since.
    pub(super) fn push_ended(&self, charged: u64) {
        self.look_due_at.store(charged, Ordering::Relaxed);
    }

    /// A checkpoint is closed, by a commit or by a thread that forces one.
    pub(super) fn checkpoint_closes(&self) {
        self.push_wanted.store(false, Ordering::Relaxed);
    }

    /// The next checkpoint gathers from nothing: a look that is due and not taken is due at once.
    pub(super) fn checkpoint_opened(&self) {
        let at_once = |due_at| (due_at != NOT_DUE).then_some(0);
        let _ = self.look_due_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, at_once);
    }

    /// Whether this thread is to look at the tail; at most one thread gets that answer after each push.
    #[inline]
    pub(super) fn take_look(&self, charged: u64) -> bool {
        self.is_due_for(thread_slot, charged, self.look_due_at.load(Ordering::Relaxed))
            && self.look_due_at.swap(NOT_DUE, Ordering::Relaxed) != NOT_DUE
    }

    /// Whether the thread of `slot` is to do what is due at `due_at` bytes.
    #[inline]
    fn is_due_for(&self, slot: impl FnOnce() -> usize, charged: u64, due_at: u64) -> bool {
        charged >= due_at
            && (charged - due_at >= self.push_bytes / LEFT_TO_OTHERS
                || self.last_pusher.load(Ordering::Relaxed) != slot())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_pusher_leaves_the_next_push_to_other_threads_for_a_sixteenth() {
        let policy = PushPolicy::new(1600);
        let own = thread_slot();
        let due = |slot, charged| policy.is_due_for(|| slot, charged, policy.push_bytes);
        assert!(!policy.is_push_due(1599) && policy.is_push_due(1600), "no thread has pushed");
        policy.push_begins();
        assert_eq!([due(own, 1600), due(own, 1699), due(own, 1700)], [false, false, true]);
        assert_eq!([due(own + 1, 1599), due(own + 1, 1600)], [false, true]);
    }

    #[test]
    fn a_wanted_push_is_due_at_once_until_a_checkpoint_closes() {
        let policy = PushPolicy::new(1600);
        policy.push_begins();
        assert!(!policy.is_push_due(0));
        policy.want_push();
        assert!(policy.is_push_due(0));
        policy.checkpoint_closes();
        assert!(!policy.is_push_due(0));
    }

    #[test]
    fn one_look_follows_a_push_and_a_forced_checkpoint_does_not_put_it_off() {
        let policy = PushPolicy::new(1600);
        assert!(!policy.take_look(u64::MAX - 1), "no push, no look");
        policy.push_begins();
        policy.push_ended(50);
        assert!(!policy.take_look(149), "left to other threads");
        assert!(policy.take_look(150));
        assert!(!policy.take_look(1599), "it was taken");
        policy.checkpoint_opened();
        assert!(!policy.take_look(1599), "a checkpoint makes no look due");
        policy.push_ended(1000);
        policy.checkpoint_opened();
        assert!(!policy.take_look(99));
        assert!(policy.take_look(100), "due at once, but for what is left to other threads");
    }
}
