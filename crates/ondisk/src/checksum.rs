//! CRC-32C as XFS stores it: little-endian, over the whole structure with the CRC field taken as zero.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C of the parts, one behind the other.
pub fn crc32c<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    parts.into_iter().for_each(|part| digest.update(part));
    digest.finalize() as u32
}

/// The checksum of `bytes` with the four bytes at `crc_offset` taken as zero.
///
/// # Panics
/// If the CRC field does not lie within `bytes`; callers pass a structure of known size.
pub fn checksum(bytes: &[u8], crc_offset: usize) -> u32 {
    crc32c([&bytes[..crc_offset], &[0; 4], &bytes[crc_offset + 4..]])
}

/// Whether the checksum stored at `crc_offset` is the right one for `bytes`.
pub fn checksum_matches(bytes: &[u8], crc_offset: usize) -> bool {
    bytes.get(crc_offset..crc_offset + 4).is_some_and(|stored| stored == checksum(bytes, crc_offset).to_le_bytes())
}

/// Stores the checksum of `bytes` at `crc_offset`.
pub fn set_checksum(bytes: &mut [u8], crc_offset: usize) {
    let crc = checksum(bytes, crc_offset);
    bytes[crc_offset..crc_offset + 4].copy_from_slice(&crc.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the definition: the polynomial 0x1edc6f41, bits from the lowest on, all ones before and after.
    fn bit_by_bit(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0u32, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
        })
    }

    #[test]
    fn a_sum_is_that_of_the_definition_at_all_lengths_places_and_cuts() {
        let bytes: Vec<u8> = (0..5000u32).map(|i| ((i * i / 7) ^ (i >> 3)) as u8).collect();
        assert_eq!(crc32c([b"123456789".as_slice()]), 0xe306_9283);
        assert_eq!(crc32c([]), 0);
        for length in (0..700).chain([1023, 3996, 4040, 4096, 4999]) {
            let start = length % 19 % (5000 - length);
            let bytes = &bytes[start..start + length];
            let wanted = bit_by_bit(bytes);
            assert_eq!(crc32c([bytes]), wanted, "{length} bytes");
            let (first, rest) = bytes.split_at(length / 3);
            let (second, third) = rest.split_at(rest.len().min(4));
            assert_eq!(crc32c([first, second, third]), wanted, "{length} bytes in parts");
        }
    }

    #[test]
    fn a_checksum_is_found_again_and_notices_a_flipped_bit() {
        let mut block = [7u8; 128];
        set_checksum(&mut block, 20);
        assert!(checksum_matches(&block, 20));
        block[127] ^= 1;
        assert!(!checksum_matches(&block, 20));
    }
}
