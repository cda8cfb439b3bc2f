//! Where the attr fork starts in the inode, and making and removing the fork.
//!
//! ```text
//! | core 176 | data fork ... | attr fork ... |
//!                            └ fork offset, in units of 8 bytes
//! ```
//! A shortform fork may start wherever both forks fit: it grows downwards as long as the data fork leaves room for
//! itself and for the root of an extent map. The rules are the kernel's, so that both make the same inodes.

use super::{Fit, Form, form};
use crate::error::{Error, Result};
use crate::error_tags::REFUSE_FORK;
use crate::incore::{AttrFork, DataFork, ForkKind, ForkMap, InodeState};
use crate::inode::bmap;
use crate::trans::{InoId, InodeFields, Transaction};
use crate::{dir, symlink};
use xfskit_ondisk::limits::bmbt_root_bytes;
use xfskit_ondisk::{ForkFormat, Geometry};

/// Fewest pointers for which a data fork leaves room in the root of its extent map.
const MIN_DATA_POINTERS: u32 = 3;
/// Fewest pointers for which an attr fork leaves room in the root of its extent map.
const MIN_ATTR_POINTERS: u32 = 2;
const DEVICE_BYTES: usize = 8;

/// What becomes of an attr fork that the last attribute leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyFork {
    /// It stays: another attribute is added at once.
    Keep,
    /// It goes, unless the image keeps attr forks: see [`remove_if_useless`].
    Remove,
}

/// The start of the attr fork of a new inode, in units of 8 bytes.
pub fn default_offset(geometry: &Geometry, data: &DataFork) -> u8 {
    let bytes = match data {
        DataFork::Dev(_) => DEVICE_BYTES,
        _ if geometry.inode_bytes() == 256 => geometry.literal_area_bytes() - bmbt_root_bytes(MIN_ATTR_POINTERS),
        _ => bmbt_root_bytes(6 * MIN_ATTR_POINTERS),
    };
    (bytes >> 3) as u8
}

/// Where the attr fork must start to hold `bytes` bytes of shortform attributes; `None` when it cannot. In an inode
/// without a fork, the data fork may be in its way: see [`data_fits`].
pub fn offset_for(geometry: &Geometry, state: &InodeState, bytes: usize) -> Option<u8> {
    let literal = geometry.literal_area_bytes();
    let offset = literal.checked_sub(bytes)? >> 3;
    let current = usize::from(state.core.fork_offset);
    if matches!(state.data, DataFork::Dev(_)) {
        return (offset >= DEVICE_BYTES >> 3).then_some((DEVICE_BYTES >> 3) as u8);
    }
    if current != 0 && bytes <= literal - current * 8 {
        return Some(current as u8);
    }
    let data_bytes = match &state.data {
        DataFork::Local(bytes) => bytes.len(),
        DataFork::Mapped(ForkMap::Extents(extents)) => {
            let bytes = extents.len() * 16;
            let crowded = current == 0 && bytes > usize::from(default_offset(geometry, &state.data)) * 8;
            // The extents will leave for a btree, of which only the root stays.
            if crowded { bmbt_root_bytes(MIN_DATA_POINTERS) } else { bytes }
        }
        DataFork::Mapped(ForkMap::Btree(_)) if current != 0 => return (offset >= current).then_some(current as u8),
        DataFork::Mapped(ForkMap::Btree(root)) => bmbt_root_bytes(root.keys.len() as u32),
        DataFork::Dev(_) => DEVICE_BYTES,
    };
    let least = data_bytes.max(bmbt_root_bytes(MIN_DATA_POINTERS)).div_ceil(8);
    let most = (literal - bmbt_root_bytes(MIN_ATTR_POINTERS)) >> 3;
    // From `most` on the fork starts there, even if contents that are in the way have to leave the inode.
    (offset >= least.min(most)).then_some(offset.min(most) as u8)
}

/// Whether the data fork's contents, as they are, fit before an attr fork that starts at `offset`.
pub fn data_fits(state: &InodeState, offset: u8) -> bool {
    let room = usize::from(offset) * 8;
    match &state.data {
        DataFork::Dev(_) => room >= DEVICE_BYTES,
        DataFork::Local(bytes) => bytes.len() <= room,
        DataFork::Mapped(ForkMap::Extents(extents)) => extents.len() * 16 <= room,
        DataFork::Mapped(ForkMap::Btree(root)) => bmbt_root_bytes(root.keys.len() as u32) <= room,
    }
}

