//! Allocates extents, and takes back what has no owner any more.
//!
//! An allocation looks for its extent first, without a change; only when the extent is found, and enough is left to
//! fill the free list, does it take the extent. So "no space of that shape" always leaves the transaction as it was.

use super::ag::{Ag, below_agf, held_agfs};
use super::owner::{Counted, Owner};
use super::request::{AllocRequest, Near};
use super::search::{Search, busy_extents};
use super::{free_list, free_space, reservation, rmap, rmap_change};
use crate::error::{Error, Result};
use crate::error_tags::{ALLOC_EXTENT, REFUSE_BLOCKS, REFUSE_EXTENT, REFUSE_WINDOW};
use crate::mount::Mount;
use crate::trans::Transaction;
use smallvec::SmallVec;
use xfskit_ondisk::btree::FreeExtent;
use xfskit_ondisk::{AgBlock, AgNumber, Corruption, FileBlock, FsBlock, InodeNumber};

/// Times, a millisecond apart, that an allocation looks again at AGs which others hold, when no other has space, even
/// if all of those look around for space in the same way. Where space is scarce transactions run one at a time
/// ([`Mount::transaction`](crate::mount::Mount::transaction)), so that hardly ever two wait for each other. Those that
/// do not look around commit sometime, however slow the device is, and are waited for.
const PATIENCE: usize = if cfg!(test) { 50 } else { 5000 };

/// Allocates an extent, in the AG that the request names or in another. `None`: nowhere is space of that shape, and
/// nothing was changed. With [`Busy::Avoided`](super::Busy::Avoided) that may be because freed space waits for the
/// journal: force it and try again.
///
/// # Errors
/// `Corrupt`, `Io`.
///
/// # Panics
/// If the transaction has fewer than `max` blocks left of its reservation.
pub fn allocate(tx: &mut Transaction, request: &AllocRequest) -> Result<Option<(FsBlock, u32)>> {
    assert!(0 < request.min && request.min <= request.max, "a request for at least one block");
    tx.mount().error_tags.fail(ALLOC_EXTENT)?;
    // A block of any shape is there once the transaction counts on it.
    if (request.min > 1 || !tx.is_dirty()) && tx.mount().error_tags.strikes(REFUSE_EXTENT) {
        return Ok(None);
    }
    somewhere(tx, request, |tx, ag, hint| allocate_in(tx, ag, hint, request))
}

/// What is done in one AG after another, with a place in the first.
type InAg<'a> = &'a mut dyn FnMut(&mut Transaction, Ag, Option<AgBlock>) -> Result<Option<FreeExtent>>;

/// Goes through the AGs until `find` finds something.
fn somewhere(
    tx: &mut Transaction,
    request: &AllocRequest,
    mut find: impl FnMut(&mut Transaction, Ag, Option<AgBlock>) -> Result<Option<FreeExtent>>,
) -> Result<Option<(FsBlock, u32)>> {
    let mut blocked = HeldByOthers::new();
    let found = try_somewhere(tx, request, &mut find, &mut blocked)?;
    if found.is_some() || blocked.is_empty() {
        return Ok(found);
    }
    let mount = tx.mount();
    let _waiting = WaitingHolder::new(tx);
    for round in 0.. {
        let holder_waits = |ag: &AgNumber| mount.ags[ag.0 as usize].holder_waits();
        if round >= PATIENCE && blocked.iter().all(holder_waits) {
            break;
        }
        mount.journal.check()?;
        crate::sync::pause();
        blocked.clear();
        let found = try_somewhere(tx, request, &mut find, &mut blocked)?;
        if found.is_some() || blocked.is_empty() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// AGs that could not be looked at.
type HeldByOthers = SmallVec<[AgNumber; 4]>;

/// Says of the AGs that a transaction holds that it looks around for space in others, as long as it does.
struct WaitingHolder<'m> {
    mount: &'m Mount,
    held: SmallVec<[AgNumber; 4]>,
}

impl<'m> WaitingHolder<'m> {
    fn new(tx: &Transaction<'m>) -> Self {
        let (mount, held) = (tx.mount(), held_agfs(tx).collect::<SmallVec<_>>());
        held.iter().for_each(|ag: &AgNumber| mount.ags[ag.0 as usize].holder_begins_to_wait());
        Self { mount, held }
    }
}

impl Drop for WaitingHolder<'_> {
    fn drop(&mut self) {
        self.held.iter().for_each(|ag| self.mount.ags[ag.0 as usize].holder_ends_to_wait());
    }
}

