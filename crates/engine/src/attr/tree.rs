//! Attributes in leaves: a btree of one or more.

use super::fork::{self, remove_if_useless};
use super::leaf::{self, OwnedAttr, OwnedValue};
use super::remote::RemoteValue;
use super::{Attr, EmptyFork, Fit, Form, absent, flags, form, remote, shortform};
use crate::dabtree::edit::edit;
use crate::dabtree::{ATTR_LEAF_KIND, CycleGuard, DaTree, Path, PathLevel, Side};
use crate::error::{Error, Result};
use crate::incore::{AttrFork, ForkKind};
use crate::inode::bmap;
use crate::trans::{BufId, InoId, InodeFields, Transaction};
use xfskit_ondisk::attr::leaf::{
    ATTR_LEAF_MAGIC, LEAF_HEADER_BYTES, LeafValue, attr_at, attrs, is_local, leaf_entries, leaf_header,
};
use xfskit_ondisk::attr::shortform::{
    SHORTFORM_HEADER_BYTES, SHORTFORM_LENGTH_LIMIT, append, attrs as shortform_attrs, entry_bytes,
};
use xfskit_ondisk::da::{DaInfo, last_hash, lower_bound_of_hash};
use xfskit_ondisk::{FileBlock, ForkFormat, Geometry};

/// Whether an entry is shown. The kernel hides entries of updates that it has not finished; xfskit never writes such.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completeness {
    /// It is shown.
    Complete,
    /// It is hidden.
    Incomplete,
}

/// Where an attribute stands: the path to its leaf, and its position there.
#[derive(Debug)]
pub struct LeafSlot {
    path: Path,
    position: usize,
}

impl LeafSlot {
    /// Gives the blocks back.
    pub(super) fn release(self, tx: &mut Transaction) {
        self.path.release(tx);
    }

    /// The place of the value, if it is in blocks of its own.
    fn remote_value(&self, tx: &Transaction) -> Result<Option<RemoteValue>> {
        Ok(match attr_at(tx.bytes(self.path.leaf().id), self.position)?.value {
            LeafValue::Local(_) => None,
            LeafValue::Remote { block, length } => Some(RemoteValue { block, length }),
        })
    }
}

/// The btree of an inode's attributes.
pub(super) fn tree(ino: InoId) -> DaTree {
    DaTree { ino, fork: ForkKind::Attr, root: 0, end: u32::MAX, fs_blocks: 1, leaf_kind: &ATTR_LEAF_KIND }
}

/// Whether a value of this size stands beside its name in a leaf.
pub fn is_local_value(geometry: &Geometry, name_bytes: usize, value_bytes: usize) -> bool {
    is_local(geometry.block_bytes(), name_bytes, value_bytes)
}

/// Searches the tree for an attribute, complete or incomplete as asked.
pub(super) fn find(tx: &mut Transaction, ino: InoId, key: &Attr<'_>, entry: Completeness) -> Result<Option<LeafSlot>> {
    let (tree, hash) = (tree(ino), key.hash());
    let mut path = Path::descend(tx, &tree, hash)?;
    let mut guard = CycleGuard::default();
    loop {
        guard.visit(path.leaf().block)?;
        let bytes = tx.bytes(path.leaf().id);
        let entries = leaf_entries(bytes);
        let first = lower_bound_of_hash(entries, hash, |entry| entry.hash.get());
        let mut found = None;
        for (position, _) in entries.iter().enumerate().skip(first).take_while(|(_, found)| found.hash.get() == hash) {
            let attr = attr_at(bytes, position)?;
            let value = match attr.value {
                LeafValue::Local(value) => Some(value),
                LeafValue::Remote { .. } => None,
            };
            if attr.is_incomplete() == (entry == Completeness::Incomplete)
                && key.matches(attr.namespace(), attr.name, value)
            {
                found = Some(position);
                break;
            }
        }
        if let Some(position) = found {
            return Ok(Some(LeafSlot { path, position }));
        }
        let goes_on = last_hash(tx.bytes(path.leaf().id)) == hash;
        if !goes_on || !path.advance(tx, &tree)? {
            path.release(tx);
            return Ok(None);
        }
    }
}

/// The value of an attribute that was found; gives the blocks back.
pub(super) fn value_at(tx: &mut Transaction, ino: InoId, slot: LeafSlot) -> Result<Vec<u8>> {
    let place = match attr_at(tx.bytes(slot.path.leaf().id), slot.position)?.value {
        LeafValue::Local(value) => {
            let value = value.to_vec();
            slot.release(tx);
            return Ok(value);
        }
        LeafValue::Remote { block, length } => RemoteValue { block, length },
    };
    slot.release(tx);
    remote::read(tx, ino, place)
}

