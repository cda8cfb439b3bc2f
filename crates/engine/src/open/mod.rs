//! Opening and closing a filesystem.
//!
//! Opening reads the superblock, finds the end of the log, replays it if it is dirty, and refuses images that cannot be
//! changed safely. Closing writes everything back to its place on the device, writes the counters into the superblock
//! and an unmount record into the log.

mod announce;
mod close;
mod copies;
mod kinds;
mod log;

use crate::buffer::BufferCache;
use crate::counters::Counters;
use crate::env::{Environment, SystemEnvironment};
use crate::error::{Error, Result};
use crate::error_tags::{BAD_SUMMARY, ErrorTags};
use crate::incore::DirtyInodes;
use crate::inode::WriteBackToDevice;
use crate::journal::replay::Replayed;
use crate::journal::{Journal, JournalOptions, LogState, RecordOwner, RecoveryReport};
use crate::mount::{
    AgState, AttrLogging, Claim, ClaimFor, InodeCache, IntentIds, KeptBlocks, Mount, MountOptions, NamelessCount,
    SUPERBLOCK_KIND, SpaceCounts,
};
use crate::sync::Mutex;
use crate::sync::atomic::AtomicBool;
use crate::trans::reservation_of;
pub use close::Identity;
pub use log::FoundLog;
use log::{LogEnd, OpenedLog, open_log};
use std::sync::Arc;
use xfskit_device::BlockDevice;
use xfskit_ondisk::features::VersionFlags;
use xfskit_ondisk::limits::Limits;
use xfskit_ondisk::reservation::Reservations;
use xfskit_ondisk::superblock::SuperblockError;
use xfskit_ondisk::{BASIC_BLOCK_BYTES, Corruption, DiskAddress, Geometry, RawSuperblock, Superblock};

/// What is opened: a read-only mount of an image with a dirty log first recovers it in memory.
pub(crate) enum Stage {
    /// The device as it is.
    Image,
    /// The recovered device, with the state of the log in the image and what was replayed.
    Recovered(LogState, Option<RecoveryReport>),
    /// The device as it is, with a clean log, and the superblock that it is about to get: only growing sees the
    /// filesystem so. Headers of AGs do not agree with it yet, so none is read; the counters are right after a clean
    /// unmount.
    Growing(Superblock),
}

/// The number of the next mount of this process; it only has to be another one.
static NEXT_NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

impl Mount {
    /// Opens the filesystem on `device`, its log on `log_device` if it is external.
    ///
    /// # Errors
    /// `DeviceInUse`; `Superblock`, `Corrupt`, `Unsupported`; those of replaying a dirty log.
    pub fn open(
        device: Arc<dyn BlockDevice>,
        log_device: Option<Arc<dyn BlockDevice>>,
        options: MountOptions,
    ) -> Result<Arc<Self>> {
        Self::open_in(device, log_device, options, Arc::new(SystemEnvironment))
    }

