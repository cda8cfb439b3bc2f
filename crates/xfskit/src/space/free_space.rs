//! The free space of one AG: the bnobt and the cntbt, which hold the same extents in two orders, and the two trees
//! beside them that the AGF roots too.
//!
//! Invariants: both trees hold the same extents; no two of them touch; `free_blocks` is their sum and `longest` the
//! last record of the cntbt.

use super::ag::Ag;
use super::alloc;
use super::free_list;
use super::owner::Owner;
use crate::btree::{BtreeKind, Cursor, Root};
use crate::buffer::BufferKind;
use crate::error::{Error, Result};
use crate::trans::{BufId, Transaction};
use std::marker::PhantomData;
use xfskit_ondisk::ag::Agf;
use xfskit_ondisk::btree::{BlockKey, Bnobt, Cntbt, FreeExtent, Refcountbt, Rmapbt, TreeFormat};
use xfskit_ondisk::{AgBlock, DiskAddress, Geometry};

/// The buffer kind of a tree's blocks.
macro_rules! tree_buffer {
    ($(#[$doc:meta])* $name:ident, $format:ty) => {
        $(#[$doc])*
        pub static $name: $crate::buffer::BufferKind = $crate::buffer::BufferKind {
            name: <$format as xfskit_ondisk::btree::TreeFormat>::NAME,
            family: "btree",
            log_type: xfskit_ondisk::logged::buffer::buffer_type::BTREE,
            crc_offset: Some(<$format as xfskit_ondisk::btree::TreeFormat>::CRC_OFFSET),
            lsn_offset: Some(<$format as xfskit_ondisk::btree::TreeFormat>::LSN_OFFSET),
            verify: xfskit_ondisk::btree::verify_block::<$format>,
            refine: None,
        };
    };
}
pub(crate) use tree_buffer;

tree_buffer! {
    /// Blocks of the free space tree by block.
    BNOBT_KIND, Bnobt
}
tree_buffer! {
    /// Blocks of the free space tree by size.
    CNTBT_KIND, Cntbt
}
tree_buffer! {
    /// Blocks of the reverse mapping tree.
    RMAPBT_KIND, Rmapbt
}
tree_buffer! {
    /// Blocks of the reference count tree.
    REFCOUNTBT_KIND, Refcountbt
}

/// A tree that grows from the free list.
pub(super) trait ListFed: TreeFormat {
    /// The kind of its blocks.
    const BUFFER: &'static BufferKind;
    /// Root and height.
    fn root(agf: &Agf) -> (u32, u32);
    /// Changes root and height.
    fn set_root(agf: &mut Agf, root: u32, levels: u32);
    /// Counts a block more or fewer, apart from the count of all these trees.
    fn count_block(agf: &mut Agf, change: i32) {
        let _ = (agf, change);
    }
}

impl ListFed for Bnobt {
    const BUFFER: &'static BufferKind = &BNOBT_KIND;
    fn root(agf: &Agf) -> (u32, u32) {
        (agf.bno_root.get(), agf.bno_level.get())
    }
    fn set_root(agf: &mut Agf, root: u32, levels: u32) {
        (agf.bno_root, agf.bno_level) = (root.into(), levels.into());
    }
}

impl ListFed for Cntbt {
    const BUFFER: &'static BufferKind = &CNTBT_KIND;
    fn root(agf: &Agf) -> (u32, u32) {
        (agf.cnt_root.get(), agf.cnt_level.get())
    }
    fn set_root(agf: &mut Agf, root: u32, levels: u32) {
        (agf.cnt_root, agf.cnt_level) = (root.into(), levels.into());
    }
}

impl ListFed for Rmapbt {
    const BUFFER: &'static BufferKind = &RMAPBT_KIND;
    fn root(agf: &Agf) -> (u32, u32) {
        (agf.rmap_root.get(), agf.rmap_level.get())
    }
    fn set_root(agf: &mut Agf, root: u32, levels: u32) {
        (agf.rmap_root, agf.rmap_level) = (root.into(), levels.into());
    }
    fn count_block(agf: &mut Agf, change: i32) {
        agf.rmap_blocks = agf.rmap_blocks.get().wrapping_add_signed(change).into();
    }
}

/// One of the trees that grow from the free list, in one AG.
#[derive(Debug)]
pub(super) struct ListFedTree<F> {
    ag: Ag,
    format: PhantomData<F>,
}

/// A cursor in one of the trees that grow from the free list.
pub(super) fn cursor<F: ListFed>(ag: Ag) -> Cursor<ListFedTree<F>> {
    Cursor::new(ListFedTree { ag, format: PhantomData })
}

/// The address of a block that a short pointer names.
pub(super) fn short_address(geometry: &Geometry, ag: xfskit_ondisk::AgNumber, pointer: u64) -> Option<DiskAddress> {
    let block = AgBlock(u32::try_from(pointer).ok()?);
    (block.0 != 0 && geometry.contains(ag, block)).then(|| geometry.address(ag, block))
}

impl<F: ListFed> BtreeKind for ListFedTree<F> {
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
        let (root, levels) = F::root(self.ag.agf(tx));
        Root::Block { pointer: root.into(), levels }
    }

    fn set_root(&mut self, tx: &mut Transaction, pointer: u64, levels: u32) {
        F::set_root(self.ag.agf_mut(tx), pointer as u32, levels);
    }

    fn expect_blocks(&mut self, tx: &mut Transaction, count: u32) -> Result<()> {
        if self.ag.agf(tx).fl_count.get() < count { Err(Error::NoSpace) } else { Ok(()) }
    }

    fn allocate_block(&mut self, tx: &mut Transaction, _near: u64) -> Result<u64> {
        let block = free_list::take(tx, self.ag)?;
        let agf = self.ag.agf_mut(tx);
        agf.btree_blocks = (agf.btree_blocks.get().wrapping_add(1)).into();
        F::count_block(agf, 1);
        Ok(block.0.into())
    }

    fn free_block(&mut self, tx: &mut Transaction, pointer: u64, buffer: BufId) -> Result<()> {
        tx.invalidate(buffer);
        free_list::put(tx, self.ag, AgBlock(pointer as u32))?;
        let agf = self.ag.agf_mut(tx);
        agf.btree_blocks = (agf.btree_blocks.get().wrapping_sub(1)).into();
        F::count_block(agf, -1);
        Ok(())
    }
}

/// The tree of reference counts of one AG. It allocates its blocks as everybody else does.
#[derive(Debug)]
pub(super) struct RefcountTree {
    ag: Ag,
}

/// A cursor in the tree of reference counts.
pub(super) fn refcount_cursor(ag: Ag) -> Cursor<RefcountTree> {
    Cursor::new(RefcountTree { ag })
}

impl BtreeKind for RefcountTree {
    type Format = Refcountbt;

    fn buffer_kind() -> &'static BufferKind {
        &REFCOUNTBT_KIND
    }

    fn owner(&self) -> u64 {
        self.ag.number.0.into()
    }

    fn address(&self, geometry: &Geometry, pointer: u64) -> Option<DiskAddress> {
        short_address(geometry, self.ag.number, pointer)
    }

    fn root(&self, tx: &Transaction) -> Root {
        let agf = self.ag.agf(tx);
        Root::Block { pointer: agf.refcount_root.get().into(), levels: agf.refcount_level.get() }
    }

    fn set_root(&mut self, tx: &mut Transaction, pointer: u64, levels: u32) {
        let agf = self.ag.agf_mut(tx);
        (agf.refcount_root, agf.refcount_level) = ((pointer as u32).into(), levels.into());
    }

    fn expect_blocks(&mut self, tx: &mut Transaction, count: u32) -> Result<()> {
        alloc::expect_blocks(tx, self.ag, count)
    }

    fn allocate_block(&mut self, tx: &mut Transaction, near: u64) -> Result<u64> {
        let block = alloc::allocate_tree_block(tx, self.ag, near, Owner::Refcountbt)?;
        let agf = self.ag.agf_mut(tx);
        agf.refcount_blocks = (agf.refcount_blocks.get().wrapping_add(1)).into();
        Ok(block.0.into())
    }

    fn free_block(&mut self, tx: &mut Transaction, pointer: u64, buffer: BufId) -> Result<()> {
        tx.invalidate(buffer);
        alloc::free_in(tx, self.ag, AgBlock(pointer as u32), 1, Owner::Refcountbt)?;
        let agf = self.ag.agf_mut(tx);
        agf.refcount_blocks = (agf.refcount_blocks.get().wrapping_sub(1)).into();
        Ok(())
    }
}

