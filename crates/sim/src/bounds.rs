//! What a run has promised at a place of its record: which operations a crash there may not lose.

use crate::events::DurableParts;
use crate::node::NodeId;
use std::collections::BTreeMap;

/// The operations that must have happened at a position of the record, and those that may have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// The last operation that was acknowledged to be durable.
    pub acknowledged: usize,
    /// The last operation that had begun.
    pub begun: usize,
    contents: Promise,
    times: Promise,
}

/// What was acknowledged to be durable of files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Promise {
    /// Every file is durable as this operation left it.
    all: usize,
    /// Single files that are durable as a later operation left them.
    files: BTreeMap<NodeId, usize>,
}

impl Promise {
    fn of(&self, node: NodeId) -> usize {
        self.files.get(&node).map_or(self.all, |kept| self.all.max(*kept))
    }

    fn give(&mut self, node: Option<NodeId>, operation: usize) {
        match node {
            Some(node) => drop(self.files.insert(node, operation)),
            None => {
                self.all = operation;
                self.files.clear();
            }
        }
    }
}

impl Bounds {
    /// The last operation whose version of a file's contents is durable.
    pub fn kept(&self, node: NodeId) -> usize {
        self.contents.of(node)
    }

    /// The last operation whose version of a file's times is durable.
    pub fn kept_times(&self, node: NodeId) -> usize {
        self.times.of(node)
    }

    /// Takes a promise that the record has.
    pub fn keep(&mut self, node: Option<NodeId>, operation: usize, kept: DurableParts) {
        self.contents.give(node, operation);
        if kept == DurableParts::ContentsAndTimes {
            self.times.give(node, operation);
        }
    }
}