    /// As [`Self::open`], with the caller's clock and randomness.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_in(
        device: Arc<dyn BlockDevice>,
        log_device: Option<Arc<dyn BlockDevice>>,
        options: MountOptions,
        env: Arc<dyn Environment>,
    ) -> Result<Arc<Self>> {
        let what_for = ClaimFor::mount(options.read_only || device.hints().read_only);
        let claims = Claim::take_all(&device, log_device.as_ref(), what_for)?;
        Self::open_at(device, log_device, options, env, Stage::Image, None, claims)
    }

    /// As [`Self::open_in`], at a stage of a recovery in memory, with the log's end if the caller has looked for it,
    /// and with the caller's claims on the devices.
    pub(crate) fn open_at(
        device: Arc<dyn BlockDevice>,
        log_device: Option<Arc<dyn BlockDevice>>,
        mut options: MountOptions,
        env: Arc<dyn Environment>,
        stage: Stage,
        log_end: Option<LogEnd>,
        claims: Vec<Claim>,
    ) -> Result<Arc<Self>> {
        let is_growing = matches!(stage, Stage::Growing(_));
        let superblock = match &stage {
            Stage::Growing(grown) => grown.clone(),
            _ => read_superblock(&*device)?,
        };
        options.read_only |= device.hints().read_only;
        check_features(&superblock, &options)?;
        let log = open_log(&device, log_device, superblock, &options, log_end)?;
        let found = log.report();
        let OpenedLog { place, head, state, superblock, geometry, recovered, room } = log;
        // The log may have switched a feature on.
        check_features(&superblock, &options)?;
        let (log_state, recovery) = match stage {
            Stage::Recovered(log_state, report) => (log_state, report),
            _ => (state, found),
        };
        let counters = Arc::new(Counters::default());
        let error_tags = Arc::new(ErrorTags::default());
        options.error_tags.iter().for_each(|(tag, nth)| error_tags.arm_also(tag, *nth));
        let journal_options = JournalOptions {
            whiteouts: options.whiteouts,
            cache_bytes: options.cache_bytes as u64,
            room_bytes: room,
            error_tags: Arc::clone(&error_tags),
        };
        let journal = Arc::new(Journal::new(
            place,
            Arc::clone(&device),
            &geometry,
            &head,
            Arc::clone(&counters),
            journal_options,
        ));
        let cache = BufferCache::new(
            Arc::clone(&device),
            Arc::clone(&geometry),
            Arc::clone(&counters),
            options.cache_bytes / 2,
        );
        let raw = superblock.raw();
        let limits = Limits::new(&geometry);
        let (space, counters_are_right) = first_counts(raw, &geometry, &limits);
        let mount = Arc::new(Self {
            number: NEXT_NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            limits,
            reservations: Reservations::new(&geometry),
            cache,
            inodes: InodeCache::new(options.cache_bytes / 2),
            dirty_inodes: DirtyInodes::default(),
            journal,
            space,
            ags: (0..geometry.ag_count).map(|_| AgState::default()).collect(),
            counters,
            error_tags,
            intent_ids: IntentIds::default(),
            env,
            log_state,
            recovered: Mutex::new(None),
            recovery,
            journal_room_bytes: room,
            nameless: NamelessCount::default(),
            moves: Mutex::new(()),
            scarce_space: Arc::default(),
            announces_attrs: AtomicBool::new(raw.version.get() & VersionFlags::ATTR.bits() != 0),
            logs_attrs: AtomicBool::new(options.attr_logging == AttrLogging::Always),
            superblock: Mutex::new(raw.clone()),
            superblock_copies: Mutex::new(()),
            claims: Mutex::new(claims),
            device,
            geometry,
            options,
        });
        mount.journal.set_write_back(Arc::new(WriteBackToDevice::new(Arc::downgrade(&mount))));
        if is_growing {
            return Ok(mount);
        }
        if !mount.options.read_only && (recovered.is_some() || head.owner == RecordOwner::Any) {
            // A change of the size, the label or the UUID may have been cut off before the copies were written. Without
            // them the filesystem works, as the kernel's does, which never looks at them.
            if let Err(error) = mount.mend_superblock_copies() {
                mount.journal.check()?;
                let what = "the copies of the superblock were not written: xfs_repair may take old ones for true";
                tracing::warn!(%error, "{what}");
            }
        }
        mount.begin(recovered, counters_are_right)?;
        Ok(mount)
    }

    /// Takes over what the replay found, and makes a writable mount ready for its first transaction.
    fn begin(self: &Arc<Self>, recovered: Option<Replayed>, counters_are_right: bool) -> Result<()> {
        let mut unusable_lists = Vec::new();
        if !self.options.read_only {
            let totals = crate::space::initialize(self)?;
            let is_wrong = recovered.is_some() || !counters_are_right || !totals.unusable_lists.is_empty();
            if is_wrong || self.error_tags.strikes(BAD_SUMMARY) {
                totals.verify(&self.geometry)?;
                self.space.set(totals.free_blocks, totals.inodes, totals.free_inodes);
            }
            unusable_lists = totals.unusable_lists;
        }
        if let Some(recovered) = recovered {
            self.journal.adopt_intents(&recovered.intents);
            *self.recovered.lock() = Some(recovered);
        }
        // Recovered intents hold the tail, so waiting would not free log space.
        self.journal.set_recovering(true);
        let reset = unusable_lists.into_iter().try_for_each(|ag| {
            let mut tx = self.transaction(reservation_of(self.reservations.sb))?;
            let result = crate::space::reset_free_list(&mut tx, ag);
            tx.finish(result)
        });
        self.journal.set_recovering(false);
        reset?;
        if self.options.read_only { Ok(()) } else { self.announce_no_quotas() }
    }
}

/// Whether the image has only features that a mount with these options may work on.
fn check_features(superblock: &Superblock, options: &MountOptions) -> Result<()> {
    if options.read_only { Ok(()) } else { Ok(superblock.check_writable()?) }
}

/// The counters of the superblock, limited to their range, and whether they were within it. Counters on disk may have
/// any value, and arithmetic on them must not overflow.
fn first_counts(raw: &RawSuperblock, geometry: &Geometry, limits: &Limits) -> (SpaceCounts, bool) {
    // Blocks that the free lists of all AGs may need to split their trees; the kernel sets them aside, too.
    let set_aside = crate::space::set_aside_blocks(geometry, limits);
    let reserve_pool = (geometry.data_blocks / 20).min(8192);
    let most_inodes = geometry.data_blocks * u64::from(geometry.inodes_per_block());
    let inodes = raw.inode_count.get().min(most_inodes);
    let free_inodes = raw.free_inodes.get().min(inodes);
    let free_blocks = raw.free_blocks.get().min(geometry.data_blocks);
    let on_disk = (raw.inode_count.get(), raw.free_inodes.get(), raw.free_blocks.get());
    let for_trees = crate::space::blocks_for_trees(geometry, limits);
    let kept = KeptBlocks { set_aside, for_trees, reserve_pool };
    let counts = SpaceCounts::new(free_blocks, kept, inodes, free_inodes);
    (counts, on_disk == (inodes, free_inodes, free_blocks))
}

pub(crate) fn read_superblock(device: &dyn BlockDevice) -> Result<Superblock> {
    let mut sector = vec![0; (device.size_bytes().min(32 * 1024)) as usize];
    if sector.len() < BASIC_BLOCK_BYTES {
        return Err(SuperblockError::TooShort { bytes: sector.len() }.into());
    }
    device.read(0, &mut sector).map_err(|source| Error::Io { offset: 0, source })?;
    Ok(Superblock::decode(&sector)?)
}

fn check_device_size(device: &dyn BlockDevice, geometry: &Geometry) -> Result<()> {
    let need = u128::from(geometry.data_blocks) << geometry.block_log;
    if u128::from(device.size_bytes()) < need {
        return Err(Corruption::new("superblock", "the device holds the whole filesystem")
            .at(DiskAddress(0))
            .found(format_args!("the image has {} bytes of {need}: it was cut short", device.size_bytes()))
            .into());
    }
    Ok(())
}
