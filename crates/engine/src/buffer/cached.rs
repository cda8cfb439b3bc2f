//! A cached buffer: the contents of one structure on disk under their lock, and the journal's bookkeeping.

use super::{BufferKey, BufferKind};
use crate::error::Result;
use crate::item::{ItemState, LogItem};
use crate::sync::RwLock;
use crate::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use xfskit_ondisk::Geometry;

/// A cached buffer.
pub struct Buffer {
    key: BufferKey,
    content: Arc<RwLock<BufferContent>>,
    item: ItemState,
    touched: AtomicBool,
}

/// The contents, under the buffer's lock.
#[derive(Debug, Default)]
pub struct BufferContent {
    bytes: Box<[u8]>,
    kind: Option<&'static BufferKind>,
    evicted: bool,
}

impl Buffer {
    pub(crate) fn new(key: BufferKey) -> Self {
        Self {
            key,
            content: Arc::new(RwLock::new(BufferContent::default())),
            item: ItemState::default(),
            touched: AtomicBool::new(true),
        }
    }

    /// Where the buffer lies.
    pub fn key(&self) -> &BufferKey {
        &self.key
    }

    /// The lock around the contents.
    pub fn content(&self) -> &Arc<RwLock<BufferContent>> {
        &self.content
    }

    /// The journal's bookkeeping.
    pub fn item(&self) -> &ItemState {
        &self.item
    }

    pub(super) fn touch(&self) {
        self.touched.store(true, Ordering::Relaxed);
    }

    pub(super) fn take_touched(&self) -> bool {
        self.touched.swap(false, Ordering::Relaxed)
    }

    /// Marks the buffer as evicted, unless its lock is taken or it has changed.
    pub(super) fn mark_evicted(&self) -> bool {
        let Some(mut content) = self.content.try_write() else { return false };
        // A thread may have found the buffer by a directory's memory, without the cache, and changed it. A commit pins
        // it under the lock that is held here.
        if !self.item.is_clean() {
            return false;
        }
        content.evicted = true;
        content.kind = None;
        content.bytes = Box::default();
        true
    }

    /// Marks the buffer as evicted, for threads that remember it: another buffer has replaced it.
    pub(super) fn mark_replaced(&self) {
        if let Some(mut content) = self.content.try_write() {
            content.evicted = true;
        }
    }
}

impl LogItem for Buffer {
    fn state(&self) -> &ItemState {
        &self.item
    }

    fn block_address(&self) -> u64 {
        self.key.address().0
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn std::any::Any + Send + Sync> {
        self
    }
}

impl BufferContent {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes, for a change that the caller records.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// The kind of structure in the bytes.
    ///
    /// # Panics
    /// If the buffer was never loaded; `BufferCache::lock` returns no such buffer.
    pub fn kind(&self) -> &'static BufferKind {
        self.kind.expect("a buffer is handed out only after it was loaded")
    }

    /// As [`Self::kind`], for a thread that has found the buffer without the cache. `None` if the buffer was dropped
    /// from it.
    pub fn kind_if_loaded(&self) -> Option<&'static BufferKind> {
        self.kind
    }

    /// Records that the bytes are now another kind of structure.
    pub fn set_kind(&mut self, kind: &'static BufferKind) {
        self.kind = Some(kind);
    }

    pub(super) fn is_loaded(&self) -> bool {
        self.kind.is_some()
    }

    pub(super) fn was_evicted(&self) -> bool {
        self.evicted
    }

    pub(super) fn load(&mut self, kind: &'static BufferKind, bytes: Vec<u8>) {
        self.bytes = bytes.into_boxed_slice();
        self.kind = Some(kind);
    }

    pub(super) fn reset(&mut self, kind: &'static BufferKind, bytes: usize) {
        if self.bytes.len() == bytes {
            self.bytes.fill(0);
        } else {
            self.bytes = vec![0; bytes].into_boxed_slice();
        }
        self.kind = Some(kind);
    }

    /// A buffer found in the cache under another kind (blocks change owners) must also pass the new kind's checks.
    pub(crate) fn check_kind(&self, wanted: &'static BufferKind, geometry: &Geometry, key: &BufferKey) -> Result<()> {
        let kind = self.kind();
        if std::ptr::eq(kind, wanted) || wanted.may_be(kind) {
            return Ok(());
        }
        wanted.verify_cached(geometry, key.address(), &self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::{CheckpointSeq, CopyPlace};
    use xfskit_ondisk::DiskAddress;

    /// A thread that remembers a directory block may change it after eviction found it clean.
    #[test]
    fn what_was_changed_since_it_was_found_clean_is_not_evicted() {
        let buffer = Buffer::new(BufferKey::new(DiskAddress(8), 4096));
        buffer.item().lock().gathered.join(CheckpointSeq(1), CopyPlace::Item);
        assert!(!buffer.mark_evicted() && !buffer.content().read().was_evicted());
        buffer.item().lock().gathered.unpin();
        let held = buffer.content().read();
        assert!(!buffer.mark_evicted());
        drop(held);
        assert!(buffer.mark_evicted() && buffer.content().read().was_evicted());
    }
}
