//! The blocks of a file by what reads and writes must do with them: pieces of one state.

use crate::error::Result;
use crate::incore::ForkKind;
use crate::inode::bmap;
use crate::space::refcount;
use crate::trans::{InoId, Transaction};
use xfskit_ondisk::{Extent, FileBlock, FsBlock};

/// Whether a block of a file is mapped, and whether it may be written in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// No block is mapped; it reads as zeros.
    Hole,
    /// A block is allocated and reads as zeros.
    Unwritten(FsBlock),
    /// It is shared with other files, or with other places of this one.
    Shared(FsBlock),
    /// It is written and not shared.
    Written(FsBlock),
}

/// A run of blocks of one state; on disk they follow each other.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// First block.
    pub first: u64,
    /// The block behind the last.
    pub end: u64,
    /// The state, with the first one's block on the device.
    pub state: BlockState,
}

impl Piece {
    /// Number of blocks.
    pub fn count(&self) -> u64 {
        self.end - self.first
    }
}

/// Where the blocks from `first` on are, up to `end` at most.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn piece(tx: &mut Transaction, ino: InoId, first: u64, end: u64) -> Result<Piece> {
    let list = bmap::extents(tx, ino, ForkKind::Data)?;
    let Some(extent) = list.next_at(FileBlock(first)).copied() else {
        return Ok(Piece { first, end, state: BlockState::Hole });
    };
    if extent.file_block.0 > first {
        return Ok(Piece { first, end: end.min(extent.file_block.0), state: BlockState::Hole });
    }
    let end = end.min(extent.end().0);
    let block = FsBlock(extent.block.0 + (first - extent.file_block.0));
    if extent.unwritten {
        return Ok(Piece { first, end, state: BlockState::Unwritten(block) });
    }
    if !bmap::may_share(&tx.inode(ino).core) {
        return Ok(Piece { first, end, state: BlockState::Written(block) });
    }
    sharing(tx, first, end, block)
}

/// Distinguishes shared blocks from others.
fn sharing(tx: &mut Transaction, first: u64, end: u64, block: FsBlock) -> Result<Piece> {
    Ok(match refcount::shared_part(tx, block, (end - first) as u32)? {
        Some((0, count)) => Piece { first, end: first + u64::from(count), state: BlockState::Shared(block) },
        Some((before, _)) => Piece { first, end: first + u64::from(before), state: BlockState::Written(block) },
        None => Piece { first, end, state: BlockState::Written(block) },
    })
}

/// The extent before a block.
pub(super) fn extent_before(tx: &mut Transaction, ino: InoId, block: u64) -> Result<Option<Extent>> {
    let list = bmap::extents(tx, ino, ForkKind::Data)?;
    let next = list.partition_point(|extent| extent.file_block < FileBlock(block));
    Ok(next.checked_sub(1).map(|index| list[index]))
}
