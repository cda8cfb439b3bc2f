//! Forks of an inode in memory.
//!
//! ```text
//!              data fork    attr fork
//!   itself     DataFork     AttrFork      a device number, or the contents
//!   mapped     ForkMap      ForkMap       a list of extents, or the root of a btree that has them
//! ```
//! Nearly every file is empty or mapped and has short attributes, so a data fork is a few words, with short contents in
//! memory of their own, while an attr fork contains short attributes in itself. Size matters, since each cached inode
//! has both.

use super::extent_list::ExtentList;
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
#[derive(Clone, Debug)]
pub struct LocalAttrs(LocalBytes);

#[derive(Clone, Debug)]
enum LocalBytes {
    /// Behind the first `length` bytes there are only zeros.
    Inline {
        length: u8,
        bytes: [u8; LOCAL_BYTES],
    },
    Allocated(Vec<u8>),
}

/// Room for a parent pointer of a long name and an attribute or two.
const LOCAL_BYTES: usize = 144;

impl LocalAttrs {
    /// Whole contents.
    pub fn new(contents: &[u8]) -> Self {
        let mut attrs = Self::of([]);
        attrs.append(contents);
        attrs
    }

    /// Contents of a fixed length, of at most a few bytes.
    pub fn of<const BYTES: usize>(contents: [u8; BYTES]) -> Self {
        const { assert!(BYTES <= LOCAL_BYTES) };
        let mut bytes = [0; LOCAL_BYTES];
        bytes[..BYTES].copy_from_slice(&contents);
        Self(LocalBytes::Inline { length: BYTES as u8, bytes })
    }
}

impl PartialEq for LocalAttrs {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for LocalAttrs {}

impl std::ops::Deref for LocalAttrs {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            LocalBytes::Inline { length, bytes } => &bytes[..usize::from(*length)],
            LocalBytes::Allocated(bytes) => bytes,
        }
    }
}

impl std::ops::DerefMut for LocalAttrs {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            LocalBytes::Inline { length, bytes } => &mut bytes[..usize::from(*length)],
            LocalBytes::Allocated(bytes) => bytes,
        }
    }
}

impl ForkBytes for LocalAttrs {
    fn grow(&mut self, more: usize) -> &mut [u8] {
        let start = self.len();
        if start + more > LOCAL_BYTES
            && let LocalBytes::Inline { .. } = self.0
        {
            self.0 = LocalBytes::Allocated(self.to_vec());
        }
        match &mut self.0 {
            LocalBytes::Inline { length, bytes } => {
                *length = (start + more) as u8;
                &mut bytes[start..start + more]
            }
            LocalBytes::Allocated(bytes) => bytes.grow(more),
        }
    }

    fn take_out(&mut self, range: std::ops::Range<usize>) {
        match &mut self.0 {
            LocalBytes::Inline { length, bytes } => {
                let (end, left) = (usize::from(*length), usize::from(*length) - range.len());
                bytes.copy_within(range.end..end, range.start);
                bytes[left..end].fill(0);
                *length = left as u8;
            }
            LocalBytes::Allocated(bytes) => bytes.take_out(range),
        }
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
    /// More extents than the inode has room for.
    Btree(Box<MapRoot>),
}

impl ForkMap {
    /// A map of nothing.
    pub const EMPTY: Self = Self::Extents(Vec::new());

    /// Whether it maps no block.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Extents(extents) if extents.is_empty())
    }
}

/// The contents of a data fork.
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

/// The contents of an attr fork.
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
    fn short_attributes_grow_and_shrink_across_the_inodes_own_memory() {
        let (mut attrs, mut model) = (LocalAttrs::new(b"head"), b"head".to_vec());
        for step in 0..40_u8 {
            change(&mut attrs, step);
            change(&mut model, step);
            assert_eq!((&attrs[..], attrs == LocalAttrs::new(&model)), (&model[..], true), "step {step}");
        }
    }

    fn change(bytes: &mut impl ForkBytes, step: u8) {
        let zeros = bytes.grow(9).iter().all(|&byte| byte == 0);
        assert!(zeros, "what is added is zeros");
        bytes.append(&[step; 5]);
        if step % 3 == 2 {
            bytes.take_out(6..20 + usize::from(step) / 2);
        }
    }

    #[test]
    fn forks_are_small() {
        // There is a pair of them for each cached inode: 32 bytes here are 6 MiB of a cache of 175,000 inodes.
        assert!(size_of::<DataFork>() <= 32, "{}", size_of::<DataFork>());
        assert!(size_of::<AttrFork>() <= 160, "{}", size_of::<AttrFork>());
        assert!(size_of::<Option<AttrFork>>() <= 160, "{}", size_of::<Option<AttrFork>>());
    }
}
