//! Names and numbers that depend only on their position in the workload.

/// Bytes of a name, as fs_mark makes them.
pub(crate) const NAME_BYTES: usize = 40;

/// A name of 40 bytes: 16 that grow like a time stamp, 24 at random.
pub(crate) fn file_name(thread: usize, n: usize) -> [u8; NAME_BYTES] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut name = [0; NAME_BYTES];
    let stamp = ((n as u64) << 8 | thread as u64 & 0xff) + 0x6920_0000_0000;
    for (place, byte) in name[..16].iter_mut().enumerate() {
        *byte = DIGITS[(stamp >> (60 - 4 * place) & 15) as usize];
    }
    for (half, bytes) in name[16..].chunks_mut(12).enumerate() {
        let mut bits = mix((thread as u64) << 40 ^ (n as u64) << 1 ^ half as u64);
        for byte in bytes {
            *byte = LETTERS[(bits & 31) as usize];
            bits >>= 5;
        }
    }
    name
}

/// The low byte of the number of a name's thread; `None` for another name.
pub(crate) fn thread_of(name: &[u8]) -> Option<usize> {
    let digits = std::str::from_utf8(name.get(14..16)?).ok()?;
    usize::from_str_radix(digits, 16).ok().filter(|_| name.len() == NAME_BYTES)
}

/// A number that looks random: the finishing step of splitmix64.
pub(crate) fn mix(n: u64) -> u64 {
    let mut z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_thread() {
        assert_eq!([0, 7, 0xfe].map(|thread| thread_of(&file_name(thread, 12_345))), [Some(0), Some(7), Some(0xfe)]);
        assert_eq!((thread_of(b"listed0"), thread_of(b"")), (None, None));
    }

    #[test]
    fn names_differ() {
        let names: std::collections::HashSet<_> =
            (0..4).flat_map(|thread| (0..1000).map(move |n| file_name(thread, n))).collect();
        assert_eq!(names.len(), 4000);
    }
}
