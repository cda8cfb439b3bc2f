//! What the log of an image contains before the run: the kernel and xfsprogs find its head by the sectors around it.
//!
//! ```text
//! New          | 1 | zeros .................... |   as mkfs leaves it
//! Formatted    | n | zeros ... | n - 1 ........ |   as xfs_repair -L, xfs_mdrestore and xfs_admin -U leave it
//! Passed       | n ......... n | n - 1 ........ |   as after n passes, when the kernel has mounted it: the head is
//!                                                   anywhere, and sectors ahead of it that may be in flight are
//!                                                   stamped
//! ```
//! The numbers are cycles: the passes over the log in which the sectors were written. In all three the newest record
//! says that the filesystem was unmounted, so the log is clean.
//!
//! Facts: xfsprogs' `libxfs_log_clear`, the kernel's `xlog_clear_stale_blocks`.

use crate::random::Random;
use crate::stop::Stop;
use xfskit_device::BlockDevice;
use xfskit_ondisk::log_record::{RecordHeader, previous_cycle, stamp_stale_sector};
use xfskit_ondisk::{BASIC_BLOCK_BYTES, Geometry, Lsn};
use zerocopy::{FromBytes, IntoBytes};

/// Sectors from the start of the log that xfsprogs clears when it formats a log that is not new.
const CLEARED_SECTORS: u32 = 512;
/// Sectors ahead of the head that the kernel stamps when it mounts.
const STAMPED_SECTORS: u32 = 4096;
/// Header sectors of the record that mkfs writes, while the stripe unit is 32 KiB at most, as in all workloads.
const HEADER_SECTORS_OF_MKFS: u32 = 1;

/// What a log contains before the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogHistory {
    /// One record, and zeros.
    New,
    /// One record of this cycle, zeros, then sectors of the cycle before.
    Formatted(u32),
    /// The newest record starts at this place.
    Passed(Lsn),
}

impl LogHistory {
    /// Any history.
    pub fn any(random: &mut Random, geometry: &Geometry) -> Self {
        let cycle = 2 + random.below(1000) as u32;
        let sectors = geometry.basic_blocks(geometry.log_blocks) as u32;
        let unit = geometry.log_stripe_unit_bytes / BASIC_BLOCK_BYTES as u32;
        let places = ((sectors - record_sectors(geometry)) / unit) as usize;
        let place = match random.below(4) {
            0 => return Self::New,
            1 => return Self::Formatted(cycle),
            // So near to the end that the run wraps around.
            2 => places - random.below(40.min(places)),
            _ => random.below(places),
        };
        Self::Passed(Lsn::new(cycle, place as u32 * unit))
    }
}

/// Sectors of the record that mkfs writes.
fn record_sectors(geometry: &Geometry) -> u32 {
    (geometry.log_stripe_unit_bytes / BASIC_BLOCK_BYTES as u32).max(HEADER_SECTORS_OF_MKFS + 1)
}

/// Gives the new log of an image the history.
///
/// # Errors
/// `Stop` where the device fails.
pub fn write_history(device: &dyn BlockDevice, geometry: &Geometry, history: LogHistory) -> Result<(), Stop> {
    let Some(start) = geometry.log_start.and_then(|start| geometry.fs_block_address(start)) else { return Ok(()) };
    let sectors = geometry.basic_blocks(geometry.log_blocks) as u32;
    let at = match history {
        LogHistory::New => return Ok(()),
        LogHistory::Formatted(cycle) => Lsn::new(cycle, 0),
        LogHistory::Passed(at) => at,
    };
    let length = record_sectors(geometry);
    let mut record = vec![0; length as usize * BASIC_BLOCK_BYTES];
    let wrong = |error| Stop::Wrong(format!("the log's history: {error}"));
    device.read(start.bytes(), &mut record).map_err(wrong)?;
    move_record(&mut record, at);
    let mut log = vec![0; sectors as usize * BASIC_BLOCK_BYTES];
    for (block, sector) in (0..sectors).zip(log.chunks_exact_mut(BASIC_BLOCK_BYTES)) {
        let cycle = if block < at.block() { at.cycle() } else { previous_cycle(at.cycle()) };
        sector[..4].copy_from_slice(&cycle.to_be_bytes());
        let ahead = (sectors + block - at.block() - length) % sectors;
        match history {
            LogHistory::Formatted(_) if block < CLEARED_SECTORS => sector.fill(0),
            LogHistory::Passed(_) if ahead < STAMPED_SECTORS => {
                stamp_stale_sector(sector, Lsn::new(cycle, block), at, &geometry.uuid);
            }
            _ => {}
        }
    }
    let place = at.block() as usize * BASIC_BLOCK_BYTES;
    log[place..place + record.len()].copy_from_slice(&record);
    device.write(start.bytes(), &log).map_err(wrong)
}

/// Changes the record of mkfs into one that was written at `at`.
fn move_record(record: &mut [u8], at: Lsn) {
    let (mut header, _) = RecordHeader::read_from_prefix(record).expect("a record is longer than a header");
    header.cycle = at.cycle().into();
    header.lsn = at.0.into();
    header.tail_lsn = at.0.into();
    record[..header.as_bytes().len()].copy_from_slice(header.as_bytes());
    for sector in record.chunks_exact_mut(BASIC_BLOCK_BYTES).skip(HEADER_SECTORS_OF_MKFS as usize) {
        sector[..4].copy_from_slice(&at.cycle().to_be_bytes());
    }
}
