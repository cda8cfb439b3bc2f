//! Reading a directory in the order of its cookies. A data block that cannot be used loses no entries but its own, and
//! the index is not looked at, so that whoever only reads sees all that is left.

use super::{Dir, DirForm, shortform};
use crate::dabtree::{CycleGuard, Path};
use crate::error::{Error, Result};
use crate::incore::ForkKind;
use crate::inode::{bmap, located};
use crate::trans::{InoId, Transaction};
use std::collections::HashSet;
use std::ops::ControlFlow;
use xfskit_ondisk::dir::data::{DataEntry, entries};
use xfskit_ondisk::dir::leaf::leaf_entries;
use xfskit_ondisk::dir::{FileType, entry_bytes, is_valid_name};
use xfskit_ondisk::{FileBlock, InodeNumber};

/// After so many blocks that cannot be used, the rest of a directory counts as lost: its map may lead to any number of
/// blocks of nothing.
const MOST_LOST_BLOCKS: usize = 4096;

/// An entry as a reader of a directory sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedEntry<'a> {
    /// The entry's place; reading from here starts with the entry.
    pub cookie: u32,
    /// The place behind it; reading from here starts with the entry that follows.
    pub next: u32,
    /// The inode.
    pub inode: InodeNumber,
    /// Its type, as the entry has it.
    pub file_type: FileType,
    /// The name.
    pub name: &'a [u8],
}

/// Data blocks of a directory that cannot be used.
#[derive(Debug)]
pub struct LostBlocks {
    /// What is wrong with the first of them.
    pub first: Error,
    /// Their numbers.
    pub numbers: HashSet<u32>,
}

/// What a reader does with a data block that cannot be used: it notes it and goes on, or returns the error.
type OnLoss<'a> = &'a mut dyn FnMut(u32, Error) -> Result<()>;

