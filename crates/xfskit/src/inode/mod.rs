//! Inodes: reading and writing them, their forks and extent maps, unlinked lists, and the cache of inodes.

mod cache;
pub mod cluster;
pub mod fork;
mod write_back;

pub use cache::InodeCache;
pub use write_back::WriteBackToDevice;
