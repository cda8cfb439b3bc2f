//! Lets files share blocks, and copies between files.
//!
//! ```text
//! link 1         both files say that they may share blocks; times of the target, unless the caller keeps them
//! links 2..n-1   an extent of the source is shared, in place of what the target had there, in each
//! link n         size of the target
//! ```
//! Crash behaviour: some extents are shared; blocks behind the target's old end go when it grows or ends. An error
//! after some extents: these are shared, and the size covers them; a copy counts them and says nothing of the error.

use super::Volume;
use super::contents::Writer;
use super::map::{end_link, grow, next_link, remove_range, touch_contents};
use super::protected::check_unprotected;
use crate::data::{self, BlockState, MAX_SIZE_BYTES};
use crate::error::{Error, Result};
use crate::incore::ForkKind;
use crate::inode::bmap;
use crate::mount::BlockPool;
use crate::space::{alloc, refcount};
use crate::trans::{InoId, InodeFields, Transaction};
use std::ops::Range;
use xfskit_ondisk::{Extent, FileBlock, FsBlock, InodeNumber};
use xfskit_vfs::Mtime;

/// Bytes that a copy reads at once.
const COPY_BYTES: u64 = 1 << 20;

/// A range of one file and its place in another.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: u64,
    to: u64,
    length: u64,
}

impl Volume {
    /// Lets `to` share the blocks of `length` bytes of `from`; 0 means up to the end of `from`. By the rules of Linux's
    /// `FICLONERANGE`: both offsets begin a block, and so does the end unless it is the end of `from` and lies at or
    /// behind the end of `to`. From the end of `from` on there is nothing to share, whatever the offsets.
    ///
    /// # Errors
    /// `NotSupported` without the reflink feature; `Invalid` for ranges that break the rules or overlap; `NotPermitted`
    /// when `to` is immutable or append-only; `TooLarge`, `IsADirectory`, `ReadOnly`, `NoSpace`, `Stale`, `Corrupt`,
    /// `Io`.
    pub fn clone_range(
        &self,
        from: InodeNumber,
        from_offset: u64,
        to: InodeNumber,
        to_offset: u64,
        length: u64,
    ) -> Result<()> {
        let span = Span { from: from_offset, to: to_offset, length };
        self.share([from, to], span, Mtime::Update, &mut 0)?;
        self.honour_sync(&self.mount.inode(to)?)
    }

    /// Shares a range; if that fails, `done` is how many bytes from the first on are shared all the same.
    fn share(&self, files: [InodeNumber; 2], span: Span, mtime: Mtime, done: &mut u64) -> Result<()> {
        if !self.mount.geometry.has_reflink() {
            return Err(Error::NotSupported("this image cannot share blocks (mkfs option reflink=1)"));
        }
        let shared = self.change_maps(files, |tx, [from, to]| {
            check_unprotected(&tx.inode(to).core)?;
            let Some(span) = check(tx, from, to, span)? else { return Ok(Some(Shared::default())) };
            if !grow(tx, to, span.to)? {
                return Ok(None);
            }
            // The next link commits them, before any contents change.
            if mtime == Mtime::Update {
                touch_contents(tx, to);
            }
            Ok(Some(share_span(tx, from, to, span)?))
        })?;
        *done = shared.bytes;
        shared.stopped_by.map_or(Ok(()), |error| self.located(files[1], Err(error)))
    }

    /// Whether files can share blocks.
    pub fn shares_blocks(&self) -> bool {
        self.mount.geometry.has_reflink()
    }

    /// Copies bytes from one file to another, or within one; returns how many. Fewer than asked for are copied at the
    /// end of `from`, and where an error stops the copy: to copy the rest meets the error again, if it lasts. Blocks
    /// are shared where that is possible.
    ///
    /// # Errors
    /// Only if nothing was copied, or cannot be made durable though the target is synchronous:
    /// `Invalid` when source and target overlap; else as [`Self::clone_range`], [`Self::read_at`] and
    /// [`Self::write_at`].
    pub fn copy_range(
        &self,
        from: InodeNumber,
        from_offset: u64,
        to: InodeNumber,
        to_offset: u64,
        length: u64,
    ) -> Result<u64> {
        let span = Span { from: from_offset, to: to_offset, length };
        self.copy([from, to], span, Mtime::Update)
    }

