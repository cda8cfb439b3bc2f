//! Buffers as the journal carries them: for each run a format with a bit map, then the dirty chunks.
//!
//! A copy contains everything that is dirty since the last write-back. While the set of dirty chunks stays the same, a
//! commit copies the chunks that its transaction touched, and nothing else.

use crate::buffer::{Buffer, BufferKey, BufferKind, DiskRun};
use crate::item::{DirtyBits, LogVector};
use crate::journal::Batch;
use smallvec::{SmallVec, smallvec};
use std::ops::Range;
use std::sync::Arc;
use xfskit_ondisk::BASIC_BLOCK_BYTES;
use xfskit_ondisk::log_record::buffer_flags;
use xfskit_ondisk::logged::buffer::{BufferFormat, CHUNK_BYTES, FORMAT_BYTES, buffer_type};

/// Logs that a buffer's blocks were freed.
pub(super) fn log_cancel(batch: &mut Batch<'_>, buffer: &Arc<Buffer>, kind: &BufferKind) {
    let runs = buffer.key().runs();
    let mut copy = LogVector::default();
    for run in runs {
        push_format(&mut copy, run, flags_of(kind) | buffer_flags::CANCEL, 1, &[]);
    }
    batch.log_cancel(buffer, copy, runs.iter().map(|run| run.address));
}

/// Logs the chunks of a buffer that changed, and those that earlier transactions changed since the last write-back.
#[inline]
pub(super) fn log_contents(
    batch: &mut Batch<'_>,
    buffer: &Arc<Buffer>,
    kind: &BufferKind,
    bytes: &[u8],
    changed: &DirtyBits,
) {
    let (key, flags) = (buffer.key(), flags_of(kind));
    batch.log_buffer(buffer, |inner, again| {
        let grew = inner.dirty.merge(changed);
        let (all, copy) = inner.dirty_and_copy_mut();
        if again && !grew && !copy.is_empty() && key.runs().len() == 1 {
            patch(flags, bytes, all, changed, copy);
        } else {
            copy.clear();
            format(key, flags, bytes, all, copy);
        }
    });
}

fn flags_of(kind: &BufferKind) -> u16 {
    let inodes = if kind.log_type == buffer_type::INODES { buffer_flags::INODES } else { 0 };
    kind.log_type << buffer_flags::TYPE_SHIFT | inodes
}

/// Makes a copy of the dirty chunks, one item for each of the buffer's runs.
fn format(key: &BufferKey, flags: u16, bytes: &[u8], dirty: &DirtyBits, copy: &mut LogVector) {
    let formats = key.runs().len() * (FORMAT_BYTES + bytes.len() / CHUNK_BYTES / 8 + 4);
    copy.reserve(dirty.count() * CHUNK_BYTES + formats);
    let mut start = 0;
    for run in key.runs() {
        let length = run.basic_blocks as usize * BASIC_BLOCK_BYTES;
        let chunks = start / CHUNK_BYTES..(start + length) / CHUNK_BYTES;
        let mut map: SmallVec<[u32; 4]> = smallvec![0; chunks.len().div_ceil(32)];
        let mut regions = 0;
        for range in dirty.runs(chunks.clone()) {
            regions += 1;
            for bit in range.start - chunks.start..range.end - chunks.start {
                map[bit / 32] |= 1 << (bit % 32);
            }
        }
        if regions > 0 {
            push_format(copy, run, flags, 1 + regions, &map);
            for range in dirty.runs(chunks) {
                copy.push(&bytes[range.start * CHUNK_BYTES..range.end * CHUNK_BYTES]);
            }
        }
        start += length;
    }
}

/// Brings the copy of a buffer in one run up to date. The copy contains the same chunks already.
fn patch(flags: u16, bytes: &[u8], all: &DirtyBits, changed: &DirtyBits, copy: &mut LogVector) {
    let chunks = bytes.len() / CHUNK_BYTES;
    let first = FORMAT_BYTES + 4 * chunks.div_ceil(32);
    let out = copy.bytes_mut();
    // The block may have become another kind of structure.
    BufferFormat::patch_flags(out, flags);
    for Range { start, end } in changed.runs(0..chunks) {
        let at = first + all.count_below(start) * CHUNK_BYTES;
        let bytes = &bytes[start * CHUNK_BYTES..end * CHUNK_BYTES];
        out[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

fn push_format(copy: &mut LogVector, run: &DiskRun, flags: u16, regions: u16, map: &[u32]) {
    let format = BufferFormat { address: run.address, basic_blocks: run.basic_blocks as u16, flags, regions };
    copy.push_with(FORMAT_BYTES + 4 * map.len(), |out| format.encode(map, out));
}
