//! Listings of directories, as far as the reply has room.

use crate::abi::RawDirent;
use crate::answer::Entry;
use std::time::Duration;
use zerocopy::IntoBytes;

/// Types of entries begin here in a mode.
const TYPE_SHIFT: u32 = 12;

/// Whether an entry found room in a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It is in the listing.
    Enough,
    /// It is not, and no further one may be added.
    Full,
}

/// An entry of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// The inode's number, as programs see it.
    pub inode: u64,
    /// The offset at which the next request continues.
    pub next_offset: u64,
    /// Mode with the type of the inode.
    pub mode: u32,
    /// Name.
    pub name: &'a [u8],
}

/// A listing without attributes.
#[derive(Debug)]
pub struct Listing<'a> {
    out: &'a mut [u8],
    used: usize,
}

impl<'a> Listing<'a> {
    pub(crate) fn new(out: &'a mut [u8]) -> Self {
        Self { out, used: 0 }
    }

    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Adds an entry.
    pub fn add(&mut self, entry: &Listed<'_>) -> Room {
        self.add_behind(&[], entry)
    }

    fn add_behind(&mut self, head: &[u8], entry: &Listed<'_>) -> Room {
        let dirent = RawDirent {
            ino: entry.inode,
            off: entry.next_offset,
            namelen: entry.name.len() as u32,
            kind: entry.mode >> TYPE_SHIFT & 0xf,
        };
        let length = (head.len() + size_of::<RawDirent>() + entry.name.len()).next_multiple_of(8);
        let Some(place) = self.out.get_mut(self.used..).and_then(|rest| rest.get_mut(..length)) else {
            return Room::Full;
        };
        let mut rest = place;
        for part in [head, dirent.as_bytes(), entry.name] {
            let (to, behind) = rest.split_at_mut(part.len());
            to.copy_from_slice(part);
            rest = behind;
        }
        rest.fill(0);
        self.used += length;
        Room::Enough
    }
}

/// A listing with attributes.
#[derive(Debug)]
pub struct ListingPlus<'a>(Listing<'a>);

impl<'a> ListingPlus<'a> {
    pub(crate) fn new(out: &'a mut [u8]) -> Self {
        Self(Listing::new(out))
    }

    pub(crate) fn used(&self) -> usize {
        self.0.used()
    }

    /// Adds an entry with its inode; `None` for one of which the kernel is to cache nothing.
    pub fn add(&mut self, listed: &Listed<'_>, entry: Option<&Entry>) -> Room {
        let nothing = Entry {
            node: 0,
            generation: 0,
            name_valid: Duration::ZERO,
            attr_valid: Duration::ZERO,
            attr: Default::default(),
        };
        let head = entry.unwrap_or(&nothing).raw();
        self.0.add_behind(head.as_bytes(), listed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_ends_where_an_entry_has_no_room() {
        let mut out = [0xff; 80];
        let mut listing = Listing::new(&mut out);
        let entry = |name| Listed { inode: 5, next_offset: 7, mode: 0o040_755, name };
        assert_eq!(listing.add(&entry(b"abc")), Room::Enough);
        assert_eq!(listing.add(&entry(b"12345678")), Room::Enough);
        assert_eq!(listing.used(), 64);
        assert_eq!(listing.add(&entry(b"")), Room::Full);
        assert_eq!(out[16..32], *b"\x03\0\0\0\x04\0\0\0abc\0\0\0\0\0");
    }
}
