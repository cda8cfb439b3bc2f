//! Write-back: writes metadata from memory to its place on the device so that the tail of the log can move.
//!
//! Items are grouped by the block they lie in. A buffer is copied, the copy is stamped and written, and the item leaves
//! the AIL if nothing was committed to it meanwhile. The buffer's lock is held until the write is done, so that this
//! write cannot overtake a newer one of another thread. Inodes are written with their cluster
//! ([`super::write_cluster`]).
//!
//! Locks are only tried: a locked object is in use by a transaction that will move it to the head of the log anyway.
//!
//! Blocks are written one after the other, and by several threads where the device's requests take long
//! (`Hints::queue_depth`).
//!
//! A block that the device refuses to write stays in the AIL, and its log records stay in the log. Every push tries it
//! again.
//!
//! Crash behaviour: a pinned object is never written (write-ahead); written blocks count as durable for the log's tail
//! only after the flush that the next checkpoint begins with.

use super::write_cluster::{may_write, write_cluster};
use crate::buffer::{Buffer, BufferKind};
use crate::error::{Error, Result};
use crate::error_tags::BUF_IOERROR;
use crate::incore::Inode;
use crate::item::LogItem;
use crate::journal::{Ail, WriteBack, WrittenBack};
use crate::mount::Mount;
use crate::space::cluster::INODE_CLUSTER_KIND;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use xfskit_device::at_once;
use xfskit_ondisk::DiskAddress;

/// Writes buffers and inodes of one mount back to its device.
pub struct WriteBackToDevice {
    mount: Weak<Mount>,
}

/// The items that lie in one block.
#[derive(Default)]
struct BlockItems {
    buffer: Option<Arc<Buffer>>,
    inodes: Vec<Arc<Inode>>,
}

impl BlockItems {
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

/// Whether the device refused a block, which stays in the AIL.
fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Io { .. })
}

/// Keeps the first error, but one that ends the write-back before a refusal.
fn note(done: &mut WrittenBack, error: Error) {
    if done.failed.as_ref().is_none_or(|first| is_refusal(first) && !is_refusal(&error)) {
        done.failed = Some(error);
    }
}

impl WriteBack for WriteBackToDevice {
    fn write_back(&self, ail: &Ail, mut items: Vec<(u64, Arc<dyn LogItem>)>) -> WrittenBack {
        let done = WrittenBack::default();
        let Some(mount) = self.mount.upgrade() else { return done };
        items.sort_unstable_by_key(|(address, _)| *address);
        let mut groups: Vec<(u64, BlockItems)> = Vec::new();
        for (address, item) in items {
            if groups.last().is_none_or(|(last, _)| *last != address) {
                groups.push((address, BlockItems::default()));
            }
            if let Some((_, group)) = groups.last_mut() {
                group.add(item);
            }
        }
        // Where each request takes long, many are on their way at a time.
        let (ordered, is_over) = (mount.journal.ordered_flag(), AtomicBool::new(false));
        let shared = Mutex::new(done);
        let each = |(address, group)| {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            let result = write_group(&mount, ail, &ordered, DiskAddress(address), group);
            let mut done = shared.lock();
            match result {
                Ok(left) => done.left += left,
                Err(error) => {
                    is_over.fetch_or(!is_refusal(&error), Ordering::Relaxed);
                    note(&mut done, error);
                }
            }
        };
        at_once(mount.device.hints().queue_depth, "write-back", groups, each);
        shared.into_inner()
    }

    fn drop_freed(&self, freed: Vec<Arc<dyn LogItem>>) {
        let Some(mount) = self.mount.upgrade() else { return };
        for buffer in freed.into_iter().filter_map(|item| item.as_any().downcast::<Buffer>().ok()) {
            mount.cache.drop_buffer(&buffer);
        }
    }
}

fn write_group(
    mount: &Arc<Mount>,
    ail: &Ail,
    ordered: &AtomicBool,
    address: DiskAddress,
    group: BlockItems,
) -> Result<usize> {
    if !group.inodes.is_empty() {
        return write_cluster(mount, ail, ordered, address, group.inodes);
    }
    let Some(buffer) = group.buffer else { return Ok(0) };
    let Some(content) = buffer.content().try_read() else { return Ok(0) };
    // Another thread may have written the buffer and dropped it.
    let Some(kind) = content.kind_if_loaded() else { return Ok(0) };
    if std::ptr::eq(kind, &INODE_CLUSTER_KIND) {
        drop(content);
        return write_cluster(mount, ail, ordered, address, Vec::new());
    }
    write_content(mount, ail, ordered, &buffer, kind, content.bytes())
}

/// Writes one buffer, other than one of inodes, to its place, if it waits for that and may be written now.
///
/// # Errors
/// `Io`, `Corrupt`.
pub fn write_buffer_back(mount: &Arc<Mount>, buffer: &Arc<Buffer>) -> Result<()> {
    let content = buffer.content().read();
    let Some(kind) = content.kind_if_loaded() else { return Ok(()) };
    debug_assert!(!std::ptr::eq(kind, &INODE_CLUSTER_KIND), "inodes are written with their cluster");
    let ordered = mount.journal.ordered_flag();
    write_content(mount, mount.journal.ail(), &ordered, buffer, kind, content.bytes()).map(|_| ())
}

/// Writes a buffer, whose lock the caller has, to its place, if it may be written. Returns how many items left the AIL.
fn write_content(
    mount: &Mount,
    ail: &Ail,
    ordered: &AtomicBool,
    buffer: &Arc<Buffer>,
    kind: &'static BufferKind,
    content: &[u8],
) -> Result<usize> {
    let item: Arc<dyn LogItem> = Arc::clone(buffer) as _;
    let Some((commits, lsn)) = may_write(&*item) else { return Ok(0) };
    let mut bytes = content.to_vec();
    kind.stamp(&mount.geometry, buffer.key().address(), lsn, &mut bytes)?;
    mount.error_tags.fail(BUF_IOERROR)?;
    mount.cache.write_runs(buffer.key(), &bytes)?;
    // Set before the item leaves the AIL: a checkpoint that sees the later tail then flushes first.
    ordered.store(true, Ordering::Release);
    mount.counters.blocks_written_back.increment();
    Ok(usize::from(ail.remove_if_unchanged(&item, commits)))
}
