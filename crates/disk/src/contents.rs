//! What a disk, a partition or a volume contains, by its signature.
//!
//! Only names, labels and UUIDs are read here; XFS itself is decoded by the crates that know it. Source of facts: the
//! documentation of each format, and libblkid's list of them.

use crate::bytes::{head, text, uuid_text};
use std::io;
use xfskit_device::BlockDevice;

/// What a volume contains.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Contents {
    /// The name of the format as blkid has it (`xfs`, `ext4`, `LVM2_member`, `crypto_LUKS`, `swap`), if it is known.
    pub format: Option<&'static str>,
    /// The label, if there is one.
    pub label: Option<String>,
    /// The UUID, if the format has one that is read here.
    pub uuid: Option<String>,
}

impl Contents {
    /// Whether it is an XFS filesystem.
    pub fn is_xfs(&self) -> bool {
        self.format == Some(XFS)
    }
}

/// The name of XFS.
pub const XFS: &str = "xfs";
/// The name of a physical volume of LVM2.
pub const LVM_MEMBER: &str = "LVM2_member";

/// A format: its name, its signature's offset and bytes, and where its label and its UUID are.
struct Format {
    name: &'static str,
    offset: usize,
    magic: &'static [u8],
    label: Option<(usize, usize)>,
    uuid: Option<usize>,
}

const fn plain(name: &'static str, offset: usize, magic: &'static [u8]) -> Format {
    Format { name, offset, magic, label: None, uuid: None }
}

const EXT_LABEL: Option<(usize, usize)> = Some((1024 + 120, 16));
const BTRFS: usize = 0x10000;

/// The formats, in the order in which they are looked for.
const FORMATS: [Format; 22] = [
    Format { name: XFS, offset: 0, magic: b"XFSB", label: Some((108, 12)), uuid: Some(32) },
    plain("xfs_external_log", 0, b"\xfe\xed\xba\xbe"),
    plain("crypto_LUKS", 0, b"LUKS\xba\xbe"),
    plain(LVM_MEMBER, 24, b"LVM2 001"),
    plain(LVM_MEMBER, 512 + 24, b"LVM2 001"),
    plain(LVM_MEMBER, 1024 + 24, b"LVM2 001"),
    plain(LVM_MEMBER, 1536 + 24, b"LVM2 001"),
    plain("ntfs", 3, b"NTFS    "),
    plain("exfat", 3, b"EXFAT   "),
    plain("BitLocker", 3, b"-FVE-FS-"),
    plain("vfat", 82, b"FAT32   "),
    plain("vfat", 54, b"FAT16   "),
    plain("vfat", 54, b"FAT12   "),
    plain("squashfs", 0, b"hsqs"),
    plain("erofs", 1024, b"\xe2\xe1\xf5\xe0"),
    Format { name: "swap", offset: 4086, magic: b"SWAPSPACE2", label: Some((1052, 16)), uuid: Some(1036) },
    Format { name: "f2fs", offset: 1024, magic: b"\x10\x20\xf5\xf2", label: None, uuid: Some(1024 + 108) },
    plain("linux_raid_member", 4096, b"\xfc\x4e\x2b\xa9"),
    plain("bcachefs", 4096 + 24, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"),
    plain("iso9660", 0x8001, b"CD001"),
    Format {
        name: "btrfs",
        offset: BTRFS + 64,
        magic: b"_BHRfS_M",
        label: Some((BTRFS + 299, 256)),
        uuid: Some(BTRFS + 32),
    },
    // Its signature is two bytes long, so it is looked for last.
    Format { name: "ext4", offset: 1024 + 56, magic: b"\x53\xef", label: EXT_LABEL, uuid: Some(1024 + 104) },
];

/// Bytes in which every signature, label and UUID of [`FORMATS`] lies.
const HEAD_BYTES: usize = BTRFS + 1024;

/// What a device contains.
///
/// # Errors
/// Any I/O error.
pub fn contents(device: &dyn BlockDevice) -> io::Result<Contents> {
    let head = head(device, 0, HEAD_BYTES)?;
    let at = |offset: usize, length: usize| head.get(offset..offset + length);
    let Some(format) = FORMATS.iter().find(|format| at(format.offset, format.magic.len()) == Some(format.magic)) else {
        return Ok(Contents::default());
    };
    let name = if format.name == "ext4" { ext_name(&head) } else { format.name };
    Ok(Contents {
        format: Some(name),
        label: format.label.and_then(|(offset, length)| Some(text(at(offset, length)?))).filter(|l| !l.is_empty()),
        uuid: format.uuid.and_then(|offset| uuid_text(at(offset, 16)?)),
    })
}

/// ext2, ext3 or ext4, by the features of a superblock.
fn ext_name(head: &[u8]) -> &'static str {
    const COMPATIBLE: usize = 1024 + 92;
    const INCOMPATIBLE: usize = 1024 + 96;
    const HAS_JOURNAL: u32 = 4;
    const EXTENTS_64BIT_FLEX_BG: u32 = 0x40 | 0x80 | 0x200;
    let word = |offset: usize| head.get(offset..offset + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    if word(INCOMPATIBLE) & EXTENTS_64BIT_FLEX_BG != 0 {
        "ext4"
    } else if word(COMPATIBLE) & HAS_JOURNAL != 0 {
        "ext3"
    } else {
        "ext2"
    }
}
