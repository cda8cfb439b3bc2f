//! What the operations on maps of files have in common: a chain of links, each of which leaves files that are valid.
//!
//! Bytes that have to become zeros are zeroed first. Where their block is shared they have to wait in memory and be
//! written out, so such an operation begins again: it says so by answering `None`. What others write meanwhile is
//! written out in links of the same chain, under its locks, so that they cannot keep it from beginning.
//!
//! Locking: the inodes stay locked for the whole chain. Each link begins without an AG.

use super::Volume;
use super::create::{single, take_in_write};
use crate::data;
use crate::error::{Error, Result};
use crate::error_tags::REFUSE_REMOVAL;
use crate::incore::{ForkKind, Inode};
use crate::inode::bmap;
use crate::mount::{BlockPool, Mount};
use crate::space;
use crate::trans::deferred::Turn;
use crate::trans::reservation_of;
use crate::trans::{InoId, InodeFields, Reservation, Transaction};
use std::ops::Range;
use std::sync::Arc;
use xfskit_ondisk::{FileBlock, InodeNumber};

/// Behind every block of a file.
pub(super) const END_OF_MAP: FileBlock = FileBlock(1 << 54);

impl Volume {
    /// Works on the map of a file, of which nothing waits in memory, until `work` is done. Each attempt begins with
    /// blocks from `pool`.
    pub(super) fn change_map<T>(
        &self,
        inode: &Arc<Inode>,
        pool: BlockPool,
        work: impl Fn(&mut Transaction, InoId) -> Result<Option<T>>,
    ) -> Result<T> {
        loop {
            self.write_out(inode)?;
            if let Some(done) = self.with_settled(inode, pool, &work)? {
                return Ok(done);
            }
        }
    }

    /// Works on the map of a file once, after what waits of it in memory was brought out under its lock.
    fn with_settled<T>(
        &self,
        inode: &Arc<Inode>,
        pool: BlockPool,
        work: impl FnOnce(&mut Transaction, InoId) -> Result<T>,
    ) -> Result<T> {
        let mut tx = self.begin_map(pool)?;
        let result = self.join_file(&mut tx, inode).and_then(|id| {
            self.settle(&mut tx, id)?;
            work(&mut tx, id)
        });
        self.located(inode.number, tx.finish(result))
    }

    /// Begins a change of a map.
    pub(super) fn begin_map(&self, pool: BlockPool) -> Result<Transaction<'_>> {
        self.begin_or_remove(link_reservation(&self.mount).with_pool(pool), removal_blocks(&self.mount))
    }

    /// Begins a transaction. A removal for which the reserve pool has not enough goes on with `least` blocks from the
    /// pool for removals: whatever needs more is refused before anything is changed.
    pub(super) fn begin_or_remove(&self, reservation: Reservation, least: u64) -> Result<Transaction<'_>> {
        if reservation.pool != BlockPool::Removal {
            return self.begin(reservation);
        }
        if self.mount.error_tags.strikes(REFUSE_REMOVAL) {
            return Err(Error::NoSpace);
        }
        match self.begin(reservation.with_pool(BlockPool::Reserve)) {
            Err(Error::NoSpace) => self.begin(reservation.with_blocks(least)),
            other => other,
        }
    }

    /// As [`Self::change_map`], for two files, which may be one, and for what takes no blocks that are kept.
    pub(super) fn change_maps<T>(
        &self,
        inodes: [InodeNumber; 2],
        work: impl Fn(&mut Transaction, [InoId; 2]) -> Result<Option<T>>,
    ) -> Result<T> {
        let files = [self.mount.inode(inodes[0])?, self.mount.inode(inodes[1])?];
        loop {
            files.iter().try_for_each(|file| self.write_out(file))?;
            let mut tx = self.begin(link_reservation(&self.mount))?;
            let result = self.join_both(&mut tx, &files).and_then(|ids| {
                ids.into_iter().try_for_each(|id| self.settle(&mut tx, id))?;
                work(&mut tx, ids)
            });
            if let Some(done) = self.located(inodes[1], tx.finish(result))? {
                return Ok(done);
            }
        }
    }

    fn join_both(&self, tx: &mut Transaction, files: &[Arc<Inode>; 2]) -> Result<[InoId; 2]> {
        let [one, other] = files;
        if one.number == other.number {
            let id = self.join_file(tx, one)?;
            return Ok([id, id]);
        }
        if one.number < other.number {
            Ok([self.join_file(tx, one)?, self.join_file(tx, other)?])
        } else {
            let other = self.join_file(tx, other)?;
            Ok([self.join_file(tx, one)?, other])
        }
    }

    /// Looks at the map of a file of which nothing waits in memory.
    pub(super) fn look_at_map<T>(
        &self,
        inode: InodeNumber,
        look: impl FnOnce(&mut Transaction, InoId) -> Result<T>,
    ) -> Result<T> {
        let inode = self.mount.inode(inode)?;
        if !self.mount.options.read_only {
            self.write_out(&inode)?;
        }
        let mut tx = Transaction::read_only(&self.mount);
        let id = self.join_file(&mut tx, &inode)?;
        if tx.inode(id).is_settled() {
            return self.located(inode.number, look(&mut tx, id));
        }
        // Another thread wrote meanwhile, and may go on writing.
        drop(tx);
        self.with_settled(&inode, BlockPool::Reserve, look)
    }
}

