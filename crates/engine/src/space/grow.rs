//! Growing: AGs behind the last one, and the last one longer.
//!
//! ```text
//! old    │ AG 0 │ AG 1 │ short │
//! new    │ AG 0 │ AG 1 │ AG 2 (filled up) │ AG 3 │ short │
//!                               └ one transaction  └ written before it, no part of the filesystem until then
//! ```
//! Locking: the filesystem is open for this alone; the transaction holds the superblock, the AGI and the AGF.
//!
//! Crash behaviour: `docs/design/grow.md`.
//!
//! Facts: the kernel's `xfs_growfs_data_private`, `xfs_ag_init_headers` and `xfs_ag_extend_space`.

use super::ag::{AGF_KIND, AGI_KIND, Ag, ag_of, header};
use super::alloc;
use super::free_list;
use super::owner::Counted;
use crate::buffer::BufferKind;
use crate::error::{Error, Result};
use crate::trans::Transaction;
use std::ops::Range;
use xfskit_device::BlockDevice;
use xfskit_ondisk::ag::{Agf, Agi};
use xfskit_ondisk::btree::FreeExtent;
use xfskit_ondisk::new_ag::{NewAg, TreeRoots};
use xfskit_ondisk::superblock::SUPERBLOCK_CRC_OFFSET;
use xfskit_ondisk::{
    AgBlock, AgNumber, Corruption, DiskAddress, Geometry, RawSuperblock, Verdict, ensure, set_checksum,
};
use zerocopy::IntoBytes;

/// The AGF of an AG that is to become as long as the geometry says.
static SHORT_AGF_KIND: BufferKind = BufferKind { verify: verify_short_agf, ..AGF_KIND };

/// The AGI of such an AG.
static SHORT_AGI_KIND: BufferKind = BufferKind { verify: verify_short_agi, ..AGI_KIND };

/// The geometry in which AG `ag` is the last one and has `length` blocks.
fn ending_with(geometry: &Geometry, ag: AgNumber, length: u32) -> Verdict<Geometry> {
    ensure!(length <= geometry.blocks_in_ag(ag), "AG header", "the AG is not longer than it is to become", "{length}");
    let data_blocks = u64::from(ag.0) * u64::from(geometry.ag_blocks) + u64::from(length);
    Ok(Geometry { data_blocks, ag_count: ag.0 + 1, ..geometry.clone() })
}

fn verify_short_agf(geometry: &Geometry, address: DiskAddress, bytes: &[u8]) -> Verdict {
    let (agf, ag) = (header::<Agf>("AGF", bytes)?, ag_of(geometry, address));
    agf.verify(&ending_with(geometry, ag, agf.length.get())?, ag)
}

fn verify_short_agi(geometry: &Geometry, address: DiskAddress, bytes: &[u8]) -> Verdict {
    let (agi, ag) = (header::<Agi>("AGI", bytes)?, ag_of(geometry, address));
    agi.verify(&ending_with(geometry, ag, agi.length.get())?, ag)
}

/// Writes the headers and the tree roots of new AGs to their places, which no superblock counts yet, and flushes them.
/// Returns how many blocks of them are free. `geometry` is that of the grown filesystem, `superblock` the one before.
///
/// Their copies of the superblock are marked as unfinished, so that a search for a lost superblock takes none of an AG
/// that a power cut left outside of the filesystem.
///
/// # Errors
/// `Io`, as a host without space for them; nothing of the filesystem was changed then.
pub fn write_new_ags(
    device: &dyn BlockDevice,
    geometry: &Geometry,
    superblock: &RawSuperblock,
    ags: Range<u32>,
) -> Result<u64> {
    let (roots, sector) = (TreeRoots::new(geometry), geometry.sector_bytes());
    let mut copy = vec![0; sector];
    let unfinished = RawSuperblock { in_progress: 1, ..superblock.clone() };
    copy[..size_of::<RawSuperblock>()].copy_from_slice(unfinished.as_bytes());
    set_checksum(&mut copy, SUPERBLOCK_CRC_OFFSET);
    let mut free_blocks = 0;
    for number in ags.map(AgNumber) {
        let ag = NewAg::empty(geometry, &roots, number)
            .map_err(|error| Corruption::new("superblock", "an AG has room for its metadata").found(error))?;
        let mut blocks = vec![0; geometry.ag_header_blocks() as usize * geometry.block_bytes()];
        blocks[..sector].copy_from_slice(&copy);
        blocks[sector..4 * sector].copy_from_slice(&ag.encode_headers(geometry, &roots));
        blocks.extend(ag.encode_roots(geometry, &roots));
        let offset = geometry.address(number, AgBlock(0)).bytes();
        device.write(offset, &blocks).map_err(|source| Error::Io { offset, source })?;
        free_blocks += u64::from(ag.space.free_blocks());
    }
    device.flush().map_err(Error::of_flush)?;
    Ok(free_blocks)
}

/// Makes an AG of `old_length` blocks, which was the last one, as long as the geometry says. The new blocks are free.
///
/// # Errors
/// `Corrupt` when the AG has another length; `Io`.
pub fn extend_ag(tx: &mut Transaction, number: AgNumber, old_length: u32) -> Result<()> {
    let geometry = tx.geometry();
    let (new_length, sector) = (geometry.blocks_in_ag(number), geometry.sector_bytes());
    let agi = tx.read(geometry.ag_header(number, 2), sector, &SHORT_AGI_KIND)?;
    let agf = tx.read(geometry.ag_header(number, 1), sector, &SHORT_AGF_KIND)?;
    let lengths = (tx.get_as::<Agi>(agi, 0).length.get(), tx.get_as::<Agf>(agf, 0).length.get());
    ensure_on_disk!(lengths == (old_length, old_length), "AG headers", "the length of the AG", "{lengths:?}");
    tx.edit_as::<Agi>(agi, 0).length = new_length.into();
    tx.set_kind(agi, &AGI_KIND);
    tx.edit_as::<Agf>(agf, 0).length = new_length.into();
    tx.set_kind(agf, &AGF_KIND);
    let ag = Ag { number, agf };
    free_list::fix(tx, ag, None)?;
    // Nothing has owned these blocks, so there is no mapping to remove.
    let new = FreeExtent { start: AgBlock(old_length), count: new_length - old_length };
    alloc::give_back(tx, ag, new, Counted::AsUsed)
}