    /// As [`Self::copy_range`] for a caller that keeps the times of files.
    ///
    /// # Errors
    /// As [`Self::copy_range`].
    pub fn copy_range_keeping_times(
        &self,
        from: InodeNumber,
        from_offset: u64,
        to: InodeNumber,
        to_offset: u64,
        length: u64,
    ) -> Result<u64> {
        let span = Span { from: from_offset, to: to_offset, length };
        self.copy([from, to], span, Mtime::Keep)
    }

    fn copy(&self, [from, to]: [InodeNumber; 2], span: Span, mtime: Mtime) -> Result<u64> {
        let size = self.stat(from)?.size;
        let length = span.length.min(size.saturating_sub(span.from));
        if span.to.checked_add(length).is_none_or(|end| end > MAX_SIZE_BYTES) {
            return Err(Error::TooLarge);
        }
        if from == to && span.from.abs_diff(span.to) < length {
            return Err(Error::Invalid("the ranges overlap"));
        }
        let mut done = 0;
        let copied =
            self.copy_checked([from, to], Span { length, ..span }, mtime, span.from + length == size, &mut done);
        // What was copied counts, as with the kernel; what is left meets the error.
        if done == 0 {
            copied?;
        }
        self.honour_sync(&self.mount.inode(to)?)?;
        Ok(done)
    }

    /// Copies a range; counts in `done` the bytes from the first on that were copied, if it fails too.
    fn copy_checked(
        &self,
        [from, to]: [InodeNumber; 2],
        span: Span,
        mtime: Mtime,
        to_end: bool,
        done: &mut u64,
    ) -> Result<()> {
        self.copy_shared([from, to], span, mtime, to_end, done)?;
        let mut buffer = vec![0; (span.length - *done).min(COPY_BYTES) as usize];
        while *done < span.length {
            let most = (span.length - *done).min(COPY_BYTES) as usize;
            let count = self.read_at(from, span.from + *done, &mut buffer[..most])?;
            if count == 0 {
                break;
            }
            let mut written = 0;
            let result =
                self.write(&self.inode_to_write(to)?, span.to + *done, &buffer[..count], Writer::Caller, &mut written);
            *done += if result.is_ok() { count as u64 } else { written as u64 };
            let may_have_written = written > 0 || matches!(result, Ok(_) | Err(Error::Io { .. } | Error::NoSpace));
            if mtime == Mtime::Update && may_have_written {
                self.note_write(&self.mount.inode(to)?);
            }
            result?;
        }
        Ok(())
    }

