//! The primitives that `xfskit_engine::sync` takes from `parking_lot`, over those of the model checker shuttle.
//!
//! Built with `--cfg shuttle` only; without, the crate is empty. Every lock, unlock and atomic access is then a point
//! at which shuttle may go on with another thread, so that a run is a function of its schedule, and a thread that waits
//! for ever is found. Names and semantics are those of `parking_lot`; only what the engine uses is here.
//!
//! What the model leaves out: atomics are sequentially consistent whatever their ordering says, and a wait with a
//! timeout may end at any time, notified or not.

#[cfg(shuttle)]
mod condvar;
#[cfg(shuttle)]
mod mutex;
#[cfg(shuttle)]
mod rw_lock;

#[cfg(shuttle)]
pub use condvar::Condvar;
#[cfg(shuttle)]
pub use lock_api;
#[cfg(shuttle)]
pub use mutex::{Mutex, MutexGuard, RawMutex};
#[cfg(shuttle)]
pub use rw_lock::{RawRwLock, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(shuttle)]
pub use shuttle::{sync::atomic, thread, thread_local};

/// The number of the running thread, counted from the beginning of the run.
#[cfg(shuttle)]
pub fn thread_number() -> usize {
    shuttle::current::me().into()
}
