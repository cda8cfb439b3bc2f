//! The headers of an AG as buffers, and the order in which they are locked.

use super::ag_tree::TreeHeader;
use crate::buffer::BufferKind;
use crate::error::{Error, Result};
use crate::error_tags::{READ_AGF, READ_AGI, REFUSE_LOCK};
use crate::mount::Mount;
use crate::trans::{BufId, Transaction};
use std::sync::Arc;
use xfskit_ondisk::ag::{
    AGF_CRC_OFFSET, AGF_LSN_OFFSET, AGFL_CRC_OFFSET, AGFL_LSN_OFFSET, AGI_CRC_OFFSET, AGI_LSN_OFFSET, Agf, AgflHeader,
    Agi,
};
use xfskit_ondisk::limits::Limits;
use xfskit_ondisk::logged::buffer::buffer_type;
use xfskit_ondisk::{AgNumber, Corruption, DiskAddress, Geometry, Verdict};
use zerocopy::FromBytes;

/// Sector of the AGF within an AG.
const AGF_SECTOR: u64 = 1;
/// Sector of the AGI.
const AGI_SECTOR: u64 = 2;
/// Sector of the free list.
const AGFL_SECTOR: u64 = 3;

/// The free space header.
pub static AGF_KIND: BufferKind = BufferKind {
    name: "AGF",
    family: "AGF",
    log_type: buffer_type::AGF,
    crc_offset: Some(AGF_CRC_OFFSET),
    lsn_offset: Some(AGF_LSN_OFFSET),
    verify: |geometry, address, bytes| header::<Agf>("AGF", bytes)?.verify(geometry, ag_of(geometry, address)),
    refine: None,
};

/// The inode header.
pub static AGI_KIND: BufferKind = BufferKind {
    name: "AGI",
    family: "AGI",
    log_type: buffer_type::AGI,
    crc_offset: Some(AGI_CRC_OFFSET),
    lsn_offset: Some(AGI_LSN_OFFSET),
    verify: |geometry, address, bytes| header::<Agi>("AGI", bytes)?.verify(geometry, ag_of(geometry, address)),
    refine: None,
};

/// The free list.
pub static AGFL_KIND: BufferKind = BufferKind {
    name: "AGFL",
    family: "AGFL",
    log_type: buffer_type::AGFL,
    crc_offset: Some(AGFL_CRC_OFFSET),
    lsn_offset: Some(AGFL_LSN_OFFSET),
    verify: |geometry, address, bytes| header::<AgflHeader>("AGFL", bytes)?.verify(geometry, ag_of(geometry, address)),
    refine: None,
};

pub(super) fn header<'a, T>(name: &'static str, bytes: &'a [u8]) -> Verdict<&'a T>
where
    T: FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + zerocopy::Unaligned,
{
    T::ref_from_prefix(bytes).map(|(header, _)| header).map_err(|_| Corruption::new(name, "whole sector"))
}

pub(super) fn ag_of(geometry: &Geometry, address: DiskAddress) -> AgNumber {
    geometry.block_of_address(address).0
}

/// An AG whose AGF the transaction holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ag {
    pub number: AgNumber,
    pub agf: BufId,
}

impl Ag {
    /// The AGF.
    pub fn agf<'t>(self, tx: &'t Transaction<'_>) -> &'t Agf {
        tx.get_as(self.agf, 0)
    }

    /// The AGF for a change.
    pub fn agf_mut<'t>(self, tx: &'t mut Transaction<'_>) -> &'t mut Agf {
        tx.edit_as(self.agf, 0)
    }

    /// Locks the AGF.
    pub fn lock(tx: &mut Transaction, number: AgNumber) -> Result<Self> {
        Ok(Self { number, agf: read_agf(tx, number)? })
    }

    /// Locks the AGF, without waiting if the transaction holds that of another AG. A caller that has a choice of AGs,
    /// or can do the work later, need not keep others from the AG it holds, even where the lock order would let it
    /// wait.
    pub fn lock_unless_holding(tx: &mut Transaction, number: AgNumber) -> Result<Self> {
        let holds_another = held_headers(tx).any(|(ag, sector)| sector == AGF_SECTOR && ag != number);
        if holds_another {
            Ok(Self { number, agf: read_agf_with(tx, number, Wait::Never)? })
        } else {
            Self::lock(tx, number)
        }
    }

    /// Locks the AGF now if waiting for it later would break the lock order: what follows must not fail half-way.
    /// `None`: it can be waited for when it is needed.
    pub fn lock_early(tx: &mut Transaction, number: AgNumber) -> Result<Option<Self>> {
        if may_wait(tx, number, AGF_SECTOR) { Ok(None) } else { Self::lock(tx, number).map(Some) }
    }

