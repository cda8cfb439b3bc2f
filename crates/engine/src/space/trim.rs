//! Free space goes back to the host: all of an AG's, or what was freed lately.
//!
//! ```text
//! bnobt          ├──────────── free ────────────┤
//! busy           ┊      ├ freed, not durable ┤   ┊      a crash could bring the old contents back into use
//! windows        ┊                         ├ being written ┤
//! given back     ├──────┤
//! ```
//! Invariant: what is given back is free in the tree, durably so, and no thread writes to it.
//!
//! Locking: the AGF is held, exclusively, while the extents that were found under it are given back: none of them can
//! be allocated meanwhile, and no window can be opened on them, which takes the shared lock. It is released after every
//! `BATCH_BLOCKS`.
//!
//! Crash behaviour: a request that was cut off leaves free blocks with any contents. What was noted to be given back
//! and was not stays free, and a trim of the whole image finds it.
//!
//! Facts: the kernel's `xfs_trim_gather_extents`, which leaves busy extents out, too.

use super::ag::Ag;
use super::ag_tree::ag_tree;
use super::search::merged_runs;
use crate::error::{Error, Result};
use crate::mount::Mount;
use crate::trans::Transaction;
use std::ops::{AddAssign, Range};
use std::sync::Arc;
use xfskit_device::{BlockDevice, data_pieces};
use xfskit_ondisk::btree::{BlockKey, Bnobt, FreeExtent};
use xfskit_ondisk::{AgBlock, AgNumber};

/// Blocks that are given back while the AGF is held.
const BATCH_BLOCKS: u32 = 1 << 16;
/// Extents that are given back while the AGF is held.
const BATCH_EXTENTS: usize = 256;
/// Bytes that are read at once where zeros are written.
const ZERO_STEP_BYTES: u64 = 1 << 20;
/// Bytes of which zeros are written if any is not zero: a page of the host, which stores no less.
const ZERO_PIECE_BYTES: usize = 4096;

/// How free blocks go back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrimBy {
    /// The device is told that they are not needed.
    #[default]
    Discard,
    /// They are overwritten with zeros where they contain anything else, for programs that look for zeros.
    Zeros,
}

/// What was given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GivenBack {
    /// Extents.
    pub extents: u64,
    /// Their blocks.
    pub blocks: u64,
}

impl AddAssign for GivenBack {
    fn add_assign(&mut self, other: Self) {
        self.extents += other.extents;
        self.blocks += other.blocks;
    }
}

/// Which extents go back, and how.
#[derive(Clone, Debug)]
pub struct Trim {
    /// Blocks of the AG to look at.
    pub within: Range<u32>,
    /// Blocks that an extent must have.
    pub min_blocks: u32,
    /// How they go back.
    pub by: TrimBy,
}

/// Gives back the free extents of an AG. Everything that was done before should be durable, for what is not stays.
///
/// # Errors
/// `Corrupt`, `Io`; a part may have been given back.
pub fn trim_ag(mount: &Arc<Mount>, number: AgNumber, trim: &Trim) -> Result<GivenBack> {
    let mut done = GivenBack::default();
    let mut at = trim.within.start;
    while at < trim.within.end {
        let mut tx = Transaction::holding(mount);
        let ag = Ag::lock(&mut tx, number)?;
        let (found, next) = find_batch(&mut tx, ag, at..trim.within.end, trim)?;
        for extent in without_busy(&tx, ag, &found) {
            give_back(mount, number, extent, trim.by)?;
            done += GivenBack { extents: 1, blocks: extent.count.into() };
        }
        at = next;
    }
    Ok(done)
}

/// The free parts of `within`, as many as one hold of the AGF gives back, and where to go on.
///
/// An extent is long enough as a whole, whatever part of it a batch has: what is busy of it counts, too.
fn find_batch(tx: &mut Transaction, ag: Ag, within: Range<u32>, trim: &Trim) -> Result<(Vec<FreeExtent>, u32)> {
    let (mut found, mut blocks, mut reached) = (Vec::new(), 0, within.end);
    let mut tree = ag_tree::<Bnobt>(ag).cursor();
    let key = BlockKey { start: AgBlock(within.start), count: 0 };
    let mut next = match tree.lookup_le(tx, &key)? {
        Some(extent) => Some(extent),
        None => tree.lookup_ge(tx, &key)?,
    };
    while let Some(extent) = next.filter(|extent| extent.start.0 < within.end) {
        let start = extent.start.0.max(within.start);
        let end = extent.end().min(within.end).min(start.saturating_add(BATCH_BLOCKS));
        let whole = extent.end().min(trim.within.end).saturating_sub(extent.start.0.max(trim.within.start));
        if start < end && whole >= trim.min_blocks {
            found.push(FreeExtent { start: AgBlock(start), count: end - start });
            blocks += end - start;
        }
        if blocks >= BATCH_BLOCKS || found.len() >= BATCH_EXTENTS {
            reached = end;
            break;
        }
        next = tree.next(tx)?;
    }
    tree.close(tx);
    Ok((found, reached))
}

