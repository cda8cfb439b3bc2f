//! Named places where a test can make the engine fail.
//!
//! A tag is armed with a count; the place that bears its name fails when it has been passed that often. Names are the
//! kernel's where it has one for the place.

use crate::sync::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// After a link of a deferred operation has committed its intent: the journal is made durable and the filesystem shuts
/// down, as if the power failed before the next link (the kernel's `larp`).
pub const LARP: &str = "larp";
/// After the extent-free intent of a free that waits for its own link.
pub const FREE_EXTENT: &str = "free_extent";
/// A link of an attribute update finds no space for the rest of the value.
pub const ATTR_NO_SPACE: &str = "attr_no_space";

/// The tags that are armed.
#[derive(Debug, Default)]
pub struct ErrorTags {
    any: AtomicBool,
    armed: Mutex<HashMap<&'static str, Armed>>,
}

#[derive(Debug)]
struct Armed {
    /// Passes that still succeed.
    passes: u32,
    /// Passes after those that fail.
    failures: u32,
}

impl ErrorTags {
    /// Makes the place called `tag` fail when it is passed for the `nth` time from now, counted from 1.
    pub fn arm(&self, tag: &'static str, nth: u32) {
        self.arm_for(tag, nth, 1);
    }

    /// As [`Self::arm`], and the next times too, `failures` in all.
    pub fn arm_for(&self, tag: &'static str, nth: u32, failures: u32) {
        self.armed.lock().insert(tag, Armed { passes: nth.max(1) - 1, failures });
        self.any.store(true, Ordering::Release);
    }

    /// Whether the place called `tag` must fail now. Costs one load while nothing is armed.
    pub fn strikes(&self, tag: &'static str) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let mut armed = self.armed.lock();
        let Some(place) = armed.get_mut(tag) else { return false };
        if place.passes > 0 {
            place.passes -= 1;
            return false;
        }
        place.failures = place.failures.saturating_sub(1);
        if place.failures == 0 {
            armed.remove(tag);
        }
        true
    }
}
