//! Mappings of two forks to exchange: XMI and XMD.
//!
//! ```text
//! 0 type  2 regions (1)  4 zero  8 id   16 inode 1  24 inode 2  32 generation 1 u32  36 generation 2 u32
//! 40 fork block 1  48 fork block 2  56 blocks  64 flags  72 size 1  80 size 2
//! ```
//! The sizes are those that the files have after the exchange. With a count of 0 blocks, only the work after the last
//! mapping is left: the sizes and the reflink flags. The kernel logs such an intent, though its own recovery refuses
//! it.

use super::{Fields, IntentRules, put_header, verify_inode, verify_range};
use crate::features::Incompat;
use crate::log_record::item_type;
use crate::{FileBlock, InodeNumber, Verdict, ensure};

/// The name of the structure in errors.
pub(super) const NAME: &str = "exchange intent";
const BYTES: usize = 88;

/// Bits of the flags.
pub mod flags {
    /// The attr forks, not the data forks.
    pub const ATTR_FORK: u64 = 1 << 0;
    /// The files exchange their sizes too.
    pub const SET_SIZES: u64 = 1 << 1;
    /// Holes and unwritten extents of the first file stay where they are.
    pub const FILE1_WRITTEN: u64 = 1 << 2;
    /// After the exchange the first file shares no blocks: its reflink flag is cleared.
    pub const CLEAR_REFLINK1: u64 = 1 << 3;
    /// After the exchange the second file shares no blocks: its reflink flag is cleared.
    pub const CLEAR_REFLINK2: u64 = 1 << 4;
    pub(super) const ALL: u64 = (1 << 5) - 1;
}

/// An exchange of mappings between two forks, or the rest of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeIntent {
    /// The id by which the done item names the intent.
    pub id: u64,
    /// The inodes.
    pub inodes: [InodeNumber; 2],
    /// Their generations.
    pub generations: [u32; 2],
    /// Where the range begins in each fork.
    pub offsets: [FileBlock; 2],
    /// Its length in blocks.
    pub count: u64,
    /// Bits of [`flags`].
    pub flags: u64,
    /// The sizes that the files have after the exchange, with [`flags::SET_SIZES`].
    pub sizes: [u64; 2],
}

/// Decodes and verifies an XMI.
///
/// # Errors
/// A corruption of the intent.
pub fn decode_intent(rules: &IntentRules<'_>, region: &[u8]) -> Verdict<ExchangeIntent> {
    let fields = Fields(region);
    ensure!(region.len() == BYTES, NAME, "length", "{} bytes", region.len());
    ensure!(
        rules.allow(|geometry| geometry.incompat.contains(Incompat::EXCHRANGE)),
        NAME,
        "the image has logged exchanges"
    );
    ensure!(fields.u32(4) == 0, NAME, "padding of zeros", "{:#x}", fields.u32(4));
    let intent = ExchangeIntent {
        id: fields.u64(8),
        inodes: [16, 24].map(|at| InodeNumber(fields.u64(at))),
        generations: [32, 36].map(|at| fields.u32(at)),
        offsets: [40, 48].map(|at| FileBlock(fields.u64(at))),
        count: fields.u64(56),
        flags: fields.u64(64),
        sizes: [72, 80].map(|at| fields.u64(at)),
    };
    ensure!(intent.flags & !flags::ALL == 0, NAME, "flags", "{:#x}", intent.flags);
    for side in 0..2 {
        verify_inode(rules, NAME, intent.inodes[side])?;
        verify_range(NAME, intent.offsets[side], intent.count.max(1))?;
        let sized = intent.flags & flags::SET_SIZES != 0;
        ensure!(!sized || intent.sizes[side] >> 63 == 0, NAME, "size of a file", "{}", intent.sizes[side]);
    }
    Ok(intent)
}

/// The region of an XMI.
pub fn encode_intent(intent: &ExchangeIntent) -> Vec<u8> {
    let mut out = vec![0; BYTES];
    put_header(&mut out, item_type::XMI, 1, 0, intent.id);
    let mut put = |at: usize, value: u64| out[at..at + 8].copy_from_slice(&value.to_le_bytes());
    for side in 0..2 {
        put(16 + 8 * side, intent.inodes[side].0);
        put(40 + 8 * side, intent.offsets[side].0);
        put(72 + 8 * side, intent.sizes[side]);
    }
    put(56, intent.count);
    put(64, intent.flags);
    put(32, u64::from(intent.generations[0]) | u64::from(intent.generations[1]) << 32);
    out
}
