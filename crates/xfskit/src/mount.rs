//! A mounted filesystem: what every layer from transactions upwards shares.
//!
//! Opening reads the superblock, finds the end of the log, replays it if it is dirty, and refuses what cannot be worked
//! on safely. Closing brings everything home, writes the counters into the superblock and an unmount record into the
//! log.

mod claim;
mod kinds;
mod log;

use crate::cache::{BufferKey, BufferKind, Cache, DirtyInodes, Fill};
use crate::counters::Counters;
use crate::env::{Environment, SystemEnvironment};
use crate::error::{Error, Result};
use crate::error_tags::{BAD_SUMMARY, ErrorTags};
use crate::inode::{InodeCache, WriteBackToDevice};
use crate::journal::recovery::Recovered;
use crate::journal::{HostSpace, Journal, JournalOptions, LogState, RecoveryReport};
use crate::space::{AgState, SpaceCounts};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::trans::deferred::IntentIds;
use crate::trans::{Reservation, Transaction};
use claim::Claim;
pub use log::FoundLog;
use log::{LogEnd, OpenedLog, open_log};
use std::sync::Arc;
use xfskit_device::BlockDevice;
use xfskit_ondisk::features::{LogIncompat, VersionFlags};
use xfskit_ondisk::limits::Limits;
use xfskit_ondisk::logged::buffer::buffer_type;
use xfskit_ondisk::reservation::{self, Reservations};
use xfskit_ondisk::superblock::{QUOTA_COUNTED, SUPERBLOCK_CRC_OFFSET};
use xfskit_ondisk::{
    BASIC_BLOCK_BYTES, Corruption, DiskAddress, Geometry, RawSuperblock, Superblock, Verdict, set_checksum,
};
use zerocopy::FromBytes;

/// How to open a filesystem.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Nothing is written.
    pub read_only: bool,
    /// With `read_only`: look past a dirty log, at what is at home.
    pub no_recovery: bool,
    /// Bytes of metadata to keep in memory: half of it for buffers, half for inodes.
    pub cache_bytes: usize,
    /// Namespace and attribute operations are durable when they return.
    pub wsync: bool,
    /// Leave intents out of the log whose done items come in the same checkpoint.
    pub whiteouts: bool,
    /// Update attributes in shortform in one transaction, without an intent.
    pub attr_fast_path: bool,
    /// Do not search for attributes that an inode is known not to have.
    pub known_absent: bool,
    /// When plain attribute updates that need several transactions are logged by intents.
    pub attr_logging: AttrLogging,
    /// The space that the host must have for the journal.
    pub host_space: HostSpace,
    /// Count how long transactions hold AG headers and inodes, for a model of contention.
    pub lock_times: bool,
    /// Places that are to fail, by their tags, each when it is passed for the nth time.
    pub error_tags: Vec<(&'static str, u32)>,
}

/// When plain attribute updates are logged by intents. Parent pointers always are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttrLogging {
    /// As the engine chooses. It logs none, for each is atomic by itself.
    Auto,
    /// Always, as with the kernel's `larp` switch.
    Always,
    /// Never, whatever the engine would choose.
    Never,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            no_recovery: false,
            cache_bytes: 256 << 20,
            wsync: false,
            whiteouts: true,
            attr_fast_path: true,
            known_absent: true,
            attr_logging: AttrLogging::Auto,
            host_space: HostSpace::All,
            lock_times: false,
            error_tags: Vec::new(),
        }
    }
}

impl MountOptions {
    /// Options for looking only.
    pub fn read_only() -> Self {
        Self { read_only: true, ..Self::default() }
    }
}

/// A mounted filesystem.
pub struct Mount {
    /// The device.
    pub device: Arc<dyn BlockDevice>,
    /// Shapes and sizes.
    pub geometry: Arc<Geometry>,
    /// Shapes of btrees.
    pub limits: Limits,
    /// Log space that transactions need.
    pub reservations: Reservations,
    /// Metadata in memory.
    pub cache: Cache,
    /// Inodes in memory.
    pub inodes: InodeCache,
    /// Inodes whose contents or times wait in memory.
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
    /// What opening found of the log.
    pub log_state: LogState,
    /// What was replayed and is to be finished before anything else is done.
    pub recovered: Mutex<Option<Recovered>>,
    /// What opening replayed.
    pub recovery: Option<RecoveryReport>,
    /// Bytes of the journal that the host has space for, if not for all: the filesystem shuts down where they end.
    pub journal_room_bytes: Option<u64>,
    /// Held by renames between directories: while one checks that a directory does not move below itself, no other may
    /// move the directories on the way.
    pub moves: Mutex<()>,
    /// Held by transactions that may allocate while space is scarce: two that each hold an AG could otherwise both look
    /// for space in the other's.
    scarce_space: Arc<Mutex<()>>,
    /// Whether the superblock says that there are attr forks. It is never taken back.
    announces_attrs: AtomicBool,
    superblock: Mutex<RawSuperblock>,
    /// The devices, if this mount writes, until it is unmounted.
    claims: Mutex<Vec<Claim>>,
}

