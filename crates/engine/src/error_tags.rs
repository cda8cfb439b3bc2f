//! Named places where a test can make the engine fail.
//!
//! A tag is armed with a count; the place that bears its name fails when it has been passed that often. Names are the
//! kernel's where it has one for the place. A place fails in one of four ways:
//! - with an I/O error, which is an operation's own business while it has changed nothing, and shuts the filesystem
//!   down after that;
//! - by a stop: what was committed up to here is made durable, then the filesystem shuts down, as if the power failed
//!   now;
//! - by taking a rare turn: the smallest extent, no space;
//! - by an ordinary refusal, after which everything must be as it was. Where what a transaction has reserved makes a
//!   refusal impossible once it has changed something, nothing is refused then.

use crate::error::{Error, Result};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use std::collections::HashMap;
use std::io;

macro_rules! tags {
    ($($(#[doc = $about:literal])+ $constant:ident = $name:literal;)+) => {
        $($(#[doc = $about])+ pub const $constant: &str = $name;)+

        /// All tags with what they do.
        pub static TAGS: &[(&str, &str)] = &[$(($name, concat!($($about),+))),+];
    };
}

tags! {
    /// An AGF cannot be read.
    READ_AGF = "readagf";
    /// An AGI cannot be read.
    READ_AGI = "readagi";
    /// A block of a directory's or attribute's index cannot be read.
    DA_READ_BUF = "dareadbuf";
    /// A block of an AG's tree cannot be read.
    BTREE_CHECK_SBLOCK = "btree_chk_sblk";
    /// A block of an extent map's tree cannot be read.
    BTREE_CHECK_LBLOCK = "btree_chk_lblk";
    /// An inode cluster cannot be read.
    ITOBP = "itobp";
    /// An inode cannot be put on its unlinked list.
    IUNLINK = "iunlink";
    /// An inode cannot be taken off its unlinked list.
    IUNLINK_REMOVE = "iunlinkrm";
    /// An extent cannot be allocated.
    ALLOC_EXTENT = "alloc_extent";
    /// An allocation for contents or values gets the smallest extent.
    BMAP_ALLOC_MINLEN_EXTENT = "bmap_alloc_minlen_extent";
    /// Blocks of a file cannot be unmapped.
    BMAP_REMOVE = "bmap_remove";
    /// Unwritten blocks of a file cannot become written, or the other way round.
    BMAP_CONVERT = "bmap_convert";
    /// An extent cannot be shared with a file.
    BMAP_SHARE = "bmap_share";
    /// Contents cannot be written to their place.
    DATA_IOERROR = "data_ioerror";
    /// A map cannot count more than ten extents.
    REDUCE_MAX_IEXTENTS = "reduce_max_iextents";
    /// A block of a tree cannot be split.
    BTREE_SPLIT = "btree_split";
    /// A leaf of a directory's or attribute's index cannot be split.
    DA_LEAF_SPLIT = "da_leaf_split";
    /// The only block of an index cannot make way for a node.
    ATTR_LEAF_TO_NODE = "attr_leaf_to_node";
    /// A list of extents cannot become a tree.
    BMAPIFORMAT = "bmapifmt";
    /// A transaction with an intent cannot commit.
    LOG_INTENT = "log_intent";
    /// A transaction with a done item cannot commit.
    LOG_DONE = "log_done";
    /// A stop after a link of a chain has committed.
    ROLL = "roll";
    /// A stop after a link of a deferred operation has committed its intent.
    LARP = "larp";
    /// A stop after the extent-free intent of a free that waits for its own link, or recovery's free of an extent.
    FREE_EXTENT = "free_extent";
    /// A link of an attribute update finds no space for the rest of the value.
    ATTR_NO_SPACE = "attr_no_space";
    /// A stop after recovery committed a change of reverse mappings.
    RMAP_FINISH_ONE = "rmap_finish_one";
    /// A stop after recovery committed a change of reference counts.
    REFCOUNT_FINISH_ONE = "refcount_finish_one";
    /// A stop after recovery committed a change of an extent map.
    BMAP_FINISH_ONE = "bmap_finish_one";
    /// A stop after recovery committed a step of an exchange of mappings.
    EXCHMAPS_FINISH_ONE = "exchmaps_finish_one";
    /// A log record is written with a wrong checksum, and the filesystem shuts down.
    LOG_BAD_CRC = "log_bad_crc";
    /// The log cannot be written.
    LOG_IO_DONE = "logiodone";
    /// A buffer cannot be written back.
    BUF_IOERROR = "buf_ioerror";
    /// There is no extent of the wanted shape.
    REFUSE_EXTENT = "refuse_extent";
    /// There is no free inode, and no room for more.
    REFUSE_INODE = "refuse_inode";
    /// There are no blocks for contents.
    REFUSE_WINDOW = "refuse_window";
    /// A tree of an AG finds no blocks to grow.
    REFUSE_BLOCKS = "refuse_blocks";
    /// There are no blocks for a removal.
    REFUSE_REMOVAL = "refuse_removal";
    /// A map has no room for more extents.
    REFUSE_RECORDS = "refuse_records";
    /// The data fork of an inode cannot make room for an attr fork.
    REFUSE_FORK = "refuse_fork";
    /// An ACL cannot be decoded.
    REFUSE_ACL = "refuse_acl";
    /// A lock that must not be waited for is held by another.
    REFUSE_LOCK = "refuse_lock";
    /// The superblock's counters are not trusted at opening, but summed up from the AGs.
    BAD_SUMMARY = "bad_summary";
}

/// The tag of a name.
pub fn find(name: &str) -> Option<&'static str> {
    TAGS.iter().map(|(tag, _)| *tag).find(|tag| *tag == name)
}

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

    /// As [`Self::arm`]; a place that is armed already fails once more, after the times that it was going to.
    pub fn arm_also(&self, tag: &'static str, nth: u32) {
        if let Some(armed) = self.armed.lock().get_mut(tag) {
            armed.failures += 1;
            return;
        }
        self.arm(tag, nth);
    }

    /// Whether the place called `tag` must fail now. Costs one load while nothing is armed.
    #[inline]
    pub fn strikes(&self, tag: &'static str) -> bool {
        self.any.load(Ordering::Acquire) && self.is_due(tag)
    }

    #[cold]
    fn is_due(&self, tag: &'static str) -> bool {
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

    /// Fails with an I/O error if the place called `tag` must fail now.
    ///
    /// # Errors
    /// `Io`.
    #[inline]
    pub fn fail(&self, tag: &'static str) -> Result<()> {
        if self.strikes(tag) { Err(failure(tag)) } else { Ok(()) }
    }
}

#[cold]
fn failure(tag: &'static str) -> Error {
    Error::Io { offset: 0, source: io::Error::other(format!("error tag {tag}")) }
}
