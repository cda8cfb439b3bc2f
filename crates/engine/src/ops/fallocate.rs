//! Allocates space for files without writing it, and takes ranges out of files or puts them in.
//!
//! ```text
//! allocate          times; an unwritten extent in each link; size last
//! unshare           a shared piece is copied to new blocks in each link; then as allocate
//! punch             edges are zeroed; times; extents freed, some in each link
//! zero              edges are zeroed; times; what is written becomes unwritten, holes are allocated; size last
//! collapse          times; extents of the range freed; those behind it moved, some in each link; size last
//! insert            one more extent must be countable; size and times; extents moved, some in each link, from the
//!                   last one on
//! ```
//! Times stay as they are if the caller keeps them. Else the first link has them, as with the kernel: whoever compares
//! times sees what an operation did that was cut off or failed half-way.
//!
//! Crash behaviour: some links are done. A file in the middle of a collapse or an insertion has some of its
//! extents moved and others not, as with the kernel.

use super::map::{END_OF_MAP, grow, next_link, next_link_with, remove_range, touch_contents, zero_bytes};
use super::protected::{check_not_immutable, check_unprotected};
use super::{Fallocate, Volume};
use crate::data::{self, BlockState, MAX_SIZE_BYTES, Source};
use crate::error::{Error, Result};
use crate::incore::{ForkKind, Inode};
use crate::inode::bmap;
use crate::mount::BlockPool;
use crate::space::ExtentState;
use crate::trans::{InoId, InodeFields, Transaction};
use std::ops::Range;
use std::sync::Arc;
use xfskit_ondisk::extent::MAX_EXTENT_BLOCKS;
use xfskit_ondisk::inode::flags;
use xfskit_ondisk::{FileBlock, InodeNumber};
use xfskit_vfs::Mtime;

/// Bytes of a shared piece that one link copies.
const UNSHARE_BYTES: u64 = 1 << 20;

/// Where the first link takes blocks for trees from.
fn pool(what: Fallocate) -> BlockPool {
    if what == Fallocate::PunchHole { BlockPool::Removal } else { BlockPool::Ordinary }
}

/// The range, in bytes and in the blocks of the file.
struct Span {
    bytes: Range<u64>,
    /// Blocks of which some bytes belong to the range.
    touched: Range<FileBlock>,
    /// Blocks that belong to it altogether; empty if the start is not before the end.
    whole: Range<FileBlock>,
    mtime: Mtime,
}

/// Whether an allocation moves the end of the file to its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Size {
    Grows,
    Stays,
}

impl Volume {
    /// Does `what` to the `length` bytes of a file from `offset` on, by the rules of Linux's `fallocate`.
    ///
    /// # Errors
    /// `Invalid` for an empty range, for parts of blocks where only whole ones will do, for ranges to collapse that
    /// reach the end of the file and for insertions at it or behind; `TooLarge` beyond 2⁶³ − 1 bytes, and when the map
    /// cannot count the extents, of an insertion before anything is changed; `NotPermitted` for an immutable file, and
    /// for anything but allocation in an append-only one; `IsADirectory`, `ReadOnly`, `NoSpace`, `Stale`, `Corrupt`,
    /// `Io`.
    pub fn fallocate(&self, inode: InodeNumber, offset: u64, length: u64, what: Fallocate) -> Result<()> {
        self.fallocate_in(&self.mount.inode(inode)?, (offset, length), what, Mtime::Update)
    }

    /// As [`Self::fallocate`] for a caller that keeps the times of files.
    ///
    /// # Errors
    /// As [`Self::fallocate`].
    pub fn fallocate_keeping_times(&self, inode: InodeNumber, offset: u64, length: u64, what: Fallocate) -> Result<()> {
        self.fallocate_in(&self.mount.inode(inode)?, (offset, length), what, Mtime::Keep)
    }

