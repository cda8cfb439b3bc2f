//! A header: 512 bytes with a name, numbers as text, and a sum over all of them.
//!
//! ```text
//!   0 name 100   100 mode 8   108 uid 8   116 gid 8   124 size 12   136 mtime 12   148 sum 8   156 kind 1
//! 157 target 100   257 magic 8   265 user 32   297 group 32   329 major 8   337 minor 8
//! 345 prefix 155 (ustar)   or   386 four parts of a sparse file, 482 more follow, 483 real size (GNU)
//! ```
//! Numbers are octal between blanks and zeros, or binary with the highest bit set. Old programs leave fields empty,
//! sum bytes with a sign, or have no magic; GNU tar and bsdtar read all of that, and so does this.

use super::BLOCK;
use std::ops::Range;

/// Bytes of a part of a sparse file: offset and length.
const SPARSE_BYTES: usize = 24;
const SUM: Range<usize> = 148..156;

/// Who has written a header, as far as its form depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Without magic, users, groups and device numbers.
    Old,
    /// With a prefix of the name.
    Ustar,
    /// With parts of a sparse file.
    Gnu,
}

/// A header.
pub(super) struct Header(pub(super) [u8; BLOCK]);

impl Header {
    /// Whether the sum is right: over bytes without a sign, or with one, as some old programs count.
    pub(super) fn has_its_sum(&self) -> bool {
        let field = &self.0[SUM];
        if !field.iter().all(|byte| matches!(byte, b' ' | 0 | b'0'..=b'7')) {
            return false;
        }
        let Some(stored) = number(field) else { return false };
        // The eight bytes of the sum itself count as blanks.
        let bytes = || self.0.iter().enumerate().map(|(at, &byte)| if SUM.contains(&at) { b' ' } else { byte });
        let unsigned: i64 = bytes().map(i64::from).sum();
        let signed: i64 = bytes().map(|byte| i64::from(byte as i8)).sum();
        stored == unsigned || stored == signed
    }

    /// What follows it, as one letter.
    pub(super) fn kind(&self) -> u8 {
        self.0[156]
    }

    pub(super) fn form(&self) -> Form {
        match &self.0[257..265] {
            b"ustar  \0" => Form::Gnu,
            [b'u', b's', b't', b'a', b'r', ..] => Form::Ustar,
            _ => Form::Old,
        }
    }

    /// The path, as far as it is in the header.
    pub(super) fn name(&self) -> Vec<u8> {
        let name = until_zero(&self.0[..100]);
        match (self.form(), until_zero(&self.0[345..500])) {
            (Form::Ustar, prefix) if !prefix.is_empty() => [prefix, b"/", name].concat(),
            _ => name.to_vec(),
        }
    }

    /// The target of a link.
    pub(super) fn target(&self) -> Vec<u8> {
        until_zero(&self.0[157..257]).to_vec()
    }

    pub(super) fn mode(&self) -> Option<u16> {
        number(&self.0[100..108]).map(|mode| mode as u16 & 0o7777)
    }

    pub(super) fn uid(&self) -> Option<u32> {
        number(&self.0[108..116]).and_then(|id| id.try_into().ok())
    }

    pub(super) fn gid(&self) -> Option<u32> {
        number(&self.0[116..124]).and_then(|id| id.try_into().ok())
    }

    /// Bytes that are stored behind the header.
    pub(super) fn size(&self) -> Option<u64> {
        number(&self.0[124..136]).and_then(|size| size.try_into().ok())
    }

    /// Seconds since 1970.
    pub(super) fn mtime(&self) -> Option<i64> {
        number(&self.0[136..148])
    }

    /// The numbers of a device; old headers have none.
    pub(super) fn device(&self) -> Option<(u32, u32)> {
        if self.form() == Form::Old {
            return Some((0, 0));
        }
        let number = |field: Range<usize>| number(&self.0[field]).and_then(|id| u32::try_from(id).ok());
        Some((number(329..337)?, number(337..345)?))
    }

    /// The size of a sparse file with its holes.
    pub(super) fn real_size(&self) -> Option<u64> {
        number(&self.0[483..495]).and_then(|size| size.try_into().ok())
    }

    /// The parts of a sparse file that are in its header, and whether blocks with further ones follow.
    pub(super) fn parts(&self) -> (impl Iterator<Item = Option<(u64, u64)>>, bool) {
        (parts(&self.0[386..482]), self.0[482] != 0)
    }
}

/// The parts of a sparse file that a block behind its header has, and whether a further one follows.
pub(super) fn more_parts(block: &[u8; BLOCK]) -> (impl Iterator<Item = Option<(u64, u64)>>, bool) {
    (parts(&block[..504]), block[504] != 0)
}

/// An empty length ends them; `None` is one that cannot be read.
fn parts(field: &[u8]) -> impl Iterator<Item = Option<(u64, u64)>> {
    let pairs = field.chunks_exact(SPARSE_BYTES).map(|pair| pair.split_at(SPARSE_BYTES / 2));
    pairs.take_while(|(_, length)| length[0] != 0).map(|(offset, length)| {
        let number = |field| number(field).and_then(|number| u64::try_from(number).ok());
        Some((number(offset)?, number(length)?))
    })
}

/// The number in a field. An empty one is 0: a label of GNU tar has nothing but its name.
fn number(field: &[u8]) -> Option<i64> {
    if field[0] & 0x80 != 0 {
        return binary(field);
    }
    // Some programs have written a zero in front where the field before it was full.
    let field = field.strip_prefix(b"\0").unwrap_or(field);
    let text = field.trim_ascii_start();
    let digits = text.iter().take_while(|byte| matches!(byte, b'0'..=b'7')).count();
    // What is behind the zero or blank is left from what was in the memory before.
    if text.get(digits).is_some_and(|&byte| byte != 0 && !byte.is_ascii_whitespace()) {
        return None;
    }
    text[..digits].iter().try_fold(0_i64, |number, digit| number.checked_mul(8)?.checked_add((digit - b'0').into()))
}

/// The number in a field whose highest bit says that it is binary: the rest is one number, with a sign, in the order of
/// the network.
fn binary(field: &[u8]) -> Option<i64> {
    let sign = if field[0] & 0x40 != 0 { -1_i128 } else { 0 };
    let first = (sign << 7) | i128::from(field[0] & 0x7f);
    let number = field[1..].iter().fold(first, |number, &byte| (number << 8) | i128::from(byte));
    number.try_into().ok()
}

pub(super) fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_all_their_forms() {
        for (field, expected) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b"   644 \0", Some(0o644)),
            (b"  644 \x01\x02", Some(0o644)),
            (b"00000644", Some(0o644)),
            (b"\x000000644", Some(0o644)),
            (b"\0\0\0\0\0\0\0\0", Some(0)),
            (b"        ", Some(0)),
            (b"\x80\0\0\0\0\0\x01\x02", Some(0x102)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xfe", Some(-2)),
            (b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", None),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xf6", Some(-10)),
            (b"77777777777\0", Some(0o77_777_777_777)),
            (b"0000648\0", None),
            (b"-1\0\0\0\0\0\0", None),
            (b"x\0\0\0\0\0\0\0", None),
        ] {
            assert_eq!(number(field), expected, "{field:?}");
        }
    }
}