/// What is left of free extents without those whose freeing is not durable and those that files are being written to.
fn without_busy(tx: &Transaction, ag: Ag, free: &[FreeExtent]) -> Vec<FreeExtent> {
    let mount = tx.mount();
    let state = &mount.ags[ag.number.0 as usize];
    let mut busy = state.busy_extents(mount.journal.durable());
    busy.extend(state.windows.of_others(None));
    let busy = merged_runs(busy);
    let mut left = Vec::new();
    for extent in free {
        let mut at = extent.start.0;
        let first = busy.partition_point(|busy| busy.end() <= at);
        for obstacle in busy[first..].iter().take_while(|busy| busy.start.0 < extent.end()) {
            if at < obstacle.start.0 {
                left.push(FreeExtent { start: AgBlock(at), count: obstacle.start.0 - at });
            }
            at = obstacle.end();
        }
        if at < extent.end() {
            left.push(FreeExtent { start: AgBlock(at), count: extent.end() - at });
        }
    }
    left
}

fn give_back(mount: &Mount, ag: AgNumber, extent: FreeExtent, by: TrimBy) -> Result<()> {
    let offset = mount.geometry.address(ag, extent.start).bytes();
    let length = u64::from(extent.count) << mount.geometry.block_log;
    let done = match by {
        TrimBy::Discard => mount.device.discard(offset, length),
        TrimBy::Zeros => write_zeros(&*mount.device, offset, length),
    };
    done.map_err(|source| Error::Io { offset, source })
}

/// Makes a range read as zeros. What is zero already is not written, so that a sparse file stays sparse.
fn write_zeros(device: &dyn BlockDevice, offset: u64, length: u64) -> std::io::Result<()> {
    let mut buffer = vec![0; ZERO_STEP_BYTES.min(length) as usize];
    let zeros = vec![0; buffer.len()];
    for piece in data_pieces(device, offset..offset + length, ZERO_STEP_BYTES, u64::MAX) {
        let step = (piece.end - piece.start) as usize;
        device.read(piece.start, &mut buffer[..step])?;
        for run in nonzero_runs(&buffer[..step]) {
            device.write(piece.start + run.start as u64, &zeros[run])?;
        }
    }
    Ok(())
}

/// The runs of pieces that are not zeros alone.
fn nonzero_runs(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (index, piece) in bytes.chunks(ZERO_PIECE_BYTES).enumerate() {
        let start = index * ZERO_PIECE_BYTES;
        match runs.last_mut() {
            _ if piece.iter().all(|&byte| byte == 0) => {}
            Some(last) if last.end == start => last.end += piece.len(),
            _ => runs.push(start..start + piece.len()),
        }
    }
    runs
}

/// Extents that were freed and are to be given back once that is durable.
pub struct Freed(Vec<(AgNumber, Vec<FreeExtent>)>);

/// Takes what was freed so far. The caller makes it durable and gives it to [`give_back_freed`].
pub fn take_freed(mount: &Mount) -> Freed {
    let of_ag = |(number, state): (u32, &crate::mount::AgState)| {
        let freed = state.take_discards(mount.geometry.blocks_in_ag(AgNumber(number)));
        let freed = merged_runs(freed);
        (!freed.is_empty()).then_some((AgNumber(number), freed))
    };
    Freed((0..).zip(&mount.ags).filter_map(of_ag).collect())
}

/// Gives back what is still free of extents that were freed.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn give_back_freed(mount: &Arc<Mount>, freed: &Freed) -> Result<()> {
    for (number, extents) in &freed.0 {
        for extent in extents {
            let within = extent.start.0..extent.end();
            trim_ag(mount, *number, &Trim { within, min_blocks: 1, by: TrimBy::Discard })?;
        }
    }
    Ok(())
}