/// As [`somewhere`], without waiting; names the AGs that others hold.
fn try_somewhere(
    tx: &mut Transaction,
    request: &AllocRequest,
    find: InAg<'_>,
    blocked: &mut HeldByOthers,
) -> Result<Option<(FsBlock, u32)>> {
    let ag_count = tx.geometry().ag_count;
    let (first, hint) = match request.near {
        Near::Ag(ag) => (AgNumber(ag.0 % ag_count), None),
        Near::Block(block) => match tx.geometry().split_fs_block(block) {
            Some((ag, block)) => (ag, Some(block)),
            None => (AgNumber(0), None),
        },
    };
    for step in 0..if request.exact { 1 } else { ag_count } {
        let number = AgNumber((first.0 + step) % ag_count);
        let known = tx.mount().ags[number.0 as usize].space();
        if known.is_some_and(|(free, longest)| free < request.min + request.min_left || longest < request.min) {
            continue;
        }
        let ag = match Ag::lock_unless_holding(tx, number) {
            Ok(ag) => ag,
            Err(Error::WouldBlock) => {
                blocked.push(number);
                continue;
            }
            Err(error) => return Err(error),
        };
        let hint = hint.filter(|_| step == 0);
        let found = find(tx, ag, hint);
        if let Some(extent) = below_agf(tx, number, found)? {
            return Ok(Some((tx.geometry().fs_block(number, extent.start), extent.count)));
        }
        ag.release(tx);
    }
    Ok(None)
}

/// Looks for an extent in an AG whose AGF is locked. Soft parts of windows are given back when there is nothing else.
fn search_in(
    tx: &mut Transaction,
    ag: Ag,
    hint: Option<AgBlock>,
    request: &AllocRequest,
) -> Result<Option<FreeExtent>> {
    // What the free list lacks is taken from the same space; what was found must not be needed for it.
    // A window's blocks have passed this test when it was opened.
    let passes = request.owner.may_dip() || request.exact && request.holder.is_some();
    let held_back = if passes { 0 } else { reservation::held_back(tx, ag) };
    let mount = tx.mount();
    let windows = &mount.ags[ag.number.0 as usize].windows;
    let set_aside = free_list::missing(tx, ag) + request.min_left + held_back + windows.firm_of_others(request.holder);
    let usable = ag.agf(tx).free_blocks.get().saturating_sub(set_aside);
    if usable < request.min {
        return Ok(None);
    }
    let max = request.max.min(usable);
    loop {
        let found = Search { request, max, hint, busy: busy_extents(tx, ag, request) }.run(tx, ag)?;
        if found.is_some() || request.exact || !windows.give_back() {
            return Ok(found);
        }
    }
}

/// Finds blocks for contents of the request's holder, fork blocks from `file_block` on, and opens a window on them, of
/// which up to `most` blocks from the one for `first` on are firm at once: a soft one could be gone before its holder
/// looks. Nothing is changed on disk. Says which blocks are firm; `None` as [`allocate`].
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn open_window(
    tx: &mut Transaction,
    request: &AllocRequest,
    file_block: FileBlock,
    (first, most): (FileBlock, u32),
) -> Result<Option<(FsBlock, u32)>> {
    let Some(holder) = request.holder else { return Ok(None) };
    if tx.mount().error_tags.strikes(REFUSE_WINDOW) {
        return Ok(None);
    }
    somewhere(tx, request, |tx, ag, hint| {
        let mount = tx.mount();
        loop {
            let Some(found) = search_in(tx, ag, hint, request)? else { return Ok(None) };
            // Another may have opened its window since: only the shared lock of the AGF is needed for that.
            let windows = &mount.ags[ag.number.0 as usize].windows;
            if let Some(firm) = windows.open_firm(holder, file_block.0, found, (first.0, most)) {
                ag.release(tx);
                return Ok(Some(FreeExtent { start: firm.start, count: firm.count }));
            }
        }
    })
}

