//! What is left of a recording's device after a cut.

use crate::bounds::Bounds;
use crate::cut::{Cut, Walk, outcome_for_kernel};
use crate::judge::Crashed;
use crate::recording::Recording;
use std::sync::Arc;

/// One state, rebuilt from the record.
pub fn crash(recording: &Recording, cut: Cut) -> (Crashed, Bounds) {
    let at = cut.at.min(recording.events.len());
    let mut walk = Walk::new(Arc::clone(&recording.base), &recording.events);
    walk.advance(at);
    let own = walk.doubt().outcome(walk.durable(), cut.choice).pages;
    let state = Crashed { size_bytes: recording.size_bytes, base: Arc::clone(walk.durable()), own };
    (state, walk.bounds().clone())
}

/// A state that the kernel can recover too: no metadata block is torn.
pub fn crash_for_kernel(recording: &Recording, at: usize, seed: u64) -> (Crashed, Bounds) {
    let at = at.min(recording.events.len());
    let mut walk = Walk::new(Arc::clone(&recording.base), &recording.events);
    walk.advance(at);
    let own = outcome_for_kernel(walk.pending(), walk.durable(), &recording.log, seed);
    let state = Crashed { size_bytes: recording.size_bytes, base: Arc::clone(walk.durable()), own };
    (state, walk.bounds().clone())
}
