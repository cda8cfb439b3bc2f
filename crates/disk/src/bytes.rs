//! Reads numbers and texts out of bytes that nothing has checked yet.

use std::io;
use xfskit_device::BlockDevice;

/// The bytes of a device from `offset`, `length` of them or as many as there are; none behind its end.
pub(crate) fn head(device: &dyn BlockDevice, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let there = device.size_bytes().saturating_sub(offset).min(length as u64) as usize;
    let mut bytes = vec![0; there];
    if there > 0 {
        device.read(offset, &mut bytes)?;
    }
    Ok(bytes)
}

/// The little-endian number at `offset`; 0 past the end, where the caller has checked the length before.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes.get(offset..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u32::from_le_bytes(*chunk))
}

/// As [`u32_at`], of a big-endian number.
pub(crate) fn be_u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32_at(bytes, offset).swap_bytes()
}

/// As [`u32_at`], of 8 bytes.
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    bytes.get(offset..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

/// A text that ends at its first zero byte. Control characters are replaced, since it is shown on a terminal.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    printable(&String::from_utf8_lossy(&bytes[..end]))
}

/// A text without control characters.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// A UUID in the order of RFC 4122; none for 16 zeros.
pub(crate) fn uuid_text(bytes: &[u8]) -> Option<String> {
    let uuid = uuid::Uuid::from_slice(bytes).ok()?;
    (!uuid.is_nil()).then(|| uuid.to_string())
}

/// A UUID as GPT stores it, its first three fields in little-endian order.
pub(crate) fn guid_text(bytes: &[u8]) -> Option<String> {
    let bytes: [u8; 16] = bytes.try_into().ok()?;
    let uuid = uuid::Uuid::from_bytes_le(bytes);
    (!uuid.is_nil()).then(|| uuid.to_string())
}

/// The reflected CRC-32 with the polynomial of IEEE 802.3, without the final inversion.
pub(crate) fn crc32_raw(initial: u32, bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let mut value = byte as u32;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 { value >> 1 ^ 0xedb8_8320 } else { value >> 1 };
                bit += 1;
            }
            table[byte] = value;
            byte += 1;
        }
        table
    };
    bytes.iter().fold(initial, |crc, byte| crc >> 8 ^ TABLE[usize::from(crc as u8 ^ byte)])
}

/// The CRC-32 of GPT.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    !crc32_raw(!0, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_catalogue() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
