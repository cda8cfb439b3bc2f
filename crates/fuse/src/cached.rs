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
//! Locking: one lock for all files, which nothing is done under.

use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

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

#[derive(Debug, Default)]
struct File {
    /// 0 without contents; otherwise 1, and 1 for each direct write since the last use of the cache.
    contents: AtomicU32,
    /// How many blocks it had when the kernel was told last, unless it may have got fewer since.
    blocks: Option<u64>,
}

/// The files of which something is known.
#[derive(Debug, Default)]
pub(crate) struct CachedFiles(RwLock<HashMap<u64, File>>);

impl CachedFiles {
    /// Notes that contents of a file may be in the cache from now on.
    pub(crate) fn note_contents(&self, node: u64) {
        let is_noted = self.0.read().get(&node).is_some_and(|file| match file.contents.load(Ordering::Relaxed) {
            0 => false,
            1 => true,
            _ => {
                // Only a direct write takes it back to 0, which then drops what comes before this.
                file.contents.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n > 0).then_some(1)).is_ok()
            }
        });
        if !is_noted {
            self.0.write().entry(node).or_default().contents = AtomicU32::new(1);
        }
    }

    /// Notes a direct write that is done; what the kernel must drop before its reply.
    pub(crate) fn note_direct_write(&self, node: u64) -> Drop {
        let files = self.0.read();
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
        self.0.read().contains_key(&node)
    }

    /// Notes how many blocks a file has at an fsync; whether the kernel is to be told that it must ask for them.
    ///
    /// Between two calls blocks become more by writes alone, and the kernel asks itself after everything that takes
    /// some away; then [`Self::note_fewer_blocks`] is called. So when they are as many as at the last call, they were
    /// never others, and that many is what the kernel has been told or will be.
    pub(crate) fn note_blocks(&self, node: u64, blocks: u64) -> bool {
        if self.0.read().get(&node).is_some_and(|file| file.blocks == Some(blocks)) {
            return false;
        }
        self.0.write().entry(node).or_default().blocks = Some(blocks);
        true
    }

    /// A file may have fewer blocks now.
    pub(crate) fn note_fewer_blocks(&self, node: u64) {
        if self.knows(node) {
            self.0.write().entry(node).and_modify(|file| file.blocks = None);
        }
    }

    /// Called when the kernel has forgotten a file. `is_known`, called so that no other thread notes anything meanwhile:
    /// it has looked it up again since.
    pub(crate) fn forget(&self, node: u64, is_known: impl FnOnce() -> bool) -> bool {
        let mut files = self.0.write();
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
        files.note_fewer_blocks(7);
        assert_eq!([16, 16].map(|blocks| files.note_blocks(7, blocks)), [true, false]);
        assert_eq!(files.note_direct_write(7), Drop::Nothing);
    }
}