/// Blocks that one link may need for trees: the map may grow at both ends of a change, and references split records, of
/// blocks that are let go and of blocks that are shared.
fn tree_blocks(mount: &Mount) -> u64 {
    2 * u64::from(mount.limits.data_levels) + 2 * space::free_blocks_needed(&mount.geometry, &mount.limits)
}

/// Blocks without which a link that removes whole records does not begin: references may split records.
fn removal_blocks(mount: &Mount) -> u64 {
    space::free_blocks_needed(&mount.geometry, &mount.limits)
}

/// What one link takes, or writing out one run, the blocks for contents apart.
pub(super) fn link_reservation(mount: &Mount) -> Reservation {
    let (write, truncate) = (mount.reservations.write, mount.reservations.itruncate);
    let both = Reservation { log_bytes: write.bytes + truncate.bytes, ..reservation_of(write) };
    single(both).with_blocks(tree_blocks(mount))
}

/// Commits what the chain has done so far. The next link holds no AG.
pub(super) fn end_link(tx: &mut Transaction) -> Result<()> {
    tx.finish_deferred(Turn::Last)?;
    tx.roll()
}

/// As [`end_link`]; the next link has blocks for the trees, from `pool`.
pub(super) fn next_link(tx: &mut Transaction, pool: BlockPool) -> Result<()> {
    end_link(tx)?;
    let blocks = tree_blocks(tx.mount());
    if pool != BlockPool::Removal {
        return tx.top_up_blocks(blocks, pool);
    }
    match tx.top_up_blocks(blocks, BlockPool::Reserve) {
        Err(Error::NoSpace) => tx.top_up_blocks(removal_blocks(tx.mount()), BlockPool::Removal),
        other => other,
    }
}

/// As [`next_link`], with `count` blocks for contents.
pub(super) fn next_link_with(tx: &mut Transaction, count: u64) -> Result<()> {
    end_link(tx)?;
    let blocks = tree_blocks(tx.mount()) + count;
    tx.top_up_blocks(blocks, BlockPool::Ordinary)
}

/// Unmaps and frees the blocks of `range`, from its end on. Where next to nothing is free, whole records go, and
/// `NoSpace` is the answer to what would cut one in two.
pub(super) fn remove_range(tx: &mut Transaction, ino: InoId, range: Range<FileBlock>) -> Result<()> {
    let list = bmap::extents(tx, ino, ForkKind::Data)?;
    let mut more = list.next_at(range.start).is_some_and(|extent| extent.file_block < range.end);
    while more {
        next_link(tx, BlockPool::Removal)?;
        more = bmap::remove_some(tx, ino, range.clone())?;
    }
    Ok(())
}

/// Makes bytes within the file read as zeros. False when that has to be written out first.
pub(super) fn zero_bytes(tx: &mut Transaction, ino: InoId, range: Range<u64>) -> Result<bool> {
    let end = range.end.min(tx.inode(ino).core.size);
    if range.start < end {
        let result = data::zero(tx, ino, range.start, end);
        return tell_settled(tx, ino, result);
    }
    Ok(true)
}

/// Gets the file ready for its end to move to byte `to`, if that is behind it: what would be seen then reads as zeros.
/// False as [`zero_bytes`].
pub(super) fn grow(tx: &mut Transaction, ino: InoId, to: u64) -> Result<bool> {
    let size = tx.inode(ino).core.size;
    if to <= size {
        return Ok(true);
    }
    while let Some(written) = written_behind_end(tx, ino, size)? {
        remove_range(tx, ino, written)?;
        end_link(tx)?;
    }
    let result = data::extend(tx, ino, to);
    tell_settled(tx, ino, result)
}

/// The first written blocks behind the one that holds the file's last byte. An image may have some after a crash, or
/// from other writers.
pub(super) fn written_behind_end(tx: &mut Transaction, ino: InoId, size: u64) -> Result<Option<Range<FileBlock>>> {
    let end = FileBlock(size.div_ceil(tx.geometry().block_bytes() as u64));
    let list = bmap::extents(tx, ino, ForkKind::Data)?;
    if list.last().is_none_or(|last| last.end() <= end) {
        return Ok(None);
    }
    let found = list.iter_from(list.index_at(end)).find(|extent| !extent.unwritten);
    Ok(found.map(|extent| extent.file_block.max(end)..extent.end()))
}

/// Whether nothing waits in memory after bytes were zeroed; if something does, the file is on the list of those.
fn tell_settled(tx: &Transaction, ino: InoId, zeroed: Result<()>) -> Result<bool> {
    let settled = tx.inode(ino).is_settled();
    if !settled {
        tx.mount().dirty_inodes.add(tx.inode_handle(ino));
    }
    zeroed.map(|()| settled)
}

/// The contents changed.
pub(super) fn touch_contents(tx: &mut Transaction, ino: InoId) {
    take_in_write(tx, ino);
    let now = tx.mount().env.now();
    let core = &mut tx.inode_mut(ino, InodeFields::CORE).core;
    (core.mtime, core.ctime) = (now, now);
}
