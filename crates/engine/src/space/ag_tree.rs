//! The trees of an AG: one type for all six, with the kind of record as its parameter.
//!
//! ```text
//! tree                   rooted in   blocks from                              file
//! bnobt, cntbt           AGF         the free list                            free_space
//! rmapbt                 AGF         the free list                            rmap
//! refcountbt             AGF         the free space                           refcount
//! inobt, finobt          AGI         the free space, under the AGF's lock     inode_trees
//! ```
//! A format says where the header has its root, its height and the count of its blocks, and where blocks come from.
//!
//! Locks: the transaction holds the header that roots the tree for as long as there is an [`AgTree`]. A cursor holds
//! the blocks of its path; the look-ups here give them back at once.

use crate::btree::{BtreeKind, Cursor, Root};
use crate::buffer::BufferKind;
use crate::error::Result;
use crate::trans::{BufId, Transaction};
use std::fmt::Debug;
use xfskit_ondisk::btree::TreeFormat;
use xfskit_ondisk::{AgBlock, AgNumber, DiskAddress, Geometry};
use zerocopy::big_endian::U32;

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

/// A header of an AG that roots trees, held by the transaction.
pub(super) trait TreeHeader: Copy + Debug {
    /// Bytes of the header, which are logged together.
    const BYTES: usize;
    /// The AG.
    fn number(self) -> AgNumber;
    /// The header's buffer.
    fn buffer(self) -> BufId;
}

/// Where a header has what it says of a tree, in bytes from its start.
#[derive(Clone, Copy, Debug)]
pub(super) struct RootFields {
    /// The block of the root.
    pub root: usize,
    /// The height.
    pub levels: usize,
    /// The number of blocks, for trees whose blocks are counted one by one.
    pub blocks: Option<usize>,
}

/// Where the blocks of a tree come from and go to.
pub(super) trait BlockSource<H> {
    /// Makes sure that `count` blocks can be taken.
    fn expect(tx: &mut Transaction, header: H, count: u32) -> Result<()>;
    /// Takes a block, close to `near` where there is a choice.
    fn take(tx: &mut Transaction, header: H, near: u64) -> Result<AgBlock>;
    /// Gives a block back.
    fn give(tx: &mut Transaction, header: H, block: AgBlock) -> Result<()>;
}

/// A tree of an AG: what the cursor and the header have to know of it.
pub(super) trait AgTreeFormat: TreeFormat {
    /// The header that roots it.
    type Header: TreeHeader;
    /// Where its blocks come from.
    type Source: BlockSource<Self::Header>;
    /// The kind of its blocks.
    const BUFFER: &'static BufferKind;
    /// Where the header has its root.
    const FIELDS: RootFields;
    /// What a record that must be there and is not contradicts.
    const PRESENT: &'static str = "a record is found by its key";

    /// The header counts a block of the tree more or fewer.
    fn size_changed(tx: &Transaction, header: Self::Header) {
        let _ = (tx, header);
    }

    /// Whether an image with this geometry counts the tree's blocks.
    fn counts_blocks(geometry: &Geometry) -> bool {
        let _ = geometry;
        true
    }
}

/// A tree of one AG.
pub(super) struct AgTree<F: AgTreeFormat> {
    header: F::Header,
}

// Derived, these would ask the same of the format, which is never a value.
impl<F: AgTreeFormat> Clone for AgTree<F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: AgTreeFormat> Copy for AgTree<F> {}

impl<F: AgTreeFormat> Debug for AgTree<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} in AG {}", F::NAME, self.header.number())
    }
}

/// A tree of the AG whose header the transaction holds.
pub(super) fn ag_tree<F: AgTreeFormat>(header: F::Header) -> AgTree<F> {
    AgTree { header }
}

/// The address of a block that a short pointer names.
fn short_address(geometry: &Geometry, ag: AgNumber, pointer: u64) -> Option<DiskAddress> {
    let block = AgBlock(u32::try_from(pointer).ok()?);
    (block.0 != 0 && geometry.contains(ag, block)).then(|| geometry.address(ag, block))
}

impl<F: AgTreeFormat> AgTree<F> {
    /// A cursor that stands nowhere yet.
    pub fn cursor(self) -> Cursor<Self> {
        Cursor::new(self)
    }

