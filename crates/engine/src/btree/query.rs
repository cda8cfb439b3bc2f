//! Visiting the records that touch a range of keys.

use super::{BtreeKind, Cursor, CursorLevel, KeyOf, RecordOf};
use crate::error::Result;
use crate::trans::Transaction;
use std::ops::ControlFlow;
use xfskit_ondisk::btree::TreeFormat;

impl<K: BtreeKind> Cursor<K> {
    /// Calls `visit`, in order, with every record that reaches from `low` to `high` at least in part, until it breaks
    /// off. In trees without overlapping records a record is its key alone.
    ///
    /// # Errors
    /// `Corrupt` or `Io`.
    pub fn query(
        &mut self,
        tx: &mut Transaction,
        low: &KeyOf<K>,
        high: &KeyOf<K>,
        mut visit: impl FnMut(&RecordOf<K>) -> ControlFlow<()>,
    ) -> Result<()> {
        if K::Format::OVERLAPPING {
            return self.query_overlapping(tx, low, high, visit);
        }
        let mut found = self.lookup_ge(tx, low)?;
        while let Some(record) = found {
            if K::Format::key(&record) > *high || visit(&record).is_break() {
                break;
            }
            found = self.next(tx)?;
        }
        self.reset(tx);
        Ok(())
    }

    /// Passes over children whose high key lies below the range. The first entry that starts above the range ends the
    /// search.
    fn query_overlapping(
        &mut self,
        tx: &mut Transaction,
        low: &KeyOf<K>,
        high: &KeyOf<K>,
        mut visit: impl FnMut(&RecordOf<K>) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut level = self.start(tx)?;
        while !self.path.is_empty() {
            let CursorLevel { node, index } = self.at_level(0);
            if index >= self.count(tx, node) {
                self.climb(tx, 1);
                level += 1;
                if let Some(parent) = self.path.last_mut() {
                    parent.index += 1;
                }
                continue;
            }
            if self.key(tx, node, index) > *high {
                break;
            }
            let touches = self.high_key(tx, node, index) >= *low;
            if level > 0 && touches {
                level -= 1;
                self.push_child_at(tx, level)?;
                continue;
            }
            if touches
                && let Some(record) = self.record(tx)
                && visit(&record).is_break()
            {
                break;
            }
            self.at_level_mut(0).index += 1;
        }
        self.reset(tx);
        Ok(())
    }
}
