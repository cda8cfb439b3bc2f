//! Directories: looking names up, adding, removing and replacing them, and reading them in order.
//!
//! ```text
//! shortform ──▶ block ──▶ leaf ──▶ node      when an entry does not fit
//! shortform ◀── block ◀── leaf ◀── node      when a removal makes the smaller form possible
//! ```
//! One file for each form; this one finds out which form a directory has and hands the work to it.
//!
//! Callers have the directory's inode locked in their transaction, have looked a name up before they add it, and have
//! reserved [`blocks_to_add`] or [`blocks_to_remove`]. Link counts and times are theirs as well. Names are checked by
//! them with [`is_valid_name`](xfskit_ondisk::dir::is_valid_name).
//!
//! A caller that looks a name up to change it keeps the [`DirSlot`] that [`search`] found: its blocks stay locked, and
//! [`add_at`] and [`remove_at`] need not find them again. No other transaction locks the blocks of a directory that is
//! locked for a change, so they may be held while the transaction waits for AG headers.
//!
//! Errors of the calls that a caller with several directories makes name the directory; of those that end in `_at`, and
//! of [`search`], the caller's work is about the one directory.
//!
//! Cookies are data pointers (an entry's offset in the data space divided by 8), the same that the kernel gives out.

mod block;
mod blocks;
mod data;
mod index;
mod leaf;
mod node;
mod read;
mod shortform;

pub use blocks::{DIR_BLOCK_KIND, DIR_DATA_KIND, DIR_FREE_KIND, DIR_LEAF1_KIND};
pub use read::{ListedEntry, LostBlocks, count_names_in, read, read_what_is_left};
pub use xfskit_ondisk::dir::FileType;

use crate::dabtree::Path;
use crate::error::{Error, Result};
use crate::incore::{DataFork, ForkKind};
use crate::inode::{bmap, located};
use crate::trans::{BufId, InoId, InodeFields, Transaction};
use xfskit_ondisk::da::hash_name;
use xfskit_ondisk::dir::data::DataEntry;
use xfskit_ondisk::dir::{DirLayout, shortform as sf};
use xfskit_ondisk::{FileBlock, ForkFormat, Geometry, InodeNumber, Limits};

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The inode.
    pub inode: InodeNumber,
    /// Its type, as the entry has it.
    pub file_type: FileType,
    /// The entry's place in the order of reading.
    pub cookie: u32,
}

/// The directory that an operation works on.
#[derive(Clone, Copy, Debug)]
struct Dir {
    ino: InoId,
    layout: DirLayout,
}

/// How a directory is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DirForm {
    Shortform,
    Block,
    Leaf,
    Node,
}

/// An entry to be added.
#[derive(Clone, Copy, Debug)]
struct NewEntry<'a> {
    name: &'a [u8],
    hash: u32,
    inode: u64,
    file_type: FileType,
}

/// Where the entry of a name was found: the block of its data, and the entry's offset in it.
#[derive(Clone, Copy, Debug)]
struct FoundEntry {
    data: BufId,
    number: u32,
    offset: usize,
    inode: u64,
    file_type: FileType,
}

impl FoundEntry {
    fn new(data: BufId, number: u32, entry: &DataEntry<'_>) -> Self {
        Self { data, number, offset: entry.offset, inode: entry.inode, file_type: entry.file_type }
    }

    fn entry(&self, layout: DirLayout) -> DirEntry {
        DirEntry {
            inode: InodeNumber(self.inode),
            file_type: self.file_type,
            cookie: layout.pointer(self.number, self.offset),
        }
    }
}

/// Where a name stands in a directory, or where it belongs. Good for one change of the directory in the transaction
/// that found it.
#[derive(Debug)]
pub struct DirSlot {
    dir: Dir,
    form: DirForm,
    hash: u32,
    entry: Option<DirEntry>,
    /// In the node form: the blocks that a change begins with.
    node: Option<NodeSlot>,
}

/// The path to the leaf of a name, and where its entry was found.
#[derive(Debug)]
struct NodeSlot {
    path: Path,
    found: Option<(usize, FoundEntry)>,
}

impl DirSlot {
    /// What the name stands for, if the directory has it.
    pub fn entry(&self) -> Option<DirEntry> {
        self.entry
    }

    /// Gives the blocks back.
    pub fn release(self, tx: &mut Transaction) {
        let Some(NodeSlot { path, found }) = self.node else { return };
        if let Some((_, found)) = found {
            tx.release(found.data);
        }
        path.release(tx);
    }
}

impl Dir {
    fn new(tx: &Transaction, ino: InoId) -> Result<Self> {
        if !tx.inode(ino).core.is_dir() {
            return Err(Error::NotADirectory);
        }
        Ok(Self { ino, layout: DirLayout::new(tx.geometry()) })
    }

