//! Which ranges of an image that imago reads may hold data.

use imago::{FormatAccess, Mapping, Storage};

/// How many mappings of a range are looked at to find data in it.
const MOST_LOOKUPS: usize = 1024;

/// Whether a range of an image may hold anything but zeros.
pub(crate) fn may_hold_data<S: Storage + 'static>(image: &FormatAccess<S>, mut offset: u64, end: u64) -> bool {
    for _ in 0..MOST_LOOKUPS {
        if offset >= end {
            return false;
        }
        match image.get_mapping(offset, end - offset) {
            Ok((Mapping::Zero { .. } | Mapping::Eof { .. }, length)) if length > 0 => offset += length,
            _ => return true,
        }
    }
    true
}
