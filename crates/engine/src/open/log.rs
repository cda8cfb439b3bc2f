//! Opens the log: finds its end, and replays it where it is dirty.
//!
//! The journal knows only blocks. This module gives it the kinds of blocks, which the layers above it know.

use super::kinds::kind_of;
use super::{MountOptions, check_device_size, read_superblock};
use crate::error::{Error, Result};
use crate::journal::replay::{DirtyLog, RecoveryReport, Replayed, ReplayedItem, clear_stale_sectors};
use crate::journal::{HostSpace, LogArea, LogHead, LogState, RecordOwner, find_head};
use std::sync::Arc;
use xfskit_device::{BlockDevice, OverlayDevice};
use xfskit_ondisk::{Corruption, DiskAddress, Geometry, Lsn, RawSuperblock, Superblock};

/// The log of an image that is only looked at.
pub struct FoundLog {
    /// Where it lies.
    pub place: LogArea,
    /// The UUID that its records carry.
    pub uuid: [u8; 16],
    /// Where the next record would be written.
    pub head: LogHead,
    /// Whether it is clean, or where recovery starts.
    pub state: LogState,
    device: Arc<dyn BlockDevice>,
    superblock: Superblock,
}

impl FoundLog {
    /// Finds the log of the filesystem on `device`, which may be damaged otherwise.
    ///
    /// # Errors
    /// `Superblock`, `Invalid`, `Corrupt`, `Io`.
    pub fn find(device: Arc<dyn BlockDevice>, log_device: Option<Arc<dyn BlockDevice>>) -> Result<Self> {
        let superblock = read_superblock(&*device)?;
        let geometry = Geometry::new(&superblock);
        check_device_size(&*device, &geometry)?;
        let place = log_place(&device, log_device, &geometry)?;
        let (head, state) = find_head(&place, &geometry.uuid)?;
        Ok(Self { place, uuid: geometry.uuid, head, state, device, superblock })
    }

    /// Whether a mount that writes would change the log before it is used: it is dirty, or writes that were in flight
    /// lie behind its end.
    pub fn is_to_be_recovered(&self) -> bool {
        self.state != LogState::Clean || self.head.torn_blocks > 0
    }

    /// The superblock of the filesystem, as it is on the device.
    pub(crate) fn superblock(&self) -> &RawSuperblock {
        self.superblock.raw()
    }

    /// Where it ends and whether it is clean.
    pub(crate) fn end(&self) -> LogEnd {
        (self.head, self.state)
    }

    /// What a replay would do, item by item; nothing is written. `None` for a clean log.
    ///
    /// # Errors
    /// As recovery.
    pub fn preview(&self, each: &mut dyn FnMut(ReplayedItem)) -> Result<Option<Replayed>> {
        let LogState::Dirty { tail } = self.state else { return Ok(None) };
        let device = Arc::new(OverlayDevice::new(Arc::clone(&self.device), MAX_PREVIEW_BYTES));
        let geometry = Arc::new(Geometry::new(&self.superblock));
        let dirty = dirty_log(&self.place, device, geometry, &self.superblock, tail, self.head.next);
        let mut replayed = dirty.replay(each)?;
        replayed.report.torn_bytes = self.head.torn_bytes();
        Ok(Some(replayed))
    }
}

/// Most memory that a preview keeps changed blocks in.
const MAX_PREVIEW_BYTES: usize = 1 << 30;

fn dirty_log(
    place: &LogArea,
    data_device: Arc<dyn BlockDevice>,
    geometry: Arc<Geometry>,
    superblock: &Superblock,
    tail: Lsn,
    head: Lsn,
) -> DirtyLog {
    let has_quota = superblock.has_quota();
    DirtyLog { place: place.clone(), data_device, geometry, has_quota, kind_of, tail, head }
}

/// A log that was opened, and the filesystem as it is after that.
pub(super) struct OpenedLog {
    pub place: LogArea,
    pub head: LogHead,
    pub state: LogState,
    pub superblock: Superblock,
    pub geometry: Arc<Geometry>,
    /// What was replayed.
    pub recovered: Option<Replayed>,
    /// Bytes of the log for which the host has space; `None` when it has space for all.
    pub room: Option<u64>,
}

/// Where a log ends and whether it is clean.
pub(crate) type LogEnd = (LogHead, LogState);

