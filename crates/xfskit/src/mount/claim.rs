//! Which devices this process has a writable filesystem open on.
//!
//! Two filesystems on one device object would each take the other's blocks for free. A lock on an image file cannot
//! tell them apart, since the object holds it for both, so the objects themselves are claimed.
//!
//! Invariant: an identity is claimed only while its device lives, so no other object can have the same identity
//! meanwhile.

use crate::error::{Error, Result};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use xfskit_device::BlockDevice;

/// Identities of claimed devices. Not a lock of [`crate::sync`]: it belongs to the process, and nothing waits while it
/// is held.
static CLAIMED: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// The right to write a device through a filesystem, for one mount at a time. Dropping it releases the device.
pub(crate) struct Claim(Arc<dyn BlockDevice>);

impl Claim {
    /// # Errors
    /// `DeviceInUse`.
    pub fn take(device: &Arc<dyn BlockDevice>) -> Result<Self> {
        let is_new = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner).insert(device.identity());
        if is_new { Ok(Self(Arc::clone(device))) } else { Err(Error::DeviceInUse) }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        CLAIMED.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0.identity());
    }
}
