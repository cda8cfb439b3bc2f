//! Maps of sparse files. The contents in the stream are the parts that contain data, one after the other.

use super::BLOCK;
use super::header::{Header, more_parts};
use super::reader::Reader;
use crate::error::Result;
use std::io::Read;

/// Parts, each with its offset and length.
pub(super) type Parts = Vec<(u64, u64)>;

/// Most parts of a file, so that a stream cannot choose how much memory its map takes: 64 MiB here.
const MAX_PARTS: usize = 1 << 22;
const UNREADABLE: &str = "a map of a sparse file that cannot be read";
const TOO_MANY: &str = "a sparse file of more than 4 million parts";

/// The map in an old GNU header and the blocks that follow it.
pub(super) fn old<R: Read>(header: &Header, reader: &mut Reader<R>) -> Result<Parts> {
    let mut parts = Vec::new();
    let (own, mut more) = header.parts();
    add(&mut parts, own).map_err(|what| reader.bad(what))?;
    while more {
        let mut block = [0; BLOCK];
        reader.fill(&mut block, "a header")?;
        let (further, goes_on) = more_parts(&block);
        add(&mut parts, further).map_err(|what| reader.bad(what))?;
        more = goes_on;
    }
    Ok(parts)
}

fn add(parts: &mut Parts, further: impl Iterator<Item = Option<(u64, u64)>>) -> Result<(), &'static str> {
    for part in further {
        parts.push(part.ok_or(UNREADABLE)?);
        if parts.len() > MAX_PARTS {
            return Err(TOO_MANY);
        }
    }
    Ok(())
}

/// The map before the contents (GNU's PAX form 1.0): decimal numbers, one on each line, the count first. Also returns
/// the number of bytes that the map takes.
pub(super) fn in_contents<R: Read>(reader: &mut Reader<R>) -> Result<(Parts, u64)> {
    let mut numbers = Numbers { block: [0; BLOCK], at: BLOCK, blocks: 0 };
    let count = numbers.next(reader)?;
    if count > MAX_PARTS as u64 {
        return Err(reader.bad(TOO_MANY));
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
            number = next.ok_or_else(|| reader.bad(UNREADABLE))?;
        }
    }
}

/// Adds the map in one PAX record (form 0.1), or in a pair of records (form 0.0): numbers between commas.
pub(super) fn from_record(text: &[u8]) -> Result<Parts, &'static str> {
    let mut numbers = text.split(|&byte| byte == b',').map(decimal);
    let pairs = std::iter::from_fn(|| {
        let offset = numbers.next()?;
        Some(offset.zip(numbers.next().flatten()))
    });
    let mut parts = Vec::new();
    add(&mut parts, pairs).map(|()| parts)
}

/// A number in a record.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok())
}

/// One more part of the form 0.0: each is two records.
pub(super) fn push(parts: &mut Parts, offset: u64, length: u64) -> Result<(), &'static str> {
    add(parts, std::iter::once(Some((offset, length))))
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
