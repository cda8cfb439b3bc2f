//! Intents and done items: the work that one link of a chain leaves to the next.
//!
//! ```text
//! intent  type u16, regions u16, ..., id u64, what is left to do        done  type, regions, ..., id of the intent
//! ```
//! | intent | done | work | file |
//! |---|---|---|---|
//! | EFI | EFD | extents become free | [`extent_free`] |
//! | RUI | RUD | reverse mappings change | [`rmap`] |
//! | CUI | CUD | reference counts change | [`refcount`] |
//! | BUI | BUD | a fork maps or unmaps blocks | [`bmap`] |
//! | ATTRI | ATTRD | an attribute is set, removed or replaced | [`attr`] |
//! | XMI | XMD | two forks exchange mappings | [`exchange`] |
//!
//! Payloads are little-endian, as xfskit and Linux on common machines write them. An intent whose done item follows is
//! void. Recovery finishes the others, so it verifies all that an intent names before it acts on any of it: the exact
//! sizes of regions, the flags, and that blocks, inodes and fork ranges exist. Only the trees can say whether these are
//! in the state that the intent expects.
//!
//! Facts: the kernel's `xfs_log_format.h` and the `..._validate` and `..._commit_pass2` functions of its log items.

pub mod attr;
pub mod bmap;
pub mod exchange;
pub mod extent_free;
pub mod refcount;
pub mod rmap;

pub use attr::{AttrIntent, AttrVerb};
pub use bmap::{BmapIntent, BmapVerb};
pub use exchange::ExchangeIntent;
pub use extent_free::ExtentFreeIntent;
pub use refcount::{RefcountIntent, RefcountUpdate, RefcountVerb};
pub use rmap::{RmapIntent, RmapUpdate, RmapVerb};

use crate::log_record::item_type;
use crate::{Corruption, FileBlock, FsBlock, Geometry, InodeNumber, Verdict, ensure};

/// Most blocks that a fork can address, less one.
const MAX_FILE_BLOCK: u64 = (1 << 54) - 1;
/// Most extents or updates that one intent names; recovery finishes some of them in one transaction. The kernel writes
/// 16.
const MAX_UPDATES: usize = 64;
/// Bytes of an intent's or done item's first region before its extents.
const HEADER_BYTES: usize = 16;

/// What an intent is verified against.
#[derive(Clone, Copy, Debug)]
pub struct IntentRules<'a> {
    /// The image's shapes, sizes and features; without them only the form of an intent is verified.
    pub geometry: Option<&'a Geometry>,
    /// The superblock announces attribute intents besides those of parent pointers.
    pub logged_attrs: bool,
}

impl IntentRules<'_> {
    /// Rules without an image: only the form of intents is verified.
    pub const FORM_ONLY: IntentRules<'static> = IntentRules { geometry: None, logged_attrs: true };

    fn allow(&self, feature: impl FnOnce(&Geometry) -> bool) -> bool {
        self.geometry.is_none_or(feature)
    }
}

/// Blocks that follow each other within one AG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsExtent {
    /// The first.
    pub block: FsBlock,
    /// How many.
    pub count: u32,
}

/// An intent of any kind, verified by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Intent<'a> {
    /// EFI.
    ExtentFree(ExtentFreeIntent),
    /// RUI.
    Rmap(RmapIntent),
    /// CUI.
    Refcount(RefcountIntent),
    /// BUI.
    Bmap(BmapIntent),
    /// ATTRI.
    Attr(AttrIntent<'a>),
    /// XMI.
    Exchange(ExchangeIntent),
}

/// The type of the done item that an intent of type `intent` waits for; `None` if it is no intent's type.
pub fn done_type(intent: u16) -> Option<u16> {
    Some(match intent {
        item_type::EFI => item_type::EFD,
        item_type::RUI => item_type::RUD,
        item_type::CUI => item_type::CUD,
        item_type::BUI => item_type::BUD,
        item_type::ATTRI => item_type::ATTRD,
        item_type::XMI => item_type::XMD,
        _ => return None,
    })
}

/// The type of the intent that a done item of type `done` finishes; `None` if it is no done item's type.
pub fn intent_type(done: u16) -> Option<u16> {
    let intents = [item_type::EFI, item_type::RUI, item_type::CUI, item_type::BUI, item_type::ATTRI, item_type::XMI];
    intents.into_iter().find(|&intent| done_type(intent) == Some(done))
}

