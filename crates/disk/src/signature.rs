//! The signatures of virtual disks, and what opens the files of one.

use crate::bytes::head;
use std::path::Path;
use xfskit_device::{Access, BlockDevice, FileDevice, OpenError};

/// Formats that are refused: their signature's offset (from the end, where it is negative) and bytes, their name, and
/// QEMU's name for them.
const REFUSED: [(i64, &[u8], &str, &str); 10] = [
    (0, b"KDMV", "a sparse or stream-optimised VMDK image", "vmdk"),
    (0, b"COWD", "a VMDK image of version 3", "vmdk"),
    (0x40, &[0x7f, 0x10, 0xda, 0xbe], "a VDI image", "vdi"),
    (0, b"vhdxfile", "a VHDX image", "vhdx"),
    (0, b"conectix", "a VHD image", "vpc"),
    (-512, b"conectix", "a VHD image", "vpc"),
    (0, b"QED\0", "a QED image", "qed"),
    (0, b"WithoutFreeSpace", "a Parallels image", "parallels"),
    (0, b"WithouFreSpacExt", "a Parallels image", "parallels"),
    (-512, b"koly", "an Apple disk image", "dmg"),
];

/// A format of [`REFUSED`] whose signature is there: its name, and QEMU's.
pub(crate) fn refused_format(first: &[u8], last: &[u8]) -> Option<(&'static str, &'static str)> {
    let found = |(at, magic, _, _): &&(i64, &[u8], &'static str, &'static str)| match usize::try_from(*at) {
        Ok(at) => first.get(at..at + magic.len()) == Some(*magic),
        Err(_) => last.starts_with(magic),
    };
    REFUSED.iter().find(found).map(|(_, _, what, format)| (*what, *format))
}

/// The first and the last sector of a device, as far as they are there and can be read.
pub(crate) fn ends(device: &dyn BlockDevice) -> (Vec<u8>, Vec<u8>) {
    // An unreadable sector says nothing of the format: who reads the contents reports it.
    let first = head(device, 0, SIGNATURE_BYTES).unwrap_or_default();
    let last = device.size_bytes().checked_sub(512).and_then(|offset| head(device, offset, 512).ok());
    (first, last.unwrap_or_default())
}

/// What opens a file or block device, with its locks.
pub type Opener<'a> = &'a dyn Fn(&Path, Access) -> Result<FileDevice, OpenError>;

/// The signature of qcow and qcow2.
pub(crate) const QCOW2: &[u8] = b"QFI\xfb";
/// How a descriptor begins.
pub(crate) const VMDK: &[u8] = b"# Disk DescriptorFile";

/// How metadumps of both versions begin.
pub(crate) const METADUMPS: [&[u8]; 2] = [b"XFSM", b"XMD2"];

/// How much of a file is read to find its signature.
pub(crate) const SIGNATURE_BYTES: usize = 512;

/// The formats of their own that are handled here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signature {
    Qcow2,
    Vmdk,
    Metadump,
    Other,
}

impl Signature {
    /// That of the first bytes of a file.
    pub(crate) fn of(first: &[u8]) -> Self {
        match first {
            _ if first.starts_with(QCOW2) => Self::Qcow2,
            _ if first.starts_with(VMDK) => Self::Vmdk,
            _ if METADUMPS.iter().any(|signature| first.starts_with(signature)) => Self::Metadump,
            _ => Self::Other,
        }
    }

    /// That of a file. One that cannot be read has none: who reads its contents reports it.
    pub(crate) fn read(file: &FileDevice) -> Self {
        Self::of(&head(file, 0, SIGNATURE_BYTES).unwrap_or_default())
    }
}