/// Opens the log of the filesystem on `device`, and finds its end unless `log_end` gives it. A dirty log is replayed if
/// the mount writes, and left as it is if it does not.
pub(super) fn open_log(
    device: &Arc<dyn BlockDevice>,
    log_device: Option<Arc<dyn BlockDevice>>,
    superblock: Superblock,
    options: &MountOptions,
    end: Option<LogEnd>,
) -> Result<OpenedLog> {
    let geometry = Arc::new(Geometry::new(&superblock));
    check_device_size(&**device, &geometry)?;
    let place = log_place(device, log_device, &geometry)?;
    let (head, state) = match end.map_or_else(|| find_head(&place, &geometry.uuid), Ok) {
        Ok(found) => found,
        Err(error) if options.read_only && options.no_recovery => {
            tracing::warn!(%error, "the log cannot be read");
            let nothing = LogHead {
                next: Lsn::new(1, 0),
                last_record_block: 0,
                record_bytes: 32 << 10,
                owner: RecordOwner::Own,
                torn_blocks: 0,
            };
            (nothing, LogState::Dirty { tail: Lsn(0) })
        }
        Err(error) => return Err(error),
    };
    let mut room = None;
    let needs_space = options.host_space != HostSpace::Least || state != LogState::Clean;
    if !options.read_only && needs_space {
        // This is done before anything is written, so that a refusal leaves the image as it is.
        room = place.allocate(head.next, options.host_space)?;
    }
    let mut log = OpenedLog { place, head, state, superblock, geometry, recovered: None, room };
    match state {
        LogState::Dirty { tail } if !options.read_only => log.replay(device, tail)?,
        LogState::Dirty { .. } => {
            tracing::warn!("the log is dirty: what it holds and was not written back will not be seen");
        }
        // The first records after the unmount may have been in flight when the power failed, and some may have arrived.
        LogState::Clean if !options.read_only => {
            clear_stale_sectors(&log.place, &log.geometry.uuid, &log.head, log.head.next)?;
        }
        LogState::Clean => {}
    }
    Ok(log)
}

impl OpenedLog {
    /// What recovery found, also where there was nothing to replay but records that are not whole.
    pub fn report(&self) -> Option<RecoveryReport> {
        match &self.recovered {
            Some(recovered) => Some(recovered.report.clone()),
            None if self.head.torn_blocks > 0 && self.state == LogState::Clean => {
                let (end, torn_bytes) = (self.head.next, self.head.torn_bytes());
                Some(RecoveryReport { tail: end, head: end, torn_bytes, ..RecoveryReport::default() })
            }
            None => None,
        }
    }

    /// Replays the log and makes it ready for writing.
    fn replay(&mut self, device: &Arc<dyn BlockDevice>, tail: Lsn) -> Result<()> {
        let geometry = Arc::clone(&self.geometry);
        let dirty = dirty_log(&self.place, Arc::clone(device), geometry, &self.superblock, tail, self.head.next);
        let mut recovered = dirty.replay(&mut |_| {})?;
        recovered.report.torn_bytes = self.head.torn_bytes();
        clear_stale_sectors(&self.place, &self.geometry.uuid, &self.head, tail)?;
        // The log may contain a new size or label of the filesystem.
        self.superblock = read_superblock(&**device)?;
        self.geometry = Arc::new(Geometry::new(&self.superblock));
        check_device_size(&**device, &self.geometry)?;
        tracing::info!(report = %recovered.report, "recovery");
        self.recovered = Some(recovered);
        Ok(())
    }
}

/// Where the log of the filesystem lies.
///
/// # Errors
/// `NoLogDevice` when an external log's device is missing, `Invalid` where one is given in vain; `Corrupt` when it is
/// too small.
pub(super) fn log_place(
    device: &Arc<dyn BlockDevice>,
    log_device: Option<Arc<dyn BlockDevice>>,
    geometry: &Geometry,
) -> Result<LogArea> {
    let basic_blocks = geometry.log_blocks << (geometry.block_log - 9);
    let Some(start) = geometry.log_start else {
        let device = log_device.ok_or(Error::NoLogDevice)?;
        let (has, needs) = (device.size_bytes(), u64::from(basic_blocks) * 512);
        if has < needs {
            return Err(Corruption::new("log device", "it holds the whole log")
                .found(format_args!("it has {has} bytes of {needs}: it was cut short, or is another image's"))
                .into());
        }
        return Ok(LogArea { device, offset: 0, basic_blocks });
    };
    if log_device.is_some() {
        return Err(Error::Invalid("the image has its log inside: it takes no device of a log"));
    }
    let address = geometry
        .fs_block_address(start)
        .ok_or_else(|| Corruption::new("superblock", "the log lies on the device").at(DiskAddress(0)))?;
    Ok(LogArea { device: Arc::clone(device), offset: address.bytes(), basic_blocks })
}
