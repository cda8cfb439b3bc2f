//! Clears stale sectors in front of the head of the log.
//!
//! Recovery finds the head where the number of a pass (cycle) gives way to the number of the pass before. So as many
//! sectors in front of the head as may be in flight must carry the latter, and two things break that:
//!
//! ```text
//! sector    later: records that were in flight when the power failed, and arrived although one before them did not.
//!           The next record ends right before one of them, and recovery would take it for one of its own.
//!           earlier: zeros, in a log that xfs_repair -L, xfs_mdrestore or xfs_admin -U formatted:
//!           | n n | 0 0 ... 0 | n-1 n-1 ...     The kernel and xfsprogs look for the edge to n-1, find it behind the
//!           zeros, and take the last record for one that did not arrive.
//! ```
//! Sectors of any other pass are stamped with the right one. Mostly there are none, and no sector is written.
//!
//! Crash behaviour: the sectors between head and tail contain nothing, so clearing them may be cut off anywhere and
//! done again. It is flushed before the first record is written behind it.
//!
//! Facts: the kernel's `xlog_clear_stale_blocks`, which stamps always; xfsprogs' `libxfs_log_clear`.

use crate::error::{Error, Result};
use crate::journal::area::LogArea;
use crate::journal::head::{IN_FLIGHT_BLOCKS, LogHead};
use std::ops::Range;
use xfskit_ondisk::log_record::{previous_cycle, sector_cycle, stamp_stale_sector};
use xfskit_ondisk::{BASIC_BLOCK_BYTES, Lsn};

/// Stamps the sectors from the head on, up to the tail at most.
///
/// # Errors
/// `Io`.
pub fn clear_stale_sectors(place: &LogArea, uuid: &[u8; 16], head: &LogHead, tail: Lsn) -> Result<()> {
    let size = place.basic_blocks;
    let (head, tail_block) = (head.next, tail.block());
    let distance = place.distance(head.block(), tail_block);
    let free = if distance == 0 { size } else { distance };
    let count = IN_FLIGHT_BLOCKS.min(free);
    let first = count.min(size - head.block());
    // Around the end of the log, at its start, the pass before is the head's own.
    let ahead = clear_run(place, uuid, head.block()..head.block() + first, previous_cycle(head.cycle()), tail)?;
    let around = clear_run(place, uuid, 0..count - first, head.cycle(), tail)?;
    if !ahead && !around {
        return Ok(());
    }
    place.device.flush().map_err(|source| Error::Io { offset: place.offset, source })
}

/// Stamps the sectors among `blocks` that are not of the pass `cycle`, and those between them. Returns whether there
/// were any.
fn clear_run(place: &LogArea, uuid: &[u8; 16], blocks: Range<u32>, cycle: u32, tail: Lsn) -> Result<bool> {
    let mut sectors = Vec::new();
    place.read(blocks.start, blocks.end - blocks.start, &mut sectors)?;
    let is_other = |sector: &[u8]| sector_cycle(sector) != cycle;
    let Some(first) = sectors.chunks_exact(BASIC_BLOCK_BYTES).position(is_other) else { return Ok(false) };
    let last = sectors.chunks_exact(BASIC_BLOCK_BYTES).rposition(is_other).unwrap_or(first);
    let stale = &mut sectors[first * BASIC_BLOCK_BYTES..(last + 1) * BASIC_BLOCK_BYTES];
    let start = blocks.start + first as u32;
    for (index, sector) in stale.chunks_exact_mut(BASIC_BLOCK_BYTES).enumerate() {
        stamp_stale_sector(sector, Lsn::new(cycle, start + index as u32), tail, uuid);
    }
    let offset = place.offset + u64::from(start) * BASIC_BLOCK_BYTES as u64;
    place.device.write(offset, stale).map_err(|source| Error::Io { offset, source })?;
    Ok(true)
}
