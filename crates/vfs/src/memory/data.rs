//! What is done with the contents of files.

use super::attributes::check_change;
use super::contents::{BLOCK_BYTES, MAX_FILE_BYTES};
use super::protect::{check_not_immutable, check_unprotected, check_write};
use super::state::State;
use crate::{Caller, Error, Fallocate, InodeNumber, Result, SetAttr, Stat};

/// Bytes that a copy has in hand at once.
const COPY_BYTES: u64 = 1 << 20;

/// A range of a file and its place in another, or in the same.
#[derive(Clone, Copy)]
pub(super) struct Copy {
    pub from: (InodeNumber, u64),
    pub to: (InodeNumber, u64),
    pub length: u64,
}

impl State {
    pub fn write(&mut self, inode: InodeNumber, offset: u64, data: &[u8]) -> Result<usize> {
        let end = offset.checked_add(data.len() as u64);
        if end.is_none_or(|end| end > MAX_FILE_BYTES) {
            return Err(Error::TooLarge);
        }
        let node = self.node(inode)?;
        node.contents()?;
        check_write(node, offset)?;
        if data.is_empty() {
            return Ok(0);
        }
        let node = self.nodes.get_mut(&inode).ok_or(Error::Stale(inode.0))?;
        let written = node.contents_mut()?.write(&mut self.space, offset, data)?;
        self.touch_contents(inode)?;
        Ok(written)
    }

    pub fn append(&mut self, inode: InodeNumber, data: &[u8]) -> Result<u64> {
        let size = self.node(inode)?.contents()?.size();
        let mut done = 0;
        while done < data.len() {
            done += self.write(inode, size + done as u64, &data[done..])?;
        }
        Ok(size)
    }

    /// Sets the size, and all other attributes with it.
    pub fn resize(&mut self, inode: InodeNumber, size: u64, change: &SetAttr, caller: &Caller) -> Result<Stat> {
        check_change(change)?;
        if size > MAX_FILE_BYTES {
            return Err(Error::TooLarge);
        }
        let node = self.nodes.get_mut(&inode).ok_or(Error::Stale(inode.0))?;
        let old = node.contents()?.size();
        check_unprotected(node)?;
        node.contents_mut()?.resize(&mut self.space, size);
        if size != old {
            self.touch_contents(inode)?;
        }
        self.set_attr(inode, change, caller)
    }

    pub fn fallocate(&mut self, inode: InodeNumber, offset: u64, length: u64, what: Fallocate) -> Result<()> {
        if length == 0 {
            return Err(Error::Invalid("the range is empty"));
        }
        let end = offset.checked_add(length).filter(|end| *end <= MAX_FILE_BYTES).ok_or(Error::TooLarge)?;
        let is_whole = offset.is_multiple_of(BLOCK_BYTES) && length.is_multiple_of(BLOCK_BYTES);
        if !is_whole && matches!(what, Fallocate::CollapseRange | Fallocate::InsertRange) {
            return Err(Error::Invalid("only whole blocks can be collapsed or inserted"));
        }
        let node = self.nodes.get_mut(&inode).ok_or(Error::Stale(inode.0))?;
        node.contents()?;
        match what {
            Fallocate::Allocate | Fallocate::AllocateKeepSize => check_not_immutable(node)?,
            _ => check_unprotected(node)?,
        }
        node.contents_mut()?.fallocate(&mut self.space, offset..end, what)?;
        self.touch_contents(inode)
    }

    pub fn clone_range(&mut self, copy: Copy) -> Result<()> {
        let Copy { from: (from, from_offset), to: (to, to_offset), .. } = copy;
        let from_size = self.node(from)?.contents()?.size();
        let target = self.node(to)?;
        let to_size = target.contents()?.size();
        check_unprotected(target)?;
        let left = from_size.checked_sub(from_offset);
        let left = left.ok_or(Error::Invalid("the range lies behind the end of the file"))?;
        let length = if copy.length == 0 { left } else { copy.length };
        if length == 0 {
            return Ok(());
        }
        if !from_offset.is_multiple_of(BLOCK_BYTES) || !to_offset.is_multiple_of(BLOCK_BYTES) {
            return Err(Error::Invalid("shared ranges begin with a block"));
        }
        if length > left {
            return Err(Error::Invalid("the range reaches behind the end of the file"));
        }
        let end = to_offset.checked_add(length).filter(|end| *end <= MAX_FILE_BYTES).ok_or(Error::TooLarge)?;
        if !length.is_multiple_of(BLOCK_BYTES) && (length < left || end < to_size) {
            return Err(Error::Invalid("shared ranges end with a block, or with both files"));
        }
        if from == to && from_offset.abs_diff(to_offset) < length.next_multiple_of(BLOCK_BYTES) {
            return Err(Error::Invalid("the ranges overlap"));
        }
        let first = from_offset / BLOCK_BYTES;
        let shared = self.node(from)?.contents()?.written_blocks(first..first + length.div_ceil(BLOCK_BYTES));
        let target = self.nodes.get_mut(&to).ok_or(Error::Stale(to.0))?;
        target.contents_mut()?.share(&mut self.space, to_offset / BLOCK_BYTES, shared, end);
        self.touch_contents(to)
    }

    pub fn copy_range(&mut self, copy: Copy) -> Result<u64> {
        let Copy { from: (from, from_offset), to: (to, to_offset), .. } = copy;
        let size = self.node(from)?.stat().size;
        let length = copy.length.min(size.saturating_sub(from_offset));
        if to_offset.checked_add(length).is_none_or(|end| end > MAX_FILE_BYTES) {
            return Err(Error::TooLarge);
        }
        if from == to && from_offset.abs_diff(to_offset) < length {
            return Err(Error::Invalid("the ranges overlap"));
        }
        self.node(from)?.contents()?;
        self.node(to)?.contents()?;
        let mut done = 0;
        let whole = length / BLOCK_BYTES * BLOCK_BYTES;
        if whole > 0 && from_offset.is_multiple_of(BLOCK_BYTES) && to_offset.is_multiple_of(BLOCK_BYTES) {
            self.clone_range(Copy { length: whole, ..copy })?;
            done = whole;
        }
        let mut buffer = vec![0; (length - done).min(COPY_BYTES) as usize];
        while done < length {
            let most = (length - done).min(COPY_BYTES) as usize;
            let count = self.node(from)?.contents()?.read(from_offset + done, &mut buffer[..most]);
            match self.write(to, to_offset + done, &buffer[..count]) {
                Ok(0) => break,
                Ok(written) => done += written as u64,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }
}
