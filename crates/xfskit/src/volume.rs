//! The level of inode numbers: what a server or a tool calls that acts for callers with rights.
//!
//! A [`Volume`] is an image that is open; [`Volume::open`] opens one. Its methods are the verbs of POSIX, on inode
//! numbers and names of bytes; [`Volume::resolve`] finds the inode at a path.

pub use crate::counters::{Counter, Counters};
pub use crate::env::{Environment, SeededEnvironment, SystemEnvironment};
pub use crate::error::caller::{Error, Result};
pub use crate::journal::{HostSpace, LogState, RecoveryReport};
pub use crate::mount::{AttrLogging, MountOptions};
pub use crate::ops::{
    Caller, DirEntry, DirEntryRef, Fallocate, FileExtent, Flags, FsStat, InodeRef, NewFile, RecoveredDevices,
    RenameFlags, Seek, SetAttr, SetMode, SetTime, Stat, Usage, Volume, WholeFile, XattrChange, split_path, xflags,
};
pub use xfskit_ondisk::inode::FileMode;

/// Named places where the engine can be made to fail, to see what a program makes of that. Names are given to
/// [`MountOptions::error_tags`] with the pass, counted from 1, that fails.
///
/// A place fails with an I/O error, by a stop as if the power failed, by taking a rare turn, or by an ordinary refusal;
/// [`TAGS`](error_tags::TAGS) says which.
///
/// ```
/// use xfskit::volume::{MountOptions, error_tags};
///
/// let tag = error_tags::find("readagf").expect("a tag of that name");
/// let options = MountOptions { error_tags: vec![(tag, 3)], ..MountOptions::default() };
/// assert!(error_tags::TAGS.iter().any(|(name, what)| *name == tag && what.contains("cannot be read")));
/// # let _ = options;
/// ```
pub mod error_tags {
    pub use crate::error_tags::{TAGS, find};
}
