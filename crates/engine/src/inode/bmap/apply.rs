//! Replaces records of an extent map, in memory and on disk, and changes the map's form when it must.

use super::bmbt::{BMBT_KIND, BmbtKind, allocate_map_block, fork_bytes, root_field};
use super::load::load;
use crate::btree::Cursor;
use crate::error::{Error, Result};
use crate::error_tags::BMAPIFORMAT;
use crate::incore::{ExtentList, ForkKind, ForkMap, MapRoot};
use crate::space::{self, Owner};
use crate::trans::{InoId, InodeFields, Transaction};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::OnceLock;
use xfskit_ondisk::btree::{BMBT_MAGIC, LONG_HEADER_BYTES, LongBlockHeader};
use xfskit_ondisk::extent::EXTENT_RECORD_BYTES;
use xfskit_ondisk::inode::flags2;
use xfskit_ondisk::{Corruption, Extent, FileBlock, ForkFormat, FsBlock};
use zerocopy::IntoBytes;

/// Most records that a fork counts without large counters.
pub(super) fn small_limit(fork: ForkKind) -> u64 {
    match fork {
        ForkKind::Data => (1 << 31) - 1,
        ForkKind::Attr => (1 << 15) - 1,
    }
}

/// Replaces the records of `range` (indices into the list) by `new`.
pub(super) fn replace(
    tx: &mut Transaction,
    ino: InoId,
    fork: ForkKind,
    range: Range<usize>,
    new: &[Extent],
) -> Result<()> {
    load(tx, ino, fork)?;
    forget_unmapped(tx, ino, fork, range.clone(), new);
    if matches!(tx.inode(ino).map(fork), Some(ForkMap::Extents(_))) {
        replace_inline(tx, ino, fork, range, new)?;
    } else {
        replace_in_tree(tx, ino, fork, range, new)?;
    }
    count_extents(tx, ino, fork);
    Ok(())
}

/// Forgets what the directory's memory contains about blocks that are unmapped.
fn forget_unmapped(tx: &mut Transaction, ino: InoId, fork: ForkKind, range: Range<usize>, new: &[Extent]) {
    if fork != ForkKind::Data || tx.inode(ino).dir_memory.is_none() {
        return;
    }
    let old: SmallVec<[Extent; 5]> =
        super::loaded(tx, ino, fork).iter_from(range.start).take(range.len()).copied().collect();
    let Some(memory) = tx.dir_memory_mut(ino) else { return };
    for extent in old {
        let mut at = extent.file_block;
        let shift = |extent: &Extent| extent.block.0.wrapping_sub(extent.file_block.0);
        let stays = new.iter().filter(|new| shift(new) == shift(&extent) && new.end() > extent.file_block);
        for kept in stays.take_while(|new| new.file_block < extent.end()) {
            memory.forget(at..kept.file_block.max(at));
            at = kept.end();
        }
        memory.forget(at..extent.end().max(at));
    }
}

fn extents_field(fork: ForkKind) -> InodeFields {
    match fork {
        ForkKind::Data => InodeFields::DATA_EXTENTS,
        ForkKind::Attr => InodeFields::ATTR_EXTENTS,
    }
}

/// Sets the format and the counter of the fork from its list, and switches to large counters when the count needs them.
fn count_extents(tx: &mut Transaction, ino: InoId, fork: ForkKind) {
    let may_be_large = tx.geometry().has_large_extent_counts();
    let state = tx.inode_mut(ino, InodeFields::CORE);
    let (count, format) = match state.map(fork) {
        Some(ForkMap::Extents(extents)) => (extents.len(), ForkFormat::Extents),
        Some(ForkMap::Btree(root)) => (root.extents.get().map_or(0, ExtentList::len), ForkFormat::Btree),
        None => return,
    };
    if may_be_large && count as u64 > small_limit(fork) {
        state.core.flags2 |= flags2::NREXT64;
    }
    match fork {
        ForkKind::Data => (state.core.data_extents, state.core.data_format) = (count as u64, format),
        ForkKind::Attr => (state.core.attr_extents, state.core.attr_format) = (count as u32, format),
    }
}

fn replace_inline(tx: &mut Transaction, ino: InoId, fork: ForkKind, range: Range<usize>, new: &[Extent]) -> Result<()> {
    let room = fork_bytes(tx, ino, fork) / EXTENT_RECORD_BYTES;
    let Some(ForkMap::Extents(list)) = tx.inode(ino).map(fork) else { return Ok(()) };
    let mut list = list.clone();
    list.splice(range, new.iter().copied());
    if list.len() <= room {
        if let Some(slot) = tx.inode_mut(ino, extents_field(fork)).map_mut(fork) {
            *slot = ForkMap::Extents(list);
        }
        return Ok(());
    }
    to_tree(tx, ino, fork, list)
}

/// Moves the records of a fork from the inode to a leaf, although they would fit the inode.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Io`.
pub fn leave_inode(tx: &mut Transaction, ino: InoId, fork: ForkKind) -> Result<()> {
    if let Some(ForkMap::Extents(list)) = tx.inode(ino).map(fork) {
        let list = list.clone();
        to_tree(tx, ino, fork, list)?;
        count_extents(tx, ino, fork);
    }
    Ok(())
}

