//! Shortform directories: the entries in the inode itself.
//!
//! ```text
//! header  entries 1, entries (and parent) beyond 32 bits 1, parent 4 or 8
//! entry   length of name 1, offset 2, name, type 1, inode 4 or 8
//! ```
//! Inode numbers have 8 bytes as soon as one of them, the parent's included, needs more than 32 bits. An entry's
//! offset is where it would stand in a block of the block form, so offsets ascend and leave room for the entries
//! between them.
//!
//! Facts: the XFS Algorithms & Data Structures document, "Short Form Directories"; the kernel's `xfs_dir2_sf_verify`.

use super::data::BLOCK_TAIL_BYTES;
use super::leaf::IndexEntry;
use super::{DirLayout, FileType, entry_bytes, is_possible_inode};
use crate::{Corruption, ForkBytes, Geometry, Verdict, ensure};

const NAME: &str = "shortform directory";

/// An entry of a shortform directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortformEntry<'a> {
    /// Where in the fork it starts.
    pub start: usize,
    /// Bytes that it takes there.
    pub length: usize,
    /// Where it would stand in a block.
    pub offset: u16,
    /// The name.
    pub name: &'a [u8],
    /// The type; [`FileType::Unknown`] where the stored number means none.
    pub file_type: FileType,
    /// The inode.
    pub inode: u64,
}

/// A shortform directory, read-only.
#[derive(Clone, Copy, Debug)]
pub struct Shortform<'a> {
    bytes: &'a [u8],
}

/// Size of the header.
pub fn header_bytes(wide: bool) -> usize {
    if wide { 10 } else { 6 }
}

/// Size of an entry.
pub fn shortform_entry_bytes(name_bytes: usize, wide: bool) -> usize {
    1 + 2 + name_bytes + 1 + if wide { 8 } else { 4 }
}

fn number(bytes: &[u8]) -> u64 {
    // The kernel uses the low 56 bits.
    bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte)) & ((1 << 56) - 1)
}

impl<'a> Shortform<'a> {
    /// A directory in the bytes of a data fork.
    ///
    /// # Errors
    /// A corruption when the header is not whole.
    pub fn new(bytes: &'a [u8]) -> Verdict<Self> {
        let whole = bytes.len() >= 6 && bytes.len() >= header_bytes(bytes[1] != 0);
        ensure!(whole, NAME, "whole header", "{} bytes", bytes.len());
        Ok(Self { bytes })
    }

    /// Number of entries.
    pub fn count(&self) -> usize {
        self.bytes[0].into()
    }

    /// Entries, the parent included, whose inode numbers need more than 32 bits.
    pub fn wide_count(&self) -> u8 {
        self.bytes[1]
    }

    /// Whether inode numbers take 8 bytes.
    pub fn is_wide(&self) -> bool {
        self.wide_count() != 0
    }

    /// The parent directory.
    pub fn parent(&self) -> u64 {
        number(&self.bytes[2..header_bytes(self.is_wide())])
    }

    /// The entries in order; an error where one is not whole.
    pub fn entries(&self) -> impl Iterator<Item = Verdict<ShortformEntry<'a>>> + use<'a> {
        let (bytes, wide) = (self.bytes, self.is_wide());
        let (mut left, mut at) = (self.count(), header_bytes(wide));
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let entry = decode_entry(bytes, at, wide);
            match &entry {
                Some(entry) => at += entry.length,
                None => left = 0,
            }
            Some(entry.ok_or_else(|| Corruption::new(NAME, "whole entries").found(format_args!("at {at}"))))
        })
    }

    /// The entry of a name.
    ///
    /// # Errors
    /// A corruption when an entry is not whole.
    pub fn find(&self, name: &[u8]) -> Verdict<Option<ShortformEntry<'a>>> {
        for entry in self.entries() {
            let entry = entry?;
            if entry.name == name {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }
}

fn decode_entry(bytes: &[u8], at: usize, wide: bool) -> Option<ShortformEntry<'_>> {
    let name_bytes = usize::from(*bytes.get(at)?);
    let length = shortform_entry_bytes(name_bytes, wide);
    let entry = bytes.get(at..at + length)?;
    if name_bytes == 0 {
        return None;
    }
    Some(ShortformEntry {
        start: at,
        length,
        offset: u16::from_be_bytes([entry[1], entry[2]]),
        name: &entry[3..3 + name_bytes],
        file_type: FileType::decode(entry[3 + name_bytes]).unwrap_or(FileType::Unknown),
        inode: number(&entry[4 + name_bytes..]),
    })
}

/// Appends an inode number.
pub fn encode_inode(out: &mut impl ForkBytes, inode: u64, wide: bool) {
    if wide {
        out.append(&inode.to_be_bytes());
    } else {
        out.append(&(inode as u32).to_be_bytes());
    }
}

/// Appends a header.
pub fn encode_header(out: &mut impl ForkBytes, count: u8, wide_count: u8, parent: u64) {
    out.append(&[count, wide_count]);
    encode_inode(out, parent, wide_count != 0);
}

/// Appends an entry.
pub fn encode_entry(out: &mut impl ForkBytes, wide: bool, offset: u16, name: &[u8], file_type: FileType, inode: u64) {
    out.append(&[name.len() as u8]);
    out.append(&offset.to_be_bytes());
    out.append(name);
    out.append(&[file_type as u8]);
    encode_inode(out, inode, wide);
}

/// Verifies a shortform directory.
///
/// # Errors
/// A corruption of the "shortform directory".
pub fn verify_shortform(geometry: &Geometry, bytes: &[u8]) -> Verdict {
    let layout = DirLayout::new(geometry);
    let directory = Shortform::new(bytes)?;
    let parent = directory.parent();
    ensure!(is_possible_inode(geometry, parent), NAME, "parent inode", "{parent}");
    let mut wide = u32::from(parent > u64::from(u32::MAX));
    let mut offset = layout.first_offset();
    let mut end = header_bytes(directory.is_wide());
    for entry in directory.entries() {
        let entry = entry?;
        ensure!(usize::from(entry.offset) >= offset, NAME, "offsets ascend", "{} at {}", entry.offset, entry.start);
        ensure!(is_possible_inode(geometry, entry.inode), NAME, "inode number", "{}", entry.inode);
        wide += u32::from(entry.inode > u64::from(u32::MAX));
        offset = usize::from(entry.offset) + entry_bytes(entry.name.len());
        end = entry.start + entry.length;
    }
    ensure!(wide == directory.wide_count().into(), NAME, "number of wide inode numbers", "{wide}");
    ensure!(end == bytes.len(), NAME, "entries fill the fork", "{end} of {} bytes", bytes.len());
    let index = (directory.count() + 2) * size_of::<IndexEntry>() + BLOCK_TAIL_BYTES;
    ensure!(offset + index <= layout.block_bytes(), NAME, "fits a directory block", "{offset}");
    Ok(())
}
