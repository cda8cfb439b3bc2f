//! Inodes in memory, and what is in memory of their forks, contents and directories.
//!
//! ```text
//! Inode         number, lock around the state, the journal's bookkeeping
//! InodeState    core, DataFork, AttrFork, attributes that are known to be absent
//!   ForkMap     where a fork's blocks are: records, or a btree's root with an ExtentList of its records
//!   DirtyBlocks contents that have no blocks on the device yet
//!   DirMemory   where the blocks of a large directory are, and which of them have room
//! DirtyInodes   the inodes whose contents or times are in memory only
//! ```
//! Invariants
//! - An inode that is pinned, waits for write-back, or is used by a thread stays in memory, and so does one without a
//!   name while it is referenced.
//! - The core and the forks are those of the newest committed transaction, with the changes of the running one that
//!   holds the inode's exclusive lock. `DirtyBlocks` is ahead of them: only a write-out brings it to the journal.
//! - What is remembered (`DirMemory`, [`KnownAbsent`], a loaded [`ExtentList`]) may be dropped at any time without a
//!   change of results. It never claims more than the blocks on the device and in the log show.
//!
//! Locking: the inode's lock protects [`InodeState`]; `DirtyInodes` has a mutex that is taken below it. [`crate::sync`]
//! has the order of locks.

mod dir_memory;
mod dirty_blocks;
mod dirty_inodes;
mod extent_list;
mod fork;
mod inode;

pub use dir_memory::DirMemory;
pub use dirty_blocks::{BlockPlace, DirtyBlocks};
pub use dirty_inodes::DirtyInodes;
pub use extent_list::{ExtentList, Extents};
pub use fork::{AttrFork, DataFork, ForkKind, ForkMap, LocalAttrs, MapRoot};
pub use inode::{Inode, InodeState, KnownAbsent};
