//! Write-back of inodes, a cluster at a time.
//!
//! ```text
//!                            cluster cached                       cluster not cached
//! all its inodes are ready   put into the buffer, which then      put into temporary memory
//!                            leaves the cache
//! some are                   put into the buffer                  read, then put into the buffer
//! ```
//! Where all inodes of a cluster are written at once, they are all in the inode cache, and mostly they all change
//! together again. A buffer kept for that would need half as much memory again, and none of it would be in the
//! processor's caches by then.
//!
//! The links of the unlinked list are in the buffer, not in the inodes in memory. A cluster that is put together
//! without its buffer has no links, so this is not done while one of its inodes may be on a list.
//!
//! Locks are only tried. The buffer's lock is held from the first copy to the end of the write, each inode's lock while
//! that inode is copied.

use super::fork::encode_inode;
use crate::buffer::{Buffer, BufferContent, BufferKey};
use crate::error::Result;
use crate::error_tags::BUF_IOERROR;
use crate::incore::{Inode, InodeState};
use crate::item::{CheckpointSeq, LogItem};
use crate::journal::Ail;
use crate::mount::Mount;
use crate::space::cluster::INODE_CLUSTER_KIND;
use crate::sync::HeldLock;
use crate::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use xfskit_ondisk::inode::{INODE_NEXT_UNLINKED_OFFSET, stamp_inode};
use xfskit_ondisk::{DiskAddress, Lsn};

/// An item that was copied, with its commit count at that moment.
type Copied = (Arc<dyn LogItem>, u32);

/// A cluster that inodes were put into, locked.
struct FilledCluster {
    buffer: Arc<Buffer>,
    held: HeldLock<BufferContent>,
    /// The contents, if they are not in the buffer.
    apart: Option<Vec<u8>>,
    inodes: usize,
    copied: Vec<Copied>,
}

impl FilledCluster {
    fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.apart {
            Some(bytes) => bytes,
            None => self.held.exclusive().bytes_mut(),
        }
    }
}

/// Writes a cluster with all its inodes that can be written. Returns how many items left the AIL.
pub(super) fn write_cluster(
    mount: &Arc<Mount>,
    ail: &Ail,
    ordered: &AtomicBool,
    address: DiskAddress,
    inodes: Vec<Arc<Inode>>,
) -> Result<usize> {
    // The counts are read before `freed_in`: a new inode in a cluster that is made again then has another count and
    // stays in the AIL.
    let commits: Vec<u32> = inodes.iter().map(|inode| inode.item().lock().commits).collect();
    if let Some(freed) = mount.inodes.freed_in(address) {
        return Ok(drop_freed(mount, ail, freed, inodes.into_iter().zip(commits)));
    }
    let key = BufferKey::new(address, mount.geometry.inode_cluster_bytes());
    let Some(mut filled) = fill(mount, &key, &inodes)? else { return Ok(0) };
    mount.error_tags.fail(BUF_IOERROR)?;
    mount.cache.write_runs(&key, filled.bytes_mut())?;
    let FilledCluster { buffer, held, copied, inodes, .. } = filled;
    drop(held);
    ordered.store(true, Ordering::Release);
    mount.counters.blocks_written_back.increment();
    let left = ail.remove_all_unchanged(copied.iter().map(|(item, commits)| (item, *commits)));
    if inodes * mount.geometry.inode_bytes() == key.bytes() {
        mount.cache.drop_buffer(&buffer);
    }
    Ok(left)
}

