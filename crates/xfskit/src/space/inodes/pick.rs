//! Which chunk gives the next inode.

use crate::error::Result;
use crate::space::inode_trees::{InodeAg, cursor};
use crate::trans::Transaction;
use xfskit_ondisk::btree::{Finobt, Inobt, InodeChunk};
use xfskit_ondisk::{AgInode, NULL_AG_INODE};

/// Chunks of an inobt that are looked at on each side of the parent's before the search starts over elsewhere.
const NEIGHBOURS: usize = 10;

/// A chunk with a free inode: near `near` if that is given, else where inodes were allocated last.
pub(super) fn chunk_with_free_inode(tx: &mut Transaction, ag: InodeAg, near: Option<AgInode>) -> Result<InodeChunk> {
    let found = if tx.geometry().has_finobt() { from_finobt(tx, ag, near)? } else { from_inobt(tx, ag, near)? };
    ensure_on_disk!(
        found.is_some_and(|chunk| chunk.allocatable() != 0),
        "AGI",
        "free inodes are in the trees",
        "AG {}",
        ag.number
    );
    Ok(found.expect("checked above"))
}

fn from_finobt(tx: &mut Transaction, ag: InodeAg, near: Option<AgInode>) -> Result<Option<InodeChunk>> {
    let mut tree = cursor::<Finobt>(ag);
    let found = if let Some(near) = near {
        let left = tree.lookup_le(tx, &near)?;
        let right = tree.lookup_ge(tx, &near)?;
        left.into_iter().chain(right).min_by_key(|chunk| chunk.first.0.abs_diff(near.0))
    } else {
        let newest = AgInode(ag.agi(tx).newest.get());
        match tree.lookup(tx, &newest)? {
            Some(chunk) if newest != NULL_AG_INODE => Some(chunk),
            _ => tree.first(tx)?,
        }
    };
    tree.close(tx);
    Ok(found)
}

/// Without a finobt: the neighbours of the place, then the newest chunk, then all from the first on.
fn from_inobt(tx: &mut Transaction, ag: InodeAg, near: Option<AgInode>) -> Result<Option<InodeChunk>> {
    let mut tree = cursor::<Inobt>(ag);
    let newest = AgInode(ag.agi(tx).newest.get());
    for place in near.into_iter().chain((newest != NULL_AG_INODE).then_some(newest)) {
        let mut next = tree.lookup_le(tx, &place)?;
        for _ in 0..NEIGHBOURS {
            let Some(chunk) = next else { break };
            if chunk.allocatable() != 0 {
                tree.close(tx);
                return Ok(Some(chunk));
            }
            next = tree.previous(tx)?;
        }
        let mut next = tree.lookup_ge(tx, &place)?;
        for _ in 0..NEIGHBOURS {
            let Some(chunk) = next else { break };
            if chunk.allocatable() != 0 {
                tree.close(tx);
                return Ok(Some(chunk));
            }
            next = tree.next(tx)?;
        }
    }
    let mut next = tree.first(tx)?;
    while let Some(chunk) = next.filter(|chunk| chunk.allocatable() == 0) {
        let _ = chunk;
        next = tree.next(tx)?;
    }
    tree.close(tx);
    Ok(next)
}
