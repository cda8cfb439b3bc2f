//! What a device contains, by its signature: the one table of the formats that are told apart.
//!
//! | function | looks for |
//! |---|---|
//! | [`existing_format`] | what is lost where an image is made: filesystems, volumes, partition tables |
//! | [`disk_format`] | these, and disks of virtual machines |
//! | [`known_contents`] | these, archives and packed data, for a message |

mod kind;
mod signatures;

pub use kind::Kind;
pub use signatures::holds_kind;

use crate::BlockDevice;
use signatures::{DISKS, FILES, HEAD_BYTES, Signature, TAIL_BYTES, ZFS_LABEL_BYTES};
use std::io;

/// The longest record of a journal and its header, so that one begins within that.
const LOG_BYTES: u64 = 264 << 10;
const SECTOR_BYTES: usize = 512;

/// The format on the device, if it is a known one: a filesystem, a volume, a partition table that cannot stand before
/// a filesystem.
///
/// # Errors
/// Any I/O error.
pub fn existing_format(device: &dyn BlockDevice) -> io::Result<Option<Kind>> {
    match head_format(device)? {
        None => rest_format(device),
        found => Ok(found),
    }
}

/// The format by what the device begins with.
fn head_format(device: &dyn BlockDevice) -> io::Result<Option<Kind>> {
    Ok(signatures::of_head(&read(device, 0, HEAD_BYTES.min(device.size_bytes()))?))
}

/// The format by what the device has elsewhere.
fn rest_format(device: &dyn BlockDevice) -> io::Result<Option<Kind>> {
    let size = device.size_bytes();
    // A journal has records everywhere, but may begin with a part of one.
    let log = read(device, 0, LOG_BYTES.min(size))?;
    if log.chunks(SECTOR_BYTES).any(signatures::is_log_record) {
        return Ok(Some(Kind::XfsLog));
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
            return Ok(Some(Kind::Zfs));
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
pub fn disk_format(device: &dyn BlockDevice) -> io::Result<Option<Kind>> {
    match existing_format(device)? {
        None => find_in_first_sector(device, DISKS),
        found => Ok(found),
    }
}

fn find_in_first_sector(device: &dyn BlockDevice, known: &[Signature]) -> io::Result<Option<Kind>> {
    Ok(signatures::find(&read(device, 0, device.size_bytes().min(512))?, known))
}

/// The contents of the device, whether a filesystem or something else, for a message.
///
/// # Errors
/// Any I/O error.
pub fn known_contents(device: &dyn BlockDevice) -> io::Result<Option<Kind>> {
    if device.size_bytes() == 0 {
        return Ok(Some(Kind::Empty));
    }
    // What is known by its beginning is reported without a look at other places.
    let head = head_format(device)?;
    let head = if head.is_some() { head } else { find_in_first_sector(device, DISKS)? };
    let head = if head.is_some() { head } else { find_in_first_sector(device, FILES)? };
    if head.is_some() { Ok(head) } else { rest_format(device) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn a_known_format_is_named_and_zeros_are_not() {
        let device = MemoryDevice::new(1 << 20);
        assert_eq!(existing_format(&device).unwrap(), None);
        device.write(0x438, &[0x53, 0xef]).unwrap();
        assert!(existing_format(&device).unwrap() == Some(Kind::Ext));
        assert_eq!(existing_format(&MemoryDevice::new(16)).unwrap(), None);
    }

    #[test]
    fn a_zfs_label_is_found_at_both_ends() {
        // The last two labels are at the end of the whole ones that fit.
        for label in [0, 1, 14, 15] {
            let device = MemoryDevice::new((4 << 20) + 4096);
            assert_eq!(existing_format(&device).unwrap(), None);
            device.write(label * (256 << 10) + (128 << 10) + 3072, &0x00ba_b10c_u64.to_le_bytes()).unwrap();
            assert!(existing_format(&device).unwrap() == Some(Kind::Zfs), "label {label}");
        }
    }
}
