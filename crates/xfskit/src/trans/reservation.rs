//! What a transaction asks for before it starts.

/// Space that a transaction may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reservation {
    /// Log bytes that one link of the chain may dirty, headers included.
    pub log_bytes: u32,
    /// Links for which log space is reserved at the start; a longer chain waits for more between links.
    pub log_count: u32,
    /// Blocks that may be allocated in the whole chain.
    pub blocks: u64,
    /// The blocks may come out of the pool kept for operations that must not fail (removals).
    pub may_dip: bool,
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

    /// Takes from the reserve pool when the rest is used up.
    pub fn dipping(self) -> Self {
        Self { may_dip: true, ..self }
    }
}
