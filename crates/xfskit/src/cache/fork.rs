//! Forks of an inode in memory.
//!
//! ```text
//!              data fork    attr fork
//!   itself     DataFork     AttrFork      a device number, or the contents
//!   mapped     ForkMap      ForkMap       a list of extents, or the root of a btree that has them
//! ```
//! Nearly every file is empty or mapped and has short attributes, so a data fork is a few words and keeps short contents
//! apart, while the attr fork has them in the inode's own memory: there are as many of both as there are cached inodes.

use super::extent_list::ExtentList;
use smallvec::SmallVec;
use std::sync::OnceLock;
use xfskit_ondisk::{Extent, ForkBytes};

/// Which fork of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ForkKind {
    /// Contents, directory entries, the target of a symbolic link.
    Data,
    /// Extended attributes.
    Attr,
}

/// The bytes of shortform attributes; in the inode's own memory as long as they are few.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalAttrs(SmallVec<[u8; LOCAL_BYTES]>);

/// Room for a parent pointer of a long name and an attribute or two.
const LOCAL_BYTES: usize = 144;

impl LocalAttrs {
    /// Whole contents.
    pub fn new(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }
}

impl std::ops::Deref for LocalAttrs {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl std::ops::DerefMut for LocalAttrs {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl ForkBytes for LocalAttrs {
    fn grow(&mut self, bytes: usize) -> &mut [u8] {
        // `resize` would write byte by byte, and this is in each create of a file.
        const ZEROS: [u8; 256] = [0; 256];
        let end = self.0.len();
        self.0.reserve(bytes);
        for start in (0..bytes).step_by(ZEROS.len()) {
            self.0.extend_from_slice(&ZEROS[..(bytes - start).min(ZEROS.len())]);
        }
        &mut self.0[end..]
    }

    fn take_out(&mut self, range: std::ops::Range<usize>) {
        let (start, length) = (range.start, self.0.len());
        self.0.copy_within(range.end..length, start);
        self.0.truncate(length - range.len());
    }
}

/// The root of the btree that a fork's extents are in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapRoot {
    /// The root's level; leaves have level 0, so at least 1.
    pub level: u16,
    /// First fork block under each child.
    pub keys: Vec<u64>,
    /// The children.
    pub children: Vec<u64>,
    /// All extents, in order; read from the tree when they are first needed.
    pub extents: OnceLock<ExtentList>,
}

/// Where a fork's blocks are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForkMap {
    /// All extents, in order.
    Extents(Vec<Extent>),
    /// More of them than the inode holds.
    Btree(Box<MapRoot>),
}

impl ForkMap {
    /// A map of nothing.
    pub const EMPTY: Self = Self::Extents(Vec::new());

    /// Whether it maps nothing.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Extents(extents) if extents.is_empty())
    }
}

/// What a data fork holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataFork {
    /// A device number, in XFS's own encoding.
    Dev(u32),
    /// The contents themselves.
    Local(Vec<u8>),
    /// Blocks.
    Mapped(ForkMap),
}

impl DataFork {
    /// No contents.
    pub const EMPTY: Self = Self::Mapped(ForkMap::EMPTY);

    /// Where its blocks are, if it is one that has blocks.
    pub fn map(&self) -> Option<&ForkMap> {
        if let Self::Mapped(map) = self { Some(map) } else { None }
    }
}

/// What an attr fork holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttrFork {
    /// The attributes themselves.
    Local(LocalAttrs),
    /// Blocks.
    Mapped(ForkMap),
}

impl AttrFork {
    /// No attributes.
    pub const EMPTY: Self = Self::Mapped(ForkMap::EMPTY);

    /// Where its blocks are, if it is one that has blocks.
    pub fn map(&self) -> Option<&ForkMap> {
        if let Self::Mapped(map) = self { Some(map) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forks_are_small() {
        // There is a pair of them for each cached inode: 32 bytes here are 6 MiB of a cache of 175,000 inodes.
        assert!(size_of::<DataFork>() <= 32, "{}", size_of::<DataFork>());
        assert!(size_of::<AttrFork>() <= 160, "{}", size_of::<AttrFork>());
        assert!(size_of::<Option<AttrFork>>() <= 160, "{}", size_of::<Option<AttrFork>>());
    }
}
