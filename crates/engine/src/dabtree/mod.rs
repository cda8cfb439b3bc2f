//! The hash btree of directories and attributes: finding a leaf by hash, and adding and removing blocks.
//!
//! ```text
//! root block ──▶ node ⇄ node ⇄ node
//!                  └──▶ leaf ⇄ leaf ⇄ leaf      each level linked both ways, by fork block
//! ```
//! The root stays at the first block of the tree's space: when it must grow, its contents move to a new block below
//! it. A tree of one leaf is that leaf at the root's place. What stands in a leaf is for the callers; this layer knows
//! only where leaves keep their greatest hash.
//!
//! Invariants: an entry's hash in a node is the greatest hash under its child; the children of a node in order are
//! neighbours in the list of their level; no block but the root is without a parent.
//!
//! All blocks belong to one inode, which the caller has locked, so the order in which they are locked does not matter.

pub(crate) mod edit;
mod fork_block;
mod grow;
mod path;
mod shrink;

pub(crate) use fork_block::ForkBlock;
pub(crate) use path::{CycleGuard, Path, PathLevel, Side};
use xfskit_ondisk::logged::buffer::buffer_type;

use crate::buffer::BufferKind;
use crate::error::Result;
use crate::error_tags::DA_READ_BUF;
use crate::incore::ForkKind;
use crate::inode::bmap;
use crate::trans::{BufId, InoId, Transaction};
use xfskit_ondisk::attr;
use xfskit_ondisk::da::{DA_CRC_OFFSET, DA_LSN_OFFSET, DA_NODE_MAGIC, DaInfo, da_magic, verify_node};
use xfskit_ondisk::dir::leaf::{DIR_LEAFN_MAGIC, verify_leafn};
use xfskit_ondisk::{Corruption, FileBlock};

/// A node of the tree.
pub static DA_NODE_KIND: BufferKind = BufferKind {
    name: "da node",
    family: "da",
    log_type: buffer_type::DA_NODE,
    crc_offset: Some(DA_CRC_OFFSET),
    lsn_offset: Some(DA_LSN_OFFSET),
    verify: verify_node,
    refine: None,
};

/// A leaf of a directory's tree.
pub static DIR_LEAFN_KIND: BufferKind = BufferKind {
    name: "directory leafn block",
    family: "da",
    log_type: buffer_type::DIR_LEAF_N,
    crc_offset: Some(DA_CRC_OFFSET),
    lsn_offset: Some(DA_LSN_OFFSET),
    verify: verify_leafn,
    refine: None,
};

/// A leaf of an attribute tree.
pub static ATTR_LEAF_KIND: BufferKind = BufferKind {
    name: "attr leaf block",
    family: "da",
    log_type: buffer_type::ATTR_LEAF,
    crc_offset: Some(DA_CRC_OFFSET),
    lsn_offset: Some(DA_LSN_OFFSET),
    verify: attr::leaf::verify_leaf,
    refine: None,
};

/// Any block of a tree.
static DA_BLOCK_KIND: BufferKind = BufferKind {
    name: "da block",
    family: "da",
    log_type: buffer_type::DA_NODE,
    crc_offset: None,
    lsn_offset: None,
    verify: verify_node,
    refine: Some(refine),
};

fn refine(bytes: &[u8]) -> Option<&'static BufferKind> {
    match da_magic(bytes) {
        DA_NODE_MAGIC => Some(&DA_NODE_KIND),
        DIR_LEAFN_MAGIC => Some(&DIR_LEAFN_KIND),
        attr::leaf::ATTR_LEAF_MAGIC => Some(&ATTR_LEAF_KIND),
        _ => None,
    }
}

/// A tree of one inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DaTree {
    /// The inode.
    pub ino: InoId,
    /// The fork that holds the tree.
    pub fork: ForkKind,
    /// Fork block of the root.
    pub root: u32,
    /// Where the tree's space ends.
    pub end: u32,
    /// Filesystem blocks of a block of the tree.
    pub fs_blocks: u32,
    /// What leaves are.
    pub leaf_kind: &'static BufferKind,
}

impl DaTree {
    /// The block of the tree at a fork block.
    pub fn at(&self, at: FileBlock) -> ForkBlock {
        ForkBlock { ino: self.ino, fork: self.fork, at, count: self.fs_blocks }
    }

    /// Reads a block of the tree, of whatever kind, and checks that it belongs to the inode.
    pub fn read(&self, tx: &mut Transaction, block: u32) -> Result<BufId> {
        tx.mount().error_tags.fail(DA_READ_BUF)?;
        let found = self.at(FileBlock(block.into())).read(tx, &DA_BLOCK_KIND)?;
        ensure_on_disk!(found.is_some(), "da block", "block is mapped", "fork block {block}");
        let id = found.expect("a hole was refused");
        let owner = tx.inode(self.ino).core.inode.0;
        let stored = DaInfo::of(tx.bytes(id)).owner.get();
        if stored != owner {
            let wrong = Corruption::new("da block", "owner").at(tx.address(id)).of(owner);
            return Err(wrong.found(format_args!("{stored} instead of {owner}")).into());
        }
        Ok(id)
    }

    /// Allocates a block of the tree: the first unused one. Its contents are zeros.
    pub fn allocate(&self, tx: &mut Transaction, kind: &'static BufferKind) -> Result<(u32, BufId)> {
        let from = FileBlock(self.root.into());
        let at = bmap::first_unused(tx, self.ino, self.fork, from, self.fs_blocks)?;
        if at.0 >= self.end.into() {
            return Err(crate::error::Error::NoSpace);
        }
        let block = at.0 as u32;
        let aligned = (block - self.root).is_multiple_of(self.fs_blocks);
        ensure_on_disk!(aligned, "extent record", "directory blocks are whole", "hole at fork block {block}");
        let id = self.at(at).create(tx, kind)?;
        Ok((block, id))
    }

    /// Frees a block of the tree.
    pub fn free(&self, tx: &mut Transaction, block: u32, id: BufId) -> Result<()> {
        self.at(FileBlock(block.into())).free(tx, id)
    }

    /// The inode's number, which blocks carry as their owner.
    pub fn owner(&self, tx: &Transaction) -> u64 {
        tx.inode(self.ino).core.inode.0
    }
}

/// Whether a block is a node, not a leaf.
pub(crate) fn is_node(tx: &Transaction, id: BufId) -> bool {
    std::ptr::eq(tx.kind(id), &DA_NODE_KIND)
}
