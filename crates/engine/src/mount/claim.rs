//! Which devices this process has a filesystem open on.
//!
//! Two filesystems on one device object would each take the other's blocks for free, and one that reads beside one that
//! writes would show blocks of different times. A lock on an image file does not distinguish them, since the object
//! holds it for both, so the objects themselves are claimed: as with the lock, by one writer or by any number of
//! readers.
//!
//! Invariant: an identity is claimed only while its device lives, so no other object can have the same identity
//! meanwhile.

use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use xfskit_device::BlockDevice;

/// The claimed devices, by their identities. Not a lock of [`crate::sync`]: it belongs to the process, and no thread
/// waits while it holds it.
static CLAIMED: Mutex<BTreeMap<usize, Users>> = Mutex::new(BTreeMap::new());

fn claimed() -> MutexGuard<'static, BTreeMap<usize, Users>> {
    CLAIMED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who has a device.
enum Users {
    Writer,
    Readers(NonZeroUsize),
}

/// What a device is claimed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimFor {
    /// Reading, beside other readers.
    Reading,
    /// Reading and writing, alone.
    Writing,
}

impl ClaimFor {
    /// What a mount claims its devices for.
    pub fn mount(is_read_only: bool) -> Self {
        if is_read_only { Self::Reading } else { Self::Writing }
    }
}

/// A device that no other filesystem of this process may write; given back when this is dropped.
pub struct Claim(Arc<dyn BlockDevice>);

impl Claim {
    /// # Errors
    /// `DeviceInUse`.
    pub fn take(device: &Arc<dyn BlockDevice>, what_for: ClaimFor) -> Result<Self> {
        match (claimed().entry(device.hints().identity), what_for) {
            (Entry::Vacant(entry), ClaimFor::Writing) => {
                entry.insert(Users::Writer);
            }
            (Entry::Vacant(entry), ClaimFor::Reading) => {
                entry.insert(Users::Readers(NonZeroUsize::MIN));
            }
            (Entry::Occupied(mut entry), ClaimFor::Reading) => match entry.get_mut() {
                Users::Readers(count) => *count = count.saturating_add(1),
                Users::Writer => return Err(Error::DeviceInUse),
            },
            (Entry::Occupied(_), ClaimFor::Writing) => return Err(Error::DeviceInUse),
        }
        Ok(Self(Arc::clone(device)))
    }

    /// Claims the devices of a filesystem.
    ///
    /// # Errors
    /// `DeviceInUse`; then none of them is claimed.
    pub fn take_all(
        device: &Arc<dyn BlockDevice>,
        log_device: Option<&Arc<dyn BlockDevice>>,
        what_for: ClaimFor,
    ) -> Result<Vec<Self>> {
        std::iter::once(device).chain(log_device).map(|device| Self::take(device, what_for)).collect()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claimed = claimed();
        let Entry::Occupied(mut entry) = claimed.entry(self.0.hints().identity) else {
            unreachable!("only dropping a claim takes its device from the map")
        };
        match entry.get_mut() {
            Users::Readers(count) if count.get() > 1 => {
                *count = NonZeroUsize::new(count.get() - 1).expect("it is more than one");
            }
            _ => {
                entry.remove();
            }
        }
    }
}