    /// As [`Self::fallocate`], in an inode that was looked up.
    pub(crate) fn fallocate_in(
        &self,
        inode: &Arc<Inode>,
        (offset, length): (u64, u64),
        what: Fallocate,
        mtime: Mtime,
    ) -> Result<()> {
        let end = offset.saturating_add(length);
        let length = end - offset;
        if length == 0 {
            return Err(Error::Invalid("the range is empty"));
        }
        if end > MAX_SIZE_BYTES {
            return Err(Error::TooLarge);
        }
        let block_bytes = self.mount.geometry.block_bytes() as u64;
        let (down, up) = (|byte: u64| FileBlock(byte / block_bytes), |byte: u64| FileBlock(byte.div_ceil(block_bytes)));
        let (touched, whole) = (down(offset)..up(end), up(offset)..down(end).max(up(offset)));
        let range = Span { bytes: offset..end, touched, whole, mtime };
        let aligned = offset.is_multiple_of(block_bytes) && length.is_multiple_of(block_bytes);
        if !aligned && matches!(what, Fallocate::CollapseRange | Fallocate::InsertRange) {
            return Err(Error::Invalid("only whole blocks can be collapsed or inserted"));
        }
        let changed = self.change_map(inode, pool(what), |tx, ino| {
            let core = &tx.inode(ino).core;
            match what {
                Fallocate::Allocate | Fallocate::AllocateKeepSize => check_not_immutable(core)?,
                _ => check_unprotected(core)?,
            }
            let done = match what {
                Fallocate::Allocate => allocate(tx, ino, &range, Size::Grows)?,
                Fallocate::AllocateKeepSize => allocate(tx, ino, &range, Size::Stays)?,
                Fallocate::UnshareKeepSize => {
                    unshare(tx, ino, range.touched.clone())?;
                    allocate(tx, ino, &range, Size::Stays)?
                }
                Fallocate::PunchHole => punch(tx, ino, &range)?,
                Fallocate::ZeroRange => zero(tx, ino, &range, Size::Grows)?,
                Fallocate::ZeroRangeKeepSize => zero(tx, ino, &range, Size::Stays)?,
                Fallocate::CollapseRange => collapse(tx, ino, &range)?,
                Fallocate::InsertRange => insert(tx, ino, &range)?,
            };
            Ok(done.then_some(()))
        });
        let zeroes = matches!(what, Fallocate::PunchHole | Fallocate::ZeroRange | Fallocate::ZeroRangeKeepSize);
        if zeroes && mtime == Mtime::Update && matches!(changed, Err(Error::Io { .. } | Error::NoSpace)) {
            // One edge may have been zeroed before the other failed.
            self.note_write(inode);
        }
        changed?;
        self.honour_sync(inode)
    }
}

/// The contents are about to change; nothing more is refused in this link.
fn begin_change(tx: &mut Transaction, ino: InoId, range: &Span) -> Result<()> {
    // A damaged map is found before anything is changed.
    bmap::extents(tx, ino, ForkKind::Data)?;
    if range.mtime == Mtime::Update {
        touch_contents(tx, ino);
    }
    Ok(())
}

/// Moves the end of the file, which [`grow`] has got ready for that.
fn set_size(tx: &mut Transaction, ino: InoId, size: u64) {
    tx.inode_mut(ino, InodeFields::CORE).core.size = size;
}

fn allocate(tx: &mut Transaction, ino: InoId, range: &Span, size: Size) -> Result<bool> {
    if size == Size::Grows && !grow(tx, ino, range.bytes.end)? {
        return Ok(false);
    }
    begin_change(tx, ino, range)?;
    fill_holes(tx, ino, range.touched.clone())?;
    finish_allocation(tx, ino, range, size);
    Ok(true)
}

/// Copies what the range shares to blocks that are the file's alone, a piece in each link.
fn unshare(tx: &mut Transaction, ino: InoId, range: Range<FileBlock>) -> Result<()> {
    let block_log = tx.geometry().block_log;
    let mut buffer = Vec::new();
    let mut at = range.start.0;
    while at < range.end.0 {
        // Whether blocks are shared is asked in their AG, and no other may be held.
        next_link(tx, BlockPool::Ordinary)?;
        let found = data::piece(tx, ino, at, range.end.0)?;
        if !matches!(found.state, BlockState::Shared(_)) {
            at = found.end;
            continue;
        }
        let count = found.count().min((UNSHARE_BYTES >> block_log).max(1));
        buffer.clear();
        buffer.resize((count << block_log) as usize, 0);
        data::read(tx, ino, at << block_log, &mut buffer)?;
        next_link_with(tx, count)?;
        at = data::write_out_run(tx, ino, at..at + count, Source::Copy(&buffer))?;
    }
    Ok(())
}

/// Gives every hole of the range unwritten blocks.
fn fill_holes(tx: &mut Transaction, ino: InoId, range: Range<FileBlock>) -> Result<()> {
    let mut at = range.start;
    while at < range.end {
        let list = bmap::extents(tx, ino, ForkKind::Data)?;
        let next = list.next_at(at).copied();
        let hole_end = match next {
            Some(extent) if extent.file_block <= at => {
                at = extent.end();
                continue;
            }
            Some(extent) => extent.file_block.min(range.end),
            None => range.end,
        };
        let count = (hole_end.0 - at.0).min(MAX_EXTENT_BLOCKS);
        next_link_with(tx, count)?;
        at = at.add(bmap::allocate_unwritten(tx, ino, at, count as u32)?.into());
    }
    Ok(())
}

/// Size, and the mark by which the kernel leaves blocks behind the end of the file alone.
fn finish_allocation(tx: &mut Transaction, ino: InoId, range: &Span, size: Size) {
    let core = &mut tx.inode_mut(ino, InodeFields::CORE).core;
    core.flags |= flags::PREALLOC;
    if size == Size::Grows {
        core.size = core.size.max(range.bytes.end);
    }
}

