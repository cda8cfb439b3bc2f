//! A mutex: a semaphore of one permit. It is unfair, as `parking_lot`'s: the thread that unlocks may be the next to
//! lock.

use lock_api::GuardNoSend;
use shuttle::future::batch_semaphore::{BatchSemaphore, Fairness};

/// As `parking_lot::Mutex`.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// As `parking_lot::MutexGuard`.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;

/// As `parking_lot::RawMutex`.
#[derive(Debug)]
pub struct RawMutex(BatchSemaphore);

// SAFETY: the thread that locked last has the only permit until `unlock` returns it, so no two threads hold the lock.
#[allow(unsafe_code)]
unsafe impl lock_api::RawMutex for RawMutex {
    #[allow(clippy::declare_interior_mutable_const)] // What lock_api initializes every lock with.
    const INIT: Self = Self(BatchSemaphore::const_new(1, Fairness::Unfair));
    type GuardMarker = GuardNoSend;

    fn lock(&self) {
        // Fails only when the run has failed and is torn down: then no other thread runs.
        let _ = self.0.acquire_blocking(1);
    }

    fn try_lock(&self) -> bool {
        self.0.try_acquire(1).is_ok()
    }

    unsafe fn unlock(&self) {
        self.0.release(1);
    }
}
