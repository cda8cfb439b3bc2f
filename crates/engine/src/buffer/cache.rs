//! The buffers of one device: look-up, locks, reading, eviction.

use super::{Buffer, BufferContent, BufferKey, BufferKind, Charge, MemoryUse};
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::hash::{NumberMap, shard_of};
use crate::sync::{HeldLock, IfLocked, LockMode, Mutex, Padded};
use std::collections::VecDeque;
use std::sync::Arc;
use xfskit_device::BlockDevice;
use xfskit_ondisk::{BASIC_BLOCK_BYTES, DiskAddress, Geometry};

/// The few addresses of a model share shards.
const SHARDS: usize = if cfg!(shuttle) { 2 } else { 256 };

/// The buffer cache of one device.
pub struct BufferCache {
    shards: Box<[Padded<Mutex<Shard>>]>,
    memory: Arc<MemoryUse>,
    device: Arc<dyn BlockDevice>,
    geometry: Arc<Geometry>,
    counters: Arc<Counters>,
}

#[derive(Default)]
struct Shard {
    buffers: NumberMap<DiskAddress, Arc<Buffer>>,
    /// The clock: addresses in the order in which eviction looks at them.
    clock: VecDeque<DiskAddress>,
}

impl Shard {
    /// A buffer that is dropped out of turn leaves its address in the clock. When most addresses are of that kind, the
    /// clock is made anew from the cached buffers. Which of them were used lately stays known.
    fn tidy_clock(&mut self) {
        if self.clock.len() > 2 * self.buffers.len() + CLOCK_SLACK {
            self.clock = self.buffers.keys().copied().collect();
        }
    }
}

/// Addresses in a shard's clock that may be of dropped buffers.
const CLOCK_SLACK: usize = 64;

/// How the contents of a buffer that is not cached are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Read and verify.
    Read,
    /// Zeros: the caller writes all of it.
    Zero,
}

impl BufferCache {
    /// An empty cache that tries to stay below `limit_bytes`.
    pub fn new(
        device: Arc<dyn BlockDevice>,
        geometry: Arc<Geometry>,
        counters: Arc<Counters>,
        limit_bytes: usize,
    ) -> Self {
        let shards = (0..SHARDS).map(|_| Padded::default()).collect();
        Self { shards, memory: Arc::new(MemoryUse::new(limit_bytes)), device, geometry, counters }
    }

    fn shard(&self, address: DiskAddress) -> &Mutex<Shard> {
        &self.shards[shard_of(address.0, SHARDS)]
    }

    /// The buffer of `key`, locked; its contents as `fill` says if it was not cached.
    ///
    /// # Errors
    /// `Corrupt` when the contents fail their checks or the key's length contradicts the cached buffer, `Io`, and
    /// `WouldBlock` when the lock is taken and the caller does not wait.
    pub fn lock(
        &self,
        key: &BufferKey,
        kind: &'static BufferKind,
        fill: Fill,
        mode: LockMode,
        if_locked: IfLocked,
    ) -> Result<(Arc<Buffer>, HeldLock<BufferContent>)> {
        loop {
            let buffer = self.find_or_insert(&mut self.shard(key.address()).lock(), key, kind)?;
            let held = HeldLock::lock_if(buffer.content(), mode, if_locked).ok_or(Error::WouldBlock)?;
            if held.is_loaded() && fill == Fill::Read {
                if held.was_evicted() {
                    continue;
                }
                self.counters.buffer_hits.increment();
                held.check_kind(kind, &self.geometry, key)?;
                return Ok((buffer, held));
            }
            drop(held);
            if let Some(found) = self.load(&buffer, kind, fill, mode, if_locked)? {
                return Ok((buffer, found));
            }
        }
    }

    /// Locks a buffer that the caller remembers; `None` when it was evicted meanwhile.
    ///
    /// # Errors
    /// `Corrupt` when it is of another kind, and its contents fail the checks of `kind`.
    pub fn lock_known(
        &self,
        buffer: &Buffer,
        kind: &'static BufferKind,
        mode: LockMode,
    ) -> Result<Option<HeldLock<BufferContent>>> {
        let held = HeldLock::lock(buffer.content(), mode);
        if held.was_evicted() || !held.is_loaded() {
            return Ok(None);
        }
        self.counters.buffer_hits.increment();
        buffer.touch();
        held.check_kind(kind, &self.geometry, buffer.key())?;
        Ok(Some(held))
    }

    /// The exclusive lock of a buffer, whether its contents are in memory or not, for write-back. `None` when another
    /// thread has the lock, or when the buffer is not cached and `is_wanted` returns false. `is_wanted` is called under
    /// the lock of the look-up, so that no thread finds a buffer of blocks that were freed.
    ///
    /// # Errors
    /// `Corrupt` when blocks in use are cached as something else.
    pub fn try_lock_unread(
        &self,
        key: &BufferKey,
        kind: &'static BufferKind,
        is_wanted: impl FnOnce() -> bool,
    ) -> Result<Option<(Arc<Buffer>, HeldLock<BufferContent>)>> {
        let mut shard = self.shard(key.address()).lock();
        let found = shard.buffers.get(&key.address()).filter(|buffer| buffer.key() == key).map(Arc::clone);
        let buffer = match found {
            Some(buffer) => buffer,
            None if is_wanted() => self.find_or_insert(&mut shard, key, kind)?,
            None => return Ok(None),
        };
        drop(shard);
        let held = HeldLock::try_lock(buffer.content(), LockMode::Exclusive).filter(|held| !held.was_evicted());
        Ok(held.map(|held| (buffer, held)))
    }

