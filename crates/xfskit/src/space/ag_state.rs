//! What is remembered of an AG between transactions: hints, and the extents that are busy.

use crate::item::CheckpointSeq;
use crate::sync::Mutex;
use xfskit_ondisk::AgBlock;

/// An AG in memory.
#[derive(Debug, Default)]
pub struct AgState {
    busy: Mutex<Vec<(AgBlock, u32, CheckpointSeq)>>,
}

impl AgState {
    /// An extent was freed by a transaction that becomes durable with checkpoint `seq`.
    pub fn extent_freed(&self, block: AgBlock, count: u32, seq: CheckpointSeq) {
        self.busy.lock().push((block, count, seq));
    }

    /// Everything up to checkpoint `seq` is durable.
    pub fn checkpoint_durable(&self, seq: CheckpointSeq) {
        self.busy.lock().retain(|(_, _, freed)| *freed > seq);
    }
}
