//! Data blocks of a directory: entries and unused space, and in the block form the hash index at the end.
//!
//! ```text
//!  0 header  48 three largest unused spaces (offset 2, length 2), largest first  60 pad | 64 entries and unused space
//! entry      inode 8, length of name 1, name, type 1, padding to 8, tag 2
//! unused     0xffff 2, length 2, ..., tag 2
//! block form ... | index entries, in order of hash | number of index entries 4, stale ones among them 4
//! ```
//! The tag at the end of each is its own offset. Two unused spaces never touch. The header's table lists the three
//! largest unused spaces; if several have the length of the third, it lists any one of them.
//!
//! Facts: the XFS Algorithms & Data Structures document, "Block Directories"; the kernel's `__xfs_dir3_data_check`.

use super::leaf::IndexEntry;
use super::{DATA_ALIGNMENT, DirBlockHeader, FileType, STALE_POINTER, entry_bytes, is_possible_inode};
use crate::da::{array, hash_name, prefix, prefix_mut};
use crate::{DiskAddress, Geometry, Verdict, ensure};
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `"XDB3"`: entries and index in one block.
pub const DIR_BLOCK_MAGIC: u32 = 0x5844_4233;
/// `"XDD3"`: entries only.
pub const DIR_DATA_MAGIC: u32 = 0x5844_4433;
/// Where entries start.
pub const DATA_HEADER_BYTES: usize = 64;
/// Where the table of largest unused spaces stands.
pub const BEST_FREE_OFFSET: usize = 48;
/// Size of the counts at the end of a block of the block form.
pub const BLOCK_TAIL_BYTES: usize = 8;
/// The first two bytes of an unused space.
pub const UNUSED_MARK: u16 = 0xffff;

/// An unused space as the header's table names it.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct BestFree {
    /// Where it starts; 0 in an empty slot of the table.
    pub offset: U16,
    /// How long it is.
    pub length: U16,
}

/// Header of a data block.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug)]
#[repr(C)]
pub struct DataHeader {
    /// The part shared with free index blocks.
    pub block: DirBlockHeader,
    /// The three largest unused spaces, largest first.
    pub best_free: [BestFree; 3],
    /// Unused.
    pub pad: U32,
}

/// The end of a block of the block form.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Debug)]
#[repr(C)]
pub struct BlockTail {
    /// Number of index entries, stale ones included.
    pub count: U32,
    /// Stale ones among them.
    pub stale: U32,
}

/// An entry of a data block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataEntry<'a> {
    /// Where in the block it starts.
    pub offset: usize,
    /// The inode it names.
    pub inode: u64,
    /// The type of that inode; [`FileType::Unknown`] where the stored number means none.
    pub file_type: FileType,
    /// The name.
    pub name: &'a [u8],
}

impl DataEntry<'_> {
    /// Bytes that the entry takes.
    pub fn bytes(&self) -> usize {
        entry_bytes(self.name.len())
    }
}

/// An entry or an unused space at an offset of a data block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot<'a> {
    /// An entry.
    Entry(DataEntry<'a>),
    /// Unused space.
    Unused {
        /// Where it starts.
        offset: usize,
        /// How long it is.
        length: usize,
    },
}

impl Slot<'_> {
    /// Where the next slot starts.
    pub fn end(&self) -> usize {
        match self {
            Self::Entry(entry) => entry.offset + entry.bytes(),
            Self::Unused { offset, length } => offset + length,
        }
    }
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]))
}

/// The header of a data block.
#[inline]
pub fn data_header(bytes: &[u8]) -> &DataHeader {
    prefix(bytes)
}

/// The header of a data block, mutable.
pub fn data_header_mut(bytes: &mut [u8]) -> &mut DataHeader {
    prefix_mut(bytes)
}

/// The counts at the end of a block of the block form.
#[inline]
pub fn block_tail(bytes: &[u8]) -> &BlockTail {
    prefix(&bytes[bytes.len() - BLOCK_TAIL_BYTES..])
}

