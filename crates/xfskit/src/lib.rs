//! XFS without the kernel: read and write real XFS (version 5) images with a real journal.
//!
//! | level | for | begin at |
//! |---|---|---|
//! | paths | programs that make images, or read and change files in them, as with [`std::fs`] | [`paths`] |
//! | inodes | servers and tools that act for callers with rights, by inode numbers | [`Filesystem`] |
//! | engine | this project's own crates: caches, journal, trees | the other modules |
//!
//! The page of [`paths`] says how an image is loaded and edited, what is durable when, what threads may do, and what
//! errors there are. Only the first two levels are meant to stay as they are from one version to the next.
//!
//! ```
//! # fn main() -> std::io::Result<()> {
//! # let folder = tempfile::tempdir()?;
//! # let image = folder.path().join("disk.img");
//! use xfskit::paths::{self, Filesystem, MkfsOptions};
//!
//! let fs = paths::create(&image, 64 << 20, &MkfsOptions::new().small())?;
//! fs.write("/motd", "hello\n")?;
//! fs.close()?;
//! assert_eq!(Filesystem::options().read_only(true).open(&image)?.read_to_string("/motd")?, "hello\n");
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! `mkfs`, on by default: [`paths::create`](fn@paths::create) makes images.
//!
//! # The engine
//!
//! Its modules are layers; each uses only those below it. `ARCHITECTURE.md` describes them.
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
