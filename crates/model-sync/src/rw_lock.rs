//! A lock for many readers or one writer: a semaphore of which a writer takes all permits. It is fair: a reader that
//! arrives while a writer waits must wait behind it. So a thread that locks twice for reading can deadlock, as with
//! `parking_lot`.

use lock_api::GuardNoSend;
use shuttle::future::batch_semaphore::{BatchSemaphore, Fairness};

/// As `parking_lot::RwLock`.
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
/// As `parking_lot::RwLockReadGuard`.
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
/// As `parking_lot::RwLockWriteGuard`.
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

/// More readers than a model has threads.
const ALL: usize = 1 << 16;

/// As `parking_lot::RawRwLock`.
#[derive(Debug)]
pub struct RawRwLock(BatchSemaphore);

// SAFETY: a writer has all permits until `unlock_exclusive`, and a reader has one until `unlock_shared`, so while a
// writer holds the lock no other thread does.
#[allow(unsafe_code)]
unsafe impl lock_api::RawRwLock for RawRwLock {
    #[allow(clippy::declare_interior_mutable_const)] // What lock_api initializes every lock with.
    const INIT: Self = Self(BatchSemaphore::const_new(ALL, Fairness::StrictlyFair));
    type GuardMarker = GuardNoSend;

    fn lock_shared(&self) {
        // Fails only when the run has failed and is torn down: then no other thread runs.
        let _ = self.0.acquire_blocking(1);
    }

    fn try_lock_shared(&self) -> bool {
        self.0.try_acquire(1).is_ok()
    }

    unsafe fn unlock_shared(&self) {
        self.0.release(1);
    }

    fn lock_exclusive(&self) {
        let _ = self.0.acquire_blocking(ALL);
    }

    fn try_lock_exclusive(&self) -> bool {
        self.0.try_acquire(ALL).is_ok()
    }

    unsafe fn unlock_exclusive(&self) {
        self.0.release(ALL);
    }
}