/// Makes up to `most` blocks of the holder's window firm, from the one for `file_block` on; returns which.
pub fn firm_window(tx: &Transaction, holder: InodeNumber, file_block: FileBlock, most: u32) -> Option<(FsBlock, u32)> {
    let ags = (0..tx.geometry().ag_count).map(AgNumber).zip(tx.mount().ags.iter());
    ags.into_iter().find_map(|(ag, state)| {
        let firm = state.windows.firm_up(holder, file_block.0, most)?;
        Some((tx.geometry().fs_block(ag, firm.start), firm.count))
    })
}

/// Makes `count` blocks firm in whichever of the holder's windows has so many in one piece.
pub fn firm_any_window(tx: &Transaction, holder: InodeNumber, count: u32) -> Option<FsBlock> {
    let mut ags = (0..tx.geometry().ag_count).map(AgNumber).zip(tx.mount().ags.iter());
    ags.find_map(|(ag, state)| Some(tx.geometry().fs_block(ag, state.windows.firm_any(holder, count)?)))
}

/// Allocates the firm blocks of a window for several inodes that have had no blocks, one part after another.
///
/// # Errors
/// `Corrupt`, `Io`; `NoSpace` when a damaged image has another file's blocks there.
pub fn allocate_firm(tx: &mut Transaction, holder: InodeNumber, block: FsBlock, parts: &[(Owner, u32)]) -> Result<()> {
    let count = parts.iter().map(|(_, count)| count).sum();
    let Some(&(owner, _)) = parts.first() else { return Ok(()) };
    let request = AllocRequest {
        exact: true,
        holder: Some(holder),
        ..AllocRequest::new(Near::Block(block), count, count, owner)
    };
    let found = somewhere(tx, &request, |tx, ag, hint| {
        let Some(found) = search_in(tx, ag, hint, &request)? else { return Ok(None) };
        free_list::fix(tx, ag, Some(found))?;
        free_space::take(tx, ag, found)?;
        let mut start = found.start;
        let mut records = Vec::with_capacity(parts.len());
        for (owner, count) in parts {
            records.push(owner.rmap(start, *count));
            start = start.add(*count);
        }
        rmap_change::add_firsts(tx, ag, &records)?;
        tx.use_blocks(found.count.into());
        Ok(Some(found))
    })?;
    found.map(|_| settle_window(tx, holder, block, count)).ok_or(Error::NoSpace)
}

/// The first `used` of the holder's firm blocks from `block` on were allocated, or none.
pub fn settle_window(tx: &Transaction, holder: InodeNumber, block: FsBlock, used: u32) {
    if let Some((ag, start)) = tx.geometry().split_fs_block(block) {
        tx.mount().ags[ag.0 as usize].windows.settle(holder, start, used);
    }
}

/// Gives back what is reserved for the holder's growth.
pub fn close_windows(mount: &Mount, holder: InodeNumber) {
    mount.ags.iter().for_each(|ag| ag.windows.close(holder));
}

/// Allocates an extent in an AG whose AGF is locked.
pub(super) fn allocate_in(
    tx: &mut Transaction,
    ag: Ag,
    hint: Option<AgBlock>,
    request: &AllocRequest,
) -> Result<Option<FreeExtent>> {
    let Some(found) = search_in(tx, ag, hint, request)? else { return Ok(None) };
    free_list::fix(tx, ag, Some(found))?;
    free_space::take(tx, ag, found)?;
    rmap::add(tx, ag, request.owner.rmap_in_state(found.start, found.count, request.state))?;
    if request.owner.counted() == Counted::AsUsed {
        tx.use_blocks(found.count.into());
    }
    Ok(Some(found))
}

