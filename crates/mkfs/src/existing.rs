//! Whether a device holds something already, so that a caller can ask before it is lost.

use std::io;
use xfskit_device::BlockDevice;

/// A signature: its offset, its bytes, and whose it is.
const SIGNATURES: [(usize, &[u8], &str); 12] = [
    (0, b"XFSB", "an XFS image"),
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

/// What the device holds, if that is something known.
///
/// # Errors
/// Any I/O error.
pub fn existing_format(device: &dyn BlockDevice) -> io::Result<Option<&'static str>> {
    let mut head = vec![0; device.size_bytes().min(0x10048) as usize];
    device.read(0, &mut head)?;
    let holds = |offset: usize, bytes: &[u8]| head.get(offset..offset + bytes.len()) == Some(bytes);
    Ok(SIGNATURES.iter().find(|(offset, bytes, _)| holds(*offset, bytes)).map(|(_, _, name)| *name))
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
}
