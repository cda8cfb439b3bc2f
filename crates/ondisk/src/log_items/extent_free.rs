//! Extents to free: EFI and EFD.
//!
//! ```text
//! 0 type  2 regions (1)  4 extents u32  8 id u64  16 extents: start u64, count u32, padding u32
//! ```
//! Machines with 32-bit words may write extents of 12 bytes, without the padding; the length of the region says which.

use super::{Fields, FsExtent, HEADER_BYTES, IntentRules, MAX_UPDATES, put_header, verify_extent};
use crate::log_record::item_type;
use crate::{FsBlock, Verdict, ensure};

/// The name of the structure in errors.
pub(super) const NAME: &str = "extent-free intent";
const EXTENT_BYTES: usize = 16;
const SHORT_EXTENT_BYTES: usize = 12;

/// Extents without references, to be freed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtentFreeIntent {
    /// The id by which the done item names the intent.
    pub id: u64,
    /// The extents to free.
    pub extents: Vec<FsExtent>,
}

/// Verifies the length against the count; returns the bytes of each extent.
pub(super) fn verify_length(name: &'static str, fields: Fields<'_>) -> Verdict<usize> {
    let count = fields.u32(4) as usize;
    let bytes = |extent: usize| count.checked_mul(extent).and_then(|bytes| bytes.checked_add(HEADER_BYTES));
    let length = fields.0.len();
    let fits = [EXTENT_BYTES, SHORT_EXTENT_BYTES].into_iter().find(|&extent| bytes(extent) == Some(length));
    ensure!(fits.is_some(), name, "length", "{length} bytes with {count} extents");
    ensure!(count <= MAX_UPDATES, name, "at most 64 records", "{count}");
    Ok(fits.unwrap_or(EXTENT_BYTES))
}

/// Decodes and verifies an EFI.
///
/// # Errors
/// A corruption of the intent.
pub fn decode_intent(rules: &IntentRules<'_>, region: &[u8]) -> Verdict<ExtentFreeIntent> {
    let fields = Fields(region);
    let bytes = verify_length(NAME, fields)?;
    let mut extents = Vec::with_capacity(fields.u32(4) as usize);
    for at in (HEADER_BYTES..region.len()).step_by(bytes) {
        let extent = FsExtent { block: FsBlock(fields.u64(at)), count: fields.u32(at + 8) };
        verify_extent(rules, NAME, extent)?;
        extents.push(extent);
    }
    Ok(ExtentFreeIntent { id: fields.u64(8), extents })
}

fn encode(kind: u16, id: u64, extents: &[FsExtent]) -> Vec<u8> {
    let mut out = vec![0; HEADER_BYTES + extents.len() * EXTENT_BYTES];
    put_header(&mut out, kind, 1, extents.len() as u32, id);
    for (slot, extent) in out[HEADER_BYTES..].chunks_exact_mut(EXTENT_BYTES).zip(extents) {
        slot[0..8].copy_from_slice(&extent.block.0.to_le_bytes());
        slot[8..12].copy_from_slice(&extent.count.to_le_bytes());
    }
    out
}

/// The region of an EFI.
pub fn encode_intent(id: u64, extents: &[FsExtent]) -> Vec<u8> {
    encode(item_type::EFI, id, extents)
}

/// The region of an EFD.
pub fn encode_done(id: u64, extents: &[FsExtent]) -> Vec<u8> {
    encode(item_type::EFD, id, extents)
}
