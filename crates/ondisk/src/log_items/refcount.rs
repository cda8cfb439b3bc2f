//! Reference counts to change: CUI and CUD.
//!
//! ```text
//! 0 type  2 regions (1)  4 updates u32  8 id u64  16 updates: start u64, count u32, verb u32
//! ```

use super::{Fields, FsExtent, HEADER_BYTES, IntentRules, put_header, verify_extent};
use crate::log_record::item_type;
use crate::{Corruption, FsBlock, Geometry, Verdict, ensure};

/// The name of the structure in errors.
pub(super) const NAME: &str = "reference count intent";
const UPDATE_BYTES: usize = 16;

/// What an update does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RefcountVerb {
    /// One more file refers to the blocks.
    Increase = 1,
    /// One file fewer refers to the blocks; those without references become free.
    Decrease = 2,
    /// The blocks are staged for copy on write.
    AllocCow = 3,
    /// The blocks are no longer staged.
    FreeCow = 4,
}

/// One change of reference counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefcountUpdate {
    /// The kind of change.
    pub verb: RefcountVerb,
    /// The blocks.
    pub extent: FsExtent,
}

/// Changes of reference counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefcountIntent {
    /// The id by which the done item names the intent.
    pub id: u64,
    /// In order.
    pub updates: Vec<RefcountUpdate>,
}

/// Decodes and verifies a CUI.
///
/// # Errors
/// A corruption of the intent.
pub fn decode_intent(rules: &IntentRules<'_>, region: &[u8]) -> Verdict<RefcountIntent> {
    let fields = Fields(region);
    ensure!(rules.allow(Geometry::has_reflink), NAME, "the image shares blocks");
    let count = fields.count_of(NAME, UPDATE_BYTES)?;
    let mut updates = Vec::with_capacity(count);
    for at in (HEADER_BYTES..region.len()).step_by(UPDATE_BYTES) {
        let flags = fields.u32(at + 12);
        let verb = match flags {
            1 => RefcountVerb::Increase,
            2 => RefcountVerb::Decrease,
            3 => RefcountVerb::AllocCow,
            4 => RefcountVerb::FreeCow,
            _ => return Err(Corruption::new(NAME, "kind of update").found(format_args!("flags {flags:#x}"))),
        };
        let extent = FsExtent { block: FsBlock(fields.u64(at)), count: fields.u32(at + 8) };
        verify_extent(rules, NAME, extent)?;
        updates.push(RefcountUpdate { verb, extent });
    }
    Ok(RefcountIntent { id: fields.u64(8), updates })
}

/// The region of a CUI.
pub fn encode_intent(id: u64, updates: &[RefcountUpdate]) -> Vec<u8> {
    let mut out = vec![0; HEADER_BYTES + updates.len() * UPDATE_BYTES];
    put_header(&mut out, item_type::CUI, 1, updates.len() as u32, id);
    for (slot, update) in out[HEADER_BYTES..].chunks_exact_mut(UPDATE_BYTES).zip(updates) {
        slot[0..8].copy_from_slice(&update.extent.block.0.to_le_bytes());
        slot[8..12].copy_from_slice(&update.extent.count.to_le_bytes());
        slot[12..16].copy_from_slice(&(update.verb as u32).to_le_bytes());
    }
    out
}