/// Free blocks for each AG below which space counts as scarce: a few inode chunks.
const SCARCE_BLOCKS_PER_AG: u64 = 256;

/// What a mount stands on: a mount that only looks at an image with a dirty log recovers it in memory first.
pub(crate) enum Stage {
    /// The device as it lies there.
    Image,
    /// The device, recovered; the log as it lies in the image, and what was replayed.
    Recovered(LogState, Option<RecoveryReport>),
}

/// The superblock of AG 0 as a buffer.
pub static SUPERBLOCK_KIND: BufferKind = BufferKind {
    name: "superblock",
    family: "superblock",
    log_type: buffer_type::SUPERBLOCK,
    crc_offset: Some(SUPERBLOCK_CRC_OFFSET),
    lsn_offset: Some(240),
    verify: verify_superblock,
    refine: None,
};

fn verify_superblock(_: &Geometry, _: DiskAddress, bytes: &[u8]) -> Verdict {
    let magic = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    xfskit_ondisk::ensure!(magic == xfskit_ondisk::superblock::SUPERBLOCK_MAGIC, "superblock", "magic number");
    Ok(())
}

impl Mount {
    /// Opens the filesystem on `device`, its log on `log_device` if it is external.
    ///
    /// # Errors
    /// `Superblock`, `Corrupt`, `Unsupported`; those of replaying a dirty log.
    pub fn open(
        device: Arc<dyn BlockDevice>,
        log_device: Option<Arc<dyn BlockDevice>>,
        options: MountOptions,
    ) -> Result<Arc<Self>> {
        Self::open_in(device, log_device, options, Arc::new(SystemEnvironment::default()))
    }

