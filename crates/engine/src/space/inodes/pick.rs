//! Which chunk gives the next inode.

use crate::btree::Cursor;
use crate::error::Result;
use crate::space::ag_tree::{AgTree, ag_tree};
use crate::space::inode_trees::InodeAg;
use crate::trans::Transaction;
use xfskit_ondisk::btree::{Finobt, Inobt, InodeChunk};
use xfskit_ondisk::{AgInode, NULL_AG_INODE};

/// Chunks of an inobt that are looked at on each side of the parent's before the search starts over elsewhere.
const NEIGHBOURS: usize = 10;

/// A chunk with a free inode, and the cursor of the finobt that stands at it if there is one.
pub(super) struct Picked {
    pub chunk: InodeChunk,
    pub free_tree: Option<Cursor<AgTree<Finobt>>>,
}

/// A chunk with a free inode: near `near` if that is given, else where inodes were allocated last.
pub(super) fn chunk_with_free_inode(tx: &mut Transaction, ag: InodeAg, near: Option<AgInode>) -> Result<Picked> {
    let (found, free_tree) = if tx.geometry().has_finobt() {
        let mut tree = ag_tree::<Finobt>(ag).cursor();
        (from_finobt(tx, ag, &mut tree, near)?, Some(tree))
    } else {
        (from_inobt(tx, ag, near)?, None)
    };
    let found = found.filter(|chunk| chunk.allocatable() != 0);
    ensure_on_disk!(found.is_some(), "AGI", "free inodes are in the trees", "AG {}", ag.number);
    Ok(Picked { chunk: found.expect("checked above"), free_tree })
}

/// Leaves the cursor at the chunk.
fn from_finobt(
    tx: &mut Transaction,
    ag: InodeAg,
    tree: &mut Cursor<AgTree<Finobt>>,
    near: Option<AgInode>,
) -> Result<Option<InodeChunk>> {
    let Some(near) = near else {
        let newest = AgInode(ag.agi(tx).newest.get());
        return match tree.lookup(tx, &newest)? {
            Some(chunk) if newest != NULL_AG_INODE => Ok(Some(chunk)),
            _ => tree.first(tx),
        };
    };
    // Without one before it, the cursor stands at the first.
    let Some(left) = tree.lookup_le(tx, &near)? else { return Ok(tree.record(tx)) };
    if left.index_of(near).is_some() {
        return Ok(Some(left));
    }
    let right = tree.next(tx)?;
    let distance = |chunk: &InodeChunk| chunk.first.0.abs_diff(near.0);
    match right {
        Some(right) if distance(&right) < distance(&left) => Ok(Some(right)),
        _ => tree.previous(tx),
    }
}

/// Without a finobt: the neighbours of the place, then the newest chunk, then all from the first on.
fn from_inobt(tx: &mut Transaction, ag: InodeAg, near: Option<AgInode>) -> Result<Option<InodeChunk>> {
    let mut tree = ag_tree::<Inobt>(ag).cursor();
    let newest = AgInode(ag.agi(tx).newest.get());
    for place in near.into_iter().chain((newest != NULL_AG_INODE).then_some(newest)) {
        let before = tree.lookup_le(tx, &place)?;
        let mut found = among_neighbours(tx, &mut tree, before, Cursor::previous)?;
        if found.is_none() {
            let behind = tree.lookup_ge(tx, &place)?;
            found = among_neighbours(tx, &mut tree, behind, Cursor::next)?;
        }
        if found.is_some() {
            tree.close(tx);
            return Ok(found);
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

/// The first chunk with a free inode among `next` and those to which `step` leads, of which a few are looked at.
fn among_neighbours(
    tx: &mut Transaction,
    tree: &mut Cursor<AgTree<Inobt>>,
    mut next: Option<InodeChunk>,
    step: impl Fn(&mut Cursor<AgTree<Inobt>>, &mut Transaction) -> Result<Option<InodeChunk>>,
) -> Result<Option<InodeChunk>> {
    for _ in 0..NEIGHBOURS {
        match next {
            Some(chunk) if chunk.allocatable() == 0 => next = step(tree, tx)?,
            found => return Ok(found),
        }
    }
    Ok(None)
}
