//! Inodes: reading and writing them, their forks and extent maps, unlinked lists, and the cache of inodes.

pub mod bmap;
mod create;
pub mod fork;
mod located;
mod read;
pub mod unlinked;
mod write_back;
mod write_cluster;

pub use create::{NewInode, create, default_fork_offset};
pub use located::{located, located_at};
pub use write_back::{WriteBackToDevice, write_buffer_back};
