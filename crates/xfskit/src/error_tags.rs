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

/// After recovery committed a change of reverse mappings.
pub const RMAP_FINISH_ONE: &str = "rmap_finish_one";
/// After recovery committed a change of reference counts.
pub const REFCOUNT_FINISH_ONE: &str = "refcount_finish_one";
/// After recovery committed a change of an extent map.
pub const BMAP_FINISH_ONE: &str = "bmap_finish_one";
/// After recovery committed a step of an exchange of mappings.
pub const EXCHMAPS_FINISH_ONE: &str = "exchmaps_finish_one";

/// The tags that are armed.
#[derive(Debug, Default)]
pub struct ErrorTags {
    any: AtomicBool,
    armed: Mutex<HashMap<&'static str, u32>>,
}

impl ErrorTags {
    /// Makes the place called `tag` fail when it is passed for the `nth` time from now, counted from 1.
    pub fn arm(&self, tag: &'static str, nth: u32) {
        self.armed.lock().insert(tag, nth.max(1));
        self.any.store(true, Ordering::Release);
    }

    /// Whether the place called `tag` must fail now. Costs one load while nothing is armed.
    pub fn strikes(&self, tag: &'static str) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let mut armed = self.armed.lock();
        let Some(left) = armed.get_mut(tag) else { return false };
        *left -= 1;
        let now = *left == 0;
        if now {
            armed.remove(tag);
        }
        now
    }
}
