//! What an allocation asks for.

use super::owner::{ExtentState, Owner};
use std::ops::Range;
use xfskit_ondisk::{AgNumber, FsBlock, InodeNumber};

/// Whether blocks may be taken whose freeing is not durable yet (busy blocks).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// They may: the blocks are written by the journal, after it has made their freeing durable.
    Taken,
    /// They may not: the blocks will be written without the journal.
    Avoided,
}

/// Where an extent should lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Near {
    /// In this AG if possible.
    Ag(AgNumber),
    /// Close to this block if possible.
    Block(FsBlock),
}

/// What to allocate.
#[derive(Clone, Debug)]
pub struct AllocRequest {
    /// Where.
    pub near: Near,
    /// Fewest blocks.
    pub min: u32,
    /// Most blocks.
    pub max: u32,
    /// The first block is a multiple of this within its AG.
    pub alignment: u32,
    /// The owner that the blocks will have.
    pub owner: Owner,
    /// How the blocks are recorded.
    pub state: ExtentState,
    /// What becomes of blocks whose freeing is not durable.
    pub busy: Busy,
    /// Only this block will do.
    pub exact: bool,
    /// Blocks that must stay free in the AG for what follows.
    pub min_left: u32,
    /// Within the AG, where the extent may start.
    pub bounds: Range<u32>,
    /// The inode in whose window the extent may lie.
    pub holder: Option<InodeNumber>,
}

impl AllocRequest {
    /// A request for `min` to `max` blocks without further conditions.
    pub fn new(near: Near, min: u32, max: u32, owner: Owner) -> Self {
        Self {
            near,
            min,
            max,
            alignment: 1,
            owner,
            state: ExtentState::Written,
            busy: Busy::Taken,
            exact: false,
            min_left: 0,
            bounds: 0..u32::MAX,
            holder: None,
        }
    }
}
