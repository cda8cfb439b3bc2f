//! The contents of a regular file: blocks by their numbers. A block that is not there is a hole.
//!
//! Bytes of a block behind the end of the file are zeros. Files share blocks by counting them.

use super::space::Space;
use crate::{Error, Fallocate, Result, Seek};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a block.
pub(super) const BLOCK_BYTES: u64 = 4096;
/// Largest file.
pub(super) const MAX_FILE_BYTES: u64 = i64::MAX as u64;

type Bytes = [u8; BLOCK_BYTES as usize];

/// A block; `None` if nothing was written to it: it reads as zeros.
type Block = Option<Arc<Bytes>>;

#[derive(Debug, Default)]
pub(super) struct Contents {
    size: u64,
    blocks: BTreeMap<u64, Block>,
}

fn zeros() -> Arc<Bytes> {
    Arc::new([0; BLOCK_BYTES as usize])
}

/// Gives a block back that a file had.
fn give_back(space: &mut Space, block: Block) {
    if block.is_none_or(|bytes| Arc::strong_count(&bytes) == 1) {
        space.give_back(1);
    }
}

/// The pieces of a range that lie in one block each: the block, and the bytes of it.
fn pieces(range: Range<u64>) -> impl Iterator<Item = (u64, Range<usize>)> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let (block, first) = (at / BLOCK_BYTES, at % BLOCK_BYTES);
        let last = BLOCK_BYTES.min(first + range.end.checked_sub(at).filter(|left| *left > 0)?);
        at += last - first;
        Some((block, first as usize..last as usize))
    })
}

impl Contents {
    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn space_bytes(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK_BYTES
    }

    pub fn has_blocks(&self) -> bool {
        !self.blocks.is_empty()
    }

