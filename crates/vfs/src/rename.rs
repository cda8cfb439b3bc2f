//! How to rename.

/// How to rename.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameFlags {
    /// Fail if the new name exists.
    pub no_replace: bool,
    /// Exchange the two names, which must both exist.
    pub exchange: bool,
    /// Leave a whiteout (a character device 0:0) under the old name.
    pub whiteout: bool,
}
