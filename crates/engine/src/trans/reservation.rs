//! The space that a transaction reserves before it starts.

use super::Transaction;
use crate::mount::BlockPool;

/// Most bytes that a log item takes apart from its contents: its format, and the headers of its regions.
const ITEM_OVERHEAD_BYTES: usize = 512;

impl Transaction<'_> {
    /// Bytes that this link may take in the log with its changes so far; dirty buffers count as a whole.
    pub fn log_bytes_so_far(&self) -> u64 {
        let inodes = self.inodes.changed() + self.items.len();
        let inode_bytes = inodes * (self.geometry().inode_bytes() + ITEM_OVERHEAD_BYTES);
        (self.buffers.log_bytes(ITEM_OVERHEAD_BYTES) + inode_bytes) as u64
    }
}

/// Space that a transaction may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reservation {
    /// Log bytes that one link of the chain may dirty, headers included.
    pub log_bytes: u32,
    /// Links for which log space is reserved at the start; a longer chain waits for more between links.
    pub log_count: u32,
    /// Blocks that may be allocated in the whole chain.
    pub blocks: u64,
    /// Where the blocks may be taken from.
    pub pool: BlockPool,
}

impl Reservation {
    /// Asks for `blocks` blocks too.
    pub fn with_blocks(self, blocks: u64) -> Self {
        Self { blocks, ..self }
    }

    /// Asks for `blocks` more.
    pub fn with_more_blocks(self, blocks: u64) -> Self {
        Self { blocks: self.blocks + blocks, ..self }
    }

    /// Takes the blocks from `pool`.
    pub fn with_pool(self, pool: BlockPool) -> Self {
        Self { pool, ..self }
    }
}

/// The engine's reservation for one of the kernel's.
pub fn reservation_of(kernel: xfskit_ondisk::reservation::Reservation) -> Reservation {
    Reservation { log_bytes: kernel.bytes, log_count: kernel.count, ..Reservation::default() }
}