/// Decodes and verifies an intent from its regions as they lie in the log.
///
/// # Errors
/// A corruption of the intent.
pub fn decode_intent<'a, R: AsRef<[u8]>>(rules: &IntentRules<'_>, regions: &'a [R]) -> Verdict<Intent<'a>> {
    let first: &[u8] = regions.first().map_or(&[], AsRef::as_ref);
    let single = |name| -> Verdict {
        ensure!(regions.len() == 1, name, "one region", "{}", regions.len());
        Ok(())
    };
    match Fields(first).u16(0) {
        item_type::EFI => {
            single(extent_free::NAME)?;
            extent_free::decode_intent(rules, first).map(Intent::ExtentFree)
        }
        item_type::RUI => {
            single(rmap::NAME)?;
            rmap::decode_intent(rules, first).map(Intent::Rmap)
        }
        item_type::CUI => {
            single(refcount::NAME)?;
            refcount::decode_intent(rules, first).map(Intent::Refcount)
        }
        item_type::BUI => {
            single(bmap::NAME)?;
            bmap::decode_intent(rules, first).map(Intent::Bmap)
        }
        item_type::ATTRI => attr::decode_intent(rules, regions).map(Intent::Attr),
        item_type::XMI => {
            single(exchange::NAME)?;
            exchange::decode_intent(rules, first).map(Intent::Exchange)
        }
        other => Err(Corruption::new("log item", "a known kind of intent").found(format_args!("type {other:#06x}"))),
    }
}

/// The id of the intent that a done item of any kind finishes.
///
/// # Errors
/// A corruption of the done item.
pub fn decode_done<R: AsRef<[u8]>>(regions: &[R]) -> Verdict<u64> {
    const NAME: &str = "done item";
    ensure!(regions.len() == 1, NAME, "one region", "{}", regions.len());
    let fields = Fields(regions[0].as_ref());
    let kind = fields.u16(0);
    ensure!(intent_type(kind).is_some(), NAME, "a known kind", "type {kind:#06x}");
    let expected = if kind == item_type::EFD {
        extent_free::verify_length("extent-free done item", fields)?;
        fields.0.len()
    } else {
        HEADER_BYTES
    };
    ensure!(fields.0.len() == expected, NAME, "length", "{} bytes of type {kind:#06x}", fields.0.len());
    Ok(fields.u64(8))
}

/// The region of a done item of any kind but the EFD: it names the intent that it finishes, and nothing else.
pub fn encode_done(kind: u16, id: u64) -> [u8; HEADER_BYTES] {
    let mut out = [0; HEADER_BYTES];
    put_header(&mut out, kind, 1, 0, id);
    out
}

/// Type, number of regions, a count (or padding, or a generation), id.
fn put_header(out: &mut [u8], kind: u16, regions: u16, word: u32, id: u64) {
    out[0..2].copy_from_slice(&kind.to_le_bytes());
    out[2..4].copy_from_slice(&regions.to_le_bytes());
    out[4..8].copy_from_slice(&word.to_le_bytes());
    out[8..16].copy_from_slice(&id.to_le_bytes());
}

/// Little-endian fields of a region. A field beyond its end reads as 0; decoders verify the length first.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(self, at: usize) -> [u8; N] {
        self.0.get(at..at + N).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
    }

    fn u16(self, at: usize) -> u16 {
        u16::from_le_bytes(self.bytes(at))
    }

    fn u32(self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes(at))
    }

    fn u64(self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes(at))
    }

    /// The count of an item made of a header and that many records of `record` bytes.
    fn count_of(self, name: &'static str, record: usize) -> Verdict<usize> {
        let count = self.u32(4) as usize;
        let fits = count.checked_mul(record).and_then(|bytes| bytes.checked_add(HEADER_BYTES)) == Some(self.0.len());
        ensure!(fits, name, "length", "{} bytes with {count} records", self.0.len());
        ensure!(count <= MAX_UPDATES, name, "at most 64 records", "{count}");
        Ok(count)
    }
}

/// Verifies that blocks lie within one AG behind its headers (the kernel's `xfs_verify_fsbext`).
fn verify_extent(rules: &IntentRules<'_>, name: &'static str, extent: FsExtent) -> Verdict {
    let Some(geometry) = rules.geometry else { return Ok(()) };
    let place = geometry.split_fs_block(extent.block).filter(|&(ag, start)| {
        let end = start.0.checked_add(extent.count);
        start.0 >= geometry.ag_header_blocks() && end.is_some_and(|end| end <= geometry.blocks_in_ag(ag))
    });
    ensure!(
        place.is_some() && extent.count > 0,
        name,
        "blocks within one AG behind its headers",
        "{} blocks from {:?}",
        extent.count,
        extent.block
    );
    Ok(())
}

/// Verifies that a range of fork blocks can be addressed (the kernel's `xfs_verify_fileext`).
fn verify_range(name: &'static str, start: FileBlock, count: u64) -> Verdict {
    let end = start.0.checked_add(count);
    let fits = count > 0 && end.is_some_and(|end| end - 1 <= MAX_FILE_BLOCK);
    ensure!(fits, name, "range of fork blocks", "{count} blocks from {start}");
    Ok(())
}

/// Verifies that an inode of this number can exist (the kernel's `xfs_verify_ino`).
fn verify_inode(rules: &IntentRules<'_>, name: &'static str, inode: InodeNumber) -> Verdict {
    let Some(geometry) = rules.geometry else { return Ok(()) };
    let place = geometry.split_inode(inode).map(|(_, within)| geometry.inode_block(within));
    let there = place.is_some_and(|block| block.0 >= geometry.ag_header_blocks());
    ensure!(there, name, "inode within an AG", "inode {inode}");
    Ok(())
}

#[cfg(test)]
mod tests;