/// Turns shortform attributes, or none, into a leaf. Makes the attr fork if there is none; `NoRoom` when the data
/// fork is in its way.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Io`.
pub fn from_shortform(tx: &mut Transaction, ino: InoId) -> Result<Fit> {
    if form(tx, ino) == Form::None && fork::make(tx, ino, usize::MAX) == Fit::NoRoom {
        return Ok(Fit::NoRoom);
    }
    let mut list = Vec::new();
    for attr in shortform_attrs(shortform::bytes(tx.inode(ino))) {
        let attr = attr?;
        let key = Attr::new(attr.namespace, attr.name, attr.value);
        let value = OwnedValue::Local(attr.value.to_vec());
        list.push(OwnedAttr { hash: key.hash(), flags: attr.namespace, name: attr.name.to_vec(), value });
    }
    list.sort_by_key(|attr| attr.hash);
    let offset = fork::offset_of_tree(tx, ino);
    let state = fork::set_offset(tx, ino, offset, InodeFields::ATTR_EXTENTS);
    state.attr = Some(AttrFork::EMPTY);
    state.core.attr_format = ForkFormat::Extents;
    let id = tree(ino).at(FileBlock(0)).create(tx, &ATTR_LEAF_KIND)?;
    write_leaf(tx, ino, id, &list);
    Ok(Fit::Done)
}

/// Turns shortform attributes, or none, into a tree, making room for the attr fork if need be.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Io`.
pub(super) fn make(tx: &mut Transaction, ino: InoId) -> Result<()> {
    fork::ensure(tx, ino, usize::MAX)?;
    match from_shortform(tx, ino)? {
        Fit::Done => Ok(()),
        Fit::NoRoom => Err(Error::NoSpace),
    }
}

/// Writes a new leaf without neighbours.
fn write_leaf(tx: &mut Transaction, ino: InoId, id: BufId, list: &[OwnedAttr]) {
    let info = DaInfo::new(tx.geometry(), ATTR_LEAF_MAGIC, tree(ino).owner(tx), tx.address(id));
    edit(tx, id, |e| leaf::write(e, info, list));
}

/// Writes other attributes to a leaf that keeps its neighbours.
fn rewrite_leaf(tx: &mut Transaction, id: BufId, list: &[OwnedAttr]) {
    let info = leaf_header(tx.bytes(id)).info.clone();
    edit(tx, id, |e| leaf::write(e, info, list));
}

/// Makes the root an empty leaf, whatever it was: the other blocks of the fork are out of use. It is not read: a kernel
/// that was cut off while it took the attributes apart leaves a root whose blocks the log has given up.
pub(super) fn make_empty(tx: &mut Transaction, ino: InoId) -> Result<()> {
    let key = bmap::key(tx, ino, ForkKind::Attr, FileBlock(0), 1)?;
    ensure_on_disk!(key.is_some(), "attr fork", "block is mapped", "fork block 0");
    let root = tx.create_key(&key.expect("a hole was refused"), &ATTR_LEAF_KIND)?;
    write_leaf(tx, ino, root, &[]);
    Ok(())
}

/// Adds an attribute that is not there yet, splitting leaves and nodes as need be. `key` gives name space, name and,
/// for parent pointers, the value that the hash needs; `value` is what is stored.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Io`.
pub fn add(tx: &mut Transaction, ino: InoId, key: &Attr<'_>, value: LeafValue<'_>, entry: Completeness) -> Result<()> {
    let value = match value {
        LeafValue::Local(value) => OwnedValue::Local(value.to_vec()),
        LeafValue::Remote { block, length } => OwnedValue::Remote { block, length },
    };
    let flags = key.namespace | if entry == Completeness::Incomplete { flags::INCOMPLETE } else { 0 };
    let new = OwnedAttr { hash: key.hash(), flags, name: key.name.to_vec(), value };
    absent::forget(tx, ino, key);
    let path = Path::descend(tx, &tree(ino), new.hash)?;
    let id = path.leaf().id;
    if edit(tx, id, |e| leaf::add(e, &new))? {
        let hash = last_hash(tx.bytes(id));
        path.set_last_hash(tx, hash);
        return Ok(());
    }
    split(tx, ino, path, new)
}