/// Moves the entries in the root of a fork's tree from the inode to a block of their own. The root keeps one child.
///
/// # Errors
/// `NoSpace`, before anything was changed; `Corrupt`, `Io`.
pub fn push_root_down(tx: &mut Transaction, ino: InoId, fork: ForkKind) -> Result<()> {
    let Some(ForkMap::Btree(root)) = tx.inode(ino).map(fork) else { return Ok(()) };
    // Only a tree with the narrowest root can need all levels, so a sound tree with a wider root has a level to spare.
    let (levels, most) = (u32::from(root.level) + 1, tx.mount().limits.data_levels);
    ensure_on_disk!(levels < most, "extent map", "a tree with a wide root has levels to spare", "{levels} of {most}");
    let inode = tx.inode(ino).core.inode;
    Cursor::new(BmbtKind::new(ino, fork, inode)).push_root_down(tx)
}

/// Moves the records from the inode to a leaf.
fn to_tree(tx: &mut Transaction, ino: InoId, fork: ForkKind, list: Vec<Extent>) -> Result<()> {
    tx.mount().error_tags.fail(BMAPIFORMAT)?;
    if tx.blocks_left() == 0 {
        return Err(Error::NoSpace);
    }
    let near = list.last().map(|extent| extent.block);
    let block = allocate_map_block(tx, ino, fork, near)?;
    let bytes = tx.geometry().block_bytes();
    let address = tx.geometry().fs_block_address(block).expect("an allocated block lies on the device");
    let leaf = tx.create(address, bytes, &BMBT_KIND)?;
    let header = LongBlockHeader {
        magic: BMBT_MAGIC.into(),
        level: 0.into(),
        records: (list.len() as u16).into(),
        left: u64::MAX.into(),
        right: u64::MAX.into(),
        address: address.0.into(),
        lsn: 0.into(),
        uuid: tx.geometry().meta_uuid,
        owner: tx.inode(ino).core.inode.0.into(),
        crc: [0; 4],
        pad: [0; 4],
    };
    tx.edit(leaf, 0..LONG_HEADER_BYTES).copy_from_slice(header.as_bytes());
    let records = tx.edit(leaf, LONG_HEADER_BYTES..LONG_HEADER_BYTES + list.len() * EXTENT_RECORD_BYTES);
    for (slot, extent) in records.as_chunks_mut::<EXTENT_RECORD_BYTES>().0.iter_mut().zip(&list) {
        *slot = extent.encode();
    }
    let first = list.first().map_or(0, |extent| extent.file_block.0);
    if let Some(slot) = tx.inode_mut(ino, root_field(fork)).map_mut(fork) {
        *slot = ForkMap::Btree(Box::new(MapRoot {
            level: 1,
            keys: vec![first],
            children: vec![block.0],
            extents: OnceLock::from(ExtentList::from_iter(list)),
        }));
    }
    Ok(())
}

fn replace_in_tree(
    tx: &mut Transaction,
    ino: InoId,
    fork: ForkKind,
    range: Range<usize>,
    new: &[Extent],
) -> Result<()> {
    let inode = tx.inode(ino).core.inode;
    let old: Vec<Extent> = super::extents(tx, ino, fork)?.iter_from(range.start).take(range.len()).copied().collect();
    let mut cursor = Cursor::new(BmbtKind::new(ino, fork, inode));
    let missing = || Error::from(Corruption::new("extent map", "the tree holds what the list holds").of(inode.0));
    let kept = old.len().min(new.len());
    for (before, after) in old.iter().zip(new) {
        cursor.lookup(tx, &before.file_block.0)?.ok_or_else(missing)?;
        cursor.update(tx, after)?;
    }
    for record in &new[kept..] {
        cursor.insert(tx, record)?;
    }
    for record in &old[kept..] {
        cursor.lookup(tx, &record.file_block.0)?.ok_or_else(missing)?;
        cursor.remove(tx)?;
    }
    cursor.close(tx);
    if let Some(ForkMap::Btree(root)) = tx.inode_mut(ino, InodeFields::CORE).map_mut(fork)
        && let Some(list) = root.extents.get_mut()
    {
        list.splice(range, new);
    }
    to_inline_if_few(tx, ino, fork)
}

/// Moves the records back into the inode if they fit and the tree is a single leaf.
fn to_inline_if_few(tx: &mut Transaction, ino: InoId, fork: ForkKind) -> Result<()> {
    let room = fork_bytes(tx, ino, fork) / EXTENT_RECORD_BYTES;
    let (list, leaf) = match tx.inode(ino).map(fork) {
        Some(ForkMap::Btree(root)) if root.level == 1 && root.children.len() == 1 => match root.extents.get() {
            Some(list) if list.len() <= room => (list.iter_from(0).copied().collect(), FsBlock(root.children[0])),
            _ => return Ok(()),
        },
        _ => return Ok(()),
    };
    let inode = tx.inode(ino).core.inode;
    let address = tx
        .geometry()
        .fs_block_address(leaf)
        .ok_or_else(|| Corruption::new("extent map", "leaf on the device").of(inode.0))?;
    let bytes = tx.geometry().block_bytes();
    tx.invalidate_at(address, bytes, &BMBT_KIND)?;
    super::count_blocks(tx, ino, -1)?;
    if let Some(slot) = tx.inode_mut(ino, extents_field(fork)).map_mut(fork) {
        *slot = ForkMap::Extents(list);
    }
    space::free(tx, leaf, 1, Owner::Fork { inode, fork, offset: FileBlock(0), bmbt: true })
}
