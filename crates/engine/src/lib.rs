//! The engine of [xfskit](https://crates.io/crates/xfskit): caches, journal, trees, attributes, and the verbs of POSIX
//! on inode numbers, over a [`BlockDevice`](xfskit_device::BlockDevice).
//!
//! This crate is made for this project's own crates: its modules are public to them, and may change with every
//! version. Programs use `xfskit`, whose `volume` module shows what is meant for them of this one.
//! `ARCHITECTURE.md` is the map of the layers.
#![forbid(unsafe_code)]

#[macro_use]
pub mod error;

pub mod counters;
pub mod env;
pub mod error_tags;
pub mod hash;
pub mod item;
pub mod sync;
pub mod value;

mod credits;
mod cycle;

pub mod buffer;
pub mod incore;
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

pub mod finish;
pub mod open;

pub mod ops;
mod vfs;

#[cfg(test)]
mod test_image;

pub use counters::{Counter, Counters};
pub use env::{Environment, SeededEnvironment, SystemEnvironment};
pub(crate) use error::ensure_on_disk;
pub use error::{Error, Result};
pub use journal::{HostSpace, LogState, RecoveryReport};
pub use mount::{AttrLogging, AttrPath, Discard, MountOptions};
pub use ops::{
    Caller, DirEntry, DirEntryRef, Fallocate, FileExtent, FileType, Flags, FsStat, Growth, InodeRef, LastLink,
    LostNames, NewFile, NewUuid, Permissions, ReadAhead, ReadDir, RecoveredDevices, RenameFlags, Seek, SetAttr,
    SetMode, SetTime, Stat, SyncKind, SyncPoint, TrimBy, Trimmed, Usage, Volume, WholeFile, XattrChange, XattrOptions,
    split_path, xflags,
};
pub use vfs::{LARP_PROPERTY, SUPERBLOCK_PROPERTY};
pub use xfskit_ondisk::{InodeNumber, Timestamp};
/// For `xfskit_engine::paths`.
#[doc(hidden)]
pub use {
    mount::{Claim, ClaimFor},
    ops::MAX_LINKS_FOLLOWED,
};
