//! What is brought into memory before it is asked for.

/// What is brought into the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAhead {
    /// Inodes.
    Inodes,
    /// Inodes, and the blocks of those that are small directories.
    Listings,
}
