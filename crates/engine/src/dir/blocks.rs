//! The blocks of a directory: reading them with a look at their owner, and making and freeing data blocks.

use super::{Dir, data};
use crate::buffer::BufferKind;
use crate::dabtree::edit::edit;
use crate::dabtree::{DIR_LEAFN_KIND, DaTree, ForkBlock};
use crate::error::Result;
use crate::incore::ForkKind;
use crate::inode::bmap;
use crate::trans::{BufId, InodeFields, Transaction};
use xfskit_ondisk::da::{DA_CRC_OFFSET, DA_LSN_OFFSET, prefix};
use xfskit_ondisk::dir::data::{DIR_BLOCK_MAGIC, DIR_DATA_MAGIC, verify_block, verify_data};
use xfskit_ondisk::dir::free::verify_free;
use xfskit_ondisk::dir::leaf::{leaf_header, verify_leaf1};
use xfskit_ondisk::dir::{DIR_CRC_OFFSET, DIR_LSN_OFFSET, DirBlockHeader};
use xfskit_ondisk::logged::buffer::buffer_type;
use xfskit_ondisk::{Corruption, FileBlock};

/// The block of the block form.
pub static DIR_BLOCK_KIND: BufferKind = BufferKind {
    name: "directory block",
    family: "directory block",
    log_type: buffer_type::DIR_BLOCK,
    crc_offset: Some(DIR_CRC_OFFSET),
    lsn_offset: Some(DIR_LSN_OFFSET),
    verify: verify_block,
    refine: None,
};

/// A data block of the leaf or node form.
pub static DIR_DATA_KIND: BufferKind = BufferKind {
    name: "directory data block",
    family: "directory block",
    log_type: buffer_type::DIR_DATA,
    crc_offset: Some(DIR_CRC_OFFSET),
    lsn_offset: Some(DIR_LSN_OFFSET),
    verify: verify_data,
    refine: None,
};

/// The index block of the leaf form.
pub static DIR_LEAF1_KIND: BufferKind = BufferKind {
    name: "directory leaf block",
    family: "directory leaf",
    log_type: buffer_type::DIR_LEAF_1,
    crc_offset: Some(DA_CRC_OFFSET),
    lsn_offset: Some(DA_LSN_OFFSET),
    verify: verify_leaf1,
    refine: None,
};

/// A block of the free index.
pub static DIR_FREE_KIND: BufferKind = BufferKind {
    name: "directory free index block",
    family: "directory free",
    log_type: buffer_type::DIR_FREE,
    crc_offset: Some(DIR_CRC_OFFSET),
    lsn_offset: Some(DIR_LSN_OFFSET),
    verify: verify_free,
    refine: None,
};

impl Dir {
    /// The btree of the node form.
    pub fn tree(&self) -> DaTree {
        DaTree {
            ino: self.ino,
            fork: ForkKind::Data,
            root: self.layout.index_root().0 as u32,
            end: self.layout.free_start().0 as u32,
            fs_blocks: self.layout.fs_blocks(),
            leaf_kind: &DIR_LEAFN_KIND,
        }
    }

    /// The directory's number, which its blocks carry as their owner.
    pub fn number(&self, tx: &Transaction) -> u64 {
        tx.inode(self.ino).core.inode.0
    }

    fn at(&self, at: FileBlock) -> ForkBlock {
        ForkBlock { ino: self.ino, fork: ForkKind::Data, at, count: self.layout.fs_blocks() }
    }

    /// Reads the directory block at a fork block, if it is mapped.
    pub fn try_read(&self, tx: &mut Transaction, at: FileBlock, kind: &'static BufferKind) -> Result<Option<BufId>> {
        let Some(id) = self.at(at).read(tx, kind)? else { return Ok(None) };
        let found = tx.kind(id);
        if !std::ptr::eq(found, kind) {
            tx.release(id);
            let wrong = Corruption::new(kind.name, "kind of block");
            return Err(wrong.found(format_args!("a {}", found.name)).into());
        }
        let owner = if std::ptr::eq(kind, &DIR_LEAF1_KIND) {
            leaf_header(tx.bytes(id)).info.owner.get()
        } else {
            prefix::<DirBlockHeader>(tx.bytes(id)).owner.get()
        };
        let number = self.number(tx);
        if owner != number {
            let wrong = Corruption::new(kind.name, "owner").at(tx.address(id)).of(number);
            tx.release(id);
            return Err(wrong.found(format_args!("{owner} instead of {number}")).into());
        }
        Ok(Some(id))
    }

