//! Log items without an object in memory: intents, done items, records of new inode chunks; and the extents that a link
//! frees.

use super::Transaction;
use crate::item::{LogItem, LogOnlyItem, LogOnlyRole, LogVector};
use std::sync::Arc;
use xfskit_ondisk::logged::icreate::NewInodes;
use xfskit_ondisk::{AgBlock, AgNumber};

/// An item that is nothing but its copy, as this link of the chain logs it.
pub(super) struct CopiedItem {
    pub item: Arc<dyn LogItem>,
    pub copy: LogVector,
    /// A done item: the intent that it finishes.
    pub finishes: Option<Arc<dyn LogItem>>,
}

impl Transaction<'_> {
    /// Counts the extent as freed and keeps it busy until the transaction is durable: what lies there on disk may
    /// still be needed by recovery.
    pub fn extent_freed(&mut self, ag: AgNumber, block: AgBlock, count: u32) {
        self.freed_extents.push(super::FreedExtent { ag, block, count });
    }

    /// The extents of `ag` that this link of the chain freed.
    pub fn freed_extents(&self, ag: AgNumber) -> impl Iterator<Item = (AgBlock, u32)> {
        self.freed_extents.iter().filter(move |freed| freed.ag == ag).map(|freed| (freed.block, freed.count))
    }

    /// Extents that this link of the chain freed.
    pub fn extents_freed(&self) -> usize {
        self.freed_extents.len()
    }

    /// Logs that inodes were made: recovery makes them again from this alone, so the buffers themselves are only
    /// ordered.
    pub fn log_new_inodes(&mut self, new: NewInodes) {
        let mut copy = LogVector::default();
        copy.push(&new.encode(self.geometry()));
        self.log_item(LogOnlyItem::new(LogOnlyRole::NewInodes), copy, None);
    }

    /// Logs an item that is nothing but its copy; a done item with the intent that it finishes.
    pub(super) fn log_item(&mut self, item: Arc<dyn LogItem>, copy: LogVector, finishes: Option<Arc<dyn LogItem>>) {
        self.dirty = true;
        self.items.push(CopiedItem { item, copy, finishes });
    }
}