    /// Reads the contents of a buffer that has none, under its exclusive lock.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    pub fn read_contents(&self, key: &BufferKey, kind: &'static BufferKind, content: &mut BufferContent) -> Result<()> {
        self.counters.buffer_misses.increment();
        let bytes = self.read_runs(key)?;
        let kind = kind.verify_read(&self.geometry, key.address(), &bytes)?;
        content.load(kind, bytes);
        Ok(())
    }

    /// Fills a buffer that was found unloaded (or is to be overwritten), under its exclusive lock. `None` when it was
    /// evicted meanwhile, and the caller must look it up again.
    fn load(
        &self,
        buffer: &Arc<Buffer>,
        kind: &'static BufferKind,
        fill: Fill,
        mode: LockMode,
        if_locked: IfLocked,
    ) -> Result<Option<HeldLock<BufferContent>>> {
        let mut held = HeldLock::lock_if(buffer.content(), LockMode::Exclusive, if_locked).ok_or(Error::WouldBlock)?;
        if held.was_evicted() {
            return Ok(None);
        }
        match fill {
            Fill::Zero => held.exclusive().reset(kind, buffer.key().bytes()),
            Fill::Read if held.is_loaded() => {}
            Fill::Read => self.read_contents(buffer.key(), kind, held.exclusive())?,
        }
        if mode == LockMode::Exclusive {
            return Ok(Some(held));
        }
        drop(held);
        let held = HeldLock::lock(buffer.content(), LockMode::Shared);
        Ok((!held.was_evicted() && held.is_loaded()).then_some(held))
    }

    fn find_or_insert(&self, shard: &mut Shard, key: &BufferKey, kind: &'static BufferKind) -> Result<Arc<Buffer>> {
        if let Some(buffer) = shard.buffers.get(&key.address()) {
            if buffer.key() == key {
                buffer.touch();
                return Ok(Arc::clone(buffer));
            }
            // Blocks change owners, and a new owner may use another length. The old buffer must have been freed: then
            // no thread looks at it again, though the journal may still refer to it for its cancel record.
            let freed = buffer.item().lock().stale;
            if freed || (buffer.item().is_clean() && Arc::strong_count(buffer) == 1) {
                self.memory.remove_buffer(buffer.key());
                self.memory.add_buffer(key);
                let buffer = Arc::new(Buffer::new(key.clone()));
                // The new buffer keeps the old one's place in the clock.
                if let Some(old) = shard.buffers.insert(key.address(), Arc::clone(&buffer)) {
                    old.mark_replaced();
                }
                return Ok(buffer);
            }
            return Err(xfskit_ondisk::Corruption::new(kind.name, "one structure at one place")
                .at(key.address())
                .found(format_args!("{} bytes wanted, {} in use", key.bytes(), buffer.key().bytes()))
                .into());
        }
        let buffer = Arc::new(Buffer::new(key.clone()));
        shard.buffers.insert(key.address(), Arc::clone(&buffer));
        shard.clock.push_back(key.address());
        self.memory.add_buffer(key);
        if self.memory.is_over_limit() {
            self.evict_some(shard);
        }
        Ok(buffer)
    }

    /// Moves the clock hand of a shard over a few buffers, dropping those that were not used lately.
    fn evict_some(&self, shard: &mut Shard) {
        for _ in 0..16.min(shard.clock.len()) {
            let Some(address) = shard.clock.pop_front() else { return };
            let Some(buffer) = shard.buffers.get(&address) else { continue };
            let idle = Arc::strong_count(buffer) == 1 && !buffer.take_touched() && buffer.item().is_clean();
            if idle && buffer.mark_evicted() {
                self.memory.remove_buffer(buffer.key());
                shard.buffers.remove(&address);
            } else {
                shard.clock.push_back(address);
            }
        }
    }

    /// Drops a buffer that will hardly be needed soon, unless its lock is taken or it has changed.
    pub fn drop_buffer(&self, buffer: &Arc<Buffer>) {
        let address = buffer.key().address();
        let mut shard = self.shard(address).lock();
        let is_here = shard.buffers.get(&address).is_some_and(|found| Arc::ptr_eq(found, buffer));
        if !is_here || !buffer.mark_evicted() {
            return;
        }
        self.memory.remove_buffer(buffer.key());
        shard.buffers.remove(&address);
        shard.tidy_clock();
    }

    /// Counts `bytes` bytes of memory elsewhere as the cache's. `None` if that would exceed the share of such memory.
    pub fn charge(&self, bytes: usize) -> Option<Charge> {
        MemoryUse::charge(&self.memory, bytes)
    }

    /// Bytes of contents in memory, and what was charged besides.
    pub fn used_bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Reads the runs of a key, one after the other, into one vector.
    fn read_runs(&self, key: &BufferKey) -> Result<Vec<u8>> {
        let mut bytes = vec![0; key.bytes()];
        let mut at = 0;
        for run in key.runs() {
            let length = run.basic_blocks as usize * BASIC_BLOCK_BYTES;
            let offset = run.address.bytes();
            self.device.read(offset, &mut bytes[at..at + length]).map_err(|source| Error::Io { offset, source })?;
            at += length;
        }
        Ok(bytes)
    }

    /// Writes contents to the runs of a key.
    pub fn write_runs(&self, key: &BufferKey, bytes: &[u8]) -> Result<()> {
        let mut at = 0;
        for run in key.runs() {
            let length = run.basic_blocks as usize * BASIC_BLOCK_BYTES;
            let offset = run.address.bytes();
            self.device.write(offset, &bytes[at..at + length]).map_err(|source| Error::Io { offset, source })?;
            at += length;
        }
        Ok(())
    }
}
