//! Memory that one checkpoint leaves for the next: slabs for the copies of inodes, vectors for those of buffers, and
//! the lists of entries.
//!
//! Memory that was used lately costs far less than memory that the system has to allocate and clear. The thread that
//! wrote a checkpoint returns its memory once it is durable.
//!
//! Invariant: each kind keeps at most its bound of bytes; the rest is freed.

use crate::item::{BoxedVector, LogVector};
use crate::sync::Mutex;

/// Bytes of a slab; more than the largest copy of an inode.
pub(super) const SLAB_BYTES: usize = 64 << 10;
/// Vectors that a shard takes at once. It keeps at most as many, and the bounds do not count them.
const VECTORS_AT_ONCE: usize = 16;

/// Memory that can be used again.
trait Reusable {
    /// The memory that it occupies.
    fn memory_bytes(&self) -> usize;
}

impl Reusable for Box<[u8]> {
    fn memory_bytes(&self) -> usize {
        self.len()
    }
}

impl Reusable for BoxedVector {
    fn memory_bytes(&self) -> usize {
        LogVector::memory_bytes(self)
    }
}

impl<E> Reusable for Vec<E> {
    fn memory_bytes(&self) -> usize {
        self.capacity() * size_of::<E>()
    }
}

/// Unused memory of one kind.
struct Stock<T> {
    waiting: Mutex<Unused<T>>,
    max_bytes: usize,
}

struct Unused<T> {
    things: Vec<T>,
    bytes: usize,
}

impl<T: Reusable> Stock<T> {
    fn new(max_bytes: u64) -> Self {
        Self { waiting: Mutex::new(Unused { things: Vec::new(), bytes: 0 }), max_bytes: max_bytes as usize }
    }

    fn take(&self) -> Option<T> {
        self.waiting.lock().take()
    }

    fn take_largest(&self) -> Option<T> {
        let mut waiting = self.waiting.lock();
        let last = waiting.things.len().checked_sub(1)?;
        let largest = (0..=last).max_by_key(|&index| waiting.things[index].memory_bytes())?;
        waiting.things.swap(largest, last);
        waiting.take()
    }

    /// Keeps `things` as far as the bound allows, and drops the rest.
    fn give_back(&self, things: impl Iterator<Item = T>) {
        let mut surplus = Vec::new();
        let mut waiting = self.waiting.lock();
        for thing in things {
            let bytes = waiting.bytes + thing.memory_bytes();
            if bytes <= self.max_bytes {
                waiting.bytes = bytes;
                waiting.things.push(thing);
            } else {
                surplus.push(thing);
            }
        }
        drop(waiting);
        drop(surplus);
    }
}

impl<T: Reusable> Unused<T> {
    fn take(&mut self) -> Option<T> {
        let thing = self.things.pop()?;
        self.bytes -= thing.memory_bytes();
        Some(thing)
    }
}

/// Unused slabs.
pub(super) struct SlabStock(Stock<Box<[u8]>>);

impl SlabStock {
    /// A slab; it still contains the bytes of its last use.
    pub(super) fn take(&self) -> Box<[u8]> {
        self.0.take().unwrap_or_else(|| vec![0; SLAB_BYTES].into_boxed_slice())
    }
}

/// Memory that waits for its next use; `E` are the entries of lists.
pub(super) struct Pool<E> {
    pub(super) slabs: SlabStock,
    vectors: Stock<BoxedVector>,
    lists: Stock<Vec<E>>,
}

impl<E> Pool<E> {
    /// A pool for checkpoints of `push_bytes` that keeps `max_bytes` at most. One checkpoint is written while the next
    /// gathers, and copies have room to grow.
    pub(super) fn new(push_bytes: u64, max_bytes: u64) -> Self {
        Self {
            slabs: SlabStock(Stock::new((push_bytes * 5 / 2).min(max_bytes / 2))),
            vectors: Stock::new((push_bytes * 5 / 4).min(max_bytes / 4)),
            lists: Stock::new((push_bytes / 2).min(max_bytes / 4)),
        }
    }

    /// An empty list: the longest that waits, since growing one copies it.
    pub(super) fn list(&self) -> Vec<E> {
        self.lists.take_largest().unwrap_or_default()
    }

    /// An empty vector out of `spare`, which is refilled from the pool when it is empty.
    pub(super) fn vector(&self, spare: &mut Vec<BoxedVector>) -> Option<BoxedVector> {
        if spare.is_empty() {
            let mut waiting = self.vectors.waiting.lock();
            spare.extend(std::iter::from_fn(|| waiting.take()).take(VECTORS_AT_ONCE));
        }
        spare.pop()
    }

    /// Takes slabs back.
    pub(super) fn give_back_slabs(&self, slabs: Vec<Box<[u8]>>) {
        self.slabs.0.give_back(slabs.into_iter());
    }

    /// Takes vectors back.
    pub(super) fn give_back_vectors(&self, vectors: Vec<BoxedVector>) {
        self.vectors.give_back(vectors.into_iter().map(|mut vector| {
            vector.clear();
            vector
        }));
    }

    /// Takes lists back.
    pub(super) fn give_back_lists(&self, lists: impl Iterator<Item = Vec<E>>) {
        self.lists.give_back(lists.filter(|list| list.capacity() > 0).map(|mut list| {
            list.clear();
            list
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_is_empty_and_bounded() {
        let pool = Pool::<u64>::new(1 << 20, 8 * 4096);
        let vectors = |count: usize| {
            (0..count)
                .map(|_| {
                    let mut vector = Box::new(LogVector::default());
                    vector.push(&[1; 2048]);
                    vector
                })
                .collect::<Vec<_>>()
        };
        pool.give_back_vectors(vectors(10));
        let mut spare = Vec::new();
        let first = pool.vector(&mut spare);
        spare.extend(first);
        assert_eq!(spare.len(), 3, "a quarter of 32 KiB holds three of a little more than 2 KiB");
        assert!(spare.iter().all(|vector| vector.is_empty() && vector.log_bytes() == 0));
        pool.give_back_vectors(spare);
        pool.give_back_slabs(vec![pool.slabs.take()]);
        let mut again = Vec::new();
        let first = pool.vector(&mut again);
        again.extend(first);
        assert_eq!((again.len(), pool.list().capacity()), (3, 0));
    }
}
