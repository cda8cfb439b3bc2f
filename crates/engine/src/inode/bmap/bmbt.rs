//! The btree of an extent map: its root is in the inode, its blocks are allocated near the file.

use crate::btree::{BtreeKind, InlineRoot, NodeEntries, Root};
use crate::buffer::BufferKind;
use crate::error::{Error, Result};
use crate::incore::{ForkKind, ForkMap};
use crate::space::{self, AllocRequest, Near, Owner, alloc};
use crate::trans::{BufId, InoId, InodeFields, Transaction};
use xfskit_ondisk::btree::{Bmbt, LONG_CRC_OFFSET, LONG_LSN_OFFSET};
use xfskit_ondisk::limits::bmbt_root_max_records;
use xfskit_ondisk::logged::buffer::buffer_type;
use xfskit_ondisk::{AgNumber, DiskAddress, FileBlock, FsBlock, Geometry, InodeNumber};

/// Blocks of extent maps.
pub static BMBT_KIND: BufferKind = BufferKind {
    name: "bmbt block",
    family: "bmbt block",
    log_type: buffer_type::BTREE,
    crc_offset: Some(LONG_CRC_OFFSET),
    lsn_offset: Some(LONG_LSN_OFFSET),
    verify: xfskit_ondisk::btree::verify_block::<Bmbt>,
    refine: None,
};

/// The extent map of one fork.
#[derive(Clone, Copy, Debug)]
pub(super) struct BmbtKind {
    ino: InoId,
    fork: ForkKind,
    inode: InodeNumber,
}

impl BmbtKind {
    pub(super) fn new(ino: InoId, fork: ForkKind, inode: InodeNumber) -> Self {
        Self { ino, fork, inode }
    }

    /// The log field of the fork's root.
    fn field(&self) -> InodeFields {
        root_field(self.fork)
    }

    fn owner(&self) -> Owner {
        Owner::Fork { inode: self.inode, fork: self.fork, offset: FileBlock(0), bmbt: true }
    }
}

/// The log field of a fork's btree root.
pub(super) fn root_field(fork: ForkKind) -> InodeFields {
    match fork {
        ForkKind::Data => InodeFields::DATA_ROOT,
        ForkKind::Attr => InodeFields::ATTR_ROOT,
    }
}

/// Bytes of the inode that belong to a fork.
pub(super) fn fork_bytes(tx: &Transaction, ino: InoId, fork: ForkKind) -> usize {
    let core = &tx.inode(ino).core;
    match fork {
        ForkKind::Data => core.data_fork_bytes(tx.geometry()),
        ForkKind::Attr => core.attr_fork_bytes(tx.geometry()),
    }
}

/// Near an inode.
pub fn near_inode(tx: &Transaction, inode: InodeNumber) -> Near {
    match tx.geometry().split_inode(inode) {
        Some((ag, within)) => Near::Block(tx.geometry().fs_block(ag, tx.geometry().inode_block(within))),
        None => Near::Ag(AgNumber(0)),
    }
}

/// Allocates one block for an extent map and counts it.
pub(super) fn allocate_map_block(
    tx: &mut Transaction,
    ino: InoId,
    fork: ForkKind,
    near: Option<FsBlock>,
) -> Result<FsBlock> {
    let inode = tx.inode(ino).core.inode;
    let near = near.map_or_else(|| near_inode(tx, inode), Near::Block);
    let owner = Owner::Fork { inode, fork, offset: FileBlock(0), bmbt: true };
    let (block, _) = alloc::allocate(tx, &AllocRequest::new(near, 1, 1, owner))?.ok_or(Error::NoSpace)?;
    super::count_blocks(tx, ino, 1)?;
    Ok(block)
}

impl BtreeKind for BmbtKind {
    type Format = Bmbt;

    fn buffer_kind() -> &'static BufferKind {
        &BMBT_KIND
    }

    fn owner(&self) -> u64 {
        self.inode.0
    }

    fn address(&self, geometry: &Geometry, pointer: u64) -> Option<DiskAddress> {
        geometry.fs_block_address(FsBlock(pointer))
    }

    fn root(&self, tx: &Transaction) -> Root {
        match tx.inode(self.ino).map(self.fork) {
            Some(ForkMap::Btree(root)) => Root::Inline { level: root.level },
            _ => unreachable!("a cursor stands only on a fork in btree form"),
        }
    }

    fn set_root(&mut self, _: &mut Transaction, _: u64, _: u32) {
        unreachable!("the root lies in the inode")
    }

    fn inline_root<'a>(&self, tx: &'a Transaction) -> InlineRoot<'a, u64> {
        match tx.inode(self.ino).map(self.fork) {
            Some(ForkMap::Btree(root)) => InlineRoot { level: root.level, keys: &root.keys, children: &root.children },
            _ => unreachable!("a cursor stands only on a fork in btree form"),
        }
    }

    fn inline_max(&self, tx: &Transaction) -> usize {
        bmbt_root_max_records(fork_bytes(tx, self.ino, self.fork)) as usize
    }

    fn set_inline_root(&mut self, tx: &mut Transaction, level: u16, entries: NodeEntries<u64>) {
        let field = self.field();
        let Some(ForkMap::Btree(root)) = tx.inode_mut(self.ino, field).map_mut(self.fork) else {
            unreachable!("a cursor stands only on a fork in btree form")
        };
        root.level = level;
        root.keys = entries.keys;
        root.children = entries.children;
    }

    fn expect_blocks(&mut self, tx: &mut Transaction, count: u32) -> Result<()> {
        if tx.blocks_left() < u64::from(count) { Err(Error::NoSpace) } else { Ok(()) }
    }

    fn allocate_block(&mut self, tx: &mut Transaction, near: u64) -> Result<u64> {
        let near = (near != u64::MAX).then_some(FsBlock(near));
        Ok(allocate_map_block(tx, self.ino, self.fork, near)?.0)
    }

    fn free_block(&mut self, tx: &mut Transaction, pointer: u64, buffer: BufId) -> Result<()> {
        tx.invalidate(buffer);
        super::count_blocks(tx, self.ino, -1)?;
        space::free(tx, FsBlock(pointer), 1, self.owner())
    }
}
