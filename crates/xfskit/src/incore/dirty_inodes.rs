//! Inodes of which something waits in memory that only a write-out brings to the journal: contents, or times.
//!
//! Locking: one mutex, below the inodes' locks.

use super::Inode;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::Arc;
use xfskit_ondisk::InodeNumber;

/// What an inode on the list counts for, in bytes.
const INODE_BYTES: u64 = 1024;

/// The list, which keeps its inodes in memory.
#[derive(Default)]
pub struct DirtyInodes {
    list: Mutex<BTreeMap<InodeNumber, Arc<Inode>>>,
    bytes: AtomicU64,
}

impl DirtyInodes {
    /// Adds an inode if it is not there.
    pub fn add(&self, inode: &Arc<Inode>) {
        let mut list = self.list.lock();
        if list.insert(inode.number, Arc::clone(inode)).is_none() {
            self.bytes.fetch_add(INODE_BYTES, Ordering::Relaxed);
        }
    }

    /// Takes an inode off; the caller has its lock and sees that nothing waits.
    pub fn remove(&self, inode: InodeNumber) {
        // What is on the list counts. A thread that adds the inode at this moment does so after this.
        if self.bytes() > 0 && self.list.lock().remove(&inode).is_some() {
            self.bytes.fetch_sub(INODE_BYTES, Ordering::Relaxed);
        }
    }

    /// The inodes at this moment, in the order of their numbers.
    pub fn all(&self) -> Vec<Arc<Inode>> {
        self.list.lock().values().cloned().collect()
    }

    /// Bytes of contents that wait, and something for each inode.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Contents came or went.
    pub fn count_bytes(&self, before: u64, after: u64) {
        if after >= before {
            self.bytes.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.bytes.fetch_sub(before - after, Ordering::Relaxed);
        }
    }
}
