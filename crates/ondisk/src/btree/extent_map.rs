//! The extent map of a file.

use super::BMBT_MAGIC;
use super::format::{TreeFormat, u64_at};
use crate::extent::EXTENT_RECORD_BYTES;
use crate::{AgNumber, Extent, Geometry};

/// A file's extent map.
#[derive(Debug)]
pub struct Bmbt;

impl TreeFormat for Bmbt {
    type Record = Extent;
    type Key = u64;
    const NAME: &'static str = "bmbt block";
    const MAGIC: u32 = BMBT_MAGIC;
    const LONG: bool = true;
    const RECORD_BYTES: usize = EXTENT_RECORD_BYTES;
    const KEY_BYTES: usize = 8;

    #[inline]
    fn decode_record(bytes: &[u8]) -> Extent {
        let mut record = [0; EXTENT_RECORD_BYTES];
        record.copy_from_slice(bytes);
        Extent::decode(&record)
    }
    #[inline]
    fn encode_record(record: &Extent, out: &mut [u8]) {
        out.copy_from_slice(&record.encode());
    }
    #[inline]
    fn decode_key(bytes: &[u8]) -> u64 {
        u64_at(bytes, 0)
    }
    #[inline]
    fn encode_key(key: &u64, out: &mut [u8]) {
        out[..8].copy_from_slice(&key.to_be_bytes());
    }
    #[inline]
    fn key(record: &Extent) -> u64 {
        record.file_block.0
    }
    fn is_sane(geometry: &Geometry, _: AgNumber, record: &Extent) -> bool {
        record.verify(geometry).is_ok()
    }
}