/// Makes sure that `count` single blocks can be allocated in an AG for one of its own trees.
pub(super) fn expect_blocks(tx: &mut Transaction, ag: Ag, count: u32) -> Result<()> {
    // A tree that grows with the last of several records has asked for the first, which is before anything was changed.
    if !tx.is_dirty() && tx.mount().error_tags.strikes(REFUSE_BLOCKS) {
        return Err(Error::NoSpace);
    }
    let need = count + free_list::missing(tx, ag);
    let enough = ag.agf(tx).free_blocks.get() >= need && tx.blocks_left() >= count.into();
    if enough { Ok(()) } else { Err(Error::NoSpace) }
}

/// Allocates a block for a tree of the AG itself.
pub(super) fn allocate_tree_block(tx: &mut Transaction, ag: Ag, near: u64, owner: Owner) -> Result<AgBlock> {
    let hint = AgBlock(near as u32);
    let request = AllocRequest::new(Near::Ag(ag.number), 1, 1, owner);
    let found = allocate_in(tx, ag, Some(hint), &request)?;
    found.map(|extent| extent.start).ok_or(Error::NoSpace)
}

/// Locks the AGF of an extent's AG. The extent must lie within one AG.
pub(super) fn lock_extent(tx: &mut Transaction, block: FsBlock, count: u32) -> Result<(Ag, AgBlock)> {
    let geometry = tx.geometry();
    let place = geometry.split_fs_block(block).filter(|&(ag, start)| {
        let end = start.0.checked_add(count);
        count > 0 && start.0 >= geometry.ag_header_blocks() && end.is_some_and(|end| end <= geometry.blocks_in_ag(ag))
    });
    let Some((number, start)) = place else {
        return Err(Corruption::new("extent", "lies within one AG behind its headers")
            .found(format_args!("{count} blocks from {block:?}"))
            .into());
    };
    Ok((Ag::lock_unless_holding(tx, number)?, start))
}

/// Locks what the free of an extent needs first, so that the free itself will not have to wait.
///
/// # Errors
/// `WouldBlock` when the AG must not be waited for and another transaction holds it; `Corrupt`, `Io`.
pub fn lock_for_free(tx: &mut Transaction, block: FsBlock, count: u32) -> Result<()> {
    lock_extent(tx, block, count).map(|_| ())
}

/// Locks the AGs of two extents, whatever the transaction will do to them first. It holds no AG yet.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn lock_pair(tx: &mut Transaction, one: FsBlock, other: FsBlock) -> Result<()> {
    let ags = [one, other].map(|block| tx.geometry().split_fs_block(block).map(|(ag, _)| ag));
    let [Some(one), Some(other)] = ags else {
        return Err(Corruption::new("extent", "lies on the device").into());
    };
    let (first, second) = (one.min(other), one.max(other));
    loop {
        let held = Ag::lock(tx, first)?;
        match Ag::lock_unless_holding(tx, second) {
            // Its holder may be looking around for space in the first one, and would wait for it until this one waits
            // no more: wait with nothing held.
            Err(Error::WouldBlock) => {
                held.release(tx);
                Ag::lock(tx, second)?.release(tx);
            }
            other => return other.map(|_| ()),
        }
    }
}

/// Adds an extent that has no owner any more to the free space.
pub(super) fn give_back(tx: &mut Transaction, ag: Ag, extent: FreeExtent, counted: Counted) -> Result<()> {
    ensure_on_disk!(
        extent.start.0 >= tx.geometry().ag_header_blocks(),
        "extent",
        "lies behind the headers of its AG",
        "{extent:?}"
    );
    free_space::give(tx, ag, extent)?;
    if counted == Counted::AsUsed {
        tx.free_blocks(extent.count.into());
    }
    tx.extent_freed(ag.number, extent.start, extent.count);
    let mount = tx.mount();
    mount.ags[ag.number.0 as usize].trim_busy(mount.journal.durable());
    Ok(())
}

/// Frees an extent, of an AG whose AGF is locked, that no other owner refers to.
pub(super) fn free_unshared(tx: &mut Transaction, ag: Ag, extent: FreeExtent, owner: Owner) -> Result<()> {
    free_list::fix(tx, ag, None)?;
    rmap::remove(tx, ag, owner.rmap(extent.start, extent.count))?;
    give_back(tx, ag, extent, owner.counted())
}