/// Locks a cluster and puts into it what can be written; `None` when it is in use, or there is nothing.
fn fill(mount: &Mount, key: &BufferKey, inodes: &[Arc<Inode>]) -> Result<Option<FilledCluster>> {
    let is_freed = || mount.inodes.freed_in(key.address()).is_some();
    let one_waits = || inodes.iter().any(|inode| may_write(&**inode).is_some());
    // While an inode waits in the AIL, `freed_in` does not forget that its cluster was freed.
    let is_wanted = || !is_freed() && one_waits();
    let Some((buffer, mut held)) = mount.cache.try_lock_unread(key, &INODE_CLUSTER_KIND, is_wanted)? else {
        return Ok(None);
    };
    // The transaction that frees the blocks holds this lock, and calls `cluster_freed` before it drops the lock. The
    // links of the unlinked list are in the buffer: while a change of one is not in the log, the cluster is not
    // written.
    if is_freed() || buffer.item().is_pinned() || buffer.item().lock().stale {
        return Ok(None);
    }
    if held.kind_if_loaded().is_none() {
        if let Some((bytes, copied)) = put_together(mount, key, inodes) {
            return Ok(Some(FilledCluster { buffer, held, apart: Some(bytes), inodes: copied.len(), copied }));
        }
        // Another thread may have written them meanwhile.
        if !one_waits() {
            return Ok(None);
        }
        mount.cache.read_contents(key, &INODE_CLUSTER_KIND, held.exclusive())?;
    }
    held.check_kind(&INODE_CLUSTER_KIND, &mount.geometry, key)?;
    let mut copied: Vec<Copied> = Vec::with_capacity(1 + inodes.len());
    let bytes = held.exclusive().bytes_mut();
    copied.extend(inodes.iter().filter_map(|inode| copy_inode(mount, inode, bytes, |_| true)));
    let inodes = copied.len();
    let buffer_item: Arc<dyn LogItem> = Arc::clone(&buffer) as _;
    copied.extend(may_write(&*buffer_item).map(|(commits, _)| (buffer_item, commits)));
    Ok((!copied.is_empty()).then_some(FilledCluster { buffer, held, apart: None, inodes, copied }))
}

/// The contents of a cluster all of whose inodes are ready.
fn put_together(mount: &Mount, key: &BufferKey, inodes: &[Arc<Inode>]) -> Option<(Vec<u8>, Vec<Copied>)> {
    if inodes.len() != mount.geometry.inode_cluster_inodes() as usize {
        return None;
    }
    // Bytes of 0xff are links to no inode.
    let mut bytes = vec![0xff; key.bytes()];
    let is_off_lists = |state: &InodeState| state.core.links > 0 || state.core.mode == 0;
    let copy = |inode: &Arc<Inode>| {
        // There are as many inodes as slots, and each has a slot of its own, so they fill the cluster.
        assert_eq!(bytes[inode.offset_in_cluster()], 0xff, "an inode is cached at most once");
        copy_inode(mount, inode, &mut bytes, is_off_lists)
    };
    let copied: Option<Vec<_>> = inodes.iter().map(copy).collect();
    copied.map(|copied| (bytes, copied))
}

/// Writes one inode into its cluster's bytes, unless it is in use or does not `suit`. Only this inode gets a new
/// checksum. A wrong checksum of an inode beside it stays, as the sign that it is damaged. Code that changes a link in
/// the buffer sets the checksum itself.
fn copy_inode(
    mount: &Mount,
    inode: &Arc<Inode>,
    cluster: &mut [u8],
    suits: impl Fn(&InodeState) -> bool,
) -> Option<Copied> {
    const LINK: std::ops::Range<usize> = INODE_NEXT_UNLINKED_OFFSET..INODE_NEXT_UNLINKED_OFFSET + 4;
    let state = inode.state_lock().try_read().filter(|state| suits(state))?;
    let (commits, lsn) = may_write(&**inode)?;
    let offset = inode.offset_in_cluster();
    let slot = &mut cluster[offset..offset + mount.geometry.inode_bytes()];
    // The link of the unlinked list is kept in the buffer, not in the inode in memory.
    let next_unlinked = <[u8; 4]>::try_from(&slot[LINK]).expect("the range has four bytes");
    encode_inode(&state, &mount.geometry, slot);
    slot[LINK].copy_from_slice(&next_unlinked);
    slot[112..120].copy_from_slice(&lsn.0.to_be_bytes());
    stamp_inode(slot);
    drop(state);
    Some((Arc::clone(inode) as _, commits))
}

/// Inodes whose blocks were freed have no place on the device any more. They leave the AIL when the freeing is durable.
/// Returns how many left it.
fn drop_freed(
    mount: &Mount,
    ail: &Ail,
    freed: CheckpointSeq,
    inodes: impl Iterator<Item = (Arc<Inode>, u32)>,
) -> usize {
    if mount.journal.durable() < freed {
        return 0;
    }
    let items: Vec<Copied> = inodes.map(|(inode, commits)| (inode as _, commits)).collect();
    ail.remove_all_unchanged(items.iter().map(|(item, commits)| (item, *commits)))
}

/// Whether an item may be written now; its commit count and the LSN of its last change.
pub(super) fn may_write(item: &dyn LogItem) -> Option<(u32, Lsn)> {
    let inner = item.state().lock();
    if inner.gathered.is_pinned() || inner.stale {
        return None;
    }
    inner.in_ail.get().map(|lsn| (inner.commits, lsn))
}