    fn written(&self, block: u64) -> Option<&Arc<Bytes>> {
        self.blocks.get(&block)?.as_ref()
    }

    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let count = self.size.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut done = 0;
        for (block, bytes) in pieces(offset..offset + count as u64) {
            let target = &mut buffer[done..done + bytes.len()];
            match self.written(block) {
                Some(written) => target.copy_from_slice(&written[bytes.clone()]),
                None => target.fill(0),
            }
            done += bytes.len();
        }
        count
    }

    /// Writes the first bytes, as many as there is space for.
    pub fn write(&mut self, space: &mut Space, offset: u64, data: &[u8]) -> Result<usize> {
        let mut done = 0;
        for (block, bytes) in pieces(offset..offset + data.len() as u64) {
            let target = match self.own(space, block) {
                Ok(target) => target,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            };
            target[bytes.clone()].copy_from_slice(&data[done..done + bytes.len()]);
            done += bytes.len();
            self.size = self.size.max(offset + done as u64);
        }
        Ok(done)
    }

    /// A block of the file's own, to write to.
    fn own(&mut self, space: &mut Space, block: u64) -> Result<&mut Bytes> {
        match self.blocks.get(&block) {
            Some(None) => {}
            Some(Some(bytes)) if Arc::strong_count(bytes) == 1 => {}
            Some(Some(_)) | None => space.take(1)?,
        }
        let bytes = self.blocks.entry(block).or_default().get_or_insert_with(zeros);
        Ok(Arc::make_mut(bytes))
    }

    /// Takes blocks away.
    fn remove(&mut self, space: &mut Space, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let mut removed = self.blocks.split_off(&range.start);
        let mut rest = removed.split_off(&range.end);
        self.blocks.append(&mut rest);
        removed.into_values().for_each(|block| give_back(space, block));
    }

    /// Takes all space from a file that is freed.
    pub fn clear(&mut self, space: &mut Space) {
        self.remove(space, 0..u64::MAX);
        self.size = 0;
    }

    /// Writes zeros where there are bytes.
    fn zero(&mut self, space: &mut Space, range: Range<u64>) {
        for (block, bytes) in pieces(range) {
            let Some(Some(written)) = self.blocks.get_mut(&block) else { continue };
            if Arc::strong_count(written) > 1 {
                space.take_at_once(1);
            }
            Arc::make_mut(written)[bytes].fill(0);
        }
    }

    pub fn resize(&mut self, space: &mut Space, size: u64) {
        if size < self.size {
            self.zero(space, size..size.next_multiple_of(BLOCK_BYTES));
        }
        if size <= self.size {
            self.remove(space, size.div_ceil(BLOCK_BYTES)..u64::MAX);
        }
        self.size = size;
    }

    pub fn seek(&self, offset: u64, what: Seek) -> Result<u64> {
        if offset >= self.size {
            return Err(Error::NoMoreData);
        }
        let first = offset / BLOCK_BYTES;
        if what == Seek::Data {
            let found = self.blocks.range(first..).find(|(_, block)| block.is_some());
            let found = found.map(|(block, _)| offset.max(block * BLOCK_BYTES));
            return found.filter(|found| *found < self.size).ok_or(Error::NoMoreData);
        }
        let hole = (first..).find(|block| self.written(*block).is_none()).expect("a file ends");
        Ok(offset.max(hole * BLOCK_BYTES).min(self.size))
    }

    /// Changes the space of a range, whose bounds were checked.
    pub fn fallocate(&mut self, space: &mut Space, range: Range<u64>, what: Fallocate) -> Result<()> {
        let touched = range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES);
        match what {
            Fallocate::Allocate | Fallocate::AllocateKeepSize => self.fill(space, touched)?,
            Fallocate::UnshareKeepSize => {
                self.unshare(space, touched.clone())?;
                self.fill(space, touched)?;
            }
            Fallocate::PunchHole => self.punch(space, &range),
            Fallocate::ZeroRange | Fallocate::ZeroRangeKeepSize => {
                self.expect_space(space, &touched)?;
                self.punch(space, &range);
                self.fill(space, touched)?;
            }
            Fallocate::CollapseRange => return self.collapse(space, touched, range),
            Fallocate::InsertRange => return self.insert(touched, range),
        }
        if matches!(what, Fallocate::Allocate | Fallocate::ZeroRange) {
            self.size = self.size.max(range.end);
        }
        Ok(())
    }

    fn holes(&self, range: &Range<u64>) -> u64 {
        range.end - range.start - self.blocks.range(range.clone()).count() as u64
    }

    fn expect_space(&self, space: &Space, range: &Range<u64>) -> Result<()> {
        if self.holes(range) > space.free_blocks() { Err(Error::NoSpace) } else { Ok(()) }
    }

    /// Gives all holes space.
    fn fill(&mut self, space: &mut Space, range: Range<u64>) -> Result<()> {
        space.take(self.holes(&range))?;
        for block in range {
            self.blocks.entry(block).or_default();
        }
        Ok(())
    }

    fn unshare(&mut self, space: &mut Space, range: Range<u64>) -> Result<()> {
        for (_, block) in self.blocks.range_mut(range) {
            let Some(bytes) = block.as_mut().filter(|bytes| Arc::strong_count(bytes) > 1) else { continue };
            space.take(1)?;
            Arc::make_mut(bytes);
        }
        Ok(())
    }

    fn punch(&mut self, space: &mut Space, range: &Range<u64>) {
        let whole = range.start.div_ceil(BLOCK_BYTES)..range.end / BLOCK_BYTES;
        if whole.start > whole.end {
            return self.zero(space, range.clone());
        }
        self.zero(space, range.start..whole.start * BLOCK_BYTES);
        self.zero(space, whole.end * BLOCK_BYTES..range.end);
        self.remove(space, whole);
    }

    fn collapse(&mut self, space: &mut Space, blocks: Range<u64>, range: Range<u64>) -> Result<()> {
        if range.end >= self.size {
            return Err(Error::Invalid("the range to collapse reaches the end of the file"));
        }
        self.remove(space, blocks.clone());
        let moved = self.blocks.split_off(&blocks.end);
        self.blocks.extend(moved.into_iter().map(|(at, block)| (at - (blocks.end - blocks.start), block)));
        self.size -= range.end - range.start;
        Ok(())
    }

    fn insert(&mut self, blocks: Range<u64>, range: Range<u64>) -> Result<()> {
        let (length, distance) = (range.end - range.start, blocks.end - blocks.start);
        let size = self.size.checked_add(length).filter(|size| *size <= MAX_FILE_BYTES).ok_or(Error::TooLarge)?;
        if range.start >= self.size {
            return Err(Error::Invalid("an insertion lies within the file"));
        }
        let end = self.blocks.last_key_value().map_or(0, |(last, _)| last + 1);
        if end + distance >= MAX_FILE_BYTES / BLOCK_BYTES {
            return Err(Error::Invalid("blocks would move behind the largest offset of a file"));
        }
        let moved = self.blocks.split_off(&blocks.start);
        self.blocks.extend(moved.into_iter().map(|(at, block)| (at + distance, block)));
        self.size = size;
        Ok(())
    }

    /// The written blocks of a range, to be shared.
    pub fn written_blocks(&self, blocks: Range<u64>) -> Shared {
        let written = self.blocks.range(blocks.clone());
        let found = written.filter_map(|(at, block)| Some((at - blocks.start, Arc::clone(block.as_ref()?))));
        Shared { found: found.collect(), count: blocks.end - blocks.start }
    }

    /// Puts blocks of another file, or of this one, in the place of those from `first` on.
    pub fn share(&mut self, space: &mut Space, first: u64, shared: Shared, end_bytes: u64) {
        self.remove(space, first..first + shared.count);
        self.blocks.extend(shared.found.into_iter().map(|(at, bytes)| (first + at, Some(bytes))));
        self.size = self.size.max(end_bytes);
    }
}

/// Blocks on their way from one file to another, counted from the first.
pub(super) struct Shared {
    found: Vec<(u64, Arc<Bytes>)>,
    count: u64,
}
