//! Reverse mappings to change: RUI and RUD.
//!
//! ```text
//! 0 type  2 regions (1)  4 updates u32  8 id u64
//! 16 updates: owner u64, start u64, fork block u64, count u32, flags u32
//!    bits of the flags: 0..7 verb, 29 unwritten, 30 bmbt, 31 attr fork
//! ```

use super::{Fields, FsExtent, HEADER_BYTES, IntentRules, put_header, verify_extent, verify_inode, verify_range};
use crate::btree::{Rmap, rmap_offset};
use crate::log_record::item_type;
use crate::{AgBlock, Corruption, FileBlock, FsBlock, Geometry, InodeNumber, Verdict, ensure};

/// The name of the structure in errors.
pub(super) const NAME: &str = "reverse mapping intent";
/// Bytes of an update; a change of an extent map takes the same.
pub(super) const UPDATE_BYTES: usize = 32;
const UNWRITTEN: u32 = 1 << 29;
/// Allowed and ignored: blocks of extent maps are recorded without intents.
const BMBT_BLOCK: u32 = 1 << 30;
pub(super) const ATTR_FORK: u32 = 1 << 31;
pub(super) const VERB: u32 = 0xff;

/// What an update does. `Shared`: the blocks may have other owners too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RmapVerb {
    /// A fork maps the blocks.
    Map = 1,
    /// As `Map`, of blocks that may be shared.
    MapShared = 2,
    /// A fork maps the blocks no longer.
    Unmap = 3,
    /// As `Unmap`, of blocks that may be shared.
    UnmapShared = 4,
    /// The blocks become written, or unwritten.
    Convert = 5,
    /// As `Convert`, of blocks that may be shared.
    ConvertShared = 6,
    /// An owner that is not a fork gets the blocks.
    Alloc = 7,
    /// An owner that is not a fork gives the blocks up.
    Free = 8,
}

impl RmapVerb {
    fn decode(flags: u32) -> Verdict<Self> {
        Ok(match flags & VERB {
            1 => Self::Map,
            2 => Self::MapShared,
            3 => Self::Unmap,
            4 => Self::UnmapShared,
            5 => Self::Convert,
            6 => Self::ConvertShared,
            7 => Self::Alloc,
            8 => Self::Free,
            _ => return Err(Corruption::new(NAME, "kind of update").found(format_args!("flags {flags:#x}"))),
        })
    }
}

/// One change of the reverse mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RmapUpdate {
    /// The kind of change.
    pub verb: RmapVerb,
    /// Inode, or one of [`rmap_owner`](crate::btree::rmap_owner).
    pub owner: u64,
    /// The blocks.
    pub extent: FsExtent,
    /// The fork block of the first; without meaning unless the owner is an inode.
    pub offset: FileBlock,
    /// They belong to the inode's attr fork.
    pub attr_fork: bool,
    /// They are, or become, unwritten.
    pub unwritten: bool,
}

impl RmapUpdate {
    /// The reverse mapping that the update is about; `start` is the extent's first block within its AG.
    pub fn mapping(&self, start: AgBlock) -> Rmap {
        // The owners that are not inodes are negative numbers and have no fork.
        let offset = if self.owner >> 63 == 0 {
            self.offset.0
                | if self.attr_fork { rmap_offset::ATTR_FORK } else { 0 }
                | if self.unwritten { rmap_offset::UNWRITTEN } else { 0 }
        } else {
            0
        };
        Rmap { start, count: self.extent.count, owner: self.owner, offset }
    }
}

/// Changes of the reverse mappings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RmapIntent {
    /// The id by which the done item names the intent.
    pub id: u64,
    /// In order.
    pub updates: Vec<RmapUpdate>,
}

/// Decodes and verifies an RUI.
///
/// # Errors
/// A corruption of the intent.
pub fn decode_intent(rules: &IntentRules<'_>, region: &[u8]) -> Verdict<RmapIntent> {
    let fields = Fields(region);
    ensure!(rules.allow(Geometry::has_rmap), NAME, "the image has reverse mappings");
    let count = fields.count_of(NAME, UPDATE_BYTES)?;
    let updates = (0..count).map(|index| decode_update(rules, fields, HEADER_BYTES + index * UPDATE_BYTES));
    Ok(RmapIntent { id: fields.u64(8), updates: updates.collect::<Verdict<_>>()? })
}

fn decode_update(rules: &IntentRules<'_>, fields: Fields<'_>, at: usize) -> Verdict<RmapUpdate> {
    let flags = fields.u32(at + 28);
    let known = VERB | UNWRITTEN | BMBT_BLOCK | ATTR_FORK;
    ensure!(flags & !known == 0, NAME, "flags", "{flags:#x}");
    let update = RmapUpdate {
        verb: RmapVerb::decode(flags)?,
        owner: fields.u64(at),
        extent: FsExtent { block: FsBlock(fields.u64(at + 8)), count: fields.u32(at + 24) },
        offset: FileBlock(fields.u64(at + 16)),
        attr_fork: flags & ATTR_FORK != 0,
        unwritten: flags & UNWRITTEN != 0,
    };
    if update.owner >> 63 == 0 {
        verify_inode(rules, NAME, InodeNumber(update.owner))?;
    } else {
        let range = crate::btree::rmap_owner::COW..=crate::btree::rmap_owner::FS;
        ensure!(range.contains(&update.owner), NAME, "owner", "{:#x}", update.owner);
    }
    verify_range(NAME, update.offset, update.extent.count.into())?;
    verify_extent(rules, NAME, update.extent)?;
    Ok(update)
}

/// The region of an RUI.
pub fn encode_intent(id: u64, updates: &[RmapUpdate]) -> Vec<u8> {
    let mut out = vec![0; HEADER_BYTES + updates.len() * UPDATE_BYTES];
    put_header(&mut out, item_type::RUI, 1, updates.len() as u32, id);
    for (slot, update) in out[HEADER_BYTES..].chunks_exact_mut(UPDATE_BYTES).zip(updates) {
        let flags = update.verb as u32
            | if update.attr_fork { ATTR_FORK } else { 0 }
            | if update.unwritten { UNWRITTEN } else { 0 };
        put_map(slot, update.owner, update.extent, update.offset, flags);
    }
    out
}

/// The kernel's `struct xfs_map_extent`.
pub(super) fn put_map(out: &mut [u8], owner: u64, extent: FsExtent, offset: FileBlock, flags: u32) {
    out[0..8].copy_from_slice(&owner.to_le_bytes());
    out[8..16].copy_from_slice(&extent.block.0.to_le_bytes());
    out[16..24].copy_from_slice(&offset.0.to_le_bytes());
    out[24..28].copy_from_slice(&extent.count.to_le_bytes());
    out[28..32].copy_from_slice(&flags.to_le_bytes());
}
