//! Inodes whose contents or times are ahead of the journal: only a write-out brings them there.
//!
//! Locking: one mutex, below the inodes' locks; the turn, above all locks.

use super::Inode;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use xfskit_ondisk::InodeNumber;

/// Bytes that an inode on the list counts for.
const INODE_BYTES: u64 = 1024;

/// The list, which keeps its inodes in memory.
#[derive(Default)]
pub struct DirtyInodes {
    list: Mutex<BTreeMap<InodeNumber, Arc<Inode>>>,
    /// Held by the thread that brings contents out since too much of them waits.
    turn: Mutex<()>,
    bytes: AtomicU64,
}

impl DirtyInodes {
    /// The turn to bring contents out, unless another thread has it.
    pub fn try_take_turn(&self) -> Option<MutexGuard<'_, ()>> {
        self.turn.try_lock()
    }

    /// The same; waits. The caller holds no lock.
    pub fn take_turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// Adds an inode if it is not there.
    pub fn add(&self, inode: &Arc<Inode>) {
        let mut list = self.list.lock();
        if list.insert(inode.number, Arc::clone(inode)).is_none() {
            self.bytes.fetch_add(INODE_BYTES, Ordering::Relaxed);
        }
    }

    /// Takes an inode off. The caller holds its lock and has checked that nothing of it is dirty.
    pub fn remove(&self, inode: InodeNumber) {
        // Every inode on the list is counted, so 0 bytes mean an empty list. An addition by another thread at this
        // moment counts as later.
        if self.bytes() > 0 && self.list.lock().remove(&inode).is_some() {
            self.bytes.fetch_sub(INODE_BYTES, Ordering::Relaxed);
        }
    }

    /// The inodes at this moment, in the order of their numbers.
    pub fn all(&self) -> Vec<Arc<Inode>> {
        self.list.lock().values().cloned().collect()
    }

    /// Bytes of dirty contents, and a fixed number for each inode.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Counts a change of an inode's dirty bytes, from `before` to `after`.
    pub fn count_bytes(&self, before: u64, after: u64) {
        if after >= before {
            self.bytes.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.bytes.fetch_sub(before - after, Ordering::Relaxed);
        }
    }
}
