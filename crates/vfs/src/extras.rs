//! What a server of a mount shows of a filesystem beyond POSIX.

use crate::{Error, InodeNumber, Result};

/// One of a filesystem's statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Figure {
    /// A count, or a size in the unit that the name ends in.
    Count(u64),
    /// Yes or no.
    Flag(bool),
    /// A word.
    Text(String),
}

impl From<u64> for Figure {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<usize> for Figure {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl From<bool> for Figure {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<String> for Figure {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Figure {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// Figures by name, in the order in which they are shown.
pub type Figures = Vec<(&'static str, Figure)>;

/// The statistics of a filesystem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// What was counted since it was opened.
    pub counters: Figures,
    /// Its journal, of now.
    pub log: Figures,
    /// Its memory, of now.
    pub cache: Figures,
    /// The options in force.
    pub options: Figures,
}

/// What a filesystem has to show beyond [`Volume`](crate::Volume). The defaults show nothing.
pub trait Extras {
    /// Every path of an inode from the root.
    ///
    /// # Errors
    /// `NotSupported` where an inode does not know its names; `Stale`, `Corrupt`, `Io`.
    fn paths(&self, inode: InodeNumber) -> Result<Vec<Vec<u8>>> {
        let _ = inode;
        Err(Error::NotSupported("inodes here do not know their names"))
    }

    /// The names of an inode, each with its directory.
    ///
    /// # Errors
    /// As [`Self::paths`].
    fn parents(&self, inode: InodeNumber) -> Result<Vec<(InodeNumber, Vec<u8>)>> {
        let _ = inode;
        Err(Error::NotSupported("inodes here do not know their names"))
    }

    /// A property of the whole filesystem, if it has one of that name: a server shows it as an attribute of the root.
    fn property(&self, name: &str) -> Option<Vec<u8>> {
        let _ = name;
        None
    }

    /// Sets a property of the whole filesystem.
    ///
    /// # Errors
    /// `NotPermitted` for one that cannot be set, or that there is not; `Invalid`.
    fn set_property(&self, name: &str, value: &[u8]) -> Result<()> {
        let _ = (name, value);
        Err(Error::NotPermitted)
    }

    /// The statistics.
    fn statistics(&self) -> Statistics {
        Statistics::default()
    }

    /// Whether an attribute of this name is an ACL under another name: what is cached of an inode's ACLs is not valid
    /// when it has changed.
    fn is_acl_alias(&self, xattr: &[u8]) -> bool {
        let _ = xattr;
        false
    }

    /// Answers an ioctl(2) that is this filesystem's own, by anybody; none waits for the device.
    fn ioctl(&self, inode: InodeNumber, command: u32, data: &[u8]) -> Option<Result<Vec<u8>>> {
        let _ = (inode, command, data);
        None
    }
}
