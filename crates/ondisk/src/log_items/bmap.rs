//! An extent map to change: BUI and BUD.
//!
//! ```text
//! 0 type  2 regions (1)  4 changes u32 (1)  8 id u64
//! 16 change: inode u64, start u64, fork block u64, count u32, flags u32 (verb 0..7, 30 unwritten, 31 attr fork)
//! ```

use super::rmap::{ATTR_FORK, UPDATE_BYTES, VERB, put_map};
use super::{Fields, FsExtent, HEADER_BYTES, IntentRules, put_header, verify_extent, verify_inode, verify_range};
use crate::log_record::item_type;
use crate::{Corruption, FileBlock, FsBlock, InodeNumber, Verdict, ensure};

/// The name of the structure in errors.
pub(super) const NAME: &str = "extent map intent";
const UNWRITTEN: u32 = 1 << 30;

/// A kind of change to an extent map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BmapVerb {
    /// A hole gets the blocks.
    Map = 1,
    /// The blocks are removed from the map, but not freed.
    Unmap = 2,
}

/// One change of one fork's extent map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BmapIntent {
    /// The id by which the done item names the intent.
    pub id: u64,
    /// The kind of change.
    pub verb: BmapVerb,
    /// The inode.
    pub inode: InodeNumber,
    /// The blocks.
    pub extent: FsExtent,
    /// The fork block of the first.
    pub offset: FileBlock,
    /// The map is that of the attr fork.
    pub attr_fork: bool,
    /// The blocks are unwritten.
    pub unwritten: bool,
}

/// Decodes and verifies a BUI.
///
/// # Errors
/// A corruption of the intent.
pub fn decode_intent(rules: &IntentRules<'_>, region: &[u8]) -> Verdict<BmapIntent> {
    let fields = Fields(region);
    let count = fields.count_of(NAME, UPDATE_BYTES)?;
    ensure!(count == 1, NAME, "one change", "{count}");
    let at = HEADER_BYTES;
    let flags = fields.u32(at + 28);
    ensure!(flags & !(VERB | UNWRITTEN | ATTR_FORK) == 0, NAME, "flags", "{flags:#x}");
    let verb = match flags & VERB {
        1 => BmapVerb::Map,
        2 => BmapVerb::Unmap,
        _ => return Err(Corruption::new(NAME, "kind of change").found(format_args!("flags {flags:#x}"))),
    };
    let intent = BmapIntent {
        id: fields.u64(8),
        verb,
        inode: InodeNumber(fields.u64(at)),
        extent: FsExtent { block: FsBlock(fields.u64(at + 8)), count: fields.u32(at + 24) },
        offset: FileBlock(fields.u64(at + 16)),
        attr_fork: flags & ATTR_FORK != 0,
        unwritten: flags & UNWRITTEN != 0,
    };
    verify_inode(rules, NAME, intent.inode)?;
    verify_range(NAME, intent.offset, intent.extent.count.into())?;
    verify_extent(rules, NAME, intent.extent)?;
    Ok(intent)
}

/// The region of a BUI.
pub fn encode_intent(intent: &BmapIntent) -> Vec<u8> {
    let mut out = vec![0; HEADER_BYTES + UPDATE_BYTES];
    put_header(&mut out, item_type::BUI, 1, 1, intent.id);
    let flags = intent.verb as u32
        | if intent.attr_fork { ATTR_FORK } else { 0 }
        | if intent.unwritten { UNWRITTEN } else { 0 };
    put_map(&mut out[HEADER_BYTES..], intent.inode.0, intent.extent, intent.offset, flags);
    out
}
