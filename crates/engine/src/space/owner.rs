//! The owner of blocks, as callers name it and as the reverse mappings record it.

use crate::incore::ForkKind;
use xfskit_ondisk::btree::{Rmap, rmap_offset, rmap_owner};
use xfskit_ondisk::{AgBlock, FileBlock, InodeNumber};

/// The owner of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The AG's free list and the trees that grow from it.
    FreeList,
    /// The inode trees.
    Inobt,
    /// The tree of reference counts.
    Refcountbt,
    /// A chunk of inodes.
    InodeChunk,
    /// A fork of an inode: its contents from fork block `offset`, or a block of its extent map.
    Fork {
        /// The inode.
        inode: InodeNumber,
        /// Which fork.
        fork: ForkKind,
        /// The fork block of the extent's first block; of no meaning for the extent map's blocks.
        offset: FileBlock,
        /// A block of the fork's extent map.
        bmbt: bool,
    },
}

/// Whether blocks of a file have been written; what is unwritten reads as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentState {
    /// They hold contents.
    Written,
    /// They do not yet.
    Unwritten,
}

impl ExtentState {
    /// The state that a record's flag says.
    pub fn of_flag(unwritten: bool) -> Self {
        if unwritten { Self::Unwritten } else { Self::Written }
    }

    /// The flag of a record.
    pub fn is_unwritten(self) -> bool {
        self == Self::Unwritten
    }
}

/// Whether the superblock counts blocks as used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// It does.
    AsUsed,
    /// It counts them as free: the AG's free list has them.
    AsFree,
}

impl Owner {
    /// The owner of the part of an extent that starts `blocks` further on.
    pub fn advanced(self, blocks: u32) -> Self {
        match self {
            Self::Fork { inode, fork, offset, bmbt: false } => {
                Self::Fork { inode, fork, offset: offset.add(blocks.into()), bmbt: false }
            }
            other => other,
        }
    }

    /// Whether the blocks may be shared with other files.
    pub fn may_share(self) -> bool {
        matches!(self, Self::Fork { fork: ForkKind::Data, bmbt: false, .. })
    }

    /// How the superblock counts the blocks.
    pub(super) fn counted(self) -> Counted {
        if self == Self::FreeList { Counted::AsFree } else { Counted::AsUsed }
    }

    /// Whether the blocks may be taken from what an AG holds back for its own trees.
    pub fn may_dip(self) -> bool {
        matches!(self, Self::FreeList | Self::Inobt | Self::Refcountbt)
    }

    /// The reverse mapping of an extent of this owner that is written, or of metadata.
    pub fn rmap(self, start: AgBlock, count: u32) -> Rmap {
        self.rmap_in_state(start, count, ExtentState::Written)
    }

    /// The reverse mapping of an extent of this owner.
    pub fn rmap_in_state(self, start: AgBlock, count: u32, state: ExtentState) -> Rmap {
        let (owner, offset) = match self {
            Self::FreeList => (rmap_owner::AG, 0),
            Self::Inobt => (rmap_owner::INOBT, 0),
            Self::Refcountbt => (rmap_owner::REFCOUNT, 0),
            Self::InodeChunk => (rmap_owner::INODES, 0),
            Self::Fork { inode, fork, offset, bmbt } => {
                let fork_flag = if fork == ForkKind::Attr { rmap_offset::ATTR_FORK } else { 0 };
                let unwritten = if state.is_unwritten() { rmap_offset::UNWRITTEN } else { 0 };
                let place = if bmbt { rmap_offset::BMBT_BLOCK } else { offset.0 | unwritten };
                (inode.0, place | fork_flag)
            }
        };
        Rmap { start, count, owner, offset }
    }
}
