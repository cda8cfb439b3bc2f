//! Looks for data on a device, so that a caller can ask before they are lost.

use std::io;
use xfskit_device::BlockDevice;

/// Bytes that are read at once in the search for data.
const STEP_BYTES: u64 = 1 << 20;
/// Bytes that are searched at each end of a disk. Between them the disk is divided into [`PARTS`] parts, of each of
/// which one step is searched.
const ENDS_BYTES: u64 = 64 << 20;
const PARTS: u64 = 64;

/// What kind of storage a device is, which decides how much of it is searched for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// A file, which is searched as a whole.
    File,
    /// A virtual disk of so many bytes on its host, however large it says that it is. So much is read of what it says
    /// that it has: its tables may lead everywhere to the same bytes.
    Virtual(u64),
    /// A disk, which would take too long to read: its ends and some steps between them are searched.
    Disk,
}

/// The offset of a byte that is not zero, if one is found.
///
/// # Errors
/// Any I/O error.
pub fn first_data(device: &dyn BlockDevice, extent: Extent) -> io::Result<Option<u64>> {
    let size = device.size_bytes();
    let most_bytes = match extent {
        Extent::Virtual(most_bytes) => Some(most_bytes.max(2 * ENDS_BYTES)),
        _ if extent == Extent::File || size <= 2 * ENDS_BYTES + PARTS * STEP_BYTES => Some(u64::MAX),
        _ => None,
    };
    if let Some(mut left) = most_bytes {
        return find_data(device, 0, size, &mut left);
    }
    let part = size / PARTS;
    let between = (1..PARTS).map(|number| (number * part, STEP_BYTES));
    for (start, length) in [(0, ENDS_BYTES), (size - ENDS_BYTES, ENDS_BYTES)].into_iter().chain(between) {
        if let Some(offset) = find_data(device, start, length, &mut { u64::MAX })? {
            return Ok(Some(offset));
        }
    }
    Ok(None)
}

/// Halves a range until the parts are holes, which are skipped, or short enough to be read, as long as bytes are left
/// that may be read.
fn find_data(device: &dyn BlockDevice, start: u64, length: u64, left: &mut u64) -> io::Result<Option<u64>> {
    if length == 0 || *left == 0 || !device.may_hold_data(start, length) {
        return Ok(None);
    }
    if length <= STEP_BYTES {
        *left = left.saturating_sub(length);
        let mut bytes = vec![0; length as usize];
        device.read(start, &mut bytes)?;
        return Ok(bytes.iter().position(|&byte| byte != 0).map(|at| start + at as u64));
    }
    let half = (length / 2).next_multiple_of(STEP_BYTES);
    match find_data(device, start, half, left)? {
        None => find_data(device, start + half, length - half, left),
        found => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xfskit_device::MemoryDevice;

    #[test]
    fn a_byte_anywhere_is_found() {
        for offset in [0, 1, (1 << 20) - 1, 1 << 20, 5_000_001, (9 << 20) + 6] {
            let device = MemoryDevice::new((9 << 20) + 7);
            assert_eq!(first_data(&device, Extent::File).unwrap(), None);
            device.write(offset, &[1]).unwrap();
            assert_eq!(first_data(&device, Extent::File).unwrap(), Some(offset));
        }
        let disk = MemoryDevice::new(256 << 20);
        assert_eq!(first_data(&disk, Extent::Disk).unwrap(), None);
        disk.write((256 << 20) - 1, &[1]).unwrap();
        assert_eq!(first_data(&disk, Extent::Disk).unwrap(), Some((256 << 20) - 1));
    }
}
