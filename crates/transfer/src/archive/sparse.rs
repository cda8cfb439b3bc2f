//! Maps of sparse files. The contents in the stream are the parts that contain data, one after the other.

use super::BLOCK;
use super::reader::Reader;
use crate::error::Result;
use std::io::Read;
use tar::{GnuExtSparseHeader, GnuHeader};

/// Parts, each with its offset and length.
pub(super) type Parts = Vec<(u64, u64)>;

/// Most parts of a file, so that a stream cannot choose how much memory its map takes.
const MAX_PARTS: usize = 1 << 24;

/// The map in an old GNU header and the blocks that follow it.
pub(super) fn old<R: Read>(header: &GnuHeader, reader: &mut Reader<R>) -> Result<Parts> {
    let mut parts = Vec::new();
    let mut push = |offset: std::io::Result<u64>, length: std::io::Result<u64>| match (offset, length) {
        (Ok(offset), Ok(length)) if parts.len() < MAX_PARTS => {
            parts.push((offset, length));
            Ok(())
        }
        _ => Err("a map of a sparse file that cannot be read"),
    };
    let damaged = |reader: &Reader<R>, what| reader.bad(what);
    for part in header.sparse.iter().filter(|part| !part.is_empty()) {
        push(part.offset(), part.length()).map_err(|what| damaged(reader, what))?;
    }
    let mut more = header.is_extended();
    while more {
        let mut extension = GnuExtSparseHeader::new();
        reader.fill(extension.as_mut_bytes(), "a header")?;
        for part in extension.sparse().iter().filter(|part| !part.is_empty()) {
            push(part.offset(), part.length()).map_err(|what| damaged(reader, what))?;
        }
        more = extension.is_extended();
    }
    Ok(parts)
}

/// The map before the contents (GNU's PAX form 1.0): decimal numbers, one on each line, the count first. Also returns
/// the number of bytes that the map takes.
pub(super) fn in_contents<R: Read>(reader: &mut Reader<R>) -> Result<(Parts, u64)> {
    let mut numbers = Numbers { block: [0; BLOCK], at: BLOCK, blocks: 0 };
    let count = numbers.next(reader)?;
    if count > MAX_PARTS as u64 {
        return Err(reader.bad("a sparse file of too many parts"));
    }
    let mut parts = Vec::new();
    for _ in 0..count {
        parts.push((numbers.next(reader)?, numbers.next(reader)?));
    }
    Ok((parts, numbers.blocks * BLOCK as u64))
}

struct Numbers {
    block: [u8; BLOCK],
    at: usize,
    blocks: u64,
}

impl Numbers {
    fn next<R: Read>(&mut self, reader: &mut Reader<R>) -> Result<u64> {
        let mut number: u64 = 0;
        loop {
            if self.at == BLOCK {
                reader.fill(&mut self.block, "the map of a sparse file")?;
                (self.at, self.blocks) = (0, self.blocks + 1);
            }
            let byte = self.block[self.at];
            self.at += 1;
            let next = match byte {
                b'\n' => return Ok(number),
                b'0'..=b'9' => number.checked_mul(10).and_then(|n| n.checked_add(u64::from(byte - b'0'))),
                _ => None,
            };
            number = next.ok_or_else(|| reader.bad("a map of a sparse file that cannot be read"))?;
        }
    }
}

/// The map in one PAX record (form 0.1), or in pairs of records (form 0.0): numbers between commas.
pub(super) fn in_records(text: &[u8]) -> Option<Parts> {
    let text = std::str::from_utf8(text).ok()?;
    let numbers: Vec<u64> = text.split(',').map(|number| number.parse().ok()).collect::<Option<_>>()?;
    let (pairs, rest) = numbers.as_chunks::<2>();
    (rest.is_empty() && pairs.len() <= MAX_PARTS).then(|| pairs.iter().map(|pair| (pair[0], pair[1])).collect())
}

/// Verifies a map against the file's size and the bytes in the stream. Empty parts, which mark the end, are dropped.
pub(super) fn verify(mut parts: Parts, size: u64, stored: u64) -> Result<Parts, &'static str> {
    let (mut end, mut sum) = (0, 0_u64);
    for &(start, length) in &parts {
        if start < end || start.checked_add(length).is_none_or(|end| end > size) {
            return Err("a map of a sparse file that is not in order, or reaches past its end");
        }
        (end, sum) = (start + length, sum + length);
    }
    if sum != stored {
        return Err("a map of a sparse file that does not fit its contents");
    }
    parts.retain(|(_, length)| *length > 0);
    Ok(parts)
}

/// The map of a file of `size` bytes in the form 1.0, padded. A hole at the end is marked by an empty part behind it;
/// without that part GNU tar makes the file too short.
pub(super) fn encode(parts: &[(u64, u64)], size: u64) -> Vec<u8> {
    let ends_in_hole = parts.last().is_none_or(|(start, length)| start + length < size);
    let end = ends_in_hole.then_some((size, 0));
    let mut text = format!("{}\n", parts.len() + usize::from(ends_in_hole));
    for (start, length) in parts.iter().copied().chain(end) {
        text.push_str(&format!("{start}\n{length}\n"));
    }
    let mut bytes = text.into_bytes();
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    bytes
}
