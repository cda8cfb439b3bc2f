//! Sets the size of a file.
//!
//! ```text
//! smaller   zeros up to the end of the last block   link 1      size; if the last block is shared, a copy of it
//!                                                   links 2..n  blocks behind it are freed, from the last one on
//! larger    links 1..n-1  written blocks behind the old end, if there are any, are freed
//!           link n        size
//! ```
//! Dirty blocks in front of the new end are written out first. Where there are none, those behind it are dropped in
//! link 1: a file whose contents cannot be written can still be emptied.
//!
//! Crash behaviour: after link 1 of a truncation the size is the new one; blocks that are still there go when the file
//! grows again or ends.

use super::SetAttr;
use super::create::take_in_write;
use super::map::{END_OF_MAP, grow, next_link_with, remove_range, written_behind_end};
use super::protected::check_unprotected;
use super::setattr::apply;
use super::stat::stat_of;
use super::{Caller, Stat, Volume};
use crate::data::{self, BlockState, MAX_SIZE_BYTES, Source};
use crate::error::{Error, Result};
use crate::incore::{ForkKind, Inode, InodeState};
use crate::inode::bmap;
use crate::mount::BlockPool;
use crate::trans::{InoId, InodeFields, Transaction};
use std::sync::Arc;
use xfskit_ondisk::{FileBlock, InodeNumber};

impl Volume {
    /// Sets the size of a file. What it gains reads as zeros and takes no space.
    ///
    /// # Errors
    /// `IsADirectory`, `Invalid` when it is no file, `TooLarge` beyond 2⁶³ − 1 bytes; `NotPermitted` for a
    /// file that is immutable or append-only; `ReadOnly`, `NoSpace`, `Stale`,
    /// `Corrupt`, `Io`.
    pub fn truncate(&self, inode: InodeNumber, size: u64) -> Result<()> {
        self.resize(inode, size, &SetAttr::default(), &Caller::root()).map(|_| ())
    }

    /// Sets the size of a file, and other attributes, all but its mode, with it.
    pub(super) fn resize(&self, inode: InodeNumber, size: u64, change: &SetAttr, caller: &Caller) -> Result<Stat> {
        if size > MAX_SIZE_BYTES {
            return Err(Error::TooLarge);
        }
        let work = |tx: &mut Transaction, ino| {
            check_unprotected(&tx.inode(ino).core)?;
            let old = tx.inode(ino).size_bytes();
            if !grow(tx, ino, size)? {
                return Ok(None);
            }
            // A damaged map is found before anything is changed.
            bmap::extents(tx, ino, ForkKind::Data)?;
            if size < old {
                data::cut_tail(tx, ino, size)?;
                unshare_tail(tx, ino, size)?;
            }
            // Nothing refuses any more.
            data::discard(tx, ino);
            take_in_write(tx, ino);
            let (now, geometry) = (tx.mount().env.now(), tx.geometry());
            let core = &mut tx.inode_mut(ino, InodeFields::CORE).core;
            if size != old {
                (core.size, core.mtime) = (size, now);
            }
            apply(core, change, now, caller, geometry);
            if size < old {
                tx.inode_memory_mut(ino).was_cut = true;
                tx.inode(ino).note_cut(size);
            }
            if size <= old {
                let end = FileBlock(size.div_ceil(tx.geometry().block_bytes() as u64));
                remove_range(tx, ino, end..END_OF_MAP)?;
                bmap::forget_sharing(tx, ino)?;
            }
            Ok(Some(stat_of(tx, tx.inode(ino))))
        };
        let inode = self.mount.inode(inode)?;
        if let Some(stat) = self.drop_behind_end(&inode, size, work)? {
            return Ok(stat);
        }
        self.change_map(&inode, BlockPool::Removal, work)
    }

    /// Does the work of a truncation that need not write out anything first; `None` if it is another one.
    fn drop_behind_end(
        &self,
        inode: &Arc<Inode>,
        size: u64,
        work: impl Fn(&mut Transaction, InoId) -> Result<Option<Stat>>,
    ) -> Result<Option<Stat>> {
        let block_log = self.mount.geometry.block_log;
        // The bytes of a last block behind the end must become zeros, and so it counts as one in front of it.
        let end = FileBlock(size.next_multiple_of(1 << block_log) >> block_log);
        let is_such = |state: &InodeState| {
            let first = state.dirty.as_ref().and_then(|dirty| dirty.first_run(FileBlock(0), 1));
            size <= state.core.size && first.is_some_and(|run| run.start >= end.0)
        };
        if !is_such(&inode.state_lock().read()) {
            return Ok(None);
        }
        let mut tx = self.begin_map(BlockPool::Removal)?;
        let result = self.join_file(&mut tx, inode).and_then(|id| match is_such(tx.inode(id)) {
            true => work(&mut tx, id),
            false => Ok(None),
        });
        self.located(inode.number, tx.finish(result))
    }

    /// Frees written blocks behind the end of a file that is about to grow: their old contents would become readable.
    pub(super) fn free_behind_end(&self, inode: &Arc<Inode>) -> Result<()> {
        let found = {
            let mut tx = Transaction::read_only(&self.mount);
            let id = self.join_file(&mut tx, inode)?;
            let size = tx.inode(id).size_bytes();
            self.located(inode.number, written_behind_end(&mut tx, id, size))?
        };
        if found.is_none() {
            return Ok(());
        }
        self.change_map(inode, BlockPool::Removal, |tx, ino| {
            let size = tx.inode(ino).core.size;
            while let Some(written) = written_behind_end(tx, ino, size)? {
                remove_range(tx, ino, written)?;
            }
            Ok(Some(()))
        })
    }
}

/// Gives the file a last block of its own, with zeros behind byte `to`, where it shares that block: who maps the file
/// into memory sees all of it. Without space for that the block stays shared, for a file must become shorter then, too;
/// its end becomes zeros when the file grows.
fn unshare_tail(tx: &mut Transaction, ino: InoId, to: u64) -> Result<()> {
    let block_log = tx.geometry().block_log;
    let block = to >> block_log;
    let kept = (to - (block << block_log)) as usize;
    if kept == 0 || !matches!(data::piece(tx, ino, block, block + 1)?.state, BlockState::Shared(_)) {
        return Ok(());
    }
    let mut bytes = vec![0; tx.geometry().block_bytes()];
    data::read(tx, ino, block << block_log, &mut bytes[..kept])?;
    let copied = next_link_with(tx, 1)
        .and_then(|()| data::write_out_run(tx, ino, block..block + 1, Source::Copy(&bytes)).map(|_| ()));
    match copied {
        Err(Error::NoSpace | Error::TooLarge) if !tx.is_dirty() => Ok(()),
        copied => copied,
    }
}
