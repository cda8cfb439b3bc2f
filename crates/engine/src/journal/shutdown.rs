//! Whether the filesystem was shut down, and why.
//!
//! Invariant: the first reason stays; once `check` has failed it never succeeds again.

use crate::error::{Error, Result};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

/// The state of the filesystem: running, or shut down for a reason.
#[derive(Default)]
pub(super) struct Shutdown {
    reason: Mutex<Option<String>>,
    is_shut_down: AtomicBool,
}

impl Shutdown {
    /// Shuts the filesystem down, unless it is already.
    pub(super) fn shut_down(&self, reason: String) {
        let mut first = self.reason.lock();
        if first.is_none() {
            tracing::error!(%reason, "the filesystem is shut down");
            *first = Some(reason);
            self.is_shut_down.store(true, Ordering::Release);
        }
    }

    /// Fails when the filesystem was shut down.
    ///
    /// # Errors
    /// `Shutdown` with the reason.
    #[inline]
    pub(super) fn check(&self) -> Result<()> {
        if !self.is_shut_down.load(Ordering::Acquire) {
            return Ok(());
        }
        let reason = self.reason.lock().clone().unwrap_or_default();
        Err(Error::Shutdown(reason))
    }
}
