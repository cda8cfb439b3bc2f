//! Writes to blocks that are written already and not shared: no map changes and no transaction is needed.

use super::piece::{BlockState, piece};
use super::{FlushedBefore, write_mapped};
use crate::error::Result;
use crate::trans::{InoId, Transaction};
use smallvec::SmallVec;
use xfskit_ondisk::{FileBlock, FsBlock};

/// Writes `data` at byte `offset` if all of it can be written in place and is within the file. Otherwise returns
/// `false`, and nothing was done.
///
/// # Errors
/// `Corrupt`, `Io`; after an I/O error some of it may be written.
pub fn write_in_place(tx: &mut Transaction, ino: InoId, offset: u64, data: &[u8]) -> Result<bool> {
    let end = offset + data.len() as u64;
    if end > tx.inode(ino).size_bytes() {
        return Ok(false);
    }
    let block_log = tx.geometry().block_log;
    let end_block = end.div_ceil(1 << block_log);
    let mut parts: SmallVec<[((FsBlock, u64), usize); 4]> = SmallVec::new();
    let mut at = offset;
    while at < end {
        let first = at >> block_log;
        let found = piece(tx, ino, first, end_block)?;
        let BlockState::Written(block) = found.state else { return Ok(false) };
        if let Some(dirty) = &tx.inode(ino).dirty
            && dirty.first_run(FileBlock(first), 1).is_some_and(|run| run.start < found.end)
        {
            return Ok(false);
        }
        let until = end.min(found.end << block_log);
        parts.push(((block, at - (first << block_log)), (until - at) as usize));
        at = until;
    }
    let flushed = FlushedBefore::of_write(tx, ino, end);
    let mut rest = data;
    for (place, count) in parts {
        let (part, behind) = rest.split_at(count);
        write_mapped(tx, ino, place, part, flushed)?;
        rest = behind;
    }
    Ok(true)
}