    /// As [`Self::open`], in a world of the caller's making.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_in(
        device: Arc<dyn BlockDevice>,
        log_device: Option<Arc<dyn BlockDevice>>,
        options: MountOptions,
        env: Arc<dyn Environment>,
    ) -> Result<Arc<Self>> {
        Self::open_at(device, log_device, options, env, Stage::Image, None)
    }

    /// As [`Self::open_in`], at a stage of a recovery in memory, and with the log's end if somebody has looked for it.
    pub(crate) fn open_at(
        device: Arc<dyn BlockDevice>,
        log_device: Option<Arc<dyn BlockDevice>>,
        mut options: MountOptions,
        env: Arc<dyn Environment>,
        stage: Stage,
        log_end: Option<LogEnd>,
    ) -> Result<Arc<Self>> {
        let superblock = read_superblock(&*device)?;
        options.read_only |= device.is_read_only();
        check_features(&superblock, &options)?;
        let devices = std::iter::once(&device).chain(&log_device).filter(|_| !options.read_only);
        let claims = devices.map(Claim::take).collect::<Result<_>>()?;
        let OpenedLog { place, head, state, superblock, geometry, recovered, room } =
            open_log(&device, log_device, superblock, &options, log_end)?;
        // Switching a feature on goes through the log.
        check_features(&superblock, &options)?;
        let (log_state, recovery) = match stage {
            Stage::Recovered(log_state, report) => (log_state, report),
            _ => (state, recovered.as_ref().map(|recovered| recovered.report.clone())),
        };
        let counters = Arc::new(Counters::default());
        let error_tags = Arc::new(ErrorTags::default());
        options.error_tags.iter().for_each(|(tag, nth)| error_tags.arm(tag, *nth));
        let journal_options = JournalOptions {
            whiteouts: options.whiteouts,
            cache_bytes: options.cache_bytes as u64,
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
        let cache =
            Cache::new(Arc::clone(&device), Arc::clone(&geometry), Arc::clone(&counters), options.cache_bytes / 2);
        let raw = superblock.raw();
        let limits = Limits::new(&geometry);
        let (space, counters_are_right) = first_counts(raw, &geometry, &limits);
        let mount = Arc::new(Self {
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
            moves: Mutex::new(()),
            scarce_space: Arc::default(),
            announces_attrs: AtomicBool::new(raw.version.get() & VersionFlags::ATTR.bits() != 0),
            superblock: Mutex::new(raw.clone()),
            claims: Mutex::new(claims),
            device,
            geometry,
            options,
        });
        mount.journal.set_write_back(Arc::new(WriteBackToDevice::new(Arc::downgrade(&mount))));
        mount.begin(recovered, counters_are_right)?;
        Ok(mount)
    }

    /// Takes over what the log held, and makes a writable mount ready for its first transaction.
    fn begin(self: &Arc<Self>, recovered: Option<Recovered>, counters_are_right: bool) -> Result<()> {
        let mut unusable_lists = Vec::new();
        if !self.options.read_only {
            let totals = crate::space::initialize(self)?;
            let is_wrong = recovered.is_some() || !counters_are_right || !totals.unusable_lists.is_empty();
            if is_wrong || self.error_tags.strikes(BAD_SUMMARY) {
                self.space.set(totals.free_blocks, totals.inodes, totals.free_inodes);
            }
            unusable_lists = totals.unusable_lists;
        }
        if let Some(recovered) = recovered {
            self.journal.adopt_intents(&recovered.intents);
            *self.recovered.lock() = Some(recovered);
        }
        // What recovered intents hold of the journal cannot be had by waiting.
        self.journal.set_recovering(true);
        let reset = unusable_lists.into_iter().try_for_each(|ag| {
            let mut tx = self.transaction(reservation_of(self.reservations.sb))?;
            let result = crate::space::reset_free_list(&mut tx, ag);
            tx.finish(result)
        });
        self.journal.set_recovering(false);
        reset?;
        if self.options.read_only { Ok(()) } else { self.announce_changes() }
    }

    /// The superblock's fields as they are now, the lazy counters included.
    pub fn superblock(&self) -> RawSuperblock {
        let mut raw = self.superblock.lock().clone();
        let (inodes, free) = self.space.inodes();
        raw.inode_count = inodes.into();
        raw.free_inodes = free.into();
        raw.free_blocks = self.space.free_blocks().into();
        raw
    }

    /// Starts a transaction. The caller holds no locks and no other transaction. While space is scarce, transactions
    /// that may allocate run one at a time.
    ///
    /// # Errors
    /// `ReadOnly`, `NoSpace`, `Shutdown`.
    pub fn transaction(self: &Arc<Self>, reservation: Reservation) -> Result<Transaction<'_>> {
        if self.options.read_only {
            return Err(Error::ReadOnly);
        }
        self.journal.check()?;
        let is_scarce = reservation.blocks > 0
            && self.space.has_less_than(SCARCE_BLOCKS_PER_AG * u64::from(self.geometry.ag_count));
        let turn = is_scarce.then(|| self.scarce_space.lock_arc());
        if !self.space.reserve_blocks(reservation.blocks, reservation.may_dip) {
            return Err(Error::NoSpace);
        }
        match self.journal.reserve(reservation.log_bytes, reservation.log_count) {
            Ok(grant) => Ok(Transaction::build(self, true, reservation, Some(grant)).with_turn(turn)),
            Err(error) => {
                self.space.give_back_blocks(reservation.blocks);
                Err(error)
            }
        }
    }

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

    /// Lets go of the extents that were kept busy for checkpoints that are durable now.
    pub fn checkpoint_durable(&self) {
        let durable = self.journal.durable();
        for ag in &self.ags {
            ag.checkpoint_durable(durable);
        }
    }

    /// Brings everything home and closes the log in good order. Nothing may run any more.
    ///
    /// # Errors
    /// `Io`, `Shutdown`: the log then stays dirty, and recovery finishes the work.
    pub fn unmount(self: &Arc<Self>) -> Result<()> {
        if self.options.read_only {
            return Ok(());
        }
        let _claims = std::mem::take(&mut *self.claims.lock());
        self.journal.quiesce()?;
        self.superblock.lock().log_incompat = 0.into();
        self.log_superblock()?;
        self.journal.quiesce()?;
        self.journal.write_unmount()
    }

    /// As [`Self::unmount`], unless nothing has changed and the log was clean: then the image stays as it is.
    ///
    /// # Errors
    /// As [`Self::unmount`].
    pub fn unmount_if_changed(self: &Arc<Self>) -> Result<()> {
        let announced = self.options.attr_logging == AttrLogging::Always;
        let changed = self.counters.transactions.get() > 0 || self.recovery.is_some() || announced;
        if changed { self.unmount() } else { Ok(()) }
    }

    /// Whether attribute intents other than those of parent pointers may be logged: recovery refuses them in an image
    /// whose superblock does not announce them.
    pub fn may_log_attr_intents(&self) -> bool {
        LogIncompat::from_bits_truncate(self.superblock.lock().log_incompat.get()).contains(LogIncompat::XATTRS)
    }

    /// Whether the superblock says that there are attr forks.
    pub(crate) fn announces_attrs(&self) -> bool {
        self.announces_attrs.load(Ordering::Acquire)
    }

    /// A transaction that says so has been committed.
    pub(crate) fn note_attrs_announced(&self) {
        let mut raw = self.superblock.lock();
        raw.version = (raw.version.get() | VersionFlags::ATTR.bits()).into();
        self.announces_attrs.store(true, Ordering::Release);
    }

    /// Says in the superblock, at once and at its home, what others must know before they look at anything else:
    /// whoever recovers the log, that it may hold attribute intents; whoever keeps quotas, that the usage on disk was
    /// not kept.
    fn announce_changes(self: &Arc<Self>) -> Result<()> {
        let mut raw = self.superblock.lock().clone();
        raw.quota_flags = (raw.quota_flags.get() & !QUOTA_COUNTED).into();
        if self.options.attr_logging == AttrLogging::Always {
            raw.log_incompat = LogIncompat::XATTRS.bits().into();
        }
        if raw == *self.superblock.lock() {
            return Ok(());
        }
        let key = BufferKey::new(DiskAddress(0), self.geometry.sector_bytes());
        let (_, mut held) = self.cache.lock(&key, &SUPERBLOCK_KIND, Fill::Read, true, true)?;
        let bytes = held.exclusive().bytes_mut();
        let (home, _) = RawSuperblock::mut_from_prefix(bytes).expect("a verified superblock is a whole one");
        (home.log_incompat, home.quota_flags) = (raw.log_incompat, raw.quota_flags);
        set_checksum(bytes, SUPERBLOCK_CRC_OFFSET);
        self.cache.write_runs(&key, held.bytes())?;
        self.device.flush().map_err(|source| Error::Io { offset: 0, source })?;
        *self.superblock.lock() = raw;
        Ok(())
    }

    /// Logs the superblock with its counters as they are now.
    fn log_superblock(self: &Arc<Self>) -> Result<()> {
        let mut tx = self.transaction(reservation_of(self.reservations.sb))?;
        let id = tx.read(DiskAddress(0), self.geometry.sector_bytes(), &SUPERBLOCK_KIND)?;
        let raw = self.superblock();
        // The transaction holds no blocks, so the counters are exact.
        *tx.edit_as::<RawSuperblock>(id, 0) = RawSuperblock { crc: tx.get_as::<RawSuperblock>(id, 0).crc, ..raw };
        tx.commit()?;
        Ok(())
    }
}

