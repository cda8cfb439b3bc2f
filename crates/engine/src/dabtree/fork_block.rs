//! Metadata blocks of a fork: read, made and freed by their place in the fork.
//!
//! A directory remembers where its blocks are in memory, so that the extent map is not asked again for each; attributes
//! do not. Invariant: a remembered block is where the map says.

use crate::buffer::BufferKind;
use crate::error::Result;
use crate::incore::ForkKind;
use crate::inode::bmap;
use crate::trans::{BufId, InoId, Transaction};
use xfskit_ondisk::{Corruption, FileBlock};

/// A metadata block of a fork.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForkBlock {
    /// The inode.
    pub ino: InoId,
    /// The fork.
    pub fork: ForkKind,
    /// Its first fork block.
    pub at: FileBlock,
    /// Fork blocks that it takes.
    pub count: u32,
}

impl ForkBlock {
    /// Reads the block; `None` when it is not mapped.
    pub fn read(self, tx: &mut Transaction, kind: &'static BufferKind) -> Result<Option<BufId>> {
        let Self { ino, fork, at, count } = self;
        if fork == ForkKind::Data
            && let Some(id) = tx.read_remembered(ino, at, kind)?
        {
            debug_assert_eq!(
                bmap::key(tx, ino, fork, at, count)?.map(|key| key.address()),
                Some(tx.address(id)),
                "a remembered block is where the map says"
            );
            return Ok(Some(id));
        }
        let Some(key) = bmap::key(tx, ino, fork, at, count)? else { return Ok(None) };
        let id = tx.read_key(&key, kind)?;
        self.remember(tx, id);
        Ok(Some(id))
    }

    /// Allocates the block, filled with zeros.
    pub fn create(self, tx: &mut Transaction, kind: &'static BufferKind) -> Result<BufId> {
        let Self { ino, fork, at, count } = self;
        bmap::allocate(tx, ino, fork, at, count)?;
        let Some(key) = bmap::key(tx, ino, fork, at, count)? else {
            // A map whose damage no check of a single record shows.
            let inode = tx.inode(ino).core.inode.0;
            return Err(Corruption::new("extent map", "holds what was just mapped").of(inode).into());
        };
        let id = tx.create_key(&key, kind)?;
        self.remember(tx, id);
        Ok(id)
    }

    /// Frees the block.
    pub fn free(self, tx: &mut Transaction, id: BufId) -> Result<()> {
        tx.invalidate(id);
        bmap::remove(tx, self.ino, self.fork, self.at, self.count.into())
    }

    fn remember(self, tx: &mut Transaction, id: BufId) {
        if self.fork == ForkKind::Data {
            tx.remember_block(self.ino, self.at, id);
        }
    }
}
