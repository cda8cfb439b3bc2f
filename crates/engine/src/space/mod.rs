//! Space: AG headers, free lists, free space, reverse mappings, reference counts, inode trees.
//!
//! ```text
//! grow          new AGs, and the last one longer; trim: free space goes back to the host
//! free          extents lose an owner, at once or in a link of their own         inodes  which inode, new chunks
//!   └ unowned   those of which an intent alone says that they are free             │
//!   └ refcount, cow   how often blocks are shared, which are staged for copy on write
//! alloc         which AG                                                          inode_trees  inobt and finobt
//!   └ rmap_change   mappings that are changed by themselves                          │
//!   └ free_list     the free list as long as an operation may need it                │
//!       └ search    which extent (request: of what shape)                            │
//! free_space, rmap  bnobt and cntbt of one AG; who owns its blocks                   │
//!   └ agfl          the ring of blocks that these trees grow from                    │
//! ag_tree       one type for all six trees of an AG: header, root, source of blocks ─┘
//! ag            the headers and their locks
//! ```
//! No file uses one above it.
//!
//! Every allocation and every free updates the free space, the reverse mappings and the reference counts in the
//! caller's transaction; there are no intents on this path.
//!
//! What counts as free: the superblock's free blocks are those in the free space trees, those on the free lists and
//! those of the free space and rmap trees without their roots. A block that moves between these changes no count.

mod ag;
mod ag_tree;
mod agfl;
pub mod alloc;
pub mod cluster;
pub mod cow;
#[cfg(test)]
mod damage_tests;
mod free;
mod free_list;
mod free_space;
pub mod grow;
mod inode_trees;
pub mod inodes;
mod owner;
pub mod refcount;
#[cfg(test)]
mod refcount_tests;
mod request;
mod reservation;
pub mod rmap;
pub mod rmap_change;
mod search;
#[cfg(test)]
mod tests;
pub mod trim;
pub mod unowned;
#[cfg(test)]
mod waiting_tests;

pub(crate) use ag::below_agi;
pub use ag::{AGF_KIND, AGFL_KIND, AGI_KIND, Totals, initialize, read_agf, read_agi};
pub use alloc::allocate;
pub use free::{Frees, defer_free, free, step_reservation};
pub(crate) use free_list::reset as reset_free_list;
pub use free_space::{BNOBT_KIND, CNTBT_KIND};
pub use inode_trees::{FINOBT_KIND, INOBT_KIND};
pub use owner::{ExtentState, Owner};
pub use refcount::REFCOUNTBT_KIND;
pub use request::{AllocRequest, Busy, Near};
pub use reservation::{
    blocks_for_trees, free_blocks_needed, free_list_blocks, inode_allocation_blocks, inode_free_blocks,
    set_aside_blocks,
};
pub use rmap::RMAPBT_KIND;
