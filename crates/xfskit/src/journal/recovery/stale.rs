//! Clears what lies in front of the head of the log.
//!
//! Records that were in flight when the power failed may lie there with the number of the pass that the head is in. The
//! writer will come to stand right before one of them, and the next recovery would take it for a record of its own. So
//! as many sectors as may have been in flight are stamped with the number of the pass before.
//!
//! Crash behaviour: the sectors between head and tail belong to nobody, so clearing them may be cut off anywhere and done
//! again. It is flushed before the first record is written behind it.

use super::super::LogPlace;
use super::super::head::{IN_FLIGHT_BLOCKS, LogHead};
use crate::error::{Error, Result};
use xfskit_ondisk::log_record::stamp_stale_sector;
use xfskit_ondisk::{BASIC_BLOCK_BYTES, Lsn};

/// Stamps the sectors from the head on, up to the tail at most.
///
/// # Errors
/// `Io`.
pub fn clear_stale_sectors(place: &LogPlace, uuid: &[u8; 16], head: &LogHead, tail: Lsn) -> Result<()> {
    let size = place.basic_blocks;
    let (head, tail_block) = (head.next, tail.block());
    let distance = place.distance(head.block(), tail_block);
    let free = if distance == 0 { size } else { distance };
    let count = IN_FLIGHT_BLOCKS.min(free);
    let first = count.min(size - head.block());
    // Behind the end of the log the pass before is the one that the head is in.
    for (start, count, cycle) in [(head.block(), first, previous(head.cycle())), (0, count - first, head.cycle())] {
        let mut sectors = vec![0; count as usize * BASIC_BLOCK_BYTES];
        for (index, sector) in sectors.chunks_exact_mut(BASIC_BLOCK_BYTES).enumerate() {
            stamp_stale_sector(sector, Lsn::new(cycle, start + index as u32), tail, uuid);
        }
        if !sectors.is_empty() {
            let offset = place.offset + u64::from(start) * BASIC_BLOCK_BYTES as u64;
            place.device.write(offset, &sectors).map_err(|source| Error::Io { offset, source })?;
        }
    }
    place.device.flush().map_err(|source| Error::Io { offset: place.offset, source })
}

/// The number of the pass before `cycle`; 0, that of a log never written, before the first.
fn previous(cycle: u32) -> u32 {
    let before = cycle - 1;
    if before == xfskit_ondisk::log_record::RECORD_MAGIC { before - 1 } else { before }
}