fn block_key(start: AgBlock) -> BlockKey {
    BlockKey { start, count: 0 }
}

/// The free extent that holds `block`.
pub(super) fn extent_at(tx: &mut Transaction, ag: Ag, block: AgBlock) -> Result<Option<FreeExtent>> {
    let mut by_block = cursor::<Bnobt>(ag);
    let found = by_block.lookup_le(tx, &block_key(block))?;
    by_block.close(tx);
    Ok(found.filter(|extent| extent.end() > block.0))
}

/// Removes an extent from the cntbt.
fn forget_size(tx: &mut Transaction, ag: Ag, extent: FreeExtent) -> Result<()> {
    let mut by_size = cursor::<Cntbt>(ag);
    let found = by_size.lookup(tx, &Cntbt::key(&extent))?;
    ensure_on_disk!(found.is_some(), "cntbt block", "holds every extent of the bnobt", "{extent:?}");
    by_size.remove(tx)
}

fn remember_size(tx: &mut Transaction, ag: Ag, extent: FreeExtent) -> Result<()> {
    cursor::<Cntbt>(ag).insert(tx, &extent)
}

/// Counts `change` blocks and finds the longest extent anew where it may have changed.
fn update_header(tx: &mut Transaction, ag: Ag, change: i64, longest_gone: bool, added: u32) -> Result<()> {
    let old = ag.agf(tx).longest.get();
    let longest = if added >= old {
        added
    } else if longest_gone {
        let mut by_size = cursor::<Cntbt>(ag);
        let last = by_size.last(tx)?;
        by_size.close(tx);
        last.map_or(0, |extent| extent.count)
    } else {
        old
    };
    let free = i64::from(ag.agf(tx).free_blocks.get()) + change;
    ensure_on_disk!(
        (0..=i64::from(u32::MAX)).contains(&free) && i64::from(longest) <= free,
        "AGF",
        "free blocks agree with the trees",
        "{free} free, the longest extent has {longest}"
    );
    let agf = ag.agf_mut(tx);
    agf.free_blocks = (free as u32).into();
    agf.longest = longest.into();
    ag.remember(tx);
    Ok(())
}

