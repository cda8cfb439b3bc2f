//! The locks of the engine, from one place so that a model checker's can stand in for them.
//!
//! # Lock order
//! A thread may take a lock only if it holds none that stands below it in this list:
//! 1. inodes: a directory before its entry; two directories or two files by inode number
//! 2. AG headers: lower AG first, within an AG first the AGI, then the AGF; out of order only by `try_`
//! 3. other metadata buffers: from the root of a structure down, siblings from left to right; those of a fork are
//!    out of other threads' reach while its inode is locked for a change, and those of an AG's trees while the AG's
//!    header is, so a thread that holds such a lock may keep them while it waits for AG headers
//! 4. the journal: the log writer, then the CIL's shards (a commit takes one, a switch all in order) or the AIL, then
//!    an item's state; or a waiting write, then its value; or the list of waiting writes, by itself
//!
//! Write-back takes inode and buffer locks by `try_` only, so it can run in any thread.
//!
//! # Models
//! With `--cfg shuttle` the locks, the atomics and what belongs to a thread are those of a model checker, and the tests
//! in `tests/shuttle` run the engine under one schedule after another. So whatever takes part in a protocol between
//! threads comes from here; counters for people and numbers that only have to differ may be plain. No lock of another
//! kind may be held where one of these is taken: all threads of a model share one of the system's.

#[cfg(not(shuttle))]
use parking_lot as primitives;
#[cfg(shuttle)]
use xfskit_model_sync as primitives;

pub use primitives::{Condvar, Mutex, MutexGuard, RawRwLock, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(shuttle))]
pub use std::{sync::atomic, thread::yield_now, thread_local};
#[cfg(shuttle)]
pub use xfskit_model_sync::{atomic, thread::yield_now, thread_local};

use std::sync::Arc;

/// A mutex's guard that owns a reference to the mutex.
pub type ArcMutexGuard = primitives::lock_api::ArcMutexGuard<primitives::RawMutex, ()>;
/// A shared lock that owns a reference to what it locks.
pub type ArcRead<T> = primitives::lock_api::ArcRwLockReadGuard<RawRwLock, T>;
/// An exclusive lock that owns a reference to what it locks.
pub type ArcWrite<T> = primitives::lock_api::ArcRwLockWriteGuard<RawRwLock, T>;

/// A value on cache lines of its own: threads that work on neighbours would take the line from each other.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Padded<T>(pub T);

impl<T> std::ops::Deref for Padded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Into how many parts things are split that threads would otherwise meet at.
pub const THREAD_SLOTS: usize = if cfg!(shuttle) { 2 } else { 16 };

/// The part for this thread. Threads share one only when there are more of them than parts.
#[cfg(not(shuttle))]
pub fn thread_slot() -> usize {
    static NEXT: atomic::AtomicUsize = atomic::AtomicUsize::new(0);
    thread_local! {
        static SLOT: std::cell::Cell<usize> = const { std::cell::Cell::new(usize::MAX) };
    }
    SLOT.with(|slot| {
        if slot.get() == usize::MAX {
            slot.set(NEXT.fetch_add(1, atomic::Ordering::Relaxed) % THREAD_SLOTS);
        }
        slot.get()
    })
}

/// The part for this thread of a model, which follows from the schedule alone.
#[cfg(shuttle)]
pub fn thread_slot() -> usize {
    xfskit_model_sync::thread_number() % THREAD_SLOTS
}

/// Lets others go on for a moment that is long for them: a millisecond, or a turn in a model.
pub fn pause() {
    #[cfg(not(shuttle))]
    std::thread::sleep(std::time::Duration::from_millis(1));
    #[cfg(shuttle)]
    yield_now();
}

/// How something is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// With other readers.
    Shared,
    /// Alone, for a change.
    Exclusive,
}

/// What a thread does that finds a lock taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfLocked {
    /// It waits.
    Wait,
    /// It does without.
    GiveUp,
}

/// A lock of either kind, held on behalf of a transaction.
#[derive(Debug)]
pub enum HeldLock<T> {
    /// Many may read.
    Shared(ArcRead<T>),
    /// One may write.
    Exclusive(ArcWrite<T>),
}

impl<T> HeldLock<T> {
    /// Locks for reading or writing; waits.
    pub fn lock(lock: &Arc<RwLock<T>>, mode: LockMode) -> Self {
        match mode {
            LockMode::Shared => Self::Shared(lock.read_arc()),
            LockMode::Exclusive => Self::Exclusive(lock.write_arc()),
        }
    }

    /// Locks for reading or writing unless that would wait.
    pub fn try_lock(lock: &Arc<RwLock<T>>, mode: LockMode) -> Option<Self> {
        match mode {
            LockMode::Shared => lock.try_read_arc().map(Self::Shared),
            LockMode::Exclusive => lock.try_write_arc().map(Self::Exclusive),
        }
    }

    /// Locks for reading or writing; `None` if that would wait and shall not.
    pub fn lock_if(lock: &Arc<RwLock<T>>, mode: LockMode, if_locked: IfLocked) -> Option<Self> {
        match if_locked {
            IfLocked::Wait => Some(Self::lock(lock, mode)),
            IfLocked::GiveUp => Self::try_lock(lock, mode),
        }
    }

    /// The contents for writing.
    ///
    /// # Panics
    /// If only a shared lock is held: the caller mistook a read transaction for a writing one.
    pub fn exclusive(&mut self) -> &mut T {
        match self {
            Self::Exclusive(guard) => guard,
            Self::Shared(_) => panic!("a read-only transaction tried to change what it read"),
        }
    }
}

impl<T> std::ops::Deref for HeldLock<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Shared(guard) => guard,
            Self::Exclusive(guard) => guard,
        }
    }
}