/// Where the hash index of a block of the block form starts, if its count makes sense.
#[inline]
pub fn block_index_start(bytes: &[u8]) -> Option<usize> {
    let index_bytes = (block_tail(bytes).count.get() as usize).checked_mul(size_of::<IndexEntry>())?;
    let start = (bytes.len() - BLOCK_TAIL_BYTES).checked_sub(index_bytes)?;
    (start >= DATA_HEADER_BYTES).then_some(start)
}

/// The hash index of a verified block of the block form.
pub fn block_index(bytes: &[u8]) -> &[IndexEntry] {
    let start = block_index_start(bytes).expect("the block was verified");
    array(bytes, start, block_tail(bytes).count.get() as usize)
}

/// Where the entries of a data block end.
#[inline]
pub fn data_end(bytes: &[u8]) -> usize {
    let header: &DirBlockHeader = prefix(bytes);
    if header.magic.get() == DIR_BLOCK_MAGIC { block_index_start(bytes).unwrap_or(0) } else { bytes.len() }
}

/// The slot at `offset`, if it lies before `end`, is whole and has the right tag.
#[inline]
pub fn slot_at(bytes: &[u8], offset: usize, end: usize) -> Option<Slot<'_>> {
    if offset < DATA_HEADER_BYTES || !offset.is_multiple_of(DATA_ALIGNMENT) || offset + DATA_ALIGNMENT > end {
        return None;
    }
    if u16_at(bytes, offset)? == UNUSED_MARK {
        let length = usize::from(u16_at(bytes, offset + 2)?);
        let whole = length >= DATA_ALIGNMENT && length.is_multiple_of(DATA_ALIGNMENT) && offset + length <= end;
        let tagged = whole && u16_at(bytes, offset + length - 2)? as usize == offset & 0xffff;
        return tagged.then_some(Slot::Unused { offset, length });
    }
    let fixed = bytes.get(offset..offset + 9)?;
    let name_bytes = usize::from(fixed[8]);
    let length = entry_bytes(name_bytes);
    if name_bytes == 0 || offset + length > end || u16_at(bytes, offset + length - 2)? as usize != offset & 0xffff {
        return None;
    }
    let name = bytes.get(offset + 9..offset + 9 + name_bytes)?;
    let file_type = FileType::decode(*bytes.get(offset + 9 + name_bytes)?).unwrap_or(FileType::Unknown);
    let inode = u64::from_be_bytes(fixed[..8].try_into().ok()?);
    Some(Slot::Entry(DataEntry { offset, inode, file_type, name }))
}

/// The entry at `offset`, if one stands there.
#[inline]
pub fn entry_at(bytes: &[u8], offset: usize) -> Option<DataEntry<'_>> {
    match slot_at(bytes, offset, data_end(bytes))? {
        Slot::Entry(entry) => Some(entry),
        Slot::Unused { .. } => None,
    }
}

/// Whether a slot of a verified block starts at `offset`. It walks the block, because bytes within an entry may look
/// like a slot.
#[inline]
pub fn is_slot(bytes: &[u8], offset: usize) -> bool {
    let mut at = DATA_HEADER_BYTES;
    while at < offset {
        let Some(fixed) = bytes.get(at..at + 9) else { return false };
        let unused = fixed[..2] == UNUSED_MARK.to_be_bytes();
        let length =
            if unused { u16::from_be_bytes([fixed[2], fixed[3]]).into() } else { entry_bytes(fixed[8].into()) };
        at += length.max(DATA_ALIGNMENT);
    }
    at == offset
}

/// All slots in order; ends early where one is damaged, which verified blocks are not.
pub fn slots(bytes: &[u8]) -> impl Iterator<Item = Slot<'_>> {
    let end = data_end(bytes);
    let mut offset = DATA_HEADER_BYTES;
    std::iter::from_fn(move || {
        let slot = slot_at(bytes, offset, end)?;
        offset = slot.end();
        Some(slot)
    })
}

/// All entries in order.
pub fn entries(bytes: &[u8]) -> impl Iterator<Item = DataEntry<'_>> {
    slots(bytes).filter_map(|slot| match slot {
        Slot::Entry(entry) => Some(entry),
        Slot::Unused { .. } => None,
    })
}

const NAME: &str = "directory data block";
const BLOCK_NAME: &str = "directory block";