    /// Gives the AGF back if it was not changed.
    pub fn release(self, tx: &mut Transaction) {
        tx.release(self.agf);
    }

    /// Brings the hints in memory up to date.
    pub fn remember(self, tx: &Transaction) {
        let agf = self.agf(tx);
        tx.mount().ags[self.number.0 as usize].remember_space(agf.free_blocks.get(), agf.longest.get());
    }

    /// The rmapbt has changed its size, or is seen for the first time. What it has beyond its share is free by the
    /// superblock and cannot be had: the whole filesystem's count must know, or a transaction would reserve it.
    pub fn note_rmap_blocks(self, tx: &Transaction) {
        let (geometry, mount) = (tx.geometry(), tx.mount());
        let blocks = geometry.blocks_in_ag(self.number);
        // A damaged AGF may say anything.
        let used = if geometry.has_rmap() { self.agf(tx).rmap_blocks.get().min(blocks) } else { 0 };
        let excess = u64::from(used).saturating_sub(rmap_ask(geometry, &mount.limits, blocks));
        mount.space.count_in_trees(mount.ags[self.number.0 as usize].remember_rmap_excess(excess as u32));
    }
}

/// Blocks that the rmapbt of an AG may need later. They count as free in the superblock even when it has them. For
/// shared blocks, of which each may have many mappings, it may need more ([`Ag::note_rmap_blocks`]).
pub(super) fn rmap_ask(geometry: &Geometry, limits: &Limits, blocks: u32) -> u64 {
    if !geometry.has_rmap() {
        return 0;
    }
    (u64::from(blocks) / 100).max(limits.rmap.blocks_for_records(blocks.into()))
}

impl TreeHeader for Ag {
    const BYTES: usize = size_of::<Agf>();

    fn number(self) -> AgNumber {
        self.number
    }

    fn buffer(self) -> BufId {
        self.agf
    }
}

/// Names the AGF in an error about a structure that hangs from it.
pub(super) fn below_agf<T>(tx: &Transaction, ag: AgNumber, result: Result<T>) -> Result<T> {
    result.map_err(|error| error.below(tx.geometry().ag_header(ag, AGF_SECTOR), ag.0.into()))
}

/// Names the AGI in an error about a structure that hangs from it.
pub(crate) fn below_agi<T>(tx: &Transaction, ag: AgNumber, result: Result<T>) -> Result<T> {
    result.map_err(|error| error.below(tx.geometry().ag_header(ag, AGI_SECTOR), ag.0.into()))
}

/// The AGIs and AGFs that the transaction holds.
fn held_headers(tx: &Transaction) -> impl Iterator<Item = (AgNumber, u64)> {
    let geometry = tx.geometry();
    tx.held_addresses().filter_map(|address| {
        let (ag, _) = geometry.block_of_address(address);
        let index = (address.0 - geometry.ag_header(ag, 0).0) >> (geometry.sector_log - 9);
        (index == AGF_SECTOR || index == AGI_SECTOR).then_some((ag, index))
    })
}

/// The AGs whose AGF the transaction holds.
pub(super) fn held_agfs(tx: &Transaction) -> impl Iterator<Item = AgNumber> {
    held_headers(tx).filter(|(_, sector)| *sector == AGF_SECTOR).map(|(ag, _)| ag)
}

/// Whether waiting for the header `sector` of `ag` keeps the lock order: no later header may be held.
fn may_wait(tx: &Transaction, ag: AgNumber, sector: u64) -> bool {
    // Within an AG the AGI is before the AGF.
    let rank = |ag: AgNumber, sector: u64| (ag, u8::from(sector == AGF_SECTOR));
    let wanted = rank(ag, sector);
    held_headers(tx).all(|(ag, sector)| rank(ag, sector) <= wanted)
}

/// Whether a lock that another transaction holds is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// It is.
    IfNeeded,
    /// It is refused with `WouldBlock`.
    Never,
}

/// What the lock order allows.
fn wait_for(tx: &Transaction, ag: AgNumber, sector: u64) -> Wait {
    if may_wait(tx, ag, sector) { Wait::IfNeeded } else { Wait::Never }
}

fn read_header(
    tx: &mut Transaction,
    ag: AgNumber,
    sector: u64,
    kind: &'static BufferKind,
    wait: Wait,
) -> Result<BufId> {
    let (address, bytes) = (tx.geometry().ag_header(ag, sector), tx.geometry().sector_bytes());
    if wait == Wait::Never && !tx.holds(address) && tx.mount().error_tags.strikes(REFUSE_LOCK) {
        return Err(Error::WouldBlock);
    }
    let header = match wait {
        Wait::IfNeeded => tx.read(address, bytes, kind),
        Wait::Never => tx.try_read(address, bytes, kind),
    }?;
    tx.note_ag_lock();
    Ok(header)
}

