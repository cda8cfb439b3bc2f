//! An environment in which the same tree always results in the same image.

use std::sync::atomic::{AtomicU64, Ordering};
use xfskit_vfs::Environment;
use xfskit_vfs::Timestamp;

/// A clock that stands still, and generations that follow from the image's UUID.
#[derive(Debug)]
pub struct FixedEnvironment {
    now: Timestamp,
    state: AtomicU64,
}

impl FixedEnvironment {
    /// The environment for an image.
    pub fn new(now: Timestamp, uuid: [u8; 16]) -> Self {
        let [low, high] = [&uuid[..8], &uuid[8..]]
            .map(|half| half.iter().fold(0_u64, |number, &byte| number.rotate_left(8) ^ u64::from(byte)));
        Self { now, state: AtomicU64::new(low ^ high.rotate_left(32)) }
    }
}

impl Environment for FixedEnvironment {
    fn now(&self) -> Timestamp {
        self.now
    }

    fn random(&self) -> u64 {
        // Multiplication by an odd number and folding spread the steps over all bits.
        let step = self.state.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let spread = (step ^ step >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        spread ^ spread >> 32
    }
}