/// Distributes the attributes of the path's leaf and a new one over two leaves, or three when the new one is so
/// large that it needs one of its own.
fn split(tx: &mut Transaction, ino: InoId, mut path: Path, new: OwnedAttr) -> Result<()> {
    let tree = tree(ino);
    let mut list = leaf::owned(tx.bytes(path.leaf().id))?;
    let position = list.partition_point(|attr| attr.hash < new.hash);
    list.insert(position, new);
    let room = tx.geometry().block_bytes() - LEAF_HEADER_BYTES;
    if path.is_single_leaf() {
        tree.push_down_root(tx, &mut path)?;
    }
    let parts = match split_in_two(&list, room) {
        Some(at) => vec![&list[..at], &list[at..]],
        None => vec![&list[..position], &list[position..=position], &list[position + 1..]],
    };
    let left = path.leaf();
    rewrite_leaf(tx, left.id, parts[0]);
    let mut added = Vec::new();
    let mut before = left;
    for part in &parts[1..] {
        let (block, id) = tree.allocate(tx, &ATTR_LEAF_KIND)?;
        write_leaf(tx, ino, id, part);
        tree.link_after(tx, before, (block, id))?;
        before = PathLevel { block, id, index: 0 };
        added.push(before);
    }
    let mut previous = left;
    let mut path = Some(path);
    for step in added {
        let (left_hash, hash) = (last_hash(tx.bytes(previous.id)), last_hash(tx.bytes(step.id)));
        let at = match path.take() {
            Some(path) => path,
            None => path_to(tx, &tree, left_hash, previous.block)?,
        };
        tree.add_block(tx, at, left_hash, step.block, hash)?;
        previous = step;
    }
    Ok(())
}

/// The path to a leaf whose block and greatest hash are known.
fn path_to(tx: &mut Transaction, tree: &DaTree, hash: u32, block: u32) -> Result<Path> {
    let mut path = Path::descend(tx, tree, hash)?;
    let mut guard = CycleGuard::default();
    while path.leaf().block != block {
        guard.visit(path.leaf().block)?;
        let Some(next) = path.neighbour(tx, tree, Side::Right)? else {
            return Err(xfskit_ondisk::Corruption::new("attr tree", "leaves are found by their hashes").into());
        };
        path = next;
    }
    Ok(path)
}

/// Where to cut a list so that both parts fit a leaf and are as equal as can be; `None` when there is no such place.
fn split_in_two(list: &[OwnedAttr], room: usize) -> Option<usize> {
    let total: usize = list.iter().map(OwnedAttr::footprint).sum();
    let mut before = 0;
    let mut best = None;
    for (at, attr) in list.iter().enumerate() {
        let larger = before.max(total - before);
        if at > 0 && larger <= room && best.is_none_or(|(least, _)| larger < least) {
            best = Some((larger, at));
        }
        before += attr.footprint();
    }
    best.map(|(_, at)| at)
}

/// Whether an attribute is there, complete or incomplete as asked.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn contains(tx: &mut Transaction, ino: InoId, key: &Attr<'_>, entry: Completeness) -> Result<bool> {
    let found = find(tx, ino, key, entry)?;
    let is_found = found.is_some();
    if let Some(slot) = found {
        slot.release(tx);
    }
    Ok(is_found)
}

/// Removes an attribute with the blocks of its value; `false` if it is not there.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn remove(tx: &mut Transaction, ino: InoId, key: &Attr<'_>, entry: Completeness) -> Result<bool> {
    let Some(slot) = find(tx, ino, key, entry)? else { return Ok(false) };
    take_out(tx, ino, slot).map(|()| true)
}

/// Removes an attribute that was found, and frees the blocks of its value.
pub(super) fn take_out(tx: &mut Transaction, ino: InoId, slot: LeafSlot) -> Result<()> {
    let value = slot.remote_value(tx)?;
    remove_at(tx, ino, slot)?;
    value.map_or(Ok(()), |value| remote::free(tx, ino, value))
}

/// Removes an entry, joining leaves and nodes as need be.
fn remove_at(tx: &mut Transaction, ino: InoId, slot: LeafSlot) -> Result<()> {
    let LeafSlot { path, position } = slot;
    let id = path.leaf().id;
    edit(tx, id, |e| leaf::remove(e, position))?;
    if path.is_single_leaf() {
        return Ok(());
    }
    let tree = tree(ino);
    let block_bytes = tx.geometry().block_bytes();
    if leaf_entries(tx.bytes(id)).is_empty() {
        tree.remove_leaf(tx, path)?;
        return Ok(());
    }
    let hash = last_hash(tx.bytes(id));
    path.set_last_hash(tx, hash);
    let used = leaf::used_bytes(tx.bytes(id))?;
    if used >= block_bytes * 37 / 100 {
        return Ok(());
    }
    // A quarter of the block stays free, so that the next addition does not split it again.
    let fits = |tx: &Transaction, other: BufId| {
        let both = used + leaf::used_bytes(tx.bytes(other))? - LEAF_HEADER_BYTES;
        Ok(both <= block_bytes - block_bytes / 4)
    };
    let Some((left, right)) = path.with_neighbour(tx, &tree, fits)? else { return Ok(()) };
    let mut list = leaf::owned(tx.bytes(left.leaf().id))?;
    list.extend(leaf::owned(tx.bytes(right.leaf().id))?);
    rewrite_leaf(tx, left.leaf().id, &list);
    let hash = last_hash(tx.bytes(left.leaf().id));
    left.set_last_hash(tx, hash);
    tree.remove_leaf(tx, right)
}