/// Takes `taken`, which lies within one free extent, out of the free space.
pub(super) fn take(tx: &mut Transaction, ag: Ag, taken: FreeExtent) -> Result<()> {
    let mut by_block = cursor::<Bnobt>(ag);
    let whole = by_block.lookup_le(tx, &block_key(taken.start))?.filter(|extent| extent.end() >= taken.end());
    ensure_on_disk!(whole.is_some(), "bnobt block", "holds the free extent", "{taken:?}");
    let whole = whole.expect("checked above");
    let before = FreeExtent { start: whole.start, count: taken.start.0 - whole.start.0 };
    let after = FreeExtent { start: AgBlock(taken.end()), count: whole.end() - taken.end() };
    forget_size(tx, ag, whole)?;
    for rest in [before, after] {
        if rest.count > 0 {
            remember_size(tx, ag, rest)?;
        }
    }
    match (before.count > 0, after.count > 0) {
        (false, false) => by_block.remove(tx)?,
        (true, false) => by_block.update(tx, &before)?,
        (false, true) => by_block.update(tx, &after)?,
        (true, true) => {
            by_block.update(tx, &before)?;
            by_block.insert(tx, &after)?;
        }
    }
    by_block.close(tx);
    let longest_gone = whole.count >= ag.agf(tx).longest.get();
    update_header(tx, ag, -i64::from(taken.count), longest_gone, 0)
}

/// Adds `freed` to the free space, merged with what it touches.
pub(super) fn give(tx: &mut Transaction, ag: Ag, freed: FreeExtent) -> Result<()> {
    let mut by_block = cursor::<Bnobt>(ag);
    let before = by_block.lookup_le(tx, &block_key(freed.start))?;
    let after = by_block.lookup_ge(tx, &block_key(freed.start))?;
    let apart = before.is_none_or(|b| b.end() <= freed.start.0) && after.is_none_or(|a| a.start.0 >= freed.end());
    ensure_on_disk!(apart, "bnobt block", "freed blocks were in use", "{freed:?} beside {before:?} and {after:?}");
    let before = before.filter(|extent| extent.end() == freed.start.0);
    let after = after.filter(|extent| extent.start.0 == freed.end());
    let start = before.map_or(freed.start, |extent| extent.start);
    let end = after.map_or(freed.end(), |extent| extent.end());
    let merged = FreeExtent { start, count: end - start.0 };
    for old in before.into_iter().chain(after) {
        forget_size(tx, ag, old)?;
    }
    remember_size(tx, ag, merged)?;
    match (before, after) {
        (None, None) => by_block.insert(tx, &merged)?,
        // The cursor stands at the extent behind.
        (None, Some(_)) => by_block.update(tx, &merged)?,
        (Some(before), after) => {
            if after.is_some() {
                by_block.remove(tx)?;
            }
            by_block.lookup(tx, &block_key(before.start))?;
            by_block.update(tx, &merged)?;
        }
    }
    by_block.close(tx);
    update_header(tx, ag, freed.count.into(), false, merged.count)
}