    /// The record with this key.
    pub fn lookup(self, tx: &mut Transaction, key: &F::Key) -> Result<Option<F::Record>> {
        let mut cursor = self.cursor();
        let found = cursor.lookup(tx, key)?;
        cursor.close(tx);
        Ok(found)
    }

    /// The last record that is not above the key.
    pub fn lookup_le(self, tx: &mut Transaction, key: &F::Key) -> Result<Option<F::Record>> {
        let mut cursor = self.cursor();
        let found = cursor.lookup_le(tx, key)?;
        cursor.close(tx);
        Ok(found)
    }

    /// Inserts a record.
    pub fn insert(self, tx: &mut Transaction, record: &F::Record) -> Result<()> {
        self.cursor().insert(tx, record)
    }

    /// Removes a record, which must be there.
    pub fn remove(self, tx: &mut Transaction, record: &F::Record) -> Result<()> {
        self.cursor_at(tx, record)?.remove(tx)
    }

    /// Changes the record `old`, which must be there, to `new`, which has its key.
    pub fn update(self, tx: &mut Transaction, old: &F::Record, new: &F::Record) -> Result<()> {
        let mut cursor = self.cursor_at(tx, old)?;
        cursor.update(tx, new)?;
        cursor.close(tx);
        Ok(())
    }

    /// A cursor at a record that must be there.
    fn cursor_at(self, tx: &mut Transaction, record: &F::Record) -> Result<Cursor<Self>> {
        let mut cursor = self.cursor();
        let found = cursor.lookup(tx, &F::key(record))?;
        ensure_on_disk!(found.is_some(), F::NAME, F::PRESENT, "{record:?}");
        Ok(cursor)
    }

    fn field(self, tx: &Transaction, offset: usize) -> u32 {
        tx.get_as::<U32>(self.header.buffer(), offset).get()
    }

    /// Changes fields of the header.
    fn set_fields(self, tx: &mut Transaction, fields: &[(usize, u32)]) {
        let header = tx.edit(self.header.buffer(), 0..F::Header::BYTES);
        for (offset, value) in fields {
            header[*offset..offset + 4].copy_from_slice(&value.to_be_bytes());
        }
    }

    /// Counts a block more or fewer.
    fn count_block(self, tx: &mut Transaction, change: i32) {
        if let Some(offset) = F::FIELDS.blocks
            && F::counts_blocks(tx.geometry())
        {
            let count = self.field(tx, offset).wrapping_add_signed(change);
            self.set_fields(tx, &[(offset, count)]);
            F::size_changed(tx, self.header);
        }
    }
}

impl<F: AgTreeFormat> BtreeKind for AgTree<F> {
    type Format = F;

    fn buffer_kind() -> &'static BufferKind {
        F::BUFFER
    }

    fn owner(&self) -> u64 {
        self.header.number().0.into()
    }

    fn address(&self, geometry: &Geometry, pointer: u64) -> Option<DiskAddress> {
        short_address(geometry, self.header.number(), pointer)
    }

    fn root(&self, tx: &Transaction) -> Root {
        let (root, levels) = (self.field(tx, F::FIELDS.root), self.field(tx, F::FIELDS.levels));
        Root::Block { pointer: root.into(), levels }
    }

    fn set_root(&mut self, tx: &mut Transaction, pointer: u64, levels: u32) {
        self.set_fields(tx, &[(F::FIELDS.root, pointer as u32), (F::FIELDS.levels, levels)]);
    }

    fn expect_blocks(&mut self, tx: &mut Transaction, count: u32) -> Result<()> {
        F::Source::expect(tx, self.header, count)
    }

    fn allocate_block(&mut self, tx: &mut Transaction, near: u64) -> Result<u64> {
        let block = F::Source::take(tx, self.header, near)?;
        self.count_block(tx, 1);
        Ok(block.0.into())
    }

    fn free_block(&mut self, tx: &mut Transaction, pointer: u64, buffer: BufId) -> Result<()> {
        tx.invalidate(buffer);
        F::Source::give(tx, self.header, AgBlock(pointer as u32))?;
        self.count_block(tx, -1);
        Ok(())
    }
}
