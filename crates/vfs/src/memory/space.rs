//! The blocks that the volume may take.

use crate::{Error, Result};

/// How many blocks there are, and how many are taken.
#[derive(Debug)]
pub(super) struct Space {
    pub blocks: u64,
    used: u64,
}

impl Space {
    pub fn new(blocks: u64) -> Self {
        Self { blocks, used: 0 }
    }

    pub fn free_blocks(&self) -> u64 {
        self.blocks.saturating_sub(self.used)
    }

    pub fn take(&mut self, blocks: u64) -> Result<()> {
        if blocks > self.free_blocks() {
            return Err(Error::NoSpace);
        }
        self.used += blocks;
        Ok(())
    }

    pub fn give_back(&mut self, blocks: u64) {
        self.used = self.used.saturating_sub(blocks);
    }

    /// As [`Self::take`], for what must not be refused: what makes room takes little itself.
    pub fn take_at_once(&mut self, blocks: u64) {
        self.used += blocks;
    }
}
