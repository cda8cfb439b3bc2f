//! How many requests of each kind came.

use crate::opcode;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of requests by opcode, since the session began.
#[derive(Debug)]
pub struct Counters {
    by_opcode: [AtomicU64; opcode::COUNT],
    unknown: AtomicU64,
    waited: AtomicU64,
    followed: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        let by_opcode = std::array::from_fn(|_| AtomicU64::new(0));
        Self { by_opcode, unknown: AtomicU64::new(0), waited: AtomicU64::new(0), followed: AtomicU64::new(0) }
    }
}

impl Counters {
    pub(crate) fn count(&self, opcode: u32) {
        self.by_opcode.get(opcode as usize).unwrap_or(&self.unknown).fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_waiter(&self) {
        self.waited.fetch_add(1, Ordering::Relaxed);
    }

    /// Requests of one opcode.
    pub fn of(&self, opcode: u32) -> u64 {
        self.by_opcode.get(opcode as usize).unwrap_or(&self.unknown).load(Ordering::Relaxed)
    }

    /// Requests that threads for waiting requests have answered.
    pub fn waited(&self) -> u64 {
        self.waited.load(Ordering::Relaxed)
    }

    pub(crate) fn count_followed(&self) {
        self.followed.fetch_add(1, Ordering::Relaxed);
    }

    /// Requests of lone clients that were answered on their processors.
    pub fn followed(&self) -> u64 {
        self.followed.load(Ordering::Relaxed)
    }

    /// Requests of all opcodes.
    pub fn total(&self) -> u64 {
        self.list().into_iter().map(|(_, count)| count).sum()
    }

    /// The opcodes that came, by name, with their counts.
    pub fn list(&self) -> Vec<(&'static str, u64)> {
        let known = (0..opcode::COUNT as u32).map(|code| (opcode::name_of(code).unwrap_or("unknown"), self.of(code)));
        let unknown = ("unknown", self.unknown.load(Ordering::Relaxed));
        known.chain([unknown]).filter(|(_, count)| *count > 0).collect()
    }
}
