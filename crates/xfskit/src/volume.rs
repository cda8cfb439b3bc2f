//! The level of inode numbers: what a server or a tool calls that acts for callers with rights.
//!
//! A [`Volume`] is an image that is open; [`Volume::open`] opens one. Its methods are the verbs of POSIX, on inode
//! numbers and names of bytes; [`Volume::resolve`] finds the inode at a path.

pub use crate::error::{Error, Result};
pub use crate::journal::HostSpace;
pub use crate::mount::{AttrLogging, MountOptions};
pub use crate::ops::{
    Caller, Entry, Fallocate, FileExtent, Flags, FsStat, NewFile, RecoveredDevices, RenameFlags, Seek, SetAttr,
    SetMode, SetTime, Stat, Volume, WholeFile, XattrChange, split_path, xflags,
};
pub use xfskit_ondisk::inode::FileMode;