    fn form(&self, tx: &mut Transaction) -> Result<DirForm> {
        let state = tx.inode(self.ino);
        if matches!(state.data, DataFork::Local(_)) {
            return Ok(DirForm::Shortform);
        }
        let size = state.core.size;
        let end = self.end(tx)?;
        let fs_blocks = u64::from(self.layout.fs_blocks());
        if end.0 == fs_blocks {
            let one_block = size == self.layout.block_bytes() as u64;
            ensure_on_disk!(one_block, "directory", "size of the block form", "{size} bytes");
            return Ok(DirForm::Block);
        }
        Ok(if end == self.layout.index_root().add(fs_blocks) { DirForm::Leaf } else { DirForm::Node })
    }

    /// The end of the last extent.
    fn end(&self, tx: &mut Transaction) -> Result<FileBlock> {
        let last = bmap::extents(tx, self.ino, ForkKind::Data)?.last();
        Ok(last.map_or(FileBlock(0), |extent| extent.end()))
    }

    /// Bytes that the data fork has room for.
    fn fork_bytes(&self, tx: &Transaction) -> usize {
        tx.inode(self.ino).core.data_fork_bytes(tx.geometry())
    }

    fn find(&self, tx: &mut Transaction, form: DirForm, name: &[u8]) -> Result<Option<FoundEntry>> {
        match form {
            DirForm::Shortform => unreachable!("a shortform directory has no blocks"),
            DirForm::Block => self.find_in_block(tx, name),
            DirForm::Leaf => self.find_in_leaf(tx, name),
            DirForm::Node => self.find_in_node(tx, name, hash_name(name)),
        }
    }

    fn replace(&self, tx: &mut Transaction, name: &[u8], inode: InodeNumber, file_type: FileType) -> Result<()> {
        let mut form = self.form(tx)?;
        if form == DirForm::Shortform {
            if self.replace_in_shortform(tx, name, inode.0, file_type)? {
                return Ok(());
            }
            self.shortform_to_block(tx)?;
            form = DirForm::Block;
        }
        let found = self.find(tx, form, name)?.ok_or(Error::NotFound)?;
        crate::dabtree::edit::edit(tx, found.data, |e| {
            data::replace_inode(e, found.offset, name.len(), inode.0, file_type);
        });
        Ok(())
    }

    fn is_empty(&self, tx: &mut Transaction) -> Result<bool> {
        match self.form(tx)? {
            DirForm::Shortform => self.shortform_is_empty(tx),
            DirForm::Block => self.block_is_empty(tx),
            // A removal that empties a directory makes it shortform, so what is larger holds something.
            DirForm::Leaf | DirForm::Node => Ok(false),
        }
    }
}

/// Looks `name` up, `.` and `..` included, for a change that follows.
///
/// # Errors
/// `NotADirectory`, `Corrupt`, `Io`.
pub fn search(tx: &mut Transaction, dir: InoId, name: &[u8]) -> Result<DirSlot> {
    let dir = Dir::new(tx, dir)?;
    let (form, hash) = (dir.form(tx)?, hash_name(name));
    let mut slot = DirSlot { dir, form, hash, entry: None, node: None };
    match form {
        DirForm::Shortform => slot.entry = dir.lookup_shortform(tx, name)?,
        DirForm::Block | DirForm::Leaf => {
            if let Some(found) = dir.find(tx, form, name)? {
                tx.release(found.data);
                slot.entry = Some(found.entry(dir.layout));
            }
        }
        DirForm::Node => {
            let (path, found) = dir.search_tree(tx, name, hash)?;
            slot.entry = found.map(|(_, found)| found.entry(dir.layout));
            slot.node = Some(NodeSlot { path, found });
        }
    }
    Ok(slot)
}

/// The slot of a name that the directory is known not to have.
///
/// # Errors
/// `NotADirectory`, `Corrupt`, `Io`.
pub fn vacant(tx: &mut Transaction, dir: InoId, name: &[u8]) -> Result<DirSlot> {
    let dir = Dir::new(tx, dir)?;
    Ok(DirSlot { dir, form: dir.form(tx)?, hash: hash_name(name), entry: None, node: None })
}

/// What `name` stands for in the directory, `.` and `..` included.
///
/// # Errors
/// `NotADirectory`, `Corrupt`, `Io`.
pub fn lookup(tx: &mut Transaction, dir: InoId, name: &[u8]) -> Result<Option<DirEntry>> {
    let slot = search(tx, dir, name);
    let slot = located(tx, dir, slot)?;
    let entry = slot.entry();
    slot.release(tx);
    Ok(entry)
}

/// Adds an entry for a name that the directory does not have; says its cookie.
///
/// # Errors
/// `NotADirectory`, `NoSpace`, `Corrupt`, `Io`.
pub fn add(tx: &mut Transaction, dir: InoId, name: &[u8], inode: InodeNumber, file_type: FileType) -> Result<u32> {
    let added = vacant(tx, dir, name).and_then(|slot| add_at(tx, slot, name, inode, file_type));
    located(tx, dir, added)
}

