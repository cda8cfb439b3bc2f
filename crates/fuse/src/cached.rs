//! What the kernel may have in its cache of files, as far as the server must see to it that it is dropped.
//!
//! ```text
//!                                   direct writes: their ranges are dropped
//!             read or write           ┌───┐       16 of them without a use of the cache         all is dropped
//! no contents ────────────────────▶ contents ───────────────────────────────────────▶ dropping ───────────────▶ no
//!                                        ▲                                                │                 contents
//!                                        └─────────── read or write through the cache ◀───┘
//! ```
//! While all is dropped, direct writes drop their ranges too: a page may have been read before one of them was written.
//! A read that was noted before that has locked its pages in the kernel, which waits for them before it drops them; one
//! that comes later takes the file back to `contents`. The kernel asks the server only for what it does not have, so a
//! use of what it has is not noted: each time that contents come back, twice as many direct writes are needed for the
//! next drop.
//!
//! **Blocks.** The kernel asks for the blocks of a file after it has closed it, but not after an fsync; so the server
//! tells it to, if they are others than it knows. `blocks` of a file are those of the last fsync, when the kernel was
//! told to ask or knew them. An answer with another number takes them back, and the kernel learns of blocks from
//! answers alone. So when the next fsync finds as many, the kernel knows or will ask.
//!
//! Locking: one lock for all files, below that of the filesystem ([`crate::server::Server::with`]): who holds this one
//! never waits for that one.

use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Direct writes without a read or write through the cache after which what it has is dropped as a whole. Each drop
/// costs a request for attributes and one for capabilities before the next write.
const DIRECT_WRITES: u32 = 16;
/// The most that are needed after contents have come back again and again.
const MOST_DIRECT_WRITES: u32 = 1 << 20;
/// Marks a file of which all contents are being dropped.
const DROPPING: u32 = u32::MAX;

/// What is to be dropped after a direct write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drop {
    Nothing,
    Range,
    All,
}

/// No file has so many blocks.
const UNKNOWN: u64 = u64::MAX;

#[derive(Debug)]
struct File {
    /// 0 without contents, or [`DROPPING`]; otherwise 1, and 1 for each direct write since the last use of the cache.
    contents: AtomicU32,
    /// Direct writes after which all is dropped.
    limit: AtomicU32,
    /// Blocks at the last fsync, or [`UNKNOWN`].
    blocks: AtomicU64,
}

impl Default for File {
    fn default() -> Self {
        let (contents, limit) = (AtomicU32::new(0), AtomicU32::new(DIRECT_WRITES));
        Self { contents, limit, blocks: AtomicU64::new(UNKNOWN) }
    }
}

/// The files of which something is known.
#[derive(Debug, Default)]
pub(crate) struct CachedFiles {
    files: RwLock<HashMap<u64, File>>,
    /// Whether blocks of a file were ever noted.
    has_blocks: AtomicBool,
}

impl CachedFiles {
    /// Notes that contents of a file may be in the cache from now on.
    pub(crate) fn note_contents(&self, node: u64) {
        let is_noted = self.files.read().get(&node).is_some_and(|file| {
            // Only the end of a drop takes it to 0, which this either precedes or follows.
            let is_there = |count: u32| (count > 0).then_some(1);
            file.contents.load(Ordering::Relaxed) == 1
                || file.contents.fetch_update(Ordering::AcqRel, Ordering::Acquire, is_there).is_ok()
        });
        if !is_noted {
            self.files.write().entry(node).or_default().contents.store(1, Ordering::Release);
        }
    }

