//! The inode trees of one AG: the inobt holds every chunk, the finobt those with free inodes.

use super::ag::Ag;
use super::alloc;
use super::free_space::{short_address, tree_buffer};
use super::owner::Owner;
use crate::btree::{BtreeKind, Cursor, Root};
use crate::buffer::BufferKind;
use crate::error::Result;
use crate::trans::{BufId, Transaction};
use std::marker::PhantomData;
use std::mem::offset_of;
use xfskit_ondisk::ag::Agi;
use xfskit_ondisk::btree::{Finobt, Inobt, InodeChunk, TreeFormat};
use xfskit_ondisk::{AgBlock, AgInode, AgNumber, DiskAddress, Geometry};

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

/// One of the two trees.
pub(super) trait InodeTreeFormat: TreeFormat<Record = InodeChunk, Key = AgInode> {
    /// The kind of its blocks.
    const BUFFER: &'static BufferKind;
    /// Root and height.
    fn root(agi: &Agi) -> (u32, u32);
    /// Changes root and height.
    fn set_root(agi: &mut Agi, root: u32, levels: u32);
    /// Counts a block more or fewer.
    fn count_block(agi: &mut Agi, change: i32);
}

impl InodeTreeFormat for Inobt {
    const BUFFER: &'static BufferKind = &INOBT_KIND;
    fn root(agi: &Agi) -> (u32, u32) {
        (agi.root.get(), agi.level.get())
    }
    fn set_root(agi: &mut Agi, root: u32, levels: u32) {
        (agi.root, agi.level) = (root.into(), levels.into());
    }
    fn count_block(agi: &mut Agi, change: i32) {
        agi.inode_blocks = agi.inode_blocks.get().wrapping_add_signed(change).into();
    }
}

impl InodeTreeFormat for Finobt {
    const BUFFER: &'static BufferKind = &FINOBT_KIND;
    fn root(agi: &Agi) -> (u32, u32) {
        (agi.free_root.get(), agi.free_level.get())
    }
    fn set_root(agi: &mut Agi, root: u32, levels: u32) {
        (agi.free_root, agi.free_level) = (root.into(), levels.into());
    }
    fn count_block(agi: &mut Agi, change: i32) {
        agi.free_inode_blocks = agi.free_inode_blocks.get().wrapping_add_signed(change).into();
    }
}

/// One of the inode trees of an AG.
#[derive(Debug)]
pub(super) struct InodeTree<F> {
    ag: InodeAg,
    format: PhantomData<F>,
}

/// A cursor in one of the inode trees.
pub(super) fn cursor<F: InodeTreeFormat>(ag: InodeAg) -> Cursor<InodeTree<F>> {
    Cursor::new(InodeTree { ag, format: PhantomData })
}

impl<F: InodeTreeFormat> BtreeKind for InodeTree<F> {
    type Format = F;

    fn buffer_kind() -> &'static BufferKind {
        F::BUFFER
    }

    fn owner(&self) -> u64 {
        self.ag.number.0.into()
    }

    fn address(&self, geometry: &Geometry, pointer: u64) -> Option<DiskAddress> {
        short_address(geometry, self.ag.number, pointer)
    }

    fn root(&self, tx: &Transaction) -> Root {
        let (root, levels) = F::root(self.ag.agi(tx));
        Root::Block { pointer: root.into(), levels }
    }

    fn set_root(&mut self, tx: &mut Transaction, pointer: u64, levels: u32) {
        F::set_root(self.ag.agi_mut(tx), pointer as u32, levels);
    }

    fn expect_blocks(&mut self, tx: &mut Transaction, count: u32) -> Result<()> {
        let ag = Ag::lock(tx, self.ag.number)?;
        let result = alloc::expect_blocks(tx, ag, count);
        ag.release(tx);
        result
    }

    fn allocate_block(&mut self, tx: &mut Transaction, near: u64) -> Result<u64> {
        let ag = Ag::lock(tx, self.ag.number)?;
        let block = alloc::allocate_tree_block(tx, ag, near, Owner::Inobt)?;
        if tx.geometry().has_inode_btree_counts() {
            F::count_block(self.ag.agi_mut(tx), 1);
        }
        Ok(block.0.into())
    }

    fn free_block(&mut self, tx: &mut Transaction, pointer: u64, buffer: BufId) -> Result<()> {
        tx.invalidate(buffer);
        tx.mount().ags[self.ag.number.0 as usize].forget_inobt_leaf();
        let ag = Ag::lock(tx, self.ag.number)?;
        alloc::free_in(tx, ag, AgBlock(pointer as u32), 1, Owner::Inobt)?;
        if tx.geometry().has_inode_btree_counts() {
            F::count_block(self.ag.agi_mut(tx), -1);
        }
        Ok(())
    }
}
