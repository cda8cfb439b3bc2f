//! What the kernel may have in its cache of files, as far as the server must see to it that it is dropped.
//!
//! ```text
//!             read or write through the cache              16 direct writes without one of these
//! no contents ──────────────────────────────▶ contents ──────────────────────────────────────────▶ no contents
//!                                             each direct write: the range is dropped              all are dropped
//! ```
//! A file leaves `contents` before what the kernel has is dropped. A read that was noted before that has locked its
//! pages in the kernel, which waits for them before it drops them; one that comes later is noted again.
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
    /// 0 without contents; otherwise 1, and 1 for each direct write since the last use of the cache.
    contents: AtomicU32,
    /// Blocks at the last fsync, or [`UNKNOWN`].
    blocks: AtomicU64,
}

impl Default for File {
    fn default() -> Self {
        Self { contents: AtomicU32::new(0), blocks: AtomicU64::new(UNKNOWN) }
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
        let is_noted = self.files.read().get(&node).is_some_and(|file| match file.contents.load(Ordering::Relaxed) {
            0 => false,
            1 => true,
            _ => {
                // Only a direct write takes it back to 0, which then drops what comes before this.
                file.contents.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n > 0).then_some(1)).is_ok()
            }
        });
        if !is_noted {
            self.files.write().entry(node).or_default().contents = AtomicU32::new(1);
        }
    }

    /// Notes a direct write that is done; what the kernel must drop before its reply.
    pub(crate) fn note_direct_write(&self, node: u64) -> Drop {
        let files = self.files.read();
        let Some(file) = files.get(&node) else { return Drop::Nothing };
        let next = |count| match count {
            0 => None,
            count if count > DIRECT_WRITES => Some(0),
            count => Some(count + 1),
        };
        match file.contents.fetch_update(Ordering::AcqRel, Ordering::Acquire, next) {
            Err(_) => Drop::Nothing,
            Ok(count) if count > DIRECT_WRITES => Drop::All,
            Ok(_) => Drop::Range,
        }
    }

    /// Whether anything is known of a file.
    pub(crate) fn knows(&self, node: u64) -> bool {
        self.files.read().contains_key(&node)
    }

    /// Notes how many blocks a file has at an fsync; whether the kernel is to be told that it must ask for them.
    pub(crate) fn note_blocks(&self, node: u64, blocks: u64) -> bool {
        let note = |file: &File| file.blocks.swap(blocks, Ordering::AcqRel) != blocks;
        if let Some(file) = self.files.read().get(&node) {
            return note(file);
        }
        self.has_blocks.store(true, Ordering::Release);
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
        for _ in 0..2 {
            files.note_contents(7);
            (0..DIRECT_WRITES).for_each(|_| assert_eq!(files.note_direct_write(7), Drop::Range));
            files.note_contents(7);
            (0..DIRECT_WRITES).for_each(|_| assert_eq!(files.note_direct_write(7), Drop::Range));
            assert_eq!(files.note_direct_write(7), Drop::All);
            (0..DIRECT_WRITES).for_each(|_| assert_eq!(files.note_direct_write(7), Drop::Nothing));
        }
        assert!(files.forget(7, || false) && !files.knows(7));
    }

    #[test]
    fn the_kernel_is_told_when_blocks_are_others() {
        let files = CachedFiles::default();
        assert_eq!([8, 8, 16, 16].map(|blocks| files.note_blocks(7, blocks)), [true, false, true, false]);
        files.note_answer(7, 16);
        assert!(!files.note_blocks(7, 16));
        files.note_answer(7, 24);
        assert_eq!([16, 16].map(|blocks| files.note_blocks(7, blocks)), [true, false]);
        assert_eq!(files.note_direct_write(7), Drop::Nothing);
    }
}
