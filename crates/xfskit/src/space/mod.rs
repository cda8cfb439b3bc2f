//! Space: AG headers, free lists, free space, reverse mappings, reference counts, inode trees.

mod ag_state;
mod counts;

pub use ag_state::AgState;
pub use counts::SpaceCounts;