/// Hands all entries from the place `from` on (0 for all of them), `.` and `..` first, to `visit`, until it breaks
/// off. Entries that are there the whole time are seen exactly once by readers that go on from the last `next`.
///
/// # Errors
/// `NotADirectory`, `Corrupt`, `Io`.
pub fn read(
    tx: &mut Transaction,
    dir: InoId,
    from: u32,
    visit: &mut dyn FnMut(ListedEntry<'_>) -> ControlFlow<()>,
) -> Result<()> {
    read_with(tx, dir, from, visit, &mut |_, error| Err(error))
}

/// As [`read`] from the beginning, past data blocks that cannot be used, which are returned.
///
/// # Errors
/// `NotADirectory`; `Corrupt` and `Io` where nothing can be read.
pub fn read_what_is_left(
    tx: &mut Transaction,
    dir: InoId,
    visit: &mut dyn FnMut(ListedEntry<'_>) -> ControlFlow<()>,
) -> Result<Option<LostBlocks>> {
    let mut lost: Option<LostBlocks> = None;
    read_with(tx, dir, 0, visit, &mut |number, error| {
        if !error.is_damage() {
            return Err(error);
        }
        let lost = lost.get_or_insert_with(|| LostBlocks { first: error, numbers: HashSet::new() });
        lost.numbers.insert(number);
        Ok(())
    })?;
    Ok(lost)
}

/// How many names the index has of data blocks.
///
/// # Errors
/// `Corrupt`, `Io` for an index that cannot be read.
pub fn count_names_in(tx: &mut Transaction, dir: InoId, numbers: &HashSet<u32>) -> Result<u64> {
    let dir = Dir::new(tx, dir)?;
    let count = |bytes: &[u8]| {
        let entries = leaf_entries(bytes).iter().filter(|entry| !entry.is_stale());
        entries.filter(|entry| numbers.contains(&dir.layout.split_pointer(entry.pointer.get()).0)).count() as u64
    };
    if dir.form(tx)? == DirForm::Leaf {
        let leaf = dir.read_leaf1(tx)?;
        let names = count(tx.bytes(leaf));
        tx.release(leaf);
        return Ok(names);
    }
    let tree = dir.tree();
    let mut path = Path::descend(tx, &tree, 0)?;
    let (mut guard, mut names) = (CycleGuard::default(), 0);
    loop {
        guard.visit(path.leaf().block)?;
        names += count(tx.bytes(path.leaf().id));
        if !path.advance(tx, &tree)? {
            path.release(tx);
            return Ok(names);
        }
    }
}

fn read_with(
    tx: &mut Transaction,
    dir: InoId,
    from: u32,
    visit: &mut dyn FnMut(ListedEntry<'_>) -> ControlFlow<()>,
    on_loss: OnLoss<'_>,
) -> Result<()> {
    let dir = Dir::new(tx, dir)?;
    match dir.form(tx)? {
        DirForm::Shortform => dir.read_shortform(tx, from, visit),
        DirForm::Block => {
            let id = dir.read(tx, FileBlock(0), &super::DIR_BLOCK_KIND)?;
            let done = dir.visit_block(tx.bytes(id), 0, from, visit);
            tx.release(id);
            done.map(|_| ())
        }
        DirForm::Leaf | DirForm::Node => dir.read_data_blocks(tx, from, visit, on_loss),
    }
}

impl Dir {
    fn read_shortform(
        &self,
        tx: &Transaction,
        from: u32,
        visit: &mut dyn FnMut(ListedEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let local = self.local(tx)?;
        let (dot, dot_dot) = shortform::dot_offsets();
        let special = [
            (dot, self.number(tx), FileType::Directory, b".".as_slice()),
            (dot_dot, local.parent(), FileType::Directory, b".."),
        ];
        for (offset, inode, file_type, name) in special {
            if self.visit_entry(&DataEntry { offset, inode, file_type, name }, 0, from, visit)?.is_break() {
                return Ok(());
            }
        }
        for entry in local.entries() {
            let entry = entry?;
            let (offset, inode) = (entry.offset.into(), entry.inode);
            let entry = DataEntry { offset, inode, file_type: entry.file_type, name: entry.name };
            if self.visit_entry(&entry, 0, from, visit)?.is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn read_data_blocks(
        &self,
        tx: &mut Transaction,
        from: u32,
        visit: &mut dyn FnMut(ListedEntry<'_>) -> ControlFlow<()>,
        on_loss: OnLoss<'_>,
    ) -> Result<()> {
        let mut lost = 0;
        // Not the size says what there is, but the map, as for the kernel.
        let blocks = u64::from(self.layout.max_data_blocks());
        let mut next = self.layout.split_pointer(from).0;
        while u64::from(next) < blocks {
            let number = next;
            next += 1;
            let at = self.layout.data_block(number);
            let block = match self.try_read(tx, at, &super::DIR_DATA_KIND) {
                Ok(block) => block,
                Err(error) => {
                    on_loss(number, located(tx, self.ino, Err::<(), _>(error)).expect_err("it is an error"))?;
                    lost += 1;
                    if lost == MOST_LOST_BLOCKS {
                        break;
                    }
                    continue;
                }
            };
            let Some(id) = block else {
                // Holes are passed over in one step: a map may claim any number of them.
                let end = self.layout.data_block(next).0;
                let extents = bmap::extents(tx, self.ino, ForkKind::Data)?;
                let following = extents.partition_point(|extent| extent.end().0 <= end);
                let Some(extent) = extents.get(following) else { break };
                next = next.max((extent.file_block.0 / u64::from(self.layout.fs_blocks())).min(blocks) as u32);
                continue;
            };
            let done = self.visit_block(tx.bytes(id), number, from, visit);
            tx.release(id);
            match done {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => break,
                // A name that cannot be one: those before it were seen.
                Err(error) => on_loss(number, located(tx, self.ino, Err::<(), _>(error)).expect_err("it is an error"))?,
            }
        }
        Ok(())
    }

    fn visit_block(
        &self,
        bytes: &[u8],
        number: u32,
        from: u32,
        visit: &mut dyn FnMut(ListedEntry<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        for entry in entries(bytes) {
            if self.visit_entry(&entry, number, from, visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn visit_entry(
        &self,
        entry: &DataEntry<'_>,
        number: u32,
        from: u32,
        visit: &mut dyn FnMut(ListedEntry<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let cookie = self.layout.pointer(number, entry.offset);
        if cookie < from {
            return Ok(ControlFlow::Continue(()));
        }
        ensure_on_disk!(is_valid_name(entry.name), "directory entry", "name without / and NUL", "{:?}", entry.name);
        Ok(visit(ListedEntry {
            cookie,
            next: cookie.saturating_add((entry_bytes(entry.name.len()) >> 3) as u32),
            inode: InodeNumber(entry.inode),
            file_type: entry.file_type,
            name: entry.name,
        }))
    }
}
