//! XFS without the kernel: read and write real XFS (version 5) images with a real journal.
//!
//! The modules are layers; each uses only those above it in this list. `ARCHITECTURE.md` describes them.
#![forbid(unsafe_code)]

pub mod counters;
pub mod env;
mod error;
pub mod item;
pub mod sync;

pub mod cache;
pub mod journal;
pub mod mount;
pub mod trans;

pub mod btree;
pub mod space;

pub mod inode;

pub mod attr;
pub mod dabtree;
pub mod dir;

pub use error::{Error, Result};
pub use mount::{Mount, MountOptions};
pub use xfskit_device as device;
pub use xfskit_ondisk as ondisk;