    /// Reads the directory block at a fork block, which must be mapped.
    pub fn read(&self, tx: &mut Transaction, at: FileBlock, kind: &'static BufferKind) -> Result<BufId> {
        let found = self.try_read(tx, at, kind)?;
        ensure_on_disk!(found.is_some(), kind.name, "block is mapped", "fork block {at}");
        Ok(found.expect("a hole was refused"))
    }

    /// Reads data block `number`.
    pub fn read_data(&self, tx: &mut Transaction, number: u32) -> Result<BufId> {
        self.read(tx, self.layout.data_block(number), &DIR_DATA_KIND)
    }

    /// Allocates the directory block at a fork block, filled with zeros.
    pub fn create(&self, tx: &mut Transaction, at: FileBlock, kind: &'static BufferKind) -> Result<BufId> {
        self.at(at).create(tx, kind)
    }

    /// Frees the directory block at a fork block.
    pub fn free(&self, tx: &mut Transaction, at: FileBlock, id: BufId) -> Result<()> {
        self.at(at).free(tx, id)
    }

    /// The first data block that does not exist.
    pub fn first_missing_data(&self, tx: &mut Transaction) -> Result<u32> {
        let fs_blocks = u64::from(self.layout.fs_blocks());
        let at = bmap::first_unused(tx, self.ino, ForkKind::Data, FileBlock(0), self.layout.fs_blocks())?;
        ensure_on_disk!(at.0 % fs_blocks == 0, "extent record", "directory blocks are whole", "hole at {at}");
        let number = at.0 / fs_blocks;
        if number >= self.layout.max_data_blocks().into() {
            return Err(crate::error::Error::NoSpace);
        }
        Ok(number as u32)
    }

    /// Makes data block `number`, empty, and lets the directory's size reach over it.
    pub fn create_data(&self, tx: &mut Transaction, number: u32) -> Result<BufId> {
        let id = self.create(tx, self.layout.data_block(number), &DIR_DATA_KIND)?;
        let header = DirBlockHeader::new(tx.geometry(), DIR_DATA_MAGIC, self.number(tx), tx.address(id));
        edit(tx, id, |e| data::init(e, header));
        let size = (u64::from(number) + 1) << self.layout.block_log;
        if tx.inode(self.ino).core.size < size {
            tx.inode_mut(self.ino, InodeFields::CORE).core.size = size;
        }
        Ok(id)
    }

    /// Frees data block `number`; the directory's size shrinks to the last one left.
    pub fn free_data(&self, tx: &mut Transaction, number: u32, id: BufId) -> Result<()> {
        self.free(tx, self.layout.data_block(number), id)?;
        let end = |number: u32| u64::from(number) << self.layout.block_log;
        if tx.inode(self.ino).core.size > end(number + 1) {
            return Ok(());
        }
        let last = bmap::last_block(tx, self.ino, ForkKind::Data, self.layout.data_block(number))?;
        tx.inode_mut(self.ino, InodeFields::CORE).core.size = last.0 << self.layout.fs_block_log;
        Ok(())
    }

    /// Turns the block of the block form into a data block: only the magic number differs.
    pub fn make_data_form(&self, tx: &mut Transaction, id: BufId) {
        tx.set_kind(id, &DIR_DATA_KIND);
        tx.edit_as::<DirBlockHeader>(id, 0).magic.set(DIR_DATA_MAGIC);
    }

    /// Turns a data block into the block of the block form.
    pub fn make_block_form(&self, tx: &mut Transaction, id: BufId) {
        tx.set_kind(id, &DIR_BLOCK_KIND);
        tx.edit_as::<DirBlockHeader>(id, 0).magic.set(DIR_BLOCK_MAGIC);
    }
}
