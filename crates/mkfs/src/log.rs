//! The empty log: one record that says that the filesystem was unmounted, and zeros.
//!
//! ```text
//! header (512 bytes)   one more per 32 KiB of a longer record   op header + unmount record, then zeros
//! ```
//! The record is as long as the log stripe unit, at least two sectors. Its cycle is 1, at block 0, and it is its own
//! tail: the log is clean and everything behind it is zero, which is how recovery finds the head.
//!
//! Facts: the XFS Algorithms & Data Structures document, "Journaling Log"; the kernel's `struct xlog_rec_header`.

use xfskit_ondisk::{BASIC_BLOCK_BYTES, Lsn};

const RECORD_MAGIC: u32 = 0xfeed_babe;
const CYCLE: u32 = 1;
/// Bytes of a record that one header describes.
const HEADER_COVERS: usize = 32 * 1024;
/// Written by a little-endian machine.
const FORMAT_LINUX_LITTLE_ENDIAN: u32 = 1;
const UNMOUNT_TRANSACTION: u32 = 0xb0c0_d0d0;
const CLIENT_LOG: u8 = 0xaa;
const OP_UNMOUNT: u8 = 0x20;
const UNMOUNT_MAGIC: u16 = 0x556e;

/// The first bytes of a clean log.
pub(crate) fn encode_clean_log(uuid: &[u8; 16], stripe_unit_bytes: usize) -> Vec<u8> {
    let headers = stripe_unit_bytes.div_ceil(HEADER_COVERS).max(1);
    let length = stripe_unit_bytes.max((headers + 1) * BASIC_BLOCK_BYTES);
    let mut record = vec![0; length];
    // Every sector but the record header starts with the cycle. The header stores the words that the cycle replaces.
    for sector in record.chunks_exact_mut(BASIC_BLOCK_BYTES).skip(1) {
        sector[..4].copy_from_slice(&CYCLE.to_be_bytes());
    }
    let op = &mut record[headers * BASIC_BLOCK_BYTES..];
    op[4..8].copy_from_slice(&8u32.to_be_bytes());
    op[8] = CLIENT_LOG;
    op[9] = OP_UNMOUNT;
    op[12..14].copy_from_slice(&UNMOUNT_MAGIC.to_le_bytes());

    let lsn = Lsn::new(CYCLE, 0).0.to_be_bytes();
    let mut put = |offset: usize, bytes: &[u8]| record[offset..offset + bytes.len()].copy_from_slice(bytes);
    put(0, &RECORD_MAGIC.to_be_bytes());
    put(4, &CYCLE.to_be_bytes());
    put(8, &2u32.to_be_bytes());
    put(12, &((length - headers * BASIC_BLOCK_BYTES) as u32).to_be_bytes());
    put(16, &lsn);
    put(24, &lsn);
    put(36, &u32::MAX.to_be_bytes());
    put(40, &1u32.to_be_bytes());
    put(44, &UNMOUNT_TRANSACTION.to_be_bytes());
    put(300, &FORMAT_LINUX_LITTLE_ENDIAN.to_be_bytes());
    put(304, uuid);
    put(320, &(stripe_unit_bytes.max(HEADER_COVERS) as u32).to_be_bytes());
    record
}
