//! Where a file has data, and where its blocks lie.

use super::{FileExtent, Seek, Volume};
use crate::data::{self, BlockState, file_offset};
use crate::error::{Error, Result};
use crate::incore::ForkKind;
use crate::inode::bmap;
use crate::trans::{InoId, Transaction};
use xfskit_ondisk::{FileBlock, InodeNumber};

impl Volume {
    /// The first byte of the kind at or behind `offset`.
    ///
    /// # Errors
    /// `NoMoreData` at the end of the file or behind it, and for data where only a hole follows; `IsADirectory`,
    /// `Invalid` when it is no file, `Stale`, `Corrupt`, `Io`.
    pub fn seek(&self, inode: InodeNumber, offset: u64, what: Seek) -> Result<u64> {
        self.look_at_map(inode, |tx, ino| {
            let size = tx.inode(ino).core.size;
            if offset >= size {
                return Err(Error::NoMoreData);
            }
            let found = match what {
                Seek::Data => next_data(tx, ino, offset)?.filter(|found| *found < size),
                Seek::Hole => Some(next_hole(tx, ino, offset)?.min(size)),
            };
            found.ok_or(Error::NoMoreData)
        })
    }

    /// Where the blocks of a file lie, in the order of the file.
    ///
    /// # Errors
    /// `IsADirectory`, `Invalid` when it is no file, `Stale`, `Corrupt`, `Io`.
    pub fn file_extents(&self, inode: InodeNumber) -> Result<Vec<FileExtent>> {
        self.look_at_map(inode, |tx, ino| {
            let mut found = Vec::new();
            let mut index = 0;
            while let Some(extent) = bmap::extents(tx, ino, ForkKind::Data)?.get(index).copied() {
                let mut at = extent.file_block.0;
                while at < extent.end().0 {
                    let piece = data::piece(tx, ino, at, extent.end().0)?;
                    found.extend(file_extent(tx, piece));
                    at = piece.end;
                }
                index += 1;
            }
            Ok(found)
        })
    }
}

fn file_extent(tx: &Transaction, piece: data::Piece) -> Option<FileExtent> {
    let (block, unwritten, shared) = match piece.state {
        BlockState::Hole => return None,
        BlockState::Unwritten(block) => (block, true, false),
        BlockState::Shared(block) => (block, false, true),
        BlockState::Written(block) => (block, false, false),
    };
    let block_log = tx.geometry().block_log;
    Some(FileExtent {
        offset: file_offset(FileBlock(piece.first), block_log),
        length: piece.count() << block_log,
        disk: tx.geometry().fs_block_address(block)?.bytes(),
        unwritten,
        shared,
    })
}

fn next_data(tx: &mut Transaction, ino: InoId, offset: u64) -> Result<Option<u64>> {
    let block_log = tx.geometry().block_log;
    let list = bmap::extents(tx, ino, ForkKind::Data)?;
    let first = list.index_at(FileBlock(offset >> block_log));
    let found = list.iter_from(first).find(|extent| !extent.unwritten);
    Ok(found.map(|extent| offset.max(file_offset(extent.file_block, block_log))))
}

fn next_hole(tx: &mut Transaction, ino: InoId, offset: u64) -> Result<u64> {
    let block_log = tx.geometry().block_log;
    let list = bmap::extents(tx, ino, ForkKind::Data)?;
    let first = list.index_at(FileBlock(offset >> block_log));
    let mut at = offset;
    for extent in list.iter_from(first) {
        if extent.unwritten || file_offset(extent.file_block, block_log) > at {
            break;
        }
        at = file_offset(extent.end(), block_log);
    }
    Ok(at)
}
