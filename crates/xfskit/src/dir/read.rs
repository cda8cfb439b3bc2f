//! Reading a directory in the order of its cookies.

use super::{Dir, DirForm, shortform};
use crate::error::Result;
use crate::incore::ForkKind;
use crate::inode::bmap;
use crate::trans::{InoId, Transaction};
use std::ops::ControlFlow;
use xfskit_ondisk::dir::data::{DataEntry, entries};
use xfskit_ondisk::dir::{FileType, entry_bytes, is_valid_name};
use xfskit_ondisk::{FileBlock, InodeNumber};

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
    let dir = Dir::new(tx, dir)?;
    match dir.form(tx)? {
        DirForm::Shortform => dir.read_shortform(tx, from, visit),
        DirForm::Block => {
            let id = dir.read(tx, FileBlock(0), &super::DIR_BLOCK_KIND)?;
            let done = dir.visit_block(tx.bytes(id), 0, from, visit);
            tx.release(id);
            done.map(|_| ())
        }
        DirForm::Leaf | DirForm::Node => dir.read_data_blocks(tx, from, visit),
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
    ) -> Result<()> {
        let blocks = (tx.inode(self.ino).core.size >> self.layout.block_log).min(self.layout.max_data_blocks().into());
        let mut next = self.layout.split_pointer(from).0;
        while u64::from(next) < blocks {
            let number = next;
            next += 1;
            let at = self.layout.data_block(number);
            let Some(id) = self.try_read(tx, at, &super::DIR_DATA_KIND)? else {
                // Holes are passed over in one step: a size on disk may claim any number of them.
                let end = self.layout.data_block(next).0;
                let extents = bmap::extents(tx, self.ino, ForkKind::Data)?;
                let following = extents.partition_point(|extent| extent.end().0 <= end);
                let Some(extent) = extents.get(following) else { break };
                next = next.max((extent.file_block.0 / u64::from(self.layout.fs_blocks())).min(blocks) as u32);
                continue;
            };
            let done = self.visit_block(tx.bytes(id), number, from, visit);
            tx.release(id);
            if done?.is_break() {
                break;
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
