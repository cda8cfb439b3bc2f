//! The times of inodes, and which of them a crash may leave.
//!
//! ```text
//! operation   create ── write ── write ── setxattr ── write ── cut
//! times       1         2        3        4           5
//! tree shown  after create: 1, 2 or 3                 after setxattr: 4 or 5
//! ```
//! Changes of contents reach the journal late, and their times with them; times that are set alone do, too. Every other
//! change of an inode logs its own times, and those of the changes before it. So the names and attributes of an inode
//! that a state shows limit which times it may have.

use crate::node::NodeId;
use std::collections::HashMap;
use std::fmt;
use xfskit_ondisk::Timestamp;

/// When an inode was read and changed last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The contents were read.
    pub atime: Timestamp,
    /// The contents were changed.
    pub mtime: Timestamp,
    /// The inode was changed.
    pub ctime: Timestamp,
}

impl Times {
    /// All at one time.
    pub fn at(time: Timestamp) -> Self {
        Self { atime: time, mtime: time, ctime: time }
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {} m {} c {}", Shown(self.atime), Shown(self.mtime), Shown(self.ctime))
    }
}

/// A time for display.
pub struct Shown(pub Timestamp);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0.seconds, self.0.nanoseconds)
    }
}

/// What changed with the times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Names or attributes: one transaction logs them and the times.
    OfTheTree,
    /// Contents, or times alone: they reach the journal late.
    Late,
}

/// An inode after an operation.
#[derive(Debug)]
struct InodeVersion {
    operation: usize,
    times: Times,
    change: Change,
}

/// The times of all inodes of a run after each operation.
#[derive(Debug, Default)]
pub struct TimesHistory {
    versions: HashMap<NodeId, Vec<InodeVersion>>,
}

impl TimesHistory {
    /// Notes the times of an inode after an operation.
    pub fn note(&mut self, node: NodeId, operation: usize, times: Times, change: Change) {
        let versions = self.versions.entry(node).or_default();
        if versions.last().is_none_or(|last| last.times != times) {
            versions.push(InodeVersion { operation, times, change });
        }
    }

    /// Returns what is wrong with the times of an inode, if anything, in a tree that one of the operations `after`
    /// left. `kept` is the last operation whose times are durable, `begun` the last that began.
    pub fn judge(&self, node: NodeId, found: Times, after: &[usize], kept: usize, begun: usize) -> Option<String> {
        let versions = self.versions.get(&node).map_or(&[][..], Vec::as_slice);
        let begun = versions.partition_point(|version| version.operation <= begun);
        let versions = &versions[..begun];
        let mut expected = Vec::new();
        for operation in after {
            let shown = |version: &InodeVersion| version.operation <= *operation;
            let tree = versions.iter().rposition(|version| shown(version) && version.change == Change::OfTheTree);
            let Some(tree) = tree else { continue };
            let behind = &versions[tree + 1..];
            let next = behind.iter().position(|version| version.change == Change::OfTheTree);
            let end = next.map_or(versions.len(), |next| tree + 1 + next);
            let kept = versions.partition_point(|version| version.operation <= kept).saturating_sub(1);
            let allowed = versions.get(tree.max(kept)..end).unwrap_or_default();
            if allowed.iter().any(|version| version.times == found) {
                return None;
            }
            expected.extend(allowed.iter().map(|version| format!("\nafter {}: {}", version.operation, version.times)));
        }
        Some(format!("its times are {found}, and should be one of{}", expected.concat()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_right(second: i64, after: &[usize], kept: usize, begun: usize) -> bool {
        let at = |seconds| Times::at(Timestamp { seconds, nanoseconds: 0 });
        let mut history = TimesHistory::default();
        for (operation, change) in
            [(1, Change::OfTheTree), (2, Change::Late), (3, Change::Late), (4, Change::OfTheTree)]
        {
            history.note(7, operation, at(operation as i64), change);
        }
        history.note(7, 5, at(5), Change::Late);
        history.judge(7, at(second), after, kept, begun).is_none()
    }

    #[test]
    fn times_come_with_what_shows_of_the_tree() {
        assert!(is_right(1, &[1, 2, 3], 0, 5) && is_right(3, &[1, 2, 3], 0, 5));
        assert!(!is_right(4, &[1, 2, 3], 0, 5));
        assert!(!is_right(3, &[4, 5], 0, 5));
        assert!(is_right(4, &[4, 5], 0, 5) && is_right(5, &[4, 5], 0, 5));
        assert!(!is_right(5, &[4], 0, 4));
        // Times that are durable stay.
        assert!(!is_right(1, &[1, 2, 3], 2, 3) && is_right(2, &[1, 2, 3], 2, 3));
        assert!(!is_right(4, &[4, 5], 5, 5));
    }
}
