//! One cursor algorithm for all btrees.
//!
//! ```text
//! Cursor<K>  path: [root, ..., leaf], each with the index of the record or child it stands at
//! BtreeKind  where the root lies, how blocks are allocated and freed
//! TreeFormat (ondisk)  sizes, codecs, keys and their order
//! ```
//! Invariants
//! - The key of a child in its parent is the key of the child's first record, and where records overlap, its high key
//!   is the highest in the child. The cursor checks the first on the way down, so that a walk goes strictly forward and
//!   ends, whatever is on disk.
//! - Blocks other than the root are at least half full, unless they have no sibling under the same parent.
//! - Siblings lend and merge only under one parent, so every block that a change touches is on the path or beside it.
//! - A change that splits checks first that enough blocks are free ([`BtreeKind::expect_blocks`]), so that it fails
//!   before anything is dirty.
//!
//! Room in a full leaf is made from the top down: the lowest block on the path that can lend to a sibling, or whose
//! parent has room for a split, does so; the cursor goes down again, and so on until the leaf has room. No step needs
//! more than one parent.
//!
//! The root of most trees is a block; that of an extent map lies in the inode. The [`BtreeKind`] of such a tree returns
//! [`Root::Inline`] and gives access to the decoded root.

mod block;
mod cursor;
mod insert;
mod node;
mod query;
mod remove;

#[cfg(test)]
mod tests;

pub use cursor::Cursor;

use crate::buffer::BufferKind;
use crate::error::Result;
use crate::trans::{BufId, Transaction};
use smallvec::SmallVec;
use xfskit_ondisk::btree::TreeFormat;
use xfskit_ondisk::{DiskAddress, Geometry};

/// The key type of a kind.
pub type KeyOf<K> = <<K as BtreeKind>::Format as TreeFormat>::Key;
/// The record type of a kind.
pub type RecordOf<K> = <<K as BtreeKind>::Format as TreeFormat>::Record;

/// Where a tree begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// A block.
    Block {
        /// Its pointer.
        pointer: u64,
        /// Height of the tree; a leaf alone has height 1.
        levels: u32,
    },
    /// A node within an inode.
    Inline {
        /// The node's level; its children stand one below. At least 1.
        level: u16,
    },
}

/// A root within an inode, decoded.
#[derive(Debug)]
pub struct InlineRoot<'a, Key> {
    /// Its level.
    pub level: u16,
    /// The lowest key under each child.
    pub keys: &'a [Key],
    /// The children.
    pub children: &'a [u64],
}

/// Keys and children of a node under construction.
#[derive(Clone, Debug)]
pub struct NodeEntries<Key> {
    /// The lowest key under each child.
    pub keys: Vec<Key>,
    /// The children.
    pub children: Vec<u64>,
}

/// A tree: the place of its root and the source of its blocks.
pub trait BtreeKind {
    /// The form of its blocks.
    type Format: TreeFormat;

    /// The kind of its blocks as buffers.
    fn buffer_kind() -> &'static BufferKind;

    /// What the header of its blocks names as the owner: the AG or the inode.
    fn owner(&self) -> u64;

    /// The disk address of a block, unless the pointer leaves the AG or the device.
    fn address(&self, geometry: &Geometry, pointer: u64) -> Option<DiskAddress>;

    /// Where the root is.
    fn root(&self, tx: &Transaction) -> Root;

    /// Records another root block or another height. Not called for inline roots.
    fn set_root(&mut self, tx: &mut Transaction, pointer: u64, levels: u32);

    /// The root within the inode. Called only where [`BtreeKind::root`] returns [`Root::Inline`].
    fn inline_root<'a>(&self, tx: &'a Transaction) -> InlineRoot<'a, KeyOf<Self>> {
        let _ = tx;
        unreachable!("the root of this tree is a block")
    }

    /// Most children that the root within the inode has room for.
    fn inline_max(&self, tx: &Transaction) -> usize {
        let _ = tx;
        unreachable!("the root of this tree is a block")
    }

    /// Replaces the root within the inode and logs it.
    fn set_inline_root(&mut self, tx: &mut Transaction, level: u16, entries: NodeEntries<KeyOf<Self>>) {
        let _ = (tx, level, entries);
        unreachable!("the root of this tree is a block")
    }

    /// Makes sure that `count` blocks can be allocated.
    ///
    /// # Errors
    /// `NoSpace`, before anything was changed.
    fn expect_blocks(&mut self, tx: &mut Transaction, count: u32) -> Result<()>;

    /// Allocates a block, close to `near` where there is a choice.
    ///
    /// # Errors
    /// `NoSpace` if [`BtreeKind::expect_blocks`] was not called before; `Corrupt` or `Io`.
    fn allocate_block(&mut self, tx: &mut Transaction, near: u64) -> Result<u64>;

    /// Frees a block and invalidates its buffer.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    fn free_block(&mut self, tx: &mut Transaction, pointer: u64, buffer: BufId) -> Result<()>;
}

/// Where a node of the path lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    /// In the inode.
    Inline,
    /// In a block.
    Block { pointer: u64, buffer: BufId },
}

/// Which neighbour of a block, or which edge of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

/// A node of the path, and where the cursor stands in it.
#[derive(Clone, Copy, Debug)]
struct CursorLevel {
    node: Node,
    index: usize,
}

type Path = SmallVec<[CursorLevel; 5]>;
