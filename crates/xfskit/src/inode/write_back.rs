//! Write-back: brings metadata from memory to its home so that the tail of the log can move.
//!
//! Items are grouped by the block they lie in. A buffer is copied, the copy is stamped and written, and the item leaves the
//! AIL if nothing was committed to it meanwhile. The buffer's lock is held until the write is done: another thread's newer
//! write must not be overtaken by this one. An inode is first written into its cluster's
//! buffer; then the cluster goes like any buffer, once for all inodes in it.
//!
//! Locks are only tried: a locked object is in use by a transaction that will move it to the head of the log anyway.
//!
//! Crash behaviour: a pinned object is never written (write-ahead); written blocks count as durable for the log's tail
//! only after the flush that the next checkpoint begins with.

use super::cluster::INODE_CLUSTER_KIND;
use super::fork::encode_inode;
use crate::cache::{Buffer, BufferKey, Fill, Inode};
use crate::error::{Error, Result};
use crate::error_tags::BUF_IOERROR;
use crate::item::LogItem;
use crate::journal::{Ail, WriteBack};
use crate::mount::Mount;
use crate::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use xfskit_ondisk::inode::stamp_inode;
use xfskit_ondisk::{DiskAddress, Lsn};

/// Writes buffers and inodes of one mount back to its device.
pub struct WriteBackToDevice {
    mount: Weak<Mount>,
}

/// An item that was copied, with its commit count at that moment.
type Copied = (Arc<dyn LogItem>, u32);

/// What lies in one block.
#[derive(Default)]
struct Group {
    buffer: Option<Arc<Buffer>>,
    inodes: Vec<Arc<Inode>>,
}

impl Group {
    fn add(&mut self, item: Arc<dyn LogItem>) {
        match item.as_any().downcast::<Buffer>() {
            Ok(buffer) => self.buffer = Some(buffer),
            Err(any) => self.inodes.extend(any.downcast::<Inode>()),
        }
    }
}

impl WriteBackToDevice {
    /// Write-back for `mount`.
    pub fn new(mount: Weak<Mount>) -> Self {
        Self { mount }
    }
}

impl WriteBack for WriteBackToDevice {
    fn write_back(&self, ail: &Ail, mut items: Vec<(u64, Arc<dyn LogItem>)>) -> Result<usize> {
        let Some(mount) = self.mount.upgrade() else { return Ok(0) };
        items.sort_unstable_by_key(|(home, _)| *home);
        let unflushed = mount.journal.unflushed_flag();
        let mut written = 0;
        let mut items = items.into_iter().peekable();
        while let Some((home, first)) = items.next() {
            let mut group = Group::default();
            group.add(first);
            while let Some((_, item)) = items.next_if(|(next, _)| *next == home) {
                group.add(item);
            }
            written += write_group(&mount, ail, &unflushed, DiskAddress(home), group)?;
        }
        Ok(written)
    }
}

fn write_group(
    mount: &Arc<Mount>,
    ail: &Ail,
    unflushed: &AtomicBool,
    address: DiskAddress,
    group: Group,
) -> Result<usize> {
    if !group.inodes.is_empty() {
        return write_cluster(mount, ail, unflushed, address, group.inodes);
    }
    let Some(buffer) = group.buffer else { return Ok(0) };
    if buffer.key().bytes() == mount.geometry.inode_cluster_bytes()
        && buffer.content().try_read().is_some_and(|content| std::ptr::eq(content.kind(), &INODE_CLUSTER_KIND))
    {
        return write_cluster(mount, ail, unflushed, address, Vec::new());
    }
    let Some(content) = buffer.content().try_read() else { return Ok(0) };
    let item: Arc<dyn LogItem> = Arc::clone(&buffer) as _;
    let Some((commits, lsn)) = may_write(&*item) else { return Ok(0) };
    let mut bytes = content.bytes().to_vec();
    content.kind().stamp(&mount.geometry, buffer.key().address(), lsn, &mut bytes)?;
    mount.error_tags.fail(BUF_IOERROR)?;
    mount.cache.write_runs(buffer.key(), &bytes)?;
    drop(content);
    // Set before the item leaves the AIL: a checkpoint that sees the later tail then flushes first.
    unflushed.store(true, Ordering::Release);
    mount.counters.blocks_written_back.increment();
    Ok(usize::from(ail.remove_if_unchanged(&item, commits)))
}

