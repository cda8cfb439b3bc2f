//! Space: AG headers, free lists, free space, reverse mappings, reference counts, inode trees.
//!
//! ```text
//! alloc    which AG, (search) which extent        inodes   which inode, new chunks
//!   └ free_space   bnobt and cntbt of one AG        └ inode_trees   inobt and finobt of one AG
//!   └ free_list    the ring of blocks that the free space and rmap trees grow from
//!   └ rmap, refcount, cow   who owns the blocks, how often, and which are staged for copy on write
//!   └ unowned      extents of which an intent alone says that they are free
//! ag_tree  one type for all six trees of an AG: header, root, source of blocks
//! ag       the headers and their locks
//! ```
//! Every allocation and every free updates the free space, the reverse mappings and the reference counts in the
//! caller's transaction; there are no intents on this path.
//!
//! What counts as free: the superblock's free blocks are those in the free space trees, those on the free lists and
//! those of the free space and rmap trees without their roots. A block that moves between these changes no count.

mod ag;
mod ag_tree;
pub mod alloc;
pub mod cluster;
pub mod cow;
#[cfg(test)]
mod damage_tests;
mod deferred_free;
mod free_list;
mod free_space;
mod inode_trees;
pub mod inodes;
mod owner;
pub mod refcount;
#[cfg(test)]
mod refcount_tests;
mod reservation;
pub mod rmap;
mod search;
#[cfg(test)]
mod tests;
pub mod unowned;
#[cfg(test)]
mod waiting_tests;

pub(crate) use ag::below_agi;
pub use ag::{AGF_KIND, AGFL_KIND, AGI_KIND, Totals, initialize, read_agf, read_agi};
pub use alloc::{AllocRequest, Near, allocate, free};
pub use deferred_free::{Frees, defer_free, step_reservation};
pub(crate) use free_list::reset as reset_free_list;
pub use free_space::{BNOBT_KIND, CNTBT_KIND};
pub use inode_trees::{FINOBT_KIND, INOBT_KIND};
pub use owner::Owner;
pub use refcount::REFCOUNTBT_KIND;
pub use reservation::{free_blocks_needed, inode_allocation_blocks, inode_free_blocks, set_aside_blocks};
pub use rmap::RMAPBT_KIND;