/// Adds an entry for a name where [`search`] did not find it; says its cookie.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Io`.
///
/// # Panics
/// If the directory has the name.
pub fn add_at(
    tx: &mut Transaction,
    slot: DirSlot,
    name: &[u8],
    inode: InodeNumber,
    file_type: FileType,
) -> Result<u32> {
    let DirSlot { dir, form, hash, entry, node } = slot;
    assert!(entry.is_none(), "a name is added once");
    let new = NewEntry { name, hash, inode: inode.0, file_type };
    match form {
        DirForm::Shortform => dir.add_to_shortform(tx, &new),
        DirForm::Block => dir.add_to_block(tx, &new),
        DirForm::Leaf => dir.add_to_leaf(tx, &new),
        DirForm::Node => dir.add_to_node(tx, &new, node.map(|node| node.path)),
    }
}

/// Removes the entry of a name.
///
/// # Errors
/// `NotFound`, `NotADirectory`, `Corrupt`, `Io`.
pub fn remove(tx: &mut Transaction, dir: InoId, name: &[u8]) -> Result<()> {
    let removed = search(tx, dir, name).and_then(|slot| remove_at(tx, slot, name));
    located(tx, dir, removed)
}

/// Removes the entry of a name where [`search`] found it.
///
/// # Errors
/// `NotFound`, `Corrupt`, `Io`.
pub fn remove_at(tx: &mut Transaction, slot: DirSlot, name: &[u8]) -> Result<()> {
    let DirSlot { dir, form, node, .. } = slot;
    match (form, node) {
        (DirForm::Shortform, _) => dir.remove_from_shortform(tx, name),
        (DirForm::Block, _) => dir.remove_from_block(tx, name),
        (DirForm::Leaf, _) => dir.remove_from_leaf(tx, name),
        (DirForm::Node, Some(NodeSlot { path, found: Some((position, found)) })) => {
            dir.remove_from_node(tx, path, position, &found)
        }
        (DirForm::Node, _) => Err(Error::NotFound),
    }
}

/// Makes the entry of a name, `..` included, stand for another inode. Needs the reservation of an addition: wider
/// inode numbers may not fit the shortform.
///
/// # Errors
/// `NotFound`, `NotADirectory`, `NoSpace`, `Corrupt`, `Io`.
pub fn replace(tx: &mut Transaction, dir: InoId, name: &[u8], inode: InodeNumber, file_type: FileType) -> Result<()> {
    let replaced = Dir::new(tx, dir).and_then(|dir| dir.replace(tx, name, inode, file_type));
    located(tx, dir, replaced)
}

/// Makes a new, empty directory in an inode whose data fork holds nothing.
pub fn init(tx: &mut Transaction, dir: InoId, parent: InodeNumber) {
    let mut bytes = Vec::with_capacity(sf::header_bytes(true));
    sf::encode_header(&mut bytes, 0, u8::from(parent.0 > u64::from(u32::MAX)), parent.0);
    set_local(tx, dir, &bytes);
}

/// The entries of a shortform directory leave the inode for a block of their own.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Io`.
pub fn leave_inode(tx: &mut Transaction, dir: InoId) -> Result<()> {
    Dir::new(tx, dir)?.shortform_to_block(tx)
}

/// Whether the directory has no entries besides `.` and `..`.
///
/// # Errors
/// `NotADirectory`, `Corrupt`, `Io`.
pub fn is_empty(tx: &mut Transaction, dir: InoId) -> Result<bool> {
    let is_empty = Dir::new(tx, dir).and_then(|dir| dir.is_empty(tx));
    located(tx, dir, is_empty)
}

/// Most blocks that [`add`] and [`replace`] may allocate.
pub fn blocks_to_add(geometry: &Geometry, limits: &Limits) -> u64 {
    // A data block, a free index block, and a split of every level of the tree; each may split the extent map.
    let blocks = xfskit_ondisk::da::DA_MAX_DEPTH as u64 + 2;
    blocks * (u64::from(DirLayout::new(geometry).fs_blocks()) + map_blocks(geometry, limits))
}

/// Most blocks that [`remove`] may allocate: taking blocks out of the middle of extents may split the extent map.
pub fn blocks_to_remove(geometry: &Geometry, limits: &Limits) -> u64 {
    (xfskit_ondisk::da::DA_MAX_DEPTH as u64 + 2) * map_blocks(geometry, limits)
}

/// Most blocks by which the extent map grows when one directory block is added or removed.
fn map_blocks(geometry: &Geometry, limits: &Limits) -> u64 {
    let extents_per_leaf = u64::from(limits.bmbt.max_leaf - limits.bmbt.min_leaf).max(1);
    let splits = u64::from(DirLayout::new(geometry).fs_blocks()).div_ceil(extents_per_leaf);
    splits * u64::from(limits.data_levels.saturating_sub(1))
}

/// Makes `bytes` the contents of the data fork.
fn set_local(tx: &mut Transaction, dir: InoId, bytes: &[u8]) {
    let state = tx.inode_mut(dir, InodeFields::DATA_LOCAL);
    state.core.data_format = ForkFormat::Local;
    state.core.size = bytes.len() as u64;
    state.data = DataFork::Local(bytes.to_vec());
    state.dir_memory = None;
}
