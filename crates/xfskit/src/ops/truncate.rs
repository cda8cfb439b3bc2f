//! Sets the size of a file.
//!
//! ```text
//! smaller   zeros up to the end of the last block   link 1      size
//!                                                   links 2..n  blocks behind it are freed, from the last one on
//! larger    links 1..n-1  written blocks behind the old end, if there are any, are freed
//!           link n        size
//! ```
//! Crash behaviour: after link 1 of a truncation the size is the new one; blocks that are still there go when the file
//! grows again or ends.

use super::create::take_in_write;
use super::map::{END_OF_MAP, grow, remove_range, written_behind_end};
use super::protected::check_unprotected;
use super::setattr::{SetAttr, apply};
use super::stat::stat_of;
use super::{Caller, Stat, Volume};
use crate::data::{self, MAX_SIZE_BYTES};
use crate::error::{Error, Result, caller};
use crate::incore::{ForkKind, Inode};
use crate::inode::bmap;
use crate::trans::{InodeFields, Transaction};
use std::sync::Arc;
use xfskit_ondisk::{FileBlock, InodeNumber};

impl Volume {
    /// Sets the size of a file. What it gains reads as zeros and takes no space.
    ///
    /// # Errors
    /// `IsADirectory`, `Invalid` when it is no file, `TooLarge` beyond 2⁶³ − 1 bytes; `NotPermitted` for a
    /// file that is immutable or append-only; `ReadOnly`, `NoSpace`, `Stale`,
    /// `Corrupt`, `Io`.
    pub fn truncate(&self, inode: InodeNumber, size: u64) -> caller::Result<()> {
        Ok(self.resize(inode, size, &SetAttr::default(), &Caller::root()).map(|_| ())?)
    }

    /// Sets the size of a file, and other attributes, all but its mode, with it.
    pub(super) fn resize(&self, inode: InodeNumber, size: u64, change: &SetAttr, caller: &Caller) -> Result<Stat> {
        if size > MAX_SIZE_BYTES {
            return Err(Error::TooLarge);
        }
        self.change_map(inode, |tx, ino| {
            check_unprotected(&tx.inode(ino).core)?;
            let old = tx.inode(ino).core.size;
            if !grow(tx, ino, size)? {
                return Ok(None);
            }
            // A damaged map is found before anything is changed.
            bmap::extents(tx, ino, ForkKind::Data)?;
            if size < old {
                data::cut_tail(tx, ino, size)?;
            }
            take_in_write(tx, ino);
            let (now, geometry) = (tx.mount().env.now(), tx.geometry());
            let core = &mut tx.inode_mut(ino, InodeFields::CORE).core;
            if size != old {
                (core.size, core.mtime) = (size, now);
            }
            apply(core, change, now, caller, geometry);
            if size < old {
                tx.inode_memory_mut(ino).was_cut = true;
            }
            if size <= old {
                let end = FileBlock(size.div_ceil(tx.geometry().block_bytes() as u64));
                remove_range(tx, ino, end..END_OF_MAP)?;
                bmap::forget_sharing(tx, ino)?;
            }
            Ok(Some(stat_of(tx, tx.inode(ino))))
        })
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
        self.change_map(inode.number, |tx, ino| {
            let size = tx.inode(ino).core.size;
            while let Some(written) = written_behind_end(tx, ino, size)? {
                remove_range(tx, ino, written)?;
            }
            Ok(Some(()))
        })
    }
}
