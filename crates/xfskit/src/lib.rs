//! XFS without the kernel: read and write real XFS (version 5) images with a real journal.
//!
//! [`paths`] is where to begin: `std::fs`'s calls on files in an image.
//!
//! The modules are layers; each uses only those above it in this list. `ARCHITECTURE.md` describes them.
#![forbid(unsafe_code)]

#[macro_use]
mod error;

pub mod counters;
mod credits;
mod cycle;
pub mod env;
pub mod error_tags;
pub mod hash;
pub mod item;
pub mod sync;
pub mod value;

pub mod cache;
pub mod journal;
pub mod mount;
pub mod trans;

pub mod btree;
pub mod space;

pub mod inode;

pub mod attr;
pub mod dabtree;
pub mod data;
pub mod dir;
pub mod parent;
pub mod symlink;

pub mod open;
pub mod recover;

pub mod ops;
pub mod rescue;

pub mod paths;

#[cfg(test)]
mod test_image;

pub use error::{Error, Result};
pub use journal::HostSpace;
pub use mount::{AttrLogging, Mount, MountOptions};
pub use ops::{
    Caller, Entry, Fallocate, FileExtent, Filesystem, Flags, FsStat, NewFile, RecoveredDevices, RenameFlags, Seek,
    SetAttr, SetMode, SetTime, Stat, WholeFile, XattrChange, split_path, xflags,
};
pub use xfskit_device as device;
pub use xfskit_ondisk as ondisk;
pub use xfskit_ondisk::inode::FileMode;
