//! Looks for a format or for data on a device, so that a caller can ask before these are lost.

use std::io;
use xfskit_device::BlockDevice;

/// The name of an XFS image in messages.
pub const XFS: &str = "an XFS image";
/// The name of a disk with an MBR. The table leaves the rest of the disk as it is, which may be an XFS image.
pub const MBR: &str = "an MBR partition table";
/// The name of a tar archive.
pub const TAR: &str = "a tar archive";

/// Signatures: their offset, their bytes, and the format that they belong to.
const SIGNATURES: [(usize, &[u8], &str); 12] = [
    (0, b"XFSB", XFS),
    (0x438, &[0x53, 0xef], "an ext2, ext3 or ext4 image"),
    (0x10040, b"_BHRfS_M", "a btrfs image"),
    (0x1018, b"F2FS", "an f2fs image"),
    (0, b"hsqs", "a squashfs image"),
    (3, b"NTFS    ", "an NTFS image"),
    (0x52, b"FAT32", "a FAT image"),
    (0x8001, b"CD001", "an ISO 9660 image"),
    (0x218, b"LVM2", "an LVM volume"),
    (0, b"LUKS", "a LUKS volume"),
    (0x200, b"EFI PART", "a GPT partition table"),
    (0, b"QFI\xfb", "a qcow2 image"),
];

/// The format on the device, if it is a known one.
///
/// # Errors
/// Any I/O error.
pub fn existing_format(device: &dyn BlockDevice) -> io::Result<Option<&'static str>> {
    let mut head = vec![0; device.size_bytes().min(0x10048) as usize];
    device.read(0, &mut head)?;
    let holds = |offset: usize, bytes: &[u8]| head.get(offset..offset + bytes.len()) == Some(bytes);
    Ok(SIGNATURES.iter().find(|(offset, bytes, _)| holds(*offset, bytes)).map(|(_, _, name)| *name))
}

/// Signatures of disk images of virtual machines, and of partition tables.
const DISKS: [(usize, &[u8], &str); 6] = [
    (0, b"KDMV", "a VMDK image"),
    (0x40, &[0x7f, 0x10, 0xda, 0xbe], "a VDI image"),
    (0, b"vhdxfile", "a VHDX image"),
    (0, b"conectix", "a VHD image"),
    (0, b"QED\0", "a QED image"),
    (510, &[0x55, 0xaa], MBR),
];

/// The disk image format or filesystem on the device, if it is a known one.
///
/// # Errors
/// Any I/O error.
pub fn disk_format(device: &dyn BlockDevice) -> io::Result<Option<&'static str>> {
    match existing_format(device)? {
        None => find_in_first_sector(device, &DISKS),
        found => Ok(found),
    }
}

fn find_in_first_sector(
    device: &dyn BlockDevice,
    signatures: &[(usize, &[u8], &'static str)],
) -> io::Result<Option<&'static str>> {
    let mut head = vec![0; device.size_bytes().min(512) as usize];
    device.read(0, &mut head)?;
    let holds = |offset: usize, bytes: &[u8]| head.get(offset..offset + bytes.len()) == Some(bytes);
    Ok(signatures.iter().find(|(offset, bytes, _)| holds(*offset, bytes)).map(|(_, _, name)| *name))
}

/// Signatures of formats other than disk images and filesystems.
const FILES: [(usize, &[u8], &str); 7] = [
    (0, &[0x1f, 0x8b], "gzip data"),
    (0, b"\xfd7zXZ\0", "xz data"),
    (0, &[0x28, 0xb5, 0x2f, 0xfd], "zstd data"),
    (0, b"BZh", "bzip2 data"),
    (0, b"PK\x03\x04", "a zip archive"),
    (257, b"ustar", TAR),
    (0, b"\x7fELF", "a program"),
];

/// The contents of the device, whether a filesystem or something else, for a message.
///
/// # Errors
/// Any I/O error.
pub fn known_contents(device: &dyn BlockDevice) -> io::Result<Option<&'static str>> {
    if device.size_bytes() == 0 {
        return Ok(Some("nothing: it has 0 bytes"));
    }
    match disk_format(device)? {
        None => find_in_first_sector(device, &FILES),
        found => Ok(found),
    }
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
    /// A disk, which would take too long to read: its ends and some steps between them are searched.
    Disk,
}

/// The offset of a byte that is not zero, if one is found.
///
/// # Errors
/// Any I/O error.
pub fn first_data(device: &dyn BlockDevice, extent: Extent) -> io::Result<Option<u64>> {
    let size = device.size_bytes();
    if extent == Extent::File || size <= 2 * ENDS_BYTES + PARTS * STEP_BYTES {
        return find_data(device, 0, size);
    }
    let part = size / PARTS;
    let between = (1..PARTS).map(|number| (number * part, STEP_BYTES));
    for (start, length) in [(0, ENDS_BYTES), (size - ENDS_BYTES, ENDS_BYTES)].into_iter().chain(between) {
        if let Some(offset) = find_data(device, start, length)? {
            return Ok(Some(offset));
        }
    }
    Ok(None)
}

/// Halves a range until the parts are holes, which are skipped, or short enough to be read.
fn find_data(device: &dyn BlockDevice, start: u64, length: u64) -> io::Result<Option<u64>> {
    if length == 0 || !device.may_hold_data(start, length) {
        return Ok(None);
    }
    if length <= STEP_BYTES {
        let mut bytes = vec![0; length as usize];
        device.read(start, &mut bytes)?;
        return Ok(bytes.iter().position(|&byte| byte != 0).map(|at| start + at as u64));
    }
    let half = (length / 2).next_multiple_of(STEP_BYTES);
    match find_data(device, start, half)? {
        None => find_data(device, start + half, length - half),
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