    /// Notes a direct write that is done; what the kernel must drop before its reply. After [`Drop::All`]
    /// [`Self::note_dropped`] is called.
    pub(crate) fn note_direct_write(&self, node: u64) -> Drop {
        let files = self.files.read();
        let Some(file) = files.get(&node) else { return Drop::Nothing };
        let limit = file.limit.load(Ordering::Relaxed);
        let next = |count| match count {
            0 => None,
            DROPPING => Some(DROPPING),
            count if count > limit => Some(DROPPING),
            count => Some(count + 1),
        };
        match file.contents.fetch_update(Ordering::AcqRel, Ordering::Acquire, next) {
            Err(_) => Drop::Nothing,
            Ok(count) if count > limit && count != DROPPING => {
                file.limit.store((limit * 2).min(MOST_DIRECT_WRITES), Ordering::Relaxed);
                Drop::All
            }
            Ok(_) => Drop::Range,
        }
    }

    /// All contents of a file were dropped, but what has come back since.
    pub(crate) fn note_dropped(&self, node: u64) {
        if let Some(file) = self.files.read().get(&node) {
            // It fails if something has come back.
            let _ = file.contents.compare_exchange(DROPPING, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Whether anything is known of a file.
    pub(crate) fn knows(&self, node: u64) -> bool {
        self.files.read().contains_key(&node)
    }

    /// Notes how many blocks a file has at an fsync; whether the kernel is to be told that it must ask for them.
    pub(crate) fn note_blocks(&self, node: u64, blocks: u64) -> bool {
        let note = |file: &File| file.blocks.swap(blocks, Ordering::AcqRel) != blocks;
        self.has_blocks.store(true, Ordering::Release);
        if let Some(file) = self.files.read().get(&node) {
            return note(file);
        }
        note(self.files.write().entry(node).or_default())
    }

    /// Notes that the kernel is told how many blocks a file has.
    pub(crate) fn note_answer(&self, node: u64, blocks: u64) {
        if !self.has_blocks.load(Ordering::Acquire) {
            return;
        }
        if let Some(file) = self.files.read().get(&node)
            && file.blocks.load(Ordering::Acquire) != blocks
        {
            file.blocks.store(UNKNOWN, Ordering::Release);
        }
    }

    /// Called when the kernel has forgotten a file. `is_known`: it has looked it up again since; it is called while no
    /// other thread can note anything, and waits for no lock of the server.
    pub(crate) fn forget(&self, node: u64, is_known: impl FnOnce() -> bool) -> bool {
        let mut files = self.files.write();
        let is_forgotten = !is_known();
        if is_forgotten {
            files.remove(&node);
        }
        is_forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_are_dropped_as_a_whole_when_the_cache_is_not_used_any_more() {
        let files = CachedFiles::default();
        assert_eq!(files.note_direct_write(7), Drop::Nothing);
        // It takes twice as many each time.
        for limit in [DIRECT_WRITES, 2 * DIRECT_WRITES] {
            files.note_contents(7);
            (0..limit).for_each(|_| assert_eq!(files.note_direct_write(7), Drop::Range));
            files.note_contents(7);
            (0..limit).for_each(|_| assert_eq!(files.note_direct_write(7), Drop::Range));
            assert_eq!(files.note_direct_write(7), Drop::All);
            assert_eq!(files.note_direct_write(7), Drop::Range, "the drop has not ended");
            files.note_dropped(7);
            (0..limit).for_each(|_| assert_eq!(files.note_direct_write(7), Drop::Nothing));
        }
        assert!(files.forget(7, || false) && !files.knows(7));
    }

    #[test]
    fn what_is_read_while_all_is_dropped_is_there_afterwards() {
        let files = CachedFiles::default();
        files.note_contents(7);
        while files.note_direct_write(7) != Drop::All {}
        files.note_contents(7);
        files.note_dropped(7);
        assert_eq!(files.note_direct_write(7), Drop::Range);
    }

    #[test]
    fn the_kernel_is_told_when_blocks_are_others() {
        let files = CachedFiles::default();
        files.note_contents(7);
        assert_eq!([8, 8, 16, 16].map(|blocks| files.note_blocks(7, blocks)), [true, false, true, false]);
        files.note_answer(7, 16);
        assert!(!files.note_blocks(7, 16));
        files.note_answer(7, 24);
        assert_eq!([16, 16].map(|blocks| files.note_blocks(7, blocks)), [true, false]);
    }
}
