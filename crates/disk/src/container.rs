//! What a file is made of: a disk as it is, or a virtual disk in a format of its own.
//!
//! ```text
//! raw, block device   the device itself
//! qcow2               read and written, see `qcow2`
//! vmdk                a descriptor with flat extents: read; other kinds are refused
//! vdi, vhdx, vhd, qed, parallels, qcow (1), sparse vmdk   refused, with the command that makes a block device of it
//! ```

use crate::bytes::head;
use crate::error::{DiskError, attach};
use crate::qcow2::{MAGIC, Qcow2Device};
use crate::vmdk::{self, VmdkDevice};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xfskit_device::{Access, BlockDevice, FileDevice, Holder, OpenError};

/// The format of a file that contains a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The bytes of the disk, one after the other.
    Raw,
    /// QEMU's format.
    Qcow2,
    /// VMware's format: a descriptor with flat extents.
    Vmdk,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Vmdk => "vmdk",
        })
    }
}

/// An open file that contains a disk.
pub struct Container {
    /// Its name.
    pub path: PathBuf,
    /// Its format.
    pub format: Format,
    /// The files below it: backing files of qcow2, extents of vmdk.
    pub below: Vec<PathBuf>,
    /// The disk.
    pub device: Arc<dyn BlockDevice>,
    /// Those who may change it while it is read here.
    pub holders: Vec<Holder>,
}

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
fn refused_format(first: &[u8], last: &[u8]) -> Option<(&'static str, &'static str)> {
    let found = |(at, magic, _, _): &&(i64, &[u8], &'static str, &'static str)| match usize::try_from(*at) {
        Ok(at) => first.get(at..at + magic.len()) == Some(*magic),
        Err(_) => last.starts_with(magic),
    };
    REFUSED.iter().find(found).map(|(_, _, what, format)| (*what, *format))
}

/// The first and the last sector of a device, as far as they are there and can be read.
fn ends(device: &dyn BlockDevice) -> (Vec<u8>, Vec<u8>) {
    // An unreadable sector says nothing of the format: who reads the contents reports it.
    let first = head(device, 0, 512).unwrap_or_default();
    let last = device.size_bytes().checked_sub(512).and_then(|offset| head(device, offset, 512).ok());
    (first, last.unwrap_or_default())
}

/// What opens a file or block device, with its locks.
pub type Opener<'a> = &'a dyn Fn(&Path, Access) -> Result<FileDevice, OpenError>;

fn open_file(path: &Path, access: Access) -> Result<FileDevice, OpenError> {
    FileDevice::open(path, access)
}

impl Container {
    /// A disk that is not a file of this host, such as the export of a server: its bytes are those of the disk.
    ///
    /// # Errors
    /// `Refused` for an export that is itself a virtual disk in a format of its own.
    pub fn of_device(path: &Path, device: Arc<dyn BlockDevice>) -> Result<Self, DiskError> {
        let (first, last) = ends(&*device);
        let inner = match refused_format(&first, &last) {
            None if first.starts_with(MAGIC) => Some(("a qcow2 image", "qcow2")),
            None if first.starts_with(vmdk::SIGNATURE) => Some(("a VMDK image", "vmdk")),
            found => found,
        };
        let path: PathBuf = path.into();
        if let Some((what, format)) = inner {
            let advice = format!("let the server open it by its format: qemu-nbd -f {format}");
            return Err(DiskError::Refused { what: format!("the export holds {what}"), advice, path });
        }
        Ok(Self { path, format: Format::Raw, below: Vec::new(), device, holders: Vec::new() })
    }

    /// Whether a file has the signature of a format of its own that is handled here.
    ///
    /// # Errors
    /// Those of opening and reading it.
    pub fn is_virtual(path: &Path) -> Result<bool, DiskError> {
        let file = FileDevice::open(path, Access::ReadUnlocked)?;
        let first = head(&file, 0, 512).map_err(|source| DiskError::io(path, source))?;
        Ok(first.starts_with(MAGIC) || first.starts_with(vmdk::SIGNATURE))
    }

    /// Opens a file or block device, and finds out by its signature what it is.
    ///
    /// # Errors
    /// [`DiskError`]: a missing or busy file, or a format that is refused.
    pub fn open(path: &Path, access: Access) -> Result<Self, DiskError> {
        let file = FileDevice::open(path, access)?;
        if head(&file, 0, 512).is_ok_and(|first| first.starts_with(vmdk::SIGNATURE)) {
            let device = VmdkDevice::open(path, file, access)?;
            let below = device.extents().map(Path::to_path_buf).collect();
            let (path, device, holders) = (path.into(), Arc::new(device), Vec::new());
            return Ok(Self { path, format: Format::Vmdk, below, device, holders });
        }
        Self::over(path, file, access, &open_file)
    }

    /// As [`Self::open`], for a process that cannot open files: `opener` opens this one, and those below it.
    ///
    /// # Errors
    /// As [`Self::open`]; those of `opener`; `Refused` for VMDK, which is opened by its name.
    pub fn open_by(path: &Path, access: Access, opener: Opener<'_>) -> Result<Self, DiskError> {
        Self::over(path, opener(path, access)?, access, opener)
    }

    fn over(path: &Path, file: FileDevice, access: Access, opener: Opener<'_>) -> Result<Self, DiskError> {
        let (first, last) = ends(&file);
        let path: PathBuf = path.into();
        if first.starts_with(MAGIC) {
            let device = Qcow2Device::open(&path, file, access, opener)?;
            let below = device.chain().skip(1).map(Path::to_path_buf).collect();
            return Ok(Self { path, format: Format::Qcow2, below, device: Arc::new(device), holders: Vec::new() });
        }
        if first.starts_with(vmdk::SIGNATURE) {
            let what = "a VMDK image, which a process that sees no files cannot open".into();
            return Err(DiskError::Refused { what, advice: attach(&path, "vmdk"), path });
        }
        if let Some((what, format)) = refused_format(&first, &last) {
            return Err(DiskError::Refused { what: what.into(), advice: attach(&path, format), path });
        }
        let holders = file.holders().to_vec();
        Ok(Self { path, format: Format::Raw, below: Vec::new(), device: Arc::new(file), holders })
    }
}