/// Verifies a data block of the leaf or node form.
///
/// # Errors
/// A corruption of the "directory data block".
pub fn verify_data(geometry: &Geometry, address: DiskAddress, bytes: &[u8]) -> Verdict {
    DirBlockHeader::verify(geometry, address, bytes, DIR_DATA_MAGIC, NAME)?;
    verify_slots(geometry, bytes, bytes.len(), NAME, |_| Ok(())).map(|_| ())
}

/// Verifies the block of the block form: every entry has an index entry, and every index entry that is not stale has an
/// entry.
///
/// # Errors
/// A corruption of the "directory block".
pub fn verify_block(geometry: &Geometry, address: DiskAddress, bytes: &[u8]) -> Verdict {
    DirBlockHeader::verify(geometry, address, bytes, DIR_BLOCK_MAGIC, BLOCK_NAME)?;
    let tail = block_tail(bytes);
    let Some(end) = block_index_start(bytes) else {
        return Err(crate::Corruption::new(BLOCK_NAME, "index fits the block").found(tail.count));
    };
    let index = block_index(bytes);
    ensure!(index.is_sorted_by_key(|entry| entry.hash.get()), BLOCK_NAME, "index in order of hash");
    let stale = index.iter().filter(|entry| entry.pointer.get() == STALE_POINTER).count();
    ensure!(stale == tail.stale.get() as usize, BLOCK_NAME, "number of stale index entries", "{stale}");
    let entries = verify_slots(geometry, bytes, end, BLOCK_NAME, |entry| {
        let hash = hash_name(entry.name);
        let first = index.partition_point(|place| place.hash.get() < hash);
        let mut same_hash = index[first..].iter().take_while(|place| place.hash.get() == hash);
        let found = same_hash.any(|place| u64::from(place.pointer.get()) == entry.offset as u64 >> 3);
        ensure!(found, BLOCK_NAME, "entry is in the index", "offset {}", entry.offset);
        Ok(())
    })?;
    ensure!(entries == index.len() - stale, BLOCK_NAME, "every index entry has an entry", "{entries} entries");
    Ok(())
}

/// Verifies a block's slots; returns the number of entries.
fn verify_slots(
    geometry: &Geometry,
    bytes: &[u8],
    end: usize,
    name: &'static str,
    mut check: impl FnMut(&DataEntry<'_>) -> Verdict,
) -> Verdict<usize> {
    let best = &data_header(bytes).best_free;
    ensure!(best.is_sorted_by(|a, b| a.length.get() >= b.length.get()), name, "largest unused spaces in order");
    ensure!(
        best.iter().all(|free| (free.offset.get() == 0) == (free.length.get() == 0)),
        name,
        "places of the table of unused spaces are whole or empty"
    );
    let mut seen = 0u8;
    let (mut offset, mut count, mut after_unused) = (DATA_HEADER_BYTES, 0, false);
    while offset < end {
        let Some(slot) = slot_at(bytes, offset, end) else {
            return Err(crate::Corruption::new(name, "entry is whole and tagged").found(format_args!("at {offset}")));
        };
        match slot {
            Slot::Entry(entry) => {
                ensure!(is_possible_inode(geometry, entry.inode), name, "inode number", "{} at {offset}", entry.inode);
                check(&entry)?;
                count += 1;
            }
            Slot::Unused { length, .. } => {
                ensure!(!after_unused, name, "unused spaces are merged", "at {offset}");
                match best.iter().position(|free| usize::from(free.offset.get()) == offset) {
                    Some(place) => {
                        let listed = usize::from(best[place].length.get());
                        ensure!(listed == length, name, "length of an unused space", "{length} at {offset}");
                        seen |= 1 << place;
                    }
                    None => {
                        let third = usize::from(best[2].length.get());
                        ensure!(length <= third, name, "large unused spaces are listed", "{length} at {offset}");
                    }
                }
            }
        }
        after_unused = matches!(slot, Slot::Unused { .. });
        offset = slot.end();
    }
    let listed = (0..3).filter(|&place| best[place].length.get() != 0).fold(0u8, |bits, place| bits | 1 << place);
    ensure!(seen == listed, name, "listed unused spaces exist");
    Ok(count)
}