/// Gives an inode without an attr fork an empty one, with room for `bytes` bytes of shortform attributes if that is
/// possible at all. `NoRoom` when the contents of the data fork would have to leave the inode first; see
/// [`offset_of_new`].
pub fn make(tx: &mut Transaction, ino: InoId, bytes: usize) -> Fit {
    let offset = offset_of_new(tx, ino, bytes);
    make_at(tx, ino, offset)
}

/// As [`make`], of a fork that starts at `offset`.
pub(super) fn make_at(tx: &mut Transaction, ino: InoId, offset: u8) -> Fit {
    if !data_fits(tx.inode(ino), offset) {
        return Fit::NoRoom;
    }
    let state = set_offset(tx, ino, offset, InodeFields::CORE);
    state.core.attr_format = ForkFormat::Extents;
    state.core.attr_extents = 0;
    state.attr = Some(AttrFork::EMPTY);
    Fit::Done
}

/// Gives an inode without an attr fork one, whatever is in its way. It starts where the data fork as it was wants it,
/// so that the inode is the one that the kernel makes.
///
/// # Errors
/// `NoSpace`, `Corrupt`, `Io`.
pub(super) fn ensure(tx: &mut Transaction, ino: InoId, bytes: usize) -> Result<()> {
    if form(tx, ino) != Form::None {
        return Ok(());
    }
    let offset = offset_of_new(tx, ino, bytes);
    if make_at(tx, ino, offset) == Fit::Done {
        return Ok(());
    }
    if tx.mount().error_tags.strikes(REFUSE_FORK) {
        return Err(Error::NoSpace);
    }
    make_room(tx, ino)?;
    match make_at(tx, ino, offset) {
        Fit::Done => Ok(()),
        Fit::NoRoom => Err(Error::NoSpace),
    }
}

/// The contents of the data fork leave the inode, or all of its map's root but one entry, so that an attr fork has room
/// beside what remains.
fn make_room(tx: &mut Transaction, ino: InoId) -> Result<()> {
    let state = tx.inode(ino);
    match &state.data {
        DataFork::Local(_) if state.core.is_dir() => dir::leave_inode(tx, ino),
        DataFork::Local(_) => symlink::leave_inode(tx, ino),
        DataFork::Mapped(ForkMap::Extents(_)) => bmap::leave_inode(tx, ino, ForkKind::Data),
        DataFork::Mapped(ForkMap::Btree(_)) => bmap::push_root_down(tx, ino, ForkKind::Data),
        DataFork::Dev(_) => Ok(()),
    }
}

/// Where the attr fork of an inode without one would start, if it is to hold `bytes` bytes of shortform attributes.
pub fn offset_of_new(tx: &Transaction, ino: InoId, bytes: usize) -> u8 {
    let state = tx.inode(ino);
    offset_for(tx.geometry(), state, bytes).unwrap_or_else(|| default_offset(tx.geometry(), &state.data))
}

/// Where a fork starts whose attributes leave the inode for a tree: it gives the data fork back what that would have
/// had beside a new one.
pub(super) fn offset_of_tree(tx: &Transaction, ino: InoId) -> u8 {
    let state = tx.inode(ino);
    match state.data {
        DataFork::Dev(_) | DataFork::Mapped(ForkMap::Btree(_)) => state.core.fork_offset,
        _ => state.core.fork_offset.max(default_offset(tx.geometry(), &state.data)),
    }
}

/// Changes where the attr fork starts. The root of a data fork's btree is stored by the room that it has.
pub(super) fn set_offset<'t>(
    tx: &'t mut Transaction<'_>,
    ino: InoId,
    offset: u8,
    fields: InodeFields,
) -> &'t mut InodeState {
    let state = tx.inode(ino);
    let moves_root = state.core.fork_offset != offset && matches!(state.data, DataFork::Mapped(ForkMap::Btree(_)));
    let fields = if moves_root { fields | InodeFields::DATA_ROOT } else { fields };
    let state = tx.inode_mut(ino, fields);
    state.core.fork_offset = offset;
    state
}

/// Removes an attr fork that holds nothing, unless it is to stay: on images with parent pointers every file will need
/// it again, a data fork that is a btree would have to be laid out anew, and an update that waits for its link needs
/// it.
pub fn remove_if_useless(tx: &mut Transaction, ino: InoId) -> Result<()> {
    let state = tx.inode(ino);
    let useless = !tx.geometry().has_parent()
        && !matches!(state.data, DataFork::Mapped(ForkMap::Btree(_)))
        && !tx.has_deferred_updates();
    let state = tx.inode_mut(ino, InodeFields::CORE);
    if useless {
        state.attr = None;
        state.core.fork_offset = 0;
        state.core.attr_format = ForkFormat::Extents;
        state.core.attr_extents = 0;
    }
    Ok(())
}