/// The engine's reservation for one of the kernel's.
pub fn reservation_of(kernel: reservation::Reservation) -> Reservation {
    Reservation { log_bytes: kernel.bytes, log_count: kernel.count, ..Reservation::default() }
}

/// Whether the image has only features that a mount with these options may work on.
fn check_features(superblock: &Superblock, options: &MountOptions) -> Result<()> {
    if options.read_only { Ok(()) } else { Ok(superblock.check_writable()?) }
}

/// The counters as the superblock has them, and whether they are within their range: those on disk may say anything,
/// and arithmetic on them must stay within its own.
fn first_counts(raw: &RawSuperblock, geometry: &Geometry, limits: &Limits) -> (SpaceCounts, bool) {
    // What the free lists of every AG may need to split their trees, as the kernel sets aside.
    let set_aside = crate::space::set_aside_blocks(geometry, limits);
    let reserve_pool = (geometry.data_blocks / 20).min(8192);
    let most_inodes = geometry.data_blocks * u64::from(geometry.inodes_per_block());
    let inodes = raw.inode_count.get().min(most_inodes);
    let free_inodes = raw.free_inodes.get().min(inodes);
    let free_blocks = raw.free_blocks.get().min(geometry.data_blocks);
    let on_disk = (raw.inode_count.get(), raw.free_inodes.get(), raw.free_blocks.get());
    let counts = SpaceCounts::new(free_blocks, set_aside, reserve_pool, inodes, free_inodes);
    (counts, on_disk == (inodes, free_inodes, free_blocks))
}

fn read_superblock(device: &dyn BlockDevice) -> Result<Superblock> {
    let mut sector = vec![0; (device.size_bytes().min(32 * 1024)) as usize];
    if sector.len() < BASIC_BLOCK_BYTES {
        return Err(Corruption::new("superblock", "a whole sector")
            .found(format_args!("the image has {} bytes", sector.len()))
            .into());
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