/// Overwrites the local value of an attribute that was found by one of the same length; `false`, and nothing is
/// changed, when its value is remote or of another length.
pub(super) fn overwrite_at(tx: &mut Transaction, slot: &LeafSlot, value: &[u8]) -> Result<bool> {
    let (id, position) = (slot.path.leaf().id, slot.position);
    let same = matches!(attr_at(tx.bytes(id), position)?.value, LeafValue::Local(old) if old.len() == value.len());
    if same {
        edit(tx, id, |e| leaf::set_value(e, position, value))?;
    }
    Ok(same)
}

/// Shows the incomplete attribute of a key and hides the complete one, in one step: the second half of a replace that
/// is not logged. `false`, and nothing is changed, unless both are there.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn flip(tx: &mut Transaction, ino: InoId, key: &Attr<'_>) -> Result<bool> {
    let Some(new) = find(tx, ino, key, Completeness::Incomplete)? else { return Ok(false) };
    let Some(old) = find(tx, ino, key, Completeness::Complete)? else { return Ok(false) };
    for found in [new, old] {
        let id = found.path.leaf().id;
        let flags = leaf_entries(tx.bytes(id))[found.position].flags ^ flags::INCOMPLETE;
        edit(tx, id, |e| leaf::set_flags(e, found.position, flags));
    }
    Ok(true)
}

/// Brings the attributes back into the inode if the tree is one leaf without remote values and they fit, or removes
/// the fork if there are none left. Says whether it did.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn to_shortform(tx: &mut Transaction, ino: InoId, empty: EmptyFork) -> Result<bool> {
    let end = bmap::last_block(tx, ino, ForkKind::Attr, FileBlock(u64::MAX))?;
    if form(tx, ino) != Form::Tree || end != FileBlock(1) {
        return Ok(false);
    }
    let id = tree(ino).read(tx, 0)?;
    if !std::ptr::eq(tx.kind(id), &ATTR_LEAF_KIND) {
        return Ok(false);
    }
    let mut total = SHORTFORM_HEADER_BYTES;
    for attr in attrs(tx.bytes(id)) {
        let attr = attr?;
        let LeafValue::Local(value) = attr.value else { return Ok(false) };
        let small = attr.name.len() < SHORTFORM_LENGTH_LIMIT && value.len() < SHORTFORM_LENGTH_LIMIT;
        if attr.is_incomplete() || !small {
            return Ok(false);
        }
        total += entry_bytes(attr.name.len(), value.len());
    }
    let count = leaf_entries(tx.bytes(id)).len();
    let offset = fork::offset_for(tx.geometry(), tx.inode(ino), total);
    // From its largest value on, the offset says nothing of what the data fork needs, which may be less or more.
    let offset = offset.filter(|&offset| count <= usize::from(u8::MAX) && fork::data_fits(tx.inode(ino), offset));
    let Some(offset) = offset else { return Ok(false) };
    let list = leaf::owned(tx.bytes(id))?;
    tree(ino).at(FileBlock(0)).free(tx, id)?;
    shortform::make_empty(tx, ino, offset);
    let state = tx.inode_mut(ino, InodeFields::ATTR_LOCAL);
    if let Some(AttrFork::Local(bytes)) = &mut state.attr {
        for attr in &list {
            if let OwnedValue::Local(value) = &attr.value {
                append(bytes, attr.flags & flags::NAMESPACE, &attr.name, value);
            }
        }
    }
    if list.is_empty() && empty == EmptyFork::Remove {
        remove_if_useless(tx, ino)?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_is_the_most_equal_one_that_fits() {
        let mut seed = 3u64;
        let mut next = |limit: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % limit
        };
        let mut uncut = 0;
        for _ in 0..3000 {
            let (count, most) = (1 + next(9), [10, 100, 400][next(3)]);
            let attr = |bytes| {
                let (name, value) = (vec![b'n'; 1 + bytes % 7], OwnedValue::Local(vec![0; bytes]));
                OwnedAttr { hash: 0, flags: 0, name, value }
            };
            let list: Vec<_> = (0..count).map(|_| attr(next(most))).collect();
            let bytes = |part: &[OwnedAttr]| part.iter().map(OwnedAttr::footprint).sum::<usize>();
            let larger = |at: usize| bytes(&list[..at]).max(bytes(&list[at..]));
            // Sometimes exactly what the best split needs.
            let least = (1..count).map(larger).min().unwrap_or(1);
            let room = [least, least - 1, 500][next(3)];
            let best = (1..count).filter(|&at| larger(at) <= room).min_by_key(|&at| larger(at));
            uncut += u32::from(best.is_none());
            assert_eq!(split_in_two(&list, room), best, "{room} of {list:?}");
        }
        assert!(uncut > 500);
    }
}
