//! The inode trees of one AG: the inobt holds every chunk, the finobt those with free inodes.

use super::ag::Ag;
use super::ag_tree::{AgTreeFormat, BlockSource, RootFields, TreeHeader, tree_buffer};
use super::alloc;
use super::owner::Owner;
use crate::buffer::BufferKind;
use crate::error::Result;
use crate::trans::{BufId, Transaction};
use std::mem::offset_of;
use xfskit_ondisk::ag::Agi;
use xfskit_ondisk::btree::{Finobt, FreeExtent, Inobt, InodeChunk};
use xfskit_ondisk::{AgBlock, AgInode, AgNumber, Geometry};

tree_buffer! {
    /// Blocks of the inode tree.
    INOBT_KIND, Inobt
}
tree_buffer! {
    /// Blocks of the free inode tree.
    FINOBT_KIND, Finobt
}

/// An AG whose AGI the transaction holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct InodeAg {
    pub number: AgNumber,
    pub agi: BufId,
}

impl InodeAg {
    /// Locks the AGI.
    pub fn lock(tx: &mut Transaction, number: AgNumber) -> Result<Self> {
        Ok(Self { number, agi: super::ag::read_agi(tx, number)? })
    }

    /// The AGI.
    pub fn agi<'t>(self, tx: &'t Transaction<'_>) -> &'t Agi {
        tx.get_as(self.agi, 0)
    }

    /// The AGI for a change.
    pub fn agi_mut<'t>(self, tx: &'t mut Transaction<'_>) -> &'t mut Agi {
        tx.edit_as(self.agi, 0)
    }

    /// Gives the AGI back if it was not changed.
    pub fn release(self, tx: &mut Transaction) {
        tx.release(self.agi);
    }

    /// Changes the counts of inodes, here and in the superblock.
    pub fn count_inodes(self, tx: &mut Transaction, all: i32, free: i32) {
        let agi = self.agi(tx);
        let count = agi.count.get().wrapping_add_signed(all);
        let free_count = agi.free_count.get().wrapping_add_signed(free);
        for (at, value) in [(offset_of!(Agi, count), count), (offset_of!(Agi, free_count), free_count)] {
            tx.edit(self.agi, at..at + 4).copy_from_slice(&value.to_be_bytes());
        }
        tx.count_inodes(all.into(), free.into());
        tx.mount().ags[self.number.0 as usize].remember_inodes(count, free_count);
    }
}

impl TreeHeader for InodeAg {
    const BYTES: usize = size_of::<Agi>();

    fn number(self) -> AgNumber {
        self.number
    }

    fn buffer(self) -> BufId {
        self.agi
    }
}

/// One of the two trees.
pub(super) trait InodeTreeFormat: AgTreeFormat<Header = InodeAg, Record = InodeChunk, Key = AgInode> {}

impl InodeTreeFormat for Inobt {}
impl InodeTreeFormat for Finobt {}

impl AgTreeFormat for Inobt {
    type Header = InodeAg;
    type Source = SpaceBelow;
    const BUFFER: &'static BufferKind = &INOBT_KIND;
    const FIELDS: RootFields = RootFields {
        root: offset_of!(Agi, root),
        levels: offset_of!(Agi, level),
        blocks: Some(offset_of!(Agi, inode_blocks)),
    };
    const PRESENT: &'static str = "holds every chunk of the finobt";

    fn counts_blocks(geometry: &Geometry) -> bool {
        geometry.has_inode_btree_counts()
    }
}

impl AgTreeFormat for Finobt {
    type Header = InodeAg;
    type Source = SpaceBelow;
    const BUFFER: &'static BufferKind = &FINOBT_KIND;
    const FIELDS: RootFields = RootFields {
        root: offset_of!(Agi, free_root),
        levels: offset_of!(Agi, free_level),
        blocks: Some(offset_of!(Agi, free_inode_blocks)),
    };

    fn counts_blocks(geometry: &Geometry) -> bool {
        geometry.has_inode_btree_counts()
    }
}

/// The free space of the same AG as the source of the trees' blocks. The AGF is locked after the AGI.
pub(super) enum SpaceBelow {}

impl BlockSource<InodeAg> for SpaceBelow {
    fn expect(tx: &mut Transaction, header: InodeAg, count: u32) -> Result<()> {
        let ag = Ag::lock(tx, header.number)?;
        let result = alloc::expect_blocks(tx, ag, count);
        ag.release(tx);
        result
    }

    fn take(tx: &mut Transaction, header: InodeAg, near: u64) -> Result<AgBlock> {
        let ag = Ag::lock(tx, header.number)?;
        alloc::allocate_tree_block(tx, ag, near, Owner::Inobt)
    }

    fn give(tx: &mut Transaction, header: InodeAg, block: AgBlock) -> Result<()> {
        tx.mount().ags[header.number.0 as usize].forget_inobt_leaf();
        let ag = Ag::lock(tx, header.number)?;
        alloc::free_unshared(tx, ag, FreeExtent { start: block, count: 1 }, Owner::Inobt)
    }
}
