//! The paths of the layer that is written.
//!
//! A whiteout applies to what lower layers have, never to its own, so the paths of the current layer are remembered, as
//! hashes of 128 bits: a layer decides how many there are and how long.

use crate::event::split;
use crate::whiteout::Whiteouts;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

/// The paths of the current layer.
pub(super) struct LayerPaths {
    /// Nothing is remembered where nothing can be hidden.
    whiteouts: Whiteouts,
    hashes: [RandomState; 2],
    paths: HashSet<[u64; 2]>,
}

impl LayerPaths {
    pub(super) fn new(whiteouts: Whiteouts) -> Self {
        Self { whiteouts, hashes: [RandomState::new(), RandomState::new()], paths: HashSet::new() }
    }

    pub(super) fn begin(&mut self) {
        self.paths.clear();
    }

    /// Adds a path, and the directories that it lies in.
    pub(super) fn add(&mut self, path: &[u8]) {
        let mut path = path;
        while self.whiteouts == Whiteouts::Hide && self.paths.insert(self.hash(path)) && !path.is_empty() {
            path = split(path).0;
        }
    }

    /// Whether the layer has a path.
    pub(super) fn has(&self, path: &[u8]) -> bool {
        self.paths.contains(&self.hash(path))
    }

    fn hash(&self, path: &[u8]) -> [u64; 2] {
        [self.hashes[0].hash_one(path), self.hashes[1].hash_one(path)]
    }
}