/// Whether an item may be written now; its commit count and the LSN of its last change.
fn may_write(item: &dyn LogItem) -> Option<(u32, Lsn)> {
    let inner = item.state().lock();
    if inner.pins > 0 || inner.stale {
        return None;
    }
    inner.in_ail.get().map(|lsn| (inner.commits, lsn))
}

/// Writes a cluster with all its inodes that can be written.
fn write_cluster(
    mount: &Arc<Mount>,
    ail: &Ail,
    unflushed: &AtomicBool,
    address: DiskAddress,
    inodes: Vec<Arc<Inode>>,
) -> Result<usize> {
    // Read before the question, so that a new life of an inode is not taken for the old one.
    let commits: Vec<u32> = inodes.iter().map(|inode| inode.item().lock().commits).collect();
    if let Some(freed) = mount.inodes.freed_in(address) {
        return Ok(drop_freed(mount, ail, freed, inodes.into_iter().zip(commits)));
    }
    let key = BufferKey::new(address, mount.geometry.inode_cluster_bytes());
    let (buffer, mut held) = match mount.cache.lock(&key, &INODE_CLUSTER_KIND, Fill::Read, true, false) {
        Ok(found) => found,
        Err(Error::WouldBlock) => return Ok(0),
        Err(error) => return Err(error),
    };
    let buffer_item: Arc<dyn LogItem> = Arc::clone(&buffer) as _;
    // The unlinked list's links live in the buffer: while one of them is not in the log, the cluster stays. Its blocks may have
    // been freed since the question above.
    if buffer.item().is_pinned() || buffer.item().lock().stale {
        return Ok(0);
    }
    let mut copied: Vec<Copied> = Vec::with_capacity(1 + inodes.len());
    copied.extend(may_write(&*buffer_item).map(|(commits, _)| (buffer_item, commits)));
    for inode in inodes {
        copied.extend(copy_inode(mount, inode, held.exclusive().bytes_mut()));
    }
    if copied.is_empty() {
        return Ok(0);
    }
    // Links of the unlinked list are changed in the buffer alone, without a new checksum.
    held.exclusive().bytes_mut().chunks_exact_mut(mount.geometry.inode_bytes()).for_each(stamp_inode);
    mount.error_tags.fail(BUF_IOERROR)?;
    mount.cache.write_runs(&key, held.bytes())?;
    drop(held);
    unflushed.store(true, Ordering::Release);
    mount.counters.blocks_written_back.increment();
    Ok(ail.remove_all_unchanged(copied.iter().map(|(item, commits)| (item, *commits))))
}

/// Writes one inode into its cluster's bytes, but for the checksum, unless it is in use.
fn copy_inode(mount: &Mount, inode: Arc<Inode>, cluster: &mut [u8]) -> Option<Copied> {
    let state = inode.state_lock().try_read()?;
    let (commits, lsn) = may_write(&*inode)?;
    let offset = inode.offset_in_cluster as usize;
    let slot = &mut cluster[offset..offset + mount.geometry.inode_bytes()];
    // The link of the unlinked list is the buffer's, not the inode's.
    let next_unlinked = [slot[96], slot[97], slot[98], slot[99]];
    encode_inode(&state, &mount.geometry, slot);
    slot[96..100].copy_from_slice(&next_unlinked);
    slot[112..120].copy_from_slice(&lsn.0.to_be_bytes());
    drop(state);
    Some((inode, commits))
}

/// Inodes whose blocks were freed have no home any more; they leave the AIL when the freeing is durable.
fn drop_freed(
    mount: &Mount,
    ail: &Ail,
    freed: crate::item::CheckpointSeq,
    inodes: impl Iterator<Item = (Arc<Inode>, u32)>,
) -> usize {
    if mount.journal.durable() < freed {
        return 0;
    }
    let items: Vec<Copied> = inodes.map(|(inode, commits)| (inode as _, commits)).collect();
    ail.remove_all_unchanged(items.iter().map(|(item, commits)| (item, *commits)))
}
