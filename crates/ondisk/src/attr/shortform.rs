//! Shortform attributes: names and values in the inode.
//!
//! ```text
//! header  bytes in all 2, entries 1, pad 1
//! entry   length of name 1, length of value 1, flags 1, name, value
//! ```
//! Facts: the XFS Algorithms & Data Structures document, "Short Form Attributes"; the kernel's
//! `xfs_attr_shortform_verify`.

use super::{flags, is_valid_namespace};
use crate::{Corruption, ForkBytes, Verdict, ensure};

/// Size of the header.
pub const SHORTFORM_HEADER_BYTES: usize = 4;
/// Names and values must be shorter than this.
pub const SHORTFORM_LENGTH_LIMIT: usize = 256;
const ENTRY_HEADER_BYTES: usize = 3;
const NAME: &str = "shortform attributes";

/// An attribute of the shortform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortformAttr<'a> {
    /// Where in the fork it starts.
    pub start: usize,
    /// Its name space.
    pub namespace: u8,
    /// The name.
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

impl ShortformAttr<'_> {
    /// Bytes that it takes.
    pub fn length(&self) -> usize {
        entry_bytes(self.name.len(), self.value.len())
    }

    /// Where its name starts in the fork.
    pub fn name_start(&self) -> usize {
        self.start + ENTRY_HEADER_BYTES
    }
}

/// Size of an entry.
pub fn entry_bytes(name_bytes: usize, value_bytes: usize) -> usize {
    ENTRY_HEADER_BYTES + name_bytes + value_bytes
}

/// The attributes in the bytes of an attr fork, in order; an error where one is not whole.
pub fn attrs(bytes: &[u8]) -> impl Iterator<Item = Verdict<ShortformAttr<'_>>> {
    let mut left = bytes.get(2).copied().unwrap_or(0);
    let mut at = SHORTFORM_HEADER_BYTES;
    std::iter::from_fn(move || {
        left = left.checked_sub(1)?;
        let attr = decode(bytes, at);
        match &attr {
            Some(attr) => at += attr.length(),
            None => left = 0,
        }
        Some(attr.ok_or_else(|| Corruption::new(NAME, "whole entries").found(format_args!("at {at}"))))
    })
}

fn decode(bytes: &[u8], at: usize) -> Option<ShortformAttr<'_>> {
    let &[name_bytes, value_bytes, namespace] = bytes.get(at..at + ENTRY_HEADER_BYTES)?.first_chunk()?;
    let length = entry_bytes(name_bytes.into(), value_bytes.into());
    let (name, value) = bytes.get(at + ENTRY_HEADER_BYTES..at + length)?.split_at_checked(name_bytes.into())?;
    (name_bytes > 0).then_some(ShortformAttr { start: at, namespace, name, value })
}

/// A fork without attributes.
pub fn encode_empty() -> [u8; SHORTFORM_HEADER_BYTES] {
    [0, SHORTFORM_HEADER_BYTES as u8, 0, 0]
}

/// Appends an attribute, and counts it in the header.
pub fn append(fork: &mut impl ForkBytes, namespace: u8, name: &[u8], value: &[u8]) {
    let (header, rest) = fork.grow(entry_bytes(name.len(), value.len())).split_at_mut(ENTRY_HEADER_BYTES);
    header.copy_from_slice(&[name.len() as u8, value.len() as u8, namespace]);
    let (name_room, value_room) = rest.split_at_mut(name.len());
    name_room.copy_from_slice(name);
    value_room.copy_from_slice(value);
    fork[2] += 1;
    encode_size(fork);
}

/// Takes out the attribute that starts at `start` and takes `length` bytes.
pub fn remove(fork: &mut impl ForkBytes, start: usize, length: usize) {
    fork.take_out(start..start + length);
    fork[2] -= 1;
    encode_size(fork);
}

fn encode_size(fork: &mut [u8]) {
    let size = (fork.len() as u16).to_be_bytes();
    fork[..2].copy_from_slice(&size);
}

/// Verifies the bytes of an attr fork in shortform.
///
/// # Errors
/// A corruption of "shortform attributes".
pub fn verify_shortform(bytes: &[u8]) -> Verdict {
    ensure!(bytes.len() >= SHORTFORM_HEADER_BYTES, NAME, "whole header", "{} bytes", bytes.len());
    let size = usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
    ensure!(size == bytes.len(), NAME, "size", "{size} instead of {}", bytes.len());
    let mut end = SHORTFORM_HEADER_BYTES;
    for attr in attrs(bytes) {
        let attr = attr?;
        let known = attr.namespace & !flags::NAMESPACE == 0 && is_valid_namespace(attr.namespace);
        ensure!(known, NAME, "name space", "flags {:#x}", attr.namespace);
        end = attr.start + attr.length();
    }
    ensure!(end == bytes.len(), NAME, "entries fill the fork", "{end} of {} bytes", bytes.len());
    Ok(())
}
