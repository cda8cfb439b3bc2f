//! Memory that the buffer cache takes, and memory elsewhere that counts as the cache's.
//!
//! Invariant: a buffer counts from its insertion into the cache until it leaves it; a [`Charge`] counts until it is
//! dropped.

use super::BufferKey;
use crate::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// Memory elsewhere gets at most this fraction (one in 8) of the cache's limit.
const CHARGED_SHARE: usize = 8;

/// Memory in use, in bytes.
#[derive(Debug)]
pub(crate) struct MemoryUse {
    limit_bytes: usize,
    /// The contents of buffers.
    buffers: AtomicUsize,
    /// Memory elsewhere that is charged to the cache.
    charged: AtomicUsize,
}

/// Memory that counts as the cache's although it lies elsewhere, until this is dropped.
#[derive(Debug)]
pub struct Charge {
    memory: Arc<MemoryUse>,
    bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.memory.charged.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl MemoryUse {
    /// Nothing is in use of `limit_bytes`.
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, buffers: AtomicUsize::new(0), charged: AtomicUsize::new(0) }
    }

    /// A buffer entered the cache.
    pub(super) fn add_buffer(&self, key: &BufferKey) {
        self.buffers.fetch_add(key.bytes(), Ordering::Relaxed);
    }

    /// A buffer left the cache.
    pub(super) fn remove_buffer(&self, key: &BufferKey) {
        self.buffers.fetch_sub(key.bytes(), Ordering::Relaxed);
    }

    /// Counts `bytes` bytes elsewhere. `None` if all memory elsewhere would then exceed its share.
    pub(crate) fn charge(memory: &Arc<Self>, bytes: usize) -> Option<Charge> {
        let max = memory.limit_bytes / CHARGED_SHARE;
        let sum = |charged: usize| charged.checked_add(bytes).filter(|&sum| sum <= max);
        memory.charged.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).ok()?;
        Some(Charge { memory: Arc::clone(memory), bytes })
    }

    /// Bytes of buffers, and what was charged besides.
    pub(crate) fn bytes(&self) -> usize {
        self.buffers.load(Ordering::Relaxed) + self.charged.load(Ordering::Relaxed)
    }

    /// Whether buffers must be evicted.
    pub(super) fn is_over_limit(&self) -> bool {
        self.bytes() > self.limit_bytes
    }
}
