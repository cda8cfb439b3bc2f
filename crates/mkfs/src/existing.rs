//! Looks for a format or for data on a device, so that a caller can ask before these are lost.

use crate::signatures::{self, DISKS, FILES, HEAD_BYTES, Signature, TAIL_BYTES, ZFS, ZFS_LABEL_BYTES};
use std::io;
use xfskit_device::BlockDevice;

/// The longest record of a journal and its header, so that one begins within that.
const LOG_BYTES: u64 = 264 << 10;
const SECTOR_BYTES: usize = 512;

/// The format on the device, if it is a known one: a filesystem, a volume, a partition table that cannot stand before
/// a filesystem.
///
/// # Errors
/// Any I/O error.
pub fn existing_format(device: &dyn BlockDevice) -> io::Result<Option<&'static str>> {
    match head_format(device)? {
        None => rest_format(device),
        found => Ok(found),
    }
}

/// The format by what the device begins with.
fn head_format(device: &dyn BlockDevice) -> io::Result<Option<&'static str>> {
    Ok(signatures::of_head(&read(device, 0, HEAD_BYTES.min(device.size_bytes()))?))
}

/// The format by what the device has elsewhere.
fn rest_format(device: &dyn BlockDevice) -> io::Result<Option<&'static str>> {
    let size = device.size_bytes();
    // A journal has records everywhere, but may begin with a part of one.
    let log = read(device, 0, LOG_BYTES.min(size))?;
    if log.chunks(SECTOR_BYTES).any(signatures::is_log_record) {
        return Ok(Some(signatures::EXTERNAL_LOG));
    }
    let tail_bytes = TAIL_BYTES.min(size);
    if let Some(name) = signatures::of_tail(size, &read(device, size - tail_bytes, tail_bytes)?) {
        return Ok(Some(name));
    }
    let labels = size / ZFS_LABEL_BYTES;
    for number in [0, 1, labels.saturating_sub(2), labels.saturating_sub(1)].into_iter().filter(|&n| n < labels) {
        // The uberblocks are the second half.
        let (start, length) = (number * ZFS_LABEL_BYTES + ZFS_LABEL_BYTES / 2, ZFS_LABEL_BYTES / 2);
        if device.may_hold_data(start, length) && signatures::has_zfs_uberblock(&read(device, start, length)?) {
            return Ok(Some(ZFS));
        }
    }
    Ok(None)
}

fn read(device: &dyn BlockDevice, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length as usize];
    device.read(offset, &mut bytes)?;
    Ok(bytes)
}

/// The disk image format or filesystem on the device, if it is a known one.
///
/// # Errors
/// Any I/O error.
pub fn disk_format(device: &dyn BlockDevice) -> io::Result<Option<&'static str>> {
    match existing_format(device)? {
        None => find_in_first_sector(device, DISKS),
        found => Ok(found),
    }
}

fn find_in_first_sector(device: &dyn BlockDevice, known: &[Signature]) -> io::Result<Option<&'static str>> {
    Ok(signatures::find(&read(device, 0, device.size_bytes().min(512))?, known))
}

/// The contents of the device, whether a filesystem or something else, for a message.
///
/// # Errors
/// Any I/O error.
pub fn known_contents(device: &dyn BlockDevice) -> io::Result<Option<&'static str>> {
    if device.size_bytes() == 0 {
        return Ok(Some("nothing: it has 0 bytes"));
    }
    // What is known by its beginning is reported without a look at other places.
    let head = head_format(device)?;
    let head = if head.is_some() { head } else { find_in_first_sector(device, DISKS)? };
    let head = if head.is_some() { head } else { find_in_first_sector(device, FILES)? };
    if head.is_some() { Ok(head) } else { rest_format(device) }
}

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
    fn a_known_format_is_named_and_zeros_are_not() {
        let device = MemoryDevice::new(1 << 20);
        assert_eq!(existing_format(&device).unwrap(), None);
        device.write(0x438, &[0x53, 0xef]).unwrap();
        assert!(existing_format(&device).unwrap().unwrap().contains("ext4"));
        assert_eq!(existing_format(&MemoryDevice::new(16)).unwrap(), None);
    }

    #[test]
    fn a_zfs_label_is_found_at_both_ends() {
        // The last two labels are at the end of the whole ones that fit.
        for label in [0, 1, 14, 15] {
            let device = MemoryDevice::new((4 << 20) + 4096);
            assert_eq!(existing_format(&device).unwrap(), None);
            device.write(label * (256 << 10) + (128 << 10) + 3072, &0x00ba_b10c_u64.to_le_bytes()).unwrap();
            assert!(existing_format(&device).unwrap().unwrap().contains("ZFS"), "label {label}");
        }
    }

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