/// Zeros what the range has of blocks at its edges, and begins the change. False as [`zero_bytes`].
fn zero_edges(tx: &mut Transaction, ino: InoId, range: &Span) -> Result<bool> {
    let block_bytes = tx.geometry().block_bytes() as u64;
    let settled = if range.whole.is_empty() {
        zero_bytes(tx, ino, range.bytes.clone())?
    } else {
        let head = zero_bytes(tx, ino, range.bytes.start..range.whole.start.0 * block_bytes)?;
        let tail = zero_bytes(tx, ino, range.whole.end.0 * block_bytes..range.bytes.end)?;
        head && tail
    };
    begin_change(tx, ino, range)?;
    Ok(settled)
}

fn punch(tx: &mut Transaction, ino: InoId, range: &Span) -> Result<bool> {
    if !zero_edges(tx, ino, range)? {
        return Ok(false);
    }
    if !range.whole.is_empty() {
        remove_range(tx, ino, range.whole.clone())?;
    }
    Ok(true)
}

fn zero(tx: &mut Transaction, ino: InoId, range: &Span, size: Size) -> Result<bool> {
    if size == Size::Grows && !grow(tx, ino, range.bytes.end)? || !zero_edges(tx, ino, range)? {
        return Ok(false);
    }
    if bmap::may_share(&tx.inode(ino).core) && !range.whole.is_empty() {
        // Unwritten blocks are written in place, so they cannot be shared.
        remove_range(tx, ino, range.whole.clone())?;
    } else {
        make_unwritten(tx, ino, range.whole.clone())?;
    }
    fill_holes(tx, ino, range.touched.clone())?;
    finish_allocation(tx, ino, range, size);
    Ok(true)
}

/// What is written in the range becomes unwritten, an extent in each link.
fn make_unwritten(tx: &mut Transaction, ino: InoId, range: Range<FileBlock>) -> Result<()> {
    let mut at = range.start;
    while at < range.end {
        let list = bmap::extents(tx, ino, ForkKind::Data)?;
        let written = list.iter_from(list.index_at(at)).find(|extent| !extent.unwritten).copied();
        let Some(extent) = written.filter(|extent| extent.file_block < range.end) else { break };
        next_link(tx, BlockPool::Ordinary)?;
        at = at.max(extent.file_block);
        at = at.add(bmap::convert(tx, ino, at, range.end.0 - at.0, ExtentState::Unwritten)?);
    }
    Ok(())
}

fn collapse(tx: &mut Transaction, ino: InoId, range: &Span) -> Result<bool> {
    let size = tx.inode(ino).core.size;
    if range.bytes.end >= size {
        return Err(Error::Invalid("the range to collapse reaches the end of the file"));
    }
    begin_change(tx, ino, range)?;
    remove_range(tx, ino, range.whole.clone())?;
    let mut rest = Some(range.whole.end);
    while let Some(from) = rest {
        next_link(tx, BlockPool::Reserve)?;
        rest = bmap::shift_left(tx, ino, from, range.whole.end.0 - range.whole.start.0)?;
    }
    set_size(tx, ino, size - (range.bytes.end - range.bytes.start));
    tx.inode(ino).note_cut(tx.inode(ino).core.size);
    Ok(true)
}

fn insert(tx: &mut Transaction, ino: InoId, range: &Span) -> Result<bool> {
    let (size, length) = (tx.inode(ino).core.size, range.bytes.end - range.bytes.start);
    let new_size = size.checked_add(length).filter(|size| *size <= MAX_SIZE_BYTES).ok_or(Error::TooLarge)?;
    if range.bytes.start >= size {
        return Err(Error::Invalid("an insertion lies within the file"));
    }
    let distance = range.whole.end.0 - range.whole.start.0;
    let last = bmap::extents(tx, ino, ForkKind::Data)?.last().map_or(0, |last| last.end().0);
    if last + distance >= MAX_SIZE_BYTES / tx.geometry().block_bytes() as u64 {
        return Err(Error::Invalid("blocks would move behind the largest offset of a file"));
    }
    // The record that the insertion cuts in two moves last. Whether the map can count the second part is asked before
    // the first record moves, and of an insertion that cuts none too, as in the kernel.
    bmap::expect_records(tx, ino, ForkKind::Data, 1)?;
    if !grow(tx, ino, new_size)? {
        return Ok(false);
    }
    begin_change(tx, ino, range)?;
    set_size(tx, ino, new_size);
    let mut rest = Some(END_OF_MAP);
    while let Some(end) = rest {
        next_link(tx, BlockPool::Reserve)?;
        rest = bmap::shift_right(tx, ino, range.whole.start..end, distance)?;
    }
    Ok(true)
}
