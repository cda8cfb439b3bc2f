//! What a file is made of: a disk as it is, or a virtual disk in a format of its own.
//!
//! ```text
//! raw, block device   the device itself
//! qcow2               read and written, see `qcow2`
//! vmdk                a descriptor with flat extents: read; other kinds are refused
//! metadump            the metadata of an XFS filesystem: read
//! vdi, vhdx, vhd, qed, parallels, qcow (1), sparse vmdk   refused, with the command that makes a block device of it
//! ```

use crate::error::{DiskError, attach};
use crate::metadump::MetadumpDevice;
use crate::qcow2::Qcow2Device;
use crate::signature::{Opener, Signature, ends, refused_format};
use crate::vmdk::{self, VmdkDevice};
use imago::file::File as ImagoFile;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xfskit_device::{Access, BlockDevice, FileDevice, Holder};

/// The format of a file that contains a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The bytes of the disk, one after the other.
    Raw,
    /// QEMU's format.
    Qcow2,
    /// VMware's format: a descriptor with flat extents.
    Vmdk,
    /// What xfs_metadump writes: the metadata of a filesystem.
    Metadump,
    /// A format that another program reads, by QEMU's name for it.
    Served(&'static str),
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Vmdk => "vmdk",
            Self::Metadump => "metadump (no contents of files)",
            Self::Served(format) => return write!(f, "{format} (read by qemu-nbd)"),
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

impl Container {
    /// A disk that is not a file of this host, such as the export of a server: its bytes are those of the disk.
    ///
    /// # Errors
    /// `Refused` for an export that is itself a virtual disk in a format of its own.
    pub fn of_device(path: &Path, device: Arc<dyn BlockDevice>) -> Result<Self, DiskError> {
        let (first, last) = ends(&*device);
        let inner = match (refused_format(&first, &last), Signature::of(&first)) {
            (None, Signature::Qcow2) => Some(("a qcow2 image", "qcow2")),
            (None, Signature::Vmdk) => Some(("a VMDK image", "vmdk")),
            (found, _) => found,
        };
        let path: PathBuf = path.into();
        if let Some((what, format)) = inner {
            let advice = format!("let the server open it by its format: qemu-nbd -f {format}");
            return Err(DiskError::Refused { what: format!("the export holds {what}"), advice, path });
        }
        Ok(Self { path, format: Format::Raw, below: Vec::new(), device, holders: Vec::new() })
    }

    /// The disk in an open file. Those below a virtual disk are opened by `opener`; a descriptor of vmdk is read
    /// through `named`.
    pub(crate) fn of_file(
        path: &Path,
        file: FileDevice,
        named: Option<ImagoFile>,
        access: Access,
        opener: Opener<'_>,
    ) -> Result<Self, DiskError> {
        let (first, last) = ends(&file);
        let of = |format, below: Vec<PathBuf>, device: Arc<dyn BlockDevice>, holders| {
            Ok(Self { path: path.into(), format, below, device, holders })
        };
        match Signature::of(&first) {
            Signature::Qcow2 => {
                let device = Qcow2Device::open(path, file, access, opener)?;
                let below = device.chain().skip(1).map(Path::to_path_buf).collect();
                return of(Format::Qcow2, below, Arc::new(device), Vec::new());
            }
            Signature::Vmdk => {
                let Some(named) = named else {
                    return Err(vmdk::refused(path, "a VMDK image, which is opened by its name".into()));
                };
                let device = VmdkDevice::open(path, file, named, access, opener)?;
                let below = device.extents().map(Path::to_path_buf).collect();
                return of(Format::Vmdk, below, Arc::new(device), Vec::new());
            }
            Signature::Metadump => {
                let device = Arc::new(MetadumpDevice::open(path, file, access)?);
                return of(Format::Metadump, Vec::new(), device, Vec::new());
            }
            Signature::Other => {}
        }
        if let Some((what, format)) = refused_format(&first, &last) {
            return Err(DiskError::Refused { what: what.into(), advice: attach(path, format), path: path.into() });
        }
        let holders = file.holders().to_vec();
        of(Format::Raw, Vec::new(), Arc::new(file), holders)
    }
}