/// Locks the AGF of an AG.
///
/// # Errors
/// `WouldBlock` when the lock order forbids waiting and another transaction holds it; `Corrupt`, `Io`.
pub fn read_agf(tx: &mut Transaction, ag: AgNumber) -> Result<BufId> {
    let wait = wait_for(tx, ag, AGF_SECTOR);
    read_agf_with(tx, ag, wait)
}

fn read_agf_with(tx: &mut Transaction, ag: AgNumber, wait: Wait) -> Result<BufId> {
    tx.mount().error_tags.fail(READ_AGF)?;
    let agf = read_header(tx, ag, AGF_SECTOR, &AGF_KIND, wait)?;
    let state = &tx.mount().ags[ag.0 as usize];
    if !state.knows_space() {
        let header: &Agf = tx.get_as(agf, 0);
        state.remember_space(header.free_blocks.get(), header.longest.get());
        Ag { number: ag, agf }.note_rmap_blocks(tx);
    }
    Ok(agf)
}

/// Locks the AGI of an AG.
///
/// # Errors
/// `WouldBlock` when the lock order forbids waiting and another transaction holds it; `Corrupt`, `Io`.
pub fn read_agi(tx: &mut Transaction, ag: AgNumber) -> Result<BufId> {
    tx.mount().error_tags.fail(READ_AGI)?;
    let wait = wait_for(tx, ag, AGI_SECTOR);
    let agi = read_header(tx, ag, AGI_SECTOR, &AGI_KIND, wait)?;
    let state = &tx.mount().ags[ag.0 as usize];
    if !state.knows_inodes() {
        let header: &Agi = tx.get_as(agi, 0);
        state.remember_inodes(header.count.get(), header.free_count.get());
    }
    Ok(agi)
}

/// Reads the free list of an AG whose AGF is locked, which protects it.
pub(super) fn read_agfl(tx: &mut Transaction, ag: AgNumber) -> Result<BufId> {
    let (address, bytes) = (tx.geometry().ag_header(ag, AGFL_SECTOR), tx.geometry().sector_bytes());
    tx.read(address, bytes, &AGFL_KIND)
}

/// What the AGs' headers say of the whole filesystem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Free blocks, as the superblock counts them.
    pub free_blocks: u64,
    /// Inodes that exist.
    pub inodes: u64,
    /// Inodes that exist and are free.
    pub free_inodes: u64,
    /// AGs whose free list cannot be used; its blocks are not among the free ones.
    pub unusable_lists: Vec<AgNumber>,
}

impl Totals {
    /// Verifies that there are no more free blocks than blocks, and no more free inodes than inodes: for who relies on
    /// them instead of on the superblock's counters.
    ///
    /// # Errors
    /// A corruption of the "AG headers".
    pub fn verify(&self, geometry: &Geometry) -> Verdict {
        const NAME: &str = "AG headers";
        let (free, blocks) = (self.free_blocks, geometry.data_blocks);
        xfskit_ondisk::ensure!(free <= blocks, NAME, "no more free blocks than blocks", "{free} of {blocks}");
        let (free, inodes) = (self.free_inodes, self.inodes);
        xfskit_ondisk::ensure!(free <= inodes, NAME, "no more free inodes than inodes", "{free} of {inodes}");
        Ok(())
    }
}

/// Reads the headers of all AGs, remembers what helps to choose among them, and sums up the filesystem's counters.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn initialize(mount: &Arc<Mount>) -> Result<Totals> {
    let mut totals = Totals::default();
    for ag in (0..mount.geometry.ag_count).map(AgNumber) {
        let mut tx = Transaction::read_only(mount);
        let agi = read_agi(&mut tx, ag)?;
        let agf = read_agf(&mut tx, ag)?;
        let (agi, agf): (&Agi, &Agf) = (tx.get_as(agi, 0), tx.get_as(agf, 0));
        totals.free_blocks += u64::from(agf.free_blocks.get()) + u64::from(agf.btree_blocks.get());
        if agf.verify_free_list(&mount.geometry).is_ok() {
            totals.free_blocks += u64::from(agf.fl_count.get());
        } else {
            totals.unusable_lists.push(ag);
        }
        totals.inodes += u64::from(agi.count.get());
        totals.free_inodes += u64::from(agi.free_count.get());
    }
    Ok(totals)
}
