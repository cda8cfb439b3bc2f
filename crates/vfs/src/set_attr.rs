//! Changes of modes, owners, times and sizes.

use crate::{Permissions, Timestamp};

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time of day.
    Now,
    /// A given time.
    To(Timestamp),
}

/// What to change; what is `None` stays.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttr {
    /// Permissions.
    pub permissions: Option<Permissions>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
    /// When this change was made, for a cache that has already reported that time to its callers; now if it is `None`.
    pub ctime: Option<Timestamp>,
    /// Size of a regular file.
    pub size: Option<u64>,
}

impl SetAttr {
    /// Whether anything else than times changes.
    pub fn sets_more_than_times(&self) -> bool {
        self.permissions.is_some() || self.uid.is_some() || self.gid.is_some() || self.size.is_some()
    }
}
