//! A mounted filesystem: the context that every layer from transactions upwards shares. It contains no logic of theirs.
//!
//! ```text
//! device, geometry, limits   buffers, inodes, journal   counts, AGs   counters, error tags, options, environment
//! ```
//! The state in memory is here, since all layers share it. The layers read it, change it and write it back.
//! [`crate::open`] makes a mount and closes it.

mod ag_state;
mod claim;
mod counts;
mod inodes;
mod intent_ids;
mod nameless;
mod options;
mod superblock;
mod windows;

pub use ag_state::AgState;
pub use claim::{Claim, ClaimFor};
pub use counts::{BlockPool, KeptBlocks, SpaceCounts};
pub use inodes::InodeCache;
pub use intent_ids::IntentIds;
pub use nameless::NamelessCount;
pub use options::{AttrLogging, AttrPath, Discard, MountOptions};
pub use superblock::SUPERBLOCK_KIND;

use crate::buffer::BufferCache;
use crate::counters::Counters;
use crate::env::Environment;
use crate::error::Result;
use crate::error_tags::ErrorTags;
use crate::incore::DirtyInodes;
use crate::journal::replay::Replayed;
use crate::journal::{Journal, LogState, RecoveryReport};
use crate::sync::Mutex;
use crate::sync::atomic::AtomicBool;
use std::sync::Arc;
use xfskit_device::BlockDevice;
use xfskit_ondisk::limits::Limits;
use xfskit_ondisk::reservation::Reservations;
use xfskit_ondisk::{Geometry, RawSuperblock};

/// A mounted filesystem.
pub struct Mount {
    /// Which mount of this process it is.
    pub number: u64,
    /// The device.
    pub device: Arc<dyn BlockDevice>,
    /// Shapes and sizes.
    pub geometry: Arc<Geometry>,
    /// Shapes of btrees.
    pub limits: Limits,
    /// Log space that transactions need.
    pub reservations: Reservations,
    /// Metadata in memory.
    pub cache: BufferCache,
    /// Inodes in memory.
    pub inodes: InodeCache,
    /// Inodes whose contents or times are dirty in memory.
    pub dirty_inodes: DirtyInodes,
    /// The journal.
    pub journal: Arc<Journal>,
    /// Free blocks and inodes.
    pub space: SpaceCounts,
    /// What is remembered of each AG.
    pub ags: Box<[AgState]>,
    /// The counters.
    pub counters: Arc<Counters>,
    /// Places that tests have made fail.
    pub error_tags: Arc<ErrorTags>,
    /// Names of intents.
    pub intent_ids: IntentIds,
    /// Clock and randomness.
    pub env: Arc<dyn Environment>,
    /// The options.
    pub options: MountOptions,
    /// The state of the log that opening found.
    pub log_state: LogState,
    /// The replay whose intents must be finished before any other operation.
    pub recovered: Mutex<Option<Replayed>>,
    /// What opening replayed.
    pub recovery: Option<RecoveryReport>,
    /// Bytes of the journal for which the host has space, `None` for all. The filesystem shuts down where they end.
    pub journal_room_bytes: Option<u64>,
    /// How many inodes are on unlinked lists.
    pub nameless: NamelessCount,
    /// Held by renames between directories: while one checks that a directory does not move below itself, no other may
    /// move the directories on the way.
    pub moves: Mutex<()>,
    /// Held by transactions that may allocate while space is scarce: two that each hold an AG could otherwise both look
    /// for space in the other's.
    pub(crate) scarce_space: Arc<Mutex<()>>,
    /// Whether the superblock says that there are attr forks. The flag is never cleared.
    pub(crate) announces_attrs: AtomicBool,
    /// Whether updates of attributes are logged by intents where the caller does not say.
    pub(crate) logs_attrs: AtomicBool,
    /// The superblock as it was read, and as it was announced since.
    pub(crate) superblock: Mutex<RawSuperblock>,
    /// Held while the copies of the superblock are written, so that the last ones are those of the last change.
    pub(crate) superblock_copies: Mutex<()>,
    /// The claims on the devices, until it is unmounted. A mount over devices that no other can have claims none.
    pub(crate) claims: Mutex<Vec<Claim>>,
}

impl Mount {
    /// Stops here if the place called `tag` must fail now: everything committed so far is made durable, and the
    /// filesystem shuts down.
    ///
    /// # Errors
    /// `Shutdown`, `Io`.
    pub fn stop_if_tagged(&self, tag: &'static str) -> Result<()> {
        if !self.error_tags.strikes(tag) {
            return Ok(());
        }
        self.journal.force_all()?;
        self.journal.shut_down(format!("error tag {tag}"));
        self.journal.check()
    }

    /// Makes everything that was done so far durable.
    ///
    /// # Errors
    /// `Io`, `Shutdown`.
    pub fn sync(&self) -> Result<()> {
        if self.options.read_only {
            return Ok(());
        }
        self.journal.force_all()?;
        self.checkpoint_durable();
        Ok(())
    }

    /// Ends the busy state of extents whose checkpoints are durable now.
    pub fn checkpoint_durable(&self) {
        let durable = self.journal.durable();
        for ag in &self.ags {
            ag.checkpoint_durable(durable);
        }
    }
}
