//! Brings inodes into the cache before they are asked for, where the device's requests take long.

use super::{ReadAhead, Volume};
use xfskit_device::at_once;
use xfskit_ondisk::InodeNumber;

/// Inodes that lie together, as their numbers say: reading one of them brings the others along.
const TOGETHER: usize = 32;
/// The largest directory of which the blocks are brought, too.
const MAX_DIR_BYTES: u64 = 64 << 10;

impl Volume {
    /// Whether an inode is in the cache.
    pub fn is_cached(&self, inode: InodeNumber) -> bool {
        self.mount.inodes.find(inode).is_some()
    }

    /// Brings what is about to be asked for into the cache, by [`Self::queue_depth`] threads. Does nothing where
    /// that is one. What cannot be read is an error only for the call that asks for it.
    pub fn read_ahead(&self, inodes: &[InodeNumber], what: ReadAhead) {
        let threads = self.queue_depth();
        if threads <= 1 {
            return;
        }
        let is_unknown = |inode: &InodeNumber| !self.is_cached(*inode);
        let mut inodes: Vec<_> = inodes.iter().copied().filter(is_unknown).collect();
        if inodes.len() <= 1 {
            return;
        }
        inodes.sort_unstable();
        at_once(threads, "read-ahead", inodes.chunks(TOGETHER), |together| {
            for inode in together {
                if let Ok(found) = self.stat(*inode)
                    && what == ReadAhead::Listings
                    && found.file_type.is_dir()
                    && found.size <= MAX_DIR_BYTES
                {
                    let _ = self.list_dir(*inode);
                }
            }
        });
    }
}