    /// Shares what can be shared of the beginning of a range; `done` is how many bytes.
    fn copy_shared(
        &self,
        files: [InodeNumber; 2],
        span: Span,
        mtime: Mtime,
        to_end: bool,
        done: &mut u64,
    ) -> Result<()> {
        let block_bytes = self.mount.geometry.block_bytes() as u64;
        let aligned = span.from.is_multiple_of(block_bytes) && span.to.is_multiple_of(block_bytes);
        if !aligned || !self.mount.geometry.has_reflink() {
            return Ok(());
        }
        let whole = span.length / block_bytes * block_bytes;
        let all = to_end && span.to + span.length >= self.stat(files[1])?.size;
        let length = if all { span.length } else { whole };
        if length == 0 {
            return Ok(());
        }
        match self.share(files, Span { length, ..span }, mtime, done) {
            Ok(()) => *done = length,
            // The AG may have no room for more reference counts, or another thread changed a size meanwhile: bytes can
            // be copied.
            Err(Error::NoSpace | Error::Invalid(_) | Error::TooLarge) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Checks a range that is to be shared; `None` if it is empty. Its length is what is really shared.
fn check(tx: &Transaction, from: InoId, to: InoId, span: Span) -> Result<Option<Span>> {
    let block_bytes = tx.geometry().block_bytes() as u64;
    let (from_size, to_size) = (tx.inode(from).core.size, tx.inode(to).core.size);
    let left = from_size.checked_sub(span.from).ok_or(Error::Invalid("the range lies behind the end of the file"))?;
    let length = if span.length == 0 { left } else { span.length };
    // The kernel does not ask where no bytes lie.
    if length == 0 {
        return Ok(None);
    }
    if !span.from.is_multiple_of(block_bytes) || !span.to.is_multiple_of(block_bytes) {
        return Err(Error::Invalid("shared ranges begin with a block"));
    }
    if length > left {
        return Err(Error::Invalid("the range reaches behind the end of the file"));
    }
    let end = span.to.checked_add(length).filter(|end| *end <= MAX_SIZE_BYTES).ok_or(Error::TooLarge)?;
    if !length.is_multiple_of(block_bytes) && (length < left || end < to_size) {
        return Err(Error::Invalid("shared ranges end with a block, or with both files"));
    }
    if from == to && span.from.abs_diff(span.to) < length.next_multiple_of(block_bytes) {
        return Err(Error::Invalid("the ranges overlap"));
    }
    Ok(Some(Span { length, ..span }))
}

/// What was shared of a range.
#[derive(Debug, Default)]
struct Shared {
    /// How many bytes from the first on.
    bytes: u64,
    /// Why that is not the whole range.
    stopped_by: Option<Error>,
}

/// Shares a range that was checked; the target is ready to grow. An error after the first piece leaves what was shared,
/// and a size that covers it.
fn share_span(tx: &mut Transaction, from: InoId, to: InoId, span: Span) -> Result<Shared> {
    bmap::set_may_share(tx, from);
    bmap::set_may_share(tx, to);
    // The target's contents are replaced: a crash shows the old ones or these, and never older ones of the source.
    tx.mount().journal.order_in_place();
    let block_bytes = tx.geometry().block_bytes() as u64;
    let (first, target) = (span.from / block_bytes, span.to / block_bytes);
    let end = first + span.length.div_ceil(block_bytes);
    let (mut at, mut stopped_by) = (first, None);
    while at < end && stopped_by.is_none() {
        match share_piece(tx, [from, to], at..end, FileBlock(at - first + target)) {
            Ok(next) => at = next,
            Err(error) if at == first || tx.is_dirty() => return Err(error),
            Err(error) => stopped_by = Some(error),
        }
    }
    if stopped_by.is_none() {
        end_link(tx)?;
    }
    let bytes = span.length.min((at - first) * block_bytes);
    let core = &mut tx.inode_mut(to, InodeFields::CORE).core;
    core.size = core.size.max(span.to + bytes);
    Ok(Shared { bytes, stopped_by })
}

/// Shares the start of some blocks of the source, in a link of its own, or makes a hole as there is in the source.
/// `place` is the target of the first. Returns where the rest begins.
fn share_piece(tx: &mut Transaction, [from, to]: [InoId; 2], blocks: Range<u64>, place: FileBlock) -> Result<u64> {
    // Whether blocks are shared is asked in their AG, and no other may be held.
    next_link(tx, BlockPool::Ordinary)?;
    let piece = data::piece(tx, from, blocks.start, blocks.end)?;
    if let BlockState::Shared(block) | BlockState::Written(block) = piece.state {
        let extent = Extent { file_block: place, block, count: piece.count(), unwritten: false };
        return Ok(blocks.start + share_extent(tx, to, extent)?);
    }
    remove_range(tx, to, place..place.add(piece.count()))?;
    Ok(piece.end)
}

/// Shares the start of one extent, as much as one link can, in place of what the target has there. Returns how many
/// blocks. Both in one transaction: after a crash the target has the blocks that it had or these.
fn share_extent(tx: &mut Transaction, to: InoId, extent: Extent) -> Result<u64> {
    let at = extent.file_block;
    let next = bmap::extents(tx, to, ForkKind::Data)?.next_at(at).copied();
    let old = next.filter(|next| next.file_block <= at);
    let limit = next.map_or(extent.end(), |next| if old.is_some() { next.end() } else { next.file_block });
    let mut extent = Extent { count: extent.count.min(limit.0 - at.0), ..extent };
    // What is taken away and what is put in its place must be the same blocks of the file. So both are measured under
    // the locks that others need for a change of the references.
    if let Some(old) = old {
        let old_block = FsBlock(old.block.0 + (at.0 - old.file_block.0));
        alloc::lock_pair(tx, old_block, extent.block)?;
        extent.count = refcount::lock_some(tx, old_block, extent.count as u32)?.into();
    }
    // A piece of an extent leaves two others beside the new one.
    extent.count = bmap::expect_share(tx, to, extent, if old.is_some() { 2 } else { 1 })?.into();
    if old.is_some() {
        bmap::remove(tx, to, ForkKind::Data, at, extent.count)?;
    }
    bmap::share(tx, to, extent)?;
    Ok(extent.count)
}
