//! CRC-32C as XFS stores it: little-endian, over the whole structure with the CRC field taken as zero.

/// The checksum of `bytes` with the four bytes at `crc_offset` taken as zero.
///
/// # Panics
/// If the CRC field does not lie within `bytes`; callers pass a structure of known size.
pub fn checksum(bytes: &[u8], crc_offset: usize) -> u32 {
    let crc = crc32c::crc32c(&bytes[..crc_offset]);
    let crc = crc32c::crc32c_append(crc, &[0; 4]);
    crc32c::crc32c_append(crc, &bytes[crc_offset + 4..])
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

    #[test]
    fn a_checksum_is_found_again_and_notices_a_flipped_bit() {
        let mut block = [7u8; 128];
        set_checksum(&mut block, 20);
        assert!(checksum_matches(&block, 20));
        block[127] ^= 1;
        assert!(!checksum_matches(&block, 20));
    }
}
