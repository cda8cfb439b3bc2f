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
    place.device.flush().map_err(Error::of_flush)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::head::RecordOwner;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use xfskit_device::{Fua, MemoryDevice, WrapsDevice};

    const SECTORS: u32 = 10_000;
    const OFFSET: u64 = 8192;

    struct Flushes(MemoryDevice, AtomicUsize);

    impl WrapsDevice for Flushes {
        type Below = MemoryDevice;

        fn below(&self) -> &MemoryDevice {
            &self.0
        }

        fn pass_write(&self, offset: u64, data: &[u8], fua: Fua) -> std::io::Result<()> {
            assert_eq!(self.1.load(Ordering::Relaxed), 0, "a write that is not flushed");
            fua.write(&self.0, offset, data)
        }

        fn pass_flush(&self) -> std::io::Result<()> {
            self.1.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    /// Clears a log whose head is at `head` of pass 3 and whose sectors `stale` are of another pass.
    fn check(head: u32, tail: u32, stale: &[u32]) {
        let pass = |block: u32| if block < head { 3u32 } else { 2 };
        let mut bytes = vec![0x11; OFFSET as usize];
        for block in 0..SECTORS {
            let pass = if stale.contains(&block) { 9 } else { pass(block) };
            bytes.extend([&pass.to_be_bytes()[..], &[0x22; 508]].concat());
        }
        bytes.extend([0x11; 8192]);
        let device = Arc::new(Flushes(MemoryDevice::from_bytes(bytes.clone()), AtomicUsize::new(0)));
        let place = LogArea { device: Arc::clone(&device) as _, offset: OFFSET, basic_blocks: SECTORS };
        let next = Lsn::new(3, head);
        let head_of_log =
            LogHead { next, last_record_block: 0, record_bytes: 32768, owner: RecordOwner::Own, torn_blocks: 0 };
        clear_stale_sectors(&place, &[5; 16], &head_of_log, Lsn::new(2, tail)).unwrap();
        let free = if tail == head { SECTORS } else { (tail + SECTORS - head) % SECTORS };
        let in_flight: Vec<u32> = (0..free.min(4096)).map(|n| (head + n) % SECTORS).collect();
        let (mut wrong, mut changed) = (Vec::new(), 0);
        let after = device.0.to_bytes();
        for block in 0..SECTORS {
            let at = OFFSET as usize + block as usize * 512;
            let (old, new) = (&bytes[at..at + 512], &after[at..at + 512]);
            changed += usize::from(old != new);
            let is_right = if in_flight.contains(&block) {
                sector_cycle(new) == pass(block)
                    && (old == new || new[16..24] == Lsn::new(pass(block), block).0.to_be_bytes())
            } else {
                old == new
            };
            if !is_right {
                wrong.push(block);
            }
        }
        assert!(wrong.is_empty(), "head {head}, tail {tail}, stale {stale:?}: {wrong:?}");
        assert!(after[..OFFSET as usize] == bytes[..OFFSET as usize] && after[after.len() - 8192..] == [0x11; 8192]);
        let cleared: Vec<u32> = stale.iter().copied().filter(|block| in_flight.contains(block)).collect();
        assert_eq!(device.1.load(Ordering::Relaxed), usize::from(!cleared.is_empty()));
        assert!(changed >= cleared.len() && (changed > 0) != cleared.is_empty());
        // Only what is stale and what lies between is written.
        if let (Some(first), Some(last)) = (cleared.first(), cleared.last())
            && first >= &head
        {
            assert!(changed as u32 <= last - first + 1, "{changed}");
        }
    }

    #[test]
    fn sectors_that_may_have_been_in_flight_are_of_the_pass_before() {
        for (head, tail) in [(2, 2), (100, 9000), (5000, 4000), (100, 1000), (7000, 6000), (9999, 50), (0, 0)] {
            for stale in [&[][..], &[120], &[101, 300, 302, 999], &[5000, 5001], &[9000, 9999], &[0, 7], &[9999]] {
                let stale: Vec<u32> = stale.iter().copied().filter(|block| *block >= head || head > 5000).collect();
                check(head, tail, &stale);
            }
        }
    }
}
